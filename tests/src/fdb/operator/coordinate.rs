//! Global synchronisation mode: before it excludes or includes, an operator waits until all groups that are pending for
//! that are ready for it, its own and those of the other operators of the database, and then does it for all of them
//! (section 7 of docs/reference/fdb.md; where that is silent, the source of release 2.33: `internal/coordination`).
//!
//! A group is pending for inclusion from the moment when it is marked, and ready when nothing of it is left. So one
//! whose volume is held blocks every inclusion, without a timeout. Nor is a group ever taken off the lists that is in
//! the status and marked no longer: it blocks until it is removed once more, or its keys are cleared.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

use super::api::{Group, RESOURCES_TERMINATING};
use super::pass::Pass;
use crate::fdb::database::{Database, key};
use crate::fdb::server::Question;

/// The list of the marked groups. Nobody on it becomes a coordinator.
pub(super) const PENDING_FOR_REMOVAL: &str = "pendingForRemoval";

/// Something that operators do together.
pub(super) struct Together {
    /// The list of those that it will have to be done for.
    pub(super) pending: &'static str,
    /// The list of those that it can be done for.
    pub(super) ready: &'static str,
    /// After so many of the operator's seconds without a change it is done for those that are ready, if ever.
    patience: Option<f64>,
}

pub(super) const EXCLUSION: Together =
    Together { pending: "pendingForExclusion", ready: "readyForExclusion", patience: Some(300.0) };
pub(super) const INCLUSION: Together =
    Together { pending: "pendingForInclusion", ready: "readyForInclusion", patience: None };

const LISTS: [&str; 5] = [PENDING_FOR_REMOVAL, EXCLUSION.pending, EXCLUSION.ready, INCLUSION.pending, INCLUSION.ready];

/// For so many of the operator's seconds no list may have grown: `--global-synchronization-wait-duration`.
const WAIT: f64 = 30.0;

impl Pass<'_> {
    /// The part of `updateStatus` that keeps the lists. After a change back to local mode they stay as they are.
    pub(super) async fn coordinate(&self, database: &Database) -> Result<()> {
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
            // Who was on its way out before the mode was global does not block.
            let late = group.since(RESOURCES_TERMINATING).is_some()
                && !database.keys.contains_key(&key(INCLUSION.pending, prefix, id));
            let wanted = [
                (PENDING_FOR_REMOVAL, Some(true)),
                (EXCLUSION.pending, Some(!out)),
                (EXCLUSION.ready, out.then_some(false)),
                (INCLUSION.pending, Some(true)),
                (INCLUSION.ready, (late || out && group.exclusion_skipped).then_some(true)),
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
        self.write_lists(set, clear).await
    }

    /// Puts groups on lists. Who is on one already stays there since then.
    pub(super) async fn put_on(&self, lists: &[&str], groups: &[&Group], database: &Database) -> Result<()> {
        let mut set = Vec::new();
        for list in lists {
            set.extend(groups.iter().map(|group| key(list, self.cluster.id_prefix(), &group.id)));
        }
        set.retain(|entry| !database.keys.contains_key(entry));
        self.write_lists(set, Vec::new()).await
    }

    async fn write_lists(&self, set: Vec<String>, clear: Vec<String>) -> Result<()> {
        if set.is_empty() && clear.is_empty() {
            return Ok(());
        }
        self.cx.ask(&Question::Keys { set, clear }).await.map(drop)
    }

    /// All groups that are ready, if it is agreed to go ahead with them; or else what stands against it.
    pub(super) async fn agreed(&self, what: &Together) -> Result<Result<BTreeSet<String>, String>> {
        let database = self.cx.database().await?;
        let (pending, ready) = (database.list(what.pending, ""), database.list(what.ready, ""));
        let age = |at: f64| (Self::now() - at) * self.settings.speed;
        Ok(match against(&pending, &ready, what.patience, age) {
            Some(text) => Err(text),
            None => Ok(ready.into_keys().collect()),
        })
    }
}

/// What stands against going ahead with those that are ready, if anything: `AllProcessesReady`, and with some patience
/// `AllProcessesReadyForExclusion`. `age` is that of an entry, in the operator's seconds.
fn against(
    pending: &BTreeMap<String, f64>,
    ready: &BTreeMap<String, f64>,
    patience: Option<f64>,
    age: impl Fn(f64) -> f64,
) -> Option<String> {
    let open: Vec<&str> = pending.keys().map(String::as_str).filter(|id| !ready.contains_key(*id)).collect();
    let of_pending = ready.iter().filter(|(id, _)| pending.contains_key(*id));
    let last = pending.iter().chain(of_pending).fold(0.0, |last, (_, at)| f64::max(last, *at));
    let quiet = age(last);
    if quiet < WAIT {
        return Some(format!(
            "last pending process group was added: {quiet:.1}s ago, wait time for pending additions is: {WAIT:.0}s"
        ));
    }
    if !open.is_empty() {
        let waits = patience.is_none_or(|patience| quiet < patience);
        return waits.then(|| format!("not all processes are ready: {}", open.join(",")));
    }
    let (pending, ready) = (pending.len(), ready.len());
    (pending != ready).then(|| {
        format!("not all processes are ready: mismatch in {pending} pending processes and {ready} ready processes")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(entries: &[(&str, f64)]) -> BTreeMap<String, f64> {
        entries.iter().map(|(id, at)| ((*id).to_owned(), *at)).collect()
    }

    #[test]
    fn everybody_is_waited_for_and_exclusions_only_for_a_while() {
        let (one, two) = (("storage-1", 900.0), ("storage-2", 600.0));
        let cases = [
            (vec![], vec![], None, None),
            (vec![one], vec![("storage-1", 960.0)], None, None),
            (vec![one], vec![("storage-1", 980.0)], None, Some("was added: 20.0s ago")),
            (vec![("storage-1", 971.0)], vec![], Some(300.0), Some("was added: 29.0s ago")),
            (vec![one, two], vec![one], None, Some("not all processes are ready: storage-2")),
            (vec![one, two], vec![one], Some(300.0), Some("not all processes are ready: storage-2")),
            (vec![two], vec![], None, Some("not all processes are ready: storage-2")),
            (vec![two], vec![], Some(300.0), None),
            // One that is ready, but not pending, stands in the way, too.
            (vec![one], vec![one, two], None, Some("mismatch in 1 pending processes and 2 ready processes")),
        ];
        for (pending, ready, patience, wanted) in cases {
            let found = against(&list(&pending), &list(&ready), patience, |at| 1_000.0 - at);
            match wanted {
                Some(part) => assert!(found.as_ref().is_some_and(|text| text.contains(part)), "{found:?}, not {part}"),
                None => assert_eq!(found, None, "{pending:?} {ready:?} {patience:?}"),
            }
        }
    }

    #[test]
    fn each_prefix_has_a_part_of_the_list() {
        let keys = [key(INCLUSION.pending, "", "storage-1"), key(INCLUSION.pending, "dc2", "dc2-storage-1")];
        let written = r"\xff\x02/org.foundationdb.kubernetes-operator/pendingForInclusion/dc2/dc2-storage-1";
        assert_eq!(keys[1], written);
        let database = Database { keys: keys.into_iter().map(|key| (key, 1.0)).collect(), ..Database::default() };
        let ids = |prefix: &str| database.list(INCLUSION.pending, prefix).into_keys().collect::<Vec<_>>();
        assert_eq!(ids("dc2"), ["dc2-storage-1"]);
        assert_eq!(ids(""), ["dc2-storage-1", "storage-1"]);
        assert!(database.list(INCLUSION.ready, "").is_empty());
    }
}
