//! What comes of a call to a cloud.

use std::fmt;

use super::InstanceState;
use crate::text::and_more;

/// What a call about several instances did. Calls that fail as a whole answer [`CloudError`] instead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Instances the cloud accepted, with the state it answered.
    pub moved: Vec<(String, InstanceState)>,
    /// Instances the cloud refused, with its words.
    pub refused: Vec<Refusal>,
    /// Whether instances are left for the next call, because of the account's limits or the time that one call may take.
    /// Otherwise those that are neither moved nor refused need nothing now.
    pub unfinished: bool,
}

/// One instance that the cloud would not start or stop.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    pub id: String,
    /// `Refused`, `InTransit` or `Capacity`.
    pub kind: CloudErrorKind,
    /// The cloud's error code, such as `OperationNotPermitted`.
    pub code: String,
    /// The cloud's message, without request IDs.
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.id, self.code, self.message)
    }
}

/// Why a call to a cloud failed as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CloudError {
    /// What kind of failure it is, which decides how soon to try again.
    pub kind: CloudErrorKind,
    /// The cloud's words, stable between tries (no request IDs, no clock), naming what was asked of what.
    pub message: String,
}

impl CloudError {
    pub fn new(kind: CloudErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }

    /// Single machines that were refused, as one failure that names each of them.
    pub fn of_refusals(refusals: &[Refusal]) -> Option<Self> {
        let first = refusals.first()?.kind;
        let kind = if refusals.iter().all(|refusal| refusal.kind == first) { first } else { CloudErrorKind::Refused };
        let mut refused: Vec<String> = refusals.iter().map(ToString::to_string).collect();
        refused.sort();
        let more = and_more(refused.len().saturating_sub(5));
        refused.truncate(5);
        refused.extend(more);
        Some(Self { kind, message: refused.join("; ") })
    }
}

/// The kinds of failure that are handled differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display, strum::IntoStaticStr)]
pub enum CloudErrorKind {
    /// Credentials are missing, malformed or of a form that is refused. Only a change of the Secret helps.
    Credentials,
    /// The cloud says that these credentials may not do this (401, 403).
    Denied,
    /// Too many calls.
    Throttled,
    /// The cloud has no machines of this kind just now.
    Capacity,
    /// 5xx, time-outs, broken connections.
    Unavailable,
    /// The cloud refused some instances and took the others.
    Refused,
    /// The cloud refused only instances that are between two states: their time comes.
    InTransit,
    /// The request itself is wrong, such as an unknown region. Trying the same again will not help.
    Invalid,
    /// This process may no longer act: it is not the leader any more.
    NotLeader,
}
