//! Protection from sleep, for every kind whose objects can be protected.

use super::{Change, Fault, Object, Verdict};
use crate::annotation::hold::protected;
use crate::annotation::keys;

/// What is said of a change that puts a cluster to sleep. The object as it was counts, too: a file that is older than the protection must
/// not remove it and put the cluster to sleep.
pub fn judge<K: Object>(change: &Change<'_, K>) -> Verdict {
    let (old, new) = (change.old_annotation(keys::PROTECTED), change.new_annotation(keys::PROTECTED));
    let message = match (protected(old), protected(new)) {
        (_, true) => "the cluster is protected from sleep: remove the annotation first",
        (true, false) => "the cluster is protected from sleep: remove the annotation in a separate write first",
        (false, false) => return Verdict::Allow,
    };
    Verdict::deny(Fault::Forbidden, format!("metadata.annotations[{}]", keys::PROTECTED), message)
}
