//! The one list of writes that let targets start. The webhook stamps them, the policy asks whether the user may patch
//! the targets, and tests compare the match condition of the webhook and docs/security.md with it.
//!
//! It names what stops a rollout, and everything else starts targets: so does a field that is yet to be invented.

use super::Rollout;
use crate::admission::stamp::restore;
use crate::admission::{Change, Edits};
use crate::annotation::{format, keys};

/// Fields of the spec that stop a rollout while they are true.
pub const STOPS: [&str; 2] = ["paused", "abort"];

/// A kind of write that lets targets start: more of them, others, or at another time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// The rollout is created.
    Created,
    /// One of [`STOPS`] is true no longer.
    Unstopped,
    /// Another field of the spec is set, altered or removed.
    Changed,
}

/// The list.
pub const STARTS: [Start; 3] = [Start::Created, Start::Unstopped, Start::Changed];

impl Start {
    /// As messages and docs/security.md name it.
    pub fn text(self) -> String {
        match self {
            Self::Created => "create".to_owned(),
            Self::Unstopped => format!("{} to false", STOPS.join(" or ")),
            Self::Changed => "any other change of the spec".to_owned(),
        }
    }

    fn is(self, change: &Change<'_, Rollout>) -> bool {
        let Some(old) = &change.old else { return self == Self::Created };
        let new = &change.new;
        match self {
            Self::Created => false,
            Self::Unstopped => {
                let stops = |rollout: &Rollout, field| rollout.field(field).is_some_and(|found| found.begin == "true");
                STOPS.iter().any(|field| stops(old, field) && !stops(new, field))
            }
            Self::Changed => {
                let mut fields = old.spec.iter().chain(&new.spec).flat_map(|spec| spec.keys());
                fields.any(|field| !STOPS.contains(&field.as_str()) && old.field(field) != new.field(field))
            }
        }
    }
}

impl Change<'_, Rollout> {
    /// Whether this request lets targets start: it is stamped with who and when.
    pub fn starts_targets(&self) -> bool {
        STARTS.iter().any(|start| start.is(self))
    }
}

/// The stamp: who lets targets start, and when.
pub const STAMPS: [&str; 2] = [keys::REQUESTED_BY, keys::REQUESTED_AT];

/// Stamps a write that lets targets start; forged stamps are overwritten. In every other write a stamp that is missing
/// is put back, and the policy judges whether it is another.
pub fn stamp(change: &Change<'_, Rollout>) -> Edits {
    if !change.starts_targets() {
        return restore(change, STAMPS, Edits::default());
    }
    let found = |key| change.new_annotation(key);
    Edits::default().want(keys::REQUESTED_BY, found(keys::REQUESTED_BY), Some(change.user.username.clone())).want(
        keys::REQUESTED_AT,
        found(keys::REQUESTED_AT),
        Some(format::seconds(change.now)),
    )
}
