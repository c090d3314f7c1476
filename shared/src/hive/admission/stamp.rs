//! The audit stamp: who asked for the present state, and when. Written from the request, never from what the client says.

use super::cluster::Cluster;
use crate::admission::{Change, Edits, format};
use crate::keys;

/// Stamps a change of state; every other change is left as it is (row V10 judges it).
///
/// A wake, a sleep and the creation of a sleeping object are stamped; forged stamps are overwritten. `""`, absent and
/// `Running` are one state, so that a tool which writes out the default does not claim to have woken the cluster.
///
/// The reason belongs to the state that it was given for. One that this request adds or alters is kept. One that is the
/// same as before was left behind by the last change and is dropped, unless the field manager is the plugin: it sends a
/// reason or its removal with every change, so the same text again is a reason given again. The objects alone cannot tell
/// the two apart for other clients; they lose a reason that they repeat word by word.
#[must_use]
pub fn stamp(change: &Change<'_, Cluster>) -> Edits {
    let edits = Edits::default();
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
