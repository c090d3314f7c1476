//! `chooseRemovals`: which groups go when there are more than there should be.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

use super::Surroundings;
use super::pass::Pass;
use crate::database::Database;

impl<S: Surroundings> Pass<'_, S> {
    pub(super) async fn choose_removals(&mut self) -> Result<()> {
        let counts = self.cluster.counts();
        let mut there: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for group in self.cluster.status.process_groups.iter().filter(|group| !group.is_marked()) {
            there.entry(group.process_class.clone()).or_default().push(group.id.clone());
        }
        let wanted = |class: &str| counts.get(class).copied().unwrap_or(0);
        there.retain(|class, groups| groups.len() > wanted(class));
        if there.is_empty() {
            return Ok(());
        }
        let database = self.database()?;
        let (time, _) = self.now();
        for (class, groups) in there {
            let keep = distributed(&groups, wanted(&class), &database)?;
            for group in &mut self.cluster.status.process_groups {
                if groups.contains(&group.id) && !keep.contains(&group.id) {
                    group.removal_timestamp = Some(time.clone());
                }
            }
        }
        self.write_status().await
    }
}

/// Chooses so many groups to keep, spread over the zones. Only those whose process is in the live status come into
/// question: a group that has just been recovered does not.
fn distributed(groups: &[String], wanted: usize, database: &Database) -> Result<BTreeSet<String>> {
    let mut zones: BTreeMap<&str, Vec<&String>> = BTreeMap::new();
    for group in groups {
        if let Some(process) = database.processes.get(group) {
            zones.entry(&process.zone).or_default().push(group);
        }
    }
    let mut keep = BTreeSet::new();
    while keep.len() < wanted {
        let before = keep.len();
        for zone in zones.values_mut() {
            if keep.len() < wanted {
                keep.extend(zone.pop().cloned());
            }
        }
        if keep.len() == before {
            bail!("could only select {} processes, but {wanted} are required", keep.len());
        }
    }
    Ok(keep)
}
