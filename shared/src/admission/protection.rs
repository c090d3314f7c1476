//! Protection from sleep and holds awake, for every kind that can sleep.
//!
//! The object as it was counts, too: a file that is older than the protection or the hold must not remove it and put
//! the cluster to sleep.

use super::{Change, Fault, Target, Verdict, annotation_field};
use crate::annotation::{Hold, NAMELESS, format, hold, keys, protected};

/// Denies the sleep of a cluster that is being deleted.
pub fn not_being_deleted<K: Target>(change: &Change<'_, K>) -> Verdict {
    let message = "the cluster is being deleted and cannot be put to sleep";
    Verdict::deny(Fault::Forbidden, "metadata.deletionTimestamp", message)
        .when(change.goes_to_sleep() && change.new.meta().deletion_timestamp.is_some())
}

/// Denies the sleep of a protected cluster.
pub fn not_protected<K: Target>(change: &Change<'_, K>) -> Verdict {
    if !change.goes_to_sleep() {
        return Verdict::Allow;
    }
    let (old, new) = (change.old_annotation(keys::PROTECTED), change.new_annotation(keys::PROTECTED));
    let message = match (protected(old), protected(new)) {
        (_, true) => "the cluster is protected from sleep: remove the annotation first",
        (true, false) => "the cluster is protected from sleep: remove the annotation in a separate write first",
        (false, false) => return Verdict::Allow,
    };
    Verdict::deny(Fault::Forbidden, annotation_field(keys::PROTECTED), message)
}

/// Denies the sleep of a cluster that is held awake. A malformed hold that this very request brings is denied for its
/// form ([`super::form::time`]).
pub fn not_held_awake<K: Target>(change: &Change<'_, K>) -> Verdict {
    if !change.goes_to_sleep() {
        return Verdict::Allow;
    }
    let altered = change.alters_annotation(keys::HOLD_AWAKE_UNTIL);
    let (old, new) =
        (hold(|key| change.old_annotation(key), change.now), hold(|key| change.new_annotation(key), change.now));
    let (held, way_out) = match (old, new) {
        (_, Hold::Until { .. }) => (new, "wait, or remove the annotation"),
        (_, Hold::Malformed { .. }) if !altered => (new, "correct or remove it"),
        (Hold::Until { .. } | Hold::Malformed { .. }, _) if altered => {
            (old, "remove the annotation in a separate write first")
        }
        _ => return Verdict::Allow,
    };
    let message = match held {
        Hold::None => return Verdict::Allow,
        Hold::Malformed { text, .. } => format!("found {text:?}, which is not a time: the hold has no end; {way_out}"),
        Hold::Until { until, by } => {
            let (until, by) = (format::seconds(until), by.unwrap_or(NAMELESS));
            format!("held awake until {until} by {by}: {way_out}")
        }
    };
    Verdict::deny(Fault::Forbidden, annotation_field(keys::HOLD_AWAKE_UNTIL), message)
}
