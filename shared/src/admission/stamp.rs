//! The audit stamp: who asked for the present state, and when; who holds a cluster awake. Written from the request,
//! never from what the client says.

use super::{Change, Edits, Fault, Object, Target, Verdict, annotation_field};
use crate::annotation::{format, keys};

/// Annotations that only the webhook and the controller change. The webhook restores one that another client drops.
pub const STAMPS: &[&str] = &[keys::REQUESTED_BY, keys::REQUESTED_AT, keys::HOLD_AWAKE_BY, keys::ROLLOUT];

/// Stamps a change of state, and a hold that is set or altered. In every other change a stamp that is missing is put
/// back: a client that replaces the object by a file of its own drops all that the file does not have. Another value is
/// left as it is ([`not_forged`] judges it).
///
/// A wake, a sleep and the creation of a sleeping object are stamped; forged stamps are overwritten.
///
/// The reason belongs to the state that it was given for. One that this request adds or alters is kept. One that is the
/// same as before was left behind by the last change and is dropped, unless the field manager is the plugin: it sends a
/// reason or its removal with every change, so the same text again is a reason given again. The objects alone cannot
/// tell the two apart for other clients; they lose a reason that they repeat word by word.
///
/// What our controller starts for a rollout keeps the stamp and the reason that it writes: those of the person who
/// asked for the rollout.
pub fn stamp<K: Target>(change: &Change<'_, K>) -> Edits {
    if let Some(person) = change.started_for() {
        return stamp_holder(change, person);
    }
    let edits = put_claim_back(change, stamp_holder(change, &change.user.username));
    if !change.changes_state() {
        return put_back(change, edits);
    }
    let reason = change.new_annotation(keys::REASON);
    let given = change.alters_annotation(keys::REASON) || change.field_manager == keys::PLUGIN;
    signed(change, edits).want(keys::REASON, reason, reason.filter(|_| given).map(str::to_owned))
}

/// Names the user who asks, and the time.
fn signed<K: Object>(change: &Change<'_, K>, edits: Edits) -> Edits {
    let found = |key| change.new_annotation(key);
    edits.want(keys::REQUESTED_BY, found(keys::REQUESTED_BY), Some(change.user.username.clone())).want(
        keys::REQUESTED_AT,
        found(keys::REQUESTED_AT),
        Some(format::seconds(change.now)),
    )
}

/// Stamps that are missing and were there before. The name of a holder goes with the hold, and the controller removes
/// claims.
fn put_back<K: Target>(change: &Change<'_, K>, edits: Edits) -> Edits {
    let is_kept = |key: &str| match key {
        keys::HOLD_AWAKE_BY => !change.alters_annotation(keys::HOLD_AWAKE_UNTIL),
        keys::ROLLOUT => !change.is_by_controller(),
        _ => true,
    };
    restore(change, STAMPS.iter().copied().filter(|key| is_kept(key)), edits)
}

/// Puts back those of these annotations that are missing and were there before.
pub fn restore<K: Object>(change: &Change<'_, K>, keys: impl IntoIterator<Item = &'static str>, edits: Edits) -> Edits {
    let dropped = keys.into_iter().filter(|key| change.new_annotation(key).is_none());
    dropped.fold(edits, |edits, key| edits.want(key, None, change.old_annotation(key).map(str::to_owned)))
}

/// A claim of a rollout that is edited in a change of state is put back: a wake could not be denied for it. A new object
/// may bring one along, and [`claim_not_forged`] warns of it.
fn put_claim_back<K: Target>(change: &Change<'_, K>, edits: Edits) -> Edits {
    if change.creates() || !change.changes_state() || change.is_by_controller() {
        return edits;
    }
    let before = change.old_annotation(keys::ROLLOUT).map(str::to_owned);
    edits.want(keys::ROLLOUT, change.new_annotation(keys::ROLLOUT), before)
}

/// The stamp of an object that lets others change, such as a rollout: who wrote it, and when.
pub const AUTHOR: [&str; 2] = [keys::REQUESTED_BY, keys::REQUESTED_AT];

/// Stamps a write that lets others change; forged stamps are overwritten. In every other write a stamp that is missing is
/// put back, and a policy judges whether it is another.
pub fn stamp_author<K: Object>(change: &Change<'_, K>, starts: bool) -> Edits {
    if starts { signed(change, Edits::default()) } else { restore(change, AUTHOR, Edits::default()) }
}

