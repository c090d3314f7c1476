//! The audit stamp of a `ClusterDeployment`, and the end of a scheduled wake.

use super::cluster::Cluster;
use crate::admission::{self, Change, Edits};
use crate::annotation::{format, keys};

/// Stamps as [`admission::stamp::stamp`] does, and drops a scheduled wake that would undo a later sleep.
///
/// `""`, absent and `Running` are one state, so that a tool which writes out the default does not claim to have woken
/// the cluster.
pub fn stamp(change: &Change<'_, Cluster>) -> Edits {
    drop_passed_wake(change, admission::stamp::stamp(change))
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
