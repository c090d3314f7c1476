//! The one list of writes that let targets start. The webhook stamps them, the policy asks whether the user may patch
//! the targets, and tests compare the match condition of the webhook and docs/security.md with it.
//!
//! It names what stops a rollout, and everything else starts targets: so does a field that is yet to be invented.

use super::Rollout;
use crate::admission::stamp::stamp_author;
use crate::admission::{Change, Edits};
use crate::annotation::keys;

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

    /// Whether our controller creates the rollout of a schedule.
    pub fn is_of_schedule(&self) -> bool {
        self.creates() && self.is_by_controller() && self.new.scheduled_by().is_some()
    }
}

/// Stamps a write that lets targets start. The rollout of a schedule keeps the person whom our controller names: who wrote
/// the schedule.
pub fn stamp(change: &Change<'_, Rollout>) -> Edits {
    let edits = stamp_author(change, change.starts_targets());
    if change.is_of_schedule() { edits.without(keys::REQUESTED_BY) } else { edits }
}
