//! Global synchronisation mode: before it excludes or includes, an operator waits until all groups that are pending for
//! that are ready for it, its own and those of the other operators of the database, and then does it for all of them
//! (section 7 of docs/reference/fdb.md; where that is silent, the source of release 2.33: `internal/coordination`).
//!
//! A group is pending for inclusion from the moment when it is marked, and ready when nothing of it is left. So one
//! whose volume is held blocks every inclusion, without a timeout. Nor is a group ever taken off the lists that is in
//! the status and marked no longer: it blocks until it is removed once more, or its keys are cleared.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use super::Surroundings;
use super::api::Group;
use super::pass::Pass;
use crate::database::{Database, key};

/// The list of the marked groups.
const PENDING_FOR_REMOVAL: &str = "pendingForRemoval";

/// Something that operators do together.
pub(super) struct Together {
    /// The list of those that it will have to be done for.
    pub(super) pending: &'static str,
    /// The list of those that it can be done for.
    pub(super) ready: &'static str,
}

pub(super) const EXCLUSION: Together = Together { pending: "pendingForExclusion", ready: "readyForExclusion" };
pub(super) const INCLUSION: Together = Together { pending: "pendingForInclusion", ready: "readyForInclusion" };

const LISTS: [&str; 5] = [PENDING_FOR_REMOVAL, EXCLUSION.pending, EXCLUSION.ready, INCLUSION.pending, INCLUSION.ready];

/// For so many of the operator's seconds no list may have grown: `--global-synchronization-wait-duration`.
const WAIT: f64 = 30.0;

impl<S: Surroundings> Pass<'_, S> {
    /// The part of `updateStatus` that keeps the lists. After a change back to local mode they stay as they are.
    pub(super) fn coordinate(&self, database: &Database) -> Result<()> {
        if !self.cluster.is_global() {
            return Ok(());
        }
        if !database.settings.available {
            bail!("cluster is unavailable, cannot read the global coordination state");
        }
        let (groups, prefix) = (&self.cluster.status.process_groups, self.cluster.id_prefix());
        let (mut set, mut clear) = (Vec::new(), Vec::new());
        for group in groups.iter().filter(|group| group.is_marked()) {
            let id = group.id.as_str();
            let out = group.is_excluded() || database.processes.contains_key(id) && database.is_excluded(id);
            let wanted = [
                (PENDING_FOR_REMOVAL, Some(true)),
                (EXCLUSION.pending, Some(!out)),
                (EXCLUSION.ready, out.then_some(false)),
                (INCLUSION.pending, Some(true)),
                (INCLUSION.ready, (out && group.exclusion_skipped).then_some(true)),
            ];
            for (list, is) in wanted {
                let entry = key(list, prefix, id);
                match (is, database.keys.contains_key(&entry)) {
                    (Some(true), false) => set.push(entry),
                    (Some(false), true) => clear.push(entry),
                    _ => {}
                }
            }
        }
        let known: BTreeSet<&str> = groups.iter().map(|group| group.id.as_str()).collect();
        for list in LISTS {
            let dropped = database.list(list, prefix).into_keys().filter(|id| !known.contains(id.as_str()));
            clear.extend(dropped.map(|id| key(list, prefix, &id)));
        }
        self.write_lists(set, &clear)
    }

    /// Puts groups on lists. Who is on one already stays there since then.
    pub(super) fn put_on(&self, lists: &[&str], groups: &[&Group], database: &Database) -> Result<()> {
        let mut set = Vec::new();
        for list in lists {
            set.extend(groups.iter().map(|group| key(list, self.cluster.id_prefix(), &group.id)));
        }
        set.retain(|entry| !database.keys.contains_key(entry));
        self.write_lists(set, &[])
    }

    fn write_lists(&self, set: Vec<String>, clear: &[String]) -> Result<()> {
        let now = self.seconds();
        self.cx.with_database(|database| {
            database.keys.retain(|key, _| !clear.contains(key));
            database.keys.extend(set.into_iter().map(|key| (key, now)));
        })
    }

    /// All groups that are ready, if it is agreed to go ahead with them; or else what stands against it.
    pub(super) fn agreed(&self, what: &Together) -> Result<Result<BTreeSet<String>, String>> {
        let database = self.database()?;
        let (pending, ready) = (database.list(what.pending, ""), database.list(what.ready, ""));
        let of_pending = ready.iter().filter(|(id, _)| pending.contains_key(*id));
        let last = pending.iter().chain(of_pending).fold(0.0, |last, (_, at)| f64::max(last, *at));
        let quiet = (self.seconds() - last) * S::SPEED;
        if quiet < WAIT {
            return Ok(Err(format!("last pending process group was added: {quiet:.1}s ago")));
        }
        let open: Vec<&str> = pending.keys().map(String::as_str).filter(|id| !ready.contains_key(*id)).collect();
        if !open.is_empty() {
            return Ok(Err(format!("not all processes are ready: {}", open.join(","))));
        }
        // One that is ready, but not pending, stands in the way, too.
        if pending.len() != ready.len() {
            return Ok(Err("not all processes are ready: mismatch".to_owned()));
        }
        Ok(Ok(ready.into_keys().collect()))
    }
}
