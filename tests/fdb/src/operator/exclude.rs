//! `excludeProcesses`.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use super::Surroundings;
use super::api::Group;
use super::coordinate::EXCLUSION;
use super::pass::{Pass, Step, Wait};
use crate::database::Database;

impl<S: Surroundings> Pass<'_, S> {
    /// Refuses to trust a database that is not up, or has not been for long: the 120 s rule.
    pub(super) fn can_exclude(&self, database: &Database) -> Result<()> {
        if !database.settings.available {
            bail!("cluster is unavailable, cannot exclude processes");
        }
        let age = self.seconds() - database.recovered_at;
        if age < S::EXCLUSION_RECOVERY {
            bail!("last recovery was {age:.2} seconds ago, wait until the last recovery is 120 seconds ago");
        }
        Ok(())
    }

    /// Excludes marked groups whose process reports, once their replacements report. One that does not report is left
    /// to the removal. In global mode it excludes whatever is ready, once everything is. In wrong mode nothing is
    /// excluded.
    pub(super) fn exclude_processes(&self) -> Step {
        let database = self.database()?;
        let is_open = |group: &&Group| {
            let reports = database.processes.contains_key(&group.id);
            group.is_marked() && !group.is_excluded() && reports && !database.is_excluded(&group.id)
        };
        let groups = &self.cluster.status.process_groups;
        let open: Vec<&Group> = groups.iter().filter(is_open).collect();
        if open.is_empty() || self.settings.wrong {
            return Ok(None);
        }
        let counts = self.cluster.counts();
        for class in open.iter().map(|group| group.process_class.as_str()).collect::<BTreeSet<_>>() {
            let unmarked = groups.iter().filter(|group| group.process_class == class && !group.is_marked());
            let up = unmarked.filter(|group| database.processes.contains_key(&group.id)).count();
            if up < counts.get(class).copied().unwrap_or(0) {
                return Ok(Some(Wait::new(format!("waiting for missing processes of class {class}"), 15.0)));
            }
        }
        if !database.settings.available {
            return Ok(Some(Wait::new("cluster is unavailable, cannot exclude processes", 15.0)));
        }
        self.can_exclude(&database)?;
        let mut ready: BTreeSet<String> = open.iter().map(|group| group.id.clone()).collect();
        if self.cluster.is_global() {
            self.put_on(&[EXCLUSION.pending, EXCLUSION.ready], &open, &database)?;
            match self.agreed(&EXCLUSION)? {
                Ok(all) => ready = all,
                Err(text) => return Ok(Some(Wait::new(text, 15.0))),
            }
        }
        let all = groups.iter().filter(|group| ready.contains(&group.id));
        let targets: Vec<String> = all.flat_map(|group| self.cluster.exclusion_targets(group)).collect();
        self.order("exclude", &targets, Database::exclude)?;
        Ok(None)
    }
}
