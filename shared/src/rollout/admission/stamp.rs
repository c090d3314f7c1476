//! The audit stamp of a `PowerRollout`: who let targets start last, and when.

use super::Rollout;
use crate::admission::{Change, Edits};
use crate::annotation::{format, keys};

/// Stamps a write that lets targets start; forged stamps are overwritten. Every other write is left as it is: the
/// policy judges whether it alters the stamp.
pub fn stamp(change: &Change<'_, Rollout>) -> Edits {
    if !change.starts_targets() {
        return Edits::default();
    }
    let found = |key| change.new_annotation(key);
    Edits::default().want(keys::REQUESTED_BY, found(keys::REQUESTED_BY), Some(change.user.username.clone())).want(
        keys::REQUESTED_AT,
        found(keys::REQUESTED_AT),
        Some(format::seconds(change.now)),
    )
}
