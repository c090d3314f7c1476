//! The audit stamp of a `ClusterDeployment`, the claim of a rollout, and the end of a scheduled wake.

use super::cluster::Cluster;
use crate::admission::{self, Change, Edits};
use crate::annotation::{format, keys};

/// Stamps as [`admission::stamp::stamp`] does, puts back the claim of a rollout that somebody edits in a change of
/// state, and drops a scheduled wake that would undo a later sleep.
///
/// What our controller starts for a rollout keeps the stamp and the reason that it writes: those of the person who
/// asked for the rollout.
///
/// `""`, absent and `Running` are one state, so that a tool which writes out the default does not claim to have woken
/// the cluster.
pub fn stamp(change: &Change<'_, Cluster>) -> Edits {
    let edits = match change.started_for() {
        Some(person) => admission::stamp::stamp_holder(change, person),
        None => admission::stamp::stamp(change),
    };
    drop_passed_wake(change, put_claim_back(change, edits))
}

/// A wake could not be denied for a forged claim. A new object may bring one along: V10 warns of it.
fn put_claim_back(change: &Change<'_, Cluster>, edits: Edits) -> Edits {
    if change.creates() || !change.changes_state() || change.is_by_controller() {
        return edits;
    }
    let before = change.old_annotation(keys::ROLLOUT).map(str::to_owned);
    edits.want(keys::ROLLOUT, change.new_annotation(keys::ROLLOUT), before)
}

/// Every wake removes a scheduled wake, and so does a write that brings or keeps one that has passed when the cluster
/// goes to sleep.
fn drop_passed_wake(change: &Change<'_, Cluster>, edits: Edits) -> Edits {
    let Some(found) = change.new_annotation(keys::WAKE_AT) else { return edits };
    let passed = format::time(found).is_some_and(|at| at <= change.now);
    let brought = change.alters_annotation(keys::WAKE_AT);
    if !change.wakes() && !(passed && (change.goes_to_sleep() || brought)) {
        return edits;
    }
    let edits = edits.want(keys::WAKE_AT, Some(found), None);
    if passed && brought { edits.warn(format!("{} {found} has passed: it is dropped", keys::WAKE_AT)) } else { edits }
}
