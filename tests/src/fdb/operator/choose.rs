//! `chooseRemovals`: which groups go when there are more than there should be.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::bail;

use super::pass::{Pass, Point, Step};
use super::status::{done, now};
use crate::fdb::database::Database;

impl Pass<'_> {
    pub(super) async fn choose_removals(&mut self) -> Step {
        let counts = self.cluster.counts();
        let mut there: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for group in self.cluster.status.process_groups.iter().filter(|group| !group.is_marked()) {
            there.entry(group.process_class.clone()).or_default().push(group.id.clone());
        }
        let wanted = |class: &str| counts.get(class).copied().unwrap_or(0);
        there.retain(|class, groups| groups.len() > wanted(class));
        if there.is_empty() {
            return Ok(None);
        }
        self.cx.at(Point::Choose).await?;
        let database = self.cx.database().await?;
        let (time, _) = now();
        for (class, groups) in there {
            let keep = distributed(&groups, wanted(&class), &database)?;
            for group in &mut self.cluster.status.process_groups {
                if groups.contains(&group.id) && !keep.contains(&group.id) {
                    group.removal_timestamp = Some(time.clone());
                }
            }
        }
        done(self.write_status().await)
    }
}

/// Chooses so many groups to keep, spread over the zones. Only those whose process is in the live status come into
/// question: a group that has just been recovered does not.
fn distributed(groups: &[String], wanted: usize, database: &Database) -> anyhow::Result<BTreeSet<String>> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fdb::database::Process;
    use crate::fdb::options::Settings;

    #[test]
    fn only_who_reports_is_kept_and_zones_are_spread() {
        let mut database = Database::new(Settings::fast());
        for (group, zone) in [("storage-1", "a"), ("storage-2", "a"), ("storage-3", "b"), ("storage-5", "c")] {
            let (zone, address) = (zone.to_owned(), String::new());
            let process = Process { class: "storage".to_owned(), address, zone, pod: group.to_owned(), volume: None };
            database.report(group, process);
        }
        let groups: Vec<String> = (1..=5).map(|number| format!("storage-{number}")).collect();
        let keep = distributed(&groups, 3, &database).unwrap();
        assert!(keep.contains("storage-3") && keep.contains("storage-5"), "{keep:?}");
        assert!(!distributed(&groups, 4, &database).unwrap().contains("storage-4"));
        assert!(distributed(&groups, 5, &database).is_err());
    }
}
