//! What the plan and its report share: a member, and why nothing starts.

use super::member::Member;
use crate::kinds::View;

/// A member, as the plan needs it more than once.
pub(super) struct Row<'a> {
    pub(super) index: usize,
    pub(super) object: &'a View,
    pub(super) member: Member,
    pub(super) native: usize,
    pub(super) domain: Option<&'a str>,
    pub(super) checking: bool,
}

impl Row<'_> {
    /// Whether a rollout with this UID works on it.
    pub(super) fn is_claimed(&self, uid: &str) -> bool {
        self.object.desired.mark.as_ref().is_some_and(|mark| mark.is_claim_of(uid))
    }
}

/// Why nothing starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Aborted,
    Late,
    Queued(String),
    TooMany {
        found: usize,
    },
    Empty {
        group: String,
    },
    Nothing,
    /// Nothing but names, and no object has one of them.
    NotFound,
    Halted(String),
    Paused,
    Early,
    WakeAtPassed,
    Blocked(String),
}
