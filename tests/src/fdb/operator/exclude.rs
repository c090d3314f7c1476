//! `excludeProcesses` and `changeCoordinators`.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

use super::api::{Group, is_stateful};
use super::coordinate::{EXCLUSION, PENDING_FOR_REMOVAL};
use super::pass::{Pass, Point, Step, Wait};
use crate::fdb::database::Database;
use crate::fdb::server::Question;

/// How many coordinators a database of redundancy double has.
const COORDINATORS: usize = 3;

/// Refuses to trust a database that is not up, or has not been for long: the 120 s rule.
pub(super) fn can_exclude(database: &Database, now: f64) -> Result<()> {
    if !database.settings.available {
        bail!("cluster is unavailable, cannot exclude processes");
    }
    let (age, least) = (database.recovery_age(now), database.settings.exclusion_recovery.as_secs_f64());
    if age < least {
        bail!("last recovery was {age:.2} seconds ago, wait until the last recovery is {least:.0} seconds ago");
    }
    Ok(())
}

impl Pass<'_> {
    /// Excludes marked groups whose process reports, once their replacements report. One that does not report is left
    /// to the removal. In global mode it excludes whatever is ready, once everything is. In wrong mode nothing is
    /// excluded.
    pub(super) async fn exclude_processes(&mut self) -> Step {
        let database = self.cx.database().await?;
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
                return Ok(Some(Wait::delayed(format!("waiting for missing processes of class {class}"), 15.0)));
            }
        }
        if !database.settings.available {
            return Ok(Some(Wait::delayed("cluster is unavailable, cannot exclude processes", 15.0)));
        }
        can_exclude(&database, Self::now())?;
        let mut ready: BTreeSet<String> = open.iter().map(|group| group.id.clone()).collect();
        if self.cluster.is_global() {
            self.put_on(&[EXCLUSION.pending, EXCLUSION.ready], &open, &database).await?;
            match self.agreed(&EXCLUSION).await? {
                Ok(all) => ready = all,
                Err(text) => return Ok(Some(Wait::delayed(text, 15.0))),
            }
        }
        self.cx.at(Point::Exclude).await?;
        let all = groups.iter().filter(|group| ready.contains(&group.id));
        let targets = all.flat_map(|group| self.cluster.exclusion_targets(group)).collect();
        self.cx.ask(&Question::Exclude(targets)).await?;
        Ok(None)
    }

    /// Takes other coordinators if one does not report or is excluded.
    pub(super) async fn change_coordinators(&mut self) -> Step {
        let database = self.cx.database().await?;
        let groups = &self.cluster.status.process_groups;
        let global = self.cluster.is_global();
        let leaving = if global { database.list(PENDING_FOR_REMOVAL, "") } else { BTreeMap::new() };
        let is_fit = |group: &&Group| {
            let process = database.processes.contains_key(&group.id) && !database.is_excluded(&group.id);
            let leaves = group.is_marked() || leaving.contains_key(&group.id);
            is_stateful(&group.process_class) && !leaves && process
        };
        let mut fit: Vec<&Group> = groups.iter().filter(is_fit).collect();
        let stays = |group: &&Group| database.coordinators.contains(&group.id);
        let wanted = COORDINATORS.min(fit.len());
        let staying = fit.iter().filter(|group| stays(group)).count();
        if !database.settings.available || staying == wanted && database.coordinators.len() == wanted {
            return Ok(None);
        }
        let rank = |class: &str| ["coordinator", "log", "transaction", "storage"].iter().position(|c| *c == class);
        fit.sort_by_key(|group| (!stays(group), rank(&group.process_class), group.id.clone()));
        let chosen = fit.into_iter().take(wanted).map(|group| group.id.clone()).collect();
        self.cx.ask(&Question::Coordinators(chosen)).await?;
        Ok(None)
    }
}