/// Denies a write without the stamp of its user.
pub fn own_stamp<K: Object>(change: &Change<'_, K>) -> Verdict {
    let is_undated = change.new_annotation(keys::REQUESTED_AT).is_none();
    let undated = || is_undated.then(|| without_stamp(change, keys::REQUESTED_AT, "the time of the request"));
    without_name(change).or_else(undated).unwrap_or(Verdict::Allow)
}

/// The denial of a write whose stamp does not name its user.
fn without_name<K: Object>(change: &Change<'_, K>) -> Option<Verdict> {
    let user = change.user.username.as_str();
    let is_own = change.new_annotation(keys::REQUESTED_BY) == Some(user);
    (!is_own).then(|| without_stamp(change, keys::REQUESTED_BY, &format!("{user:?}, who asks")))
}

fn without_stamp<K: Object>(change: &Change<'_, K>, key: &str, right: &str) -> Verdict {
    let found = change.new_annotation(key).map_or_else(|| "none".to_owned(), |found| format!("{found:?}"));
    let message = format!(
        "found {found}, must be {right}: the audit stamp is missing because the mutating webhook did not run; try again"
    );
    Verdict::deny(Fault::Forbidden, annotation_field(key), message)
}

/// Names `holder`, who sets a hold; a hold that goes takes the name along. In a change of state a name that was edited
/// by itself is put back, because a wake could not be denied for it.
pub fn stamp_holder<K: Target>(change: &Change<'_, K>, holder: &str) -> Edits {
    let (edits, found) = (Edits::default(), change.new_annotation(keys::HOLD_AWAKE_BY));
    if change.alters_annotation(keys::HOLD_AWAKE_UNTIL) {
        let held = change.new_annotation(keys::HOLD_AWAKE_UNTIL).is_some();
        return edits.want(keys::HOLD_AWAKE_BY, found, held.then(|| holder.to_owned()));
    }
    if change.changes_state() {
        let before = change.old_annotation(keys::HOLD_AWAKE_BY).map(str::to_owned);
        return edits.want(keys::HOLD_AWAKE_BY, found, before);
    }
    edits
}

/// Denies an edit of a stamp by hand. A new object may be a restored one, whose stamps are true; one that is put to
/// sleep at once is stamped anew.
pub fn not_forged<K: Target>(change: &Change<'_, K>, key: &str) -> Verdict {
    if change.changes_state() || !change.alters_annotation(key) {
        return Verdict::Allow;
    }
    if change.creates() {
        return Verdict::warn(format!("{key} was set at creation and is not verified"));
    }
    let message = format!("cannot be edited: the webhook sets it from the request that changes {}", K::INTENT);
    Verdict::deny(Fault::Forbidden, annotation_field(key), message)
}

/// Denies an edit of a holder's name. The user who sets a hold is its holder; the name cannot change afterwards.
pub fn holder_not_forged<K: Target>(change: &Change<'_, K>) -> Verdict {
    if !change.alters_annotation(keys::HOLD_AWAKE_BY) || change.alters_annotation(keys::HOLD_AWAKE_UNTIL) {
        return Verdict::Allow;
    }
    if change.creates() {
        return Verdict::warn(format!("{} was set at creation without a hold", keys::HOLD_AWAKE_BY));
    }
    let setter = keys::HOLD_AWAKE_UNTIL;
    let message = format!("cannot be edited: the webhook sets it from the request that sets {setter}");
    Verdict::deny(Fault::Forbidden, annotation_field(keys::HOLD_AWAKE_BY), message)
}

/// Denies an edit of the claim of a rollout by anybody but our controller. A new object may be a restored one, with a
/// record of what a rollout has done.
pub fn claim_not_forged<K: Target>(change: &Change<'_, K>) -> Verdict {
    if !change.alters_annotation(keys::ROLLOUT) || change.is_by_controller() {
        return Verdict::Allow;
    }
    if change.creates() {
        return Verdict::warn(format!("{} was set at creation and is not verified", keys::ROLLOUT));
    }
    let message =
        "cannot be edited: only the controller writes it, when a rollout starts the cluster and when it is done";
    Verdict::deny(Fault::Forbidden, annotation_field(keys::ROLLOUT), message)
}

/// Denies a sleep without a stamp. What our controller starts for a rollout names the person who asked for the rollout.
pub fn stamped<K: Target>(change: &Change<'_, K>) -> Verdict {
    let is_asked = change.goes_to_sleep() && change.started_for().is_none();
    is_asked.then(|| without_name(change)).flatten().unwrap_or(Verdict::Allow)
}
