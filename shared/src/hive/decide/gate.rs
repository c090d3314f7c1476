//! Rows 9 and 12a of docs/reference/hive.md: the conditions for a transition to begin; and ours, for any act on
//! machines: that they are this cluster's.

use std::time::Duration;

use kube::ResourceExt;

use super::facts::{Facts, SyncSetState};
use super::plan::{Notice, Plan};
use crate::hive::conditions::PowerStatus;
use crate::hive::identity::{IDENTITY_TAKEN, Identity};
use crate::power::Power;
use crate::text::sanitize_to;

/// Row 12a: how long after its installation a cluster waits for its `SyncSet`s before it may sleep.
const SYNC_SETS_TIMEOUT: Duration = Duration::from_mins(10);

/// Row 9: how long a transition waits for a missing `ClusterSync`. Hive waits forever. After a while of failed lists,
/// every `ClusterSync` counts as missing.
const CLUSTER_SYNC_TIMEOUT: Duration = Duration::from_mins(1);

/// Row 9: a plan that waits, if no transition may begin yet.
pub(super) fn gate(facts: &Facts<'_>) -> Option<Plan> {
    let since = match facts.sync {
        SyncSetState::NotListed => return Some(Plan::default().requeued(Duration::from_secs(1))),
        SyncSetState::Missing(since) => since,
        SyncSetState::NoSuchKind | SyncSetState::NotApplied | SyncSetState::Applied => return None,
    };
    let missed = CLUSTER_SYNC_TIMEOUT.checked_sub(facts.age(since)).unwrap_or_default();
    let left = missed.max(grace(facts));
    let message = "the ClusterSync is missing or cannot be listed: cannot tell whether the SyncSets were applied";
    let waiting = PowerStatus::default().awaiting("ClusterSync", message);
    (!left.is_zero()).then(|| Plan::report(waiting).requeued(left.min(Duration::from_secs(10))))
}

/// This report, once a transition may begin.
pub(super) fn or_report(facts: &Facts<'_>, status: PowerStatus) -> Plan {
    gate(facts).unwrap_or_else(|| Plan::report(status))
}

/// Row 9, after the timeout: the Event that explains the delay. The transition continues.
pub(super) fn missing_cluster_sync(facts: &Facts<'_>) -> Option<Notice> {
    let name = facts.cluster.name_any();
    let message = format!("ClusterSync {name} does not exist or cannot be listed; continuing without it");
    matches!(facts.sync, SyncSetState::Missing(_)).then(|| Notice::warning("ClusterSyncMissing", message))
}

/// Row 12a: a plan that waits for the `SyncSet`s until the timeout.
pub(super) fn sync_sets(facts: &Facts<'_>) -> Option<Plan> {
    let left = grace(facts);
    let waits = matches!(facts.sync, SyncSetState::NotApplied) && !left.is_zero();
    waits.then(|| Plan::report(PowerStatus::sync_sets_not_applied()).by(left))
}

/// Longest identity in a message, in characters.
const MAX_IDENTITY: usize = 200;

/// Ours: a plan that leaves the machines to the older object that names them.
pub(super) fn identity_taken(facts: &Facts<'_>) -> Option<Plan> {
    let older = facts.identity_taken.as_ref()?;
    let identity = Identity::of(facts.cluster).map(|identity| sanitize_to(&identity.to_string(), MAX_IDENTITY));
    let message =
        format!("{older} names the same machines ({}): only the older one is acted on", identity.unwrap_or_default());
    let failure = format!("{IDENTITY_TAKEN}: {message}");
    let status = match facts.cluster.desired() {
        Power::Hibernating => PowerStatus::failed_to_stop(&failure),
        Power::Running => PowerStatus::failed_to_start(&failure),
    };
    Some(Plan::report(status.awaiting(IDENTITY_TAKEN, message)).requeued(facts.settings.steady))
}

fn grace(facts: &Facts<'_>) -> Duration {
    let installed = facts.cluster.installed_at();
    installed.and_then(|at| SYNC_SETS_TIMEOUT.checked_sub(facts.age(at))).unwrap_or_default()
}
