//! Rows 9 and 12a: what must be true before a transition begins.

use std::time::Duration;

use kube::ResourceExt;

use super::facts::{Facts, Sync};
use super::plan::{Notice, Plan};
use crate::hive::conditions::PowerStatus;

/// Row 12a: for this long after its installation a cluster may not sleep before its `SyncSet`s have been applied once.
const SYNC_SETS: Duration = Duration::from_mins(10);

/// Row 9: how long a transition waits for a `ClusterSync` that does not exist. Hive waits for ever. One is missing, too, once
/// the controller has tried for a while to list any.
const CLUSTER_SYNC: Duration = Duration::from_mins(1);

/// Row 9: why no transition may begin yet, as a plan that waits.
pub(super) fn gate(facts: &Facts<'_>) -> Option<Plan> {
    let since = match facts.sync {
        Sync::NotListed => return Some(Plan::default().again(Duration::from_secs(1))),
        Sync::Missing { since } => since,
        Sync::NoSuchKind | Sync::NotApplied | Sync::Applied => return None,
    };
    let missed = CLUSTER_SYNC.checked_sub(facts.age(since)).unwrap_or_default();
    let left = missed.max(grace(facts));
    let message =
        "its ClusterSync is missing or cannot be listed, so it is not known whether its SyncSets have been applied";
    let waiting = PowerStatus::default().awaiting("ClusterSync", message);
    (!left.is_zero()).then(|| Plan::report(waiting).again(left.min(Duration::from_secs(10))))
}

/// Row 9, after the wait: the transition goes on, and somebody should know why it took longer.
pub(super) fn missing_cluster_sync(facts: &Facts<'_>) -> Option<Notice> {
    let name = facts.cluster.name_any();
    let message = format!("ClusterSync {name} does not exist or cannot be listed; going on without it");
    matches!(facts.sync, Sync::Missing { .. }).then(|| Notice::warning("ClusterSyncMissing", message))
}

/// Row 12a: what is left of the grace during which `SyncSet`s have to be applied before a sleep.
pub(super) fn sync_sets(facts: &Facts<'_>) -> Option<Plan> {
    let left = grace(facts);
    let waits = matches!(facts.sync, Sync::NotApplied) && !left.is_zero();
    waits.then(|| Plan::report(PowerStatus::sync_sets_not_applied()).by(left))
}

fn grace(facts: &Facts<'_>) -> Duration {
    let installed = facts.cluster.installed_at();
    installed.and_then(|at| SYNC_SETS.checked_sub(facts.age(at))).unwrap_or_default()
}
