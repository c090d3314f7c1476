//! The audit stamp: who asked for the present state, and when; who holds a cluster awake. Written from the request, never
//! from what the client says.

use super::cluster::Cluster;
use crate::admission::{Change, Edits};
use crate::annotation::{format, keys};

/// Stamps a change of state, and a hold that is set or altered; every other change is left as it is (row V10 judges it).
///
/// A wake, a sleep and the creation of a sleeping object are stamped; forged stamps are overwritten. `""`, absent and
/// `Running` are one state, so that a tool which writes out the default does not claim to have woken the cluster.
///
/// The reason belongs to the state that it was given for. One that this request adds or alters is kept. One that is the
/// same as before was left behind by the last change and is dropped, unless the field manager is the plugin: it sends a
/// reason or its removal with every change, so the same text again is a reason given again. The objects alone cannot tell
/// the two apart for other clients; they lose a reason that they repeat word by word.
///
/// A hold belongs to the user who set it: the holder's name changes with the hold's end, and with nothing else.
#[must_use]
pub fn stamp(change: &Change<'_, Cluster>) -> Edits {
    let edits = drop_passed_wake(change, stamp_holder(change, Edits::default()));
    if !change.changes_state() {
        return edits;
    }
    let now = |key| change.new_annotation(key);
    let reason = now(keys::REASON);
    let given = change.alters_annotation(keys::REASON) || change.field_manager == keys::PLUGIN;
    edits
        .want(keys::REQUESTED_BY, now(keys::REQUESTED_BY), Some(change.user.username.clone()))
        .want(keys::REQUESTED_AT, now(keys::REQUESTED_AT), Some(format::seconds(change.now)))
        .want(keys::REASON, reason, reason.filter(|_| given).map(str::to_owned))
}

/// Removes a scheduled wake that would undo a later sleep: every wake removes it, and so does a write that brings or keeps one that has
/// passed when the cluster goes to sleep.
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

/// Names the user who sets a hold; a hold that goes takes the name along. In a change of state a name that was edited by
/// itself is put back, because a wake could not be denied for it.
fn stamp_holder(change: &Change<'_, Cluster>, edits: Edits) -> Edits {
    let found = change.new_annotation(keys::HOLD_AWAKE_BY);
    if change.alters_annotation(keys::HOLD_AWAKE_UNTIL) {
        let held = change.new_annotation(keys::HOLD_AWAKE_UNTIL).is_some();
        return edits.want(keys::HOLD_AWAKE_BY, found, held.then(|| change.user.username.clone()));
    }
    if change.changes_state() {
        let before = change.old_annotation(keys::HOLD_AWAKE_BY).map(str::to_owned);
        return edits.want(keys::HOLD_AWAKE_BY, found, before);
    }
    edits
}
