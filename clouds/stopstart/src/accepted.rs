//! Calls that the cloud has accepted, until their machines have arrived.

use std::collections::HashMap;
use std::time::Duration;

use shared::cloud::{InstanceState, Priority, Verb};
use tokio::time::Instant;

use crate::cloud::Reason;

/// How long lists lag behind accepted calls.
const LIST_LAG: Duration = Duration::from_secs(10);

/// How long an accepted call may be in progress while its machine rests, and how long a machine that is no longer listed is
/// remembered.
pub(crate) const OPERATION_TIMEOUT: Duration = Duration::from_mins(10);

/// Machines whose calls are counted; above this, only those of the last minute.
const MAX_COUNTED_MACHINES: usize = 10_000;

/// What identifies a machine: its cluster's infraID, and its own ID.
pub(crate) type Name = (String, String);

/// The last call for a machine.
#[derive(Clone, Debug)]
pub(crate) struct AcceptedCall {
    pub(crate) verb: Verb,
    at: Instant,
    /// The cloud's handle of it.
    pub(crate) operation: Option<String>,
    /// The reason that the list gave before: an earlier start may have been given up as well.
    before: Option<Reason>,
    /// Why the cloud has given it up.
    pub(crate) given_up: Option<Reason>,
}

impl AcceptedCall {
    pub(crate) fn new(verb: Verb, operation: Option<String>, before: Option<Reason>) -> Self {
        Self { verb, at: Instant::now(), operation, before, given_up: None }
    }

    /// Whether a machine that rests may still be on its way.
    pub(crate) fn is_under_way(&self) -> bool {
        let patience = if self.operation.is_some() { OPERATION_TIMEOUT } else { LIST_LAG };
        self.given_up.is_none() && self.at.elapsed() < patience
    }

    /// Whether the same call need not be made once more.
    pub(crate) fn covers(&self, verb: Verb) -> bool {
        self.verb == verb && self.given_up.is_none() && self.at.elapsed() < LIST_LAG
    }

    /// Whether the reason in a list is about this start.
    pub(crate) fn is_meant_by(&self, reason: &Reason) -> bool {
        self.verb == Verb::Start && (Some(reason) != self.before.as_ref() || self.at.elapsed() >= LIST_LAG)
    }

    /// Whether a caller of this priority waits for it.
    pub(crate) fn is_awaited(&self, priority: Priority) -> bool {
        matches!((self.verb, priority), (Verb::Start, Priority::Waking) | (Verb::Stop, Priority::Sleeping))
    }

    /// The call is done; the next list shows what has come of it.
    pub(crate) fn is_done(&mut self) {
        self.operation = None;
        self.at = Instant::now();
    }

    /// Whether it has timed out.
    pub(crate) fn is_old(&self) -> bool {
        self.at.elapsed() >= OPERATION_TIMEOUT
    }
}

/// The calls of the last minute, by machine.
#[derive(Debug, Default)]
pub(crate) struct Counts(HashMap<(Name, Verb), Vec<Instant>>);

impl Counts {
    /// Counts one more call, unless there were `most` within a minute.
    pub(crate) fn admit(&mut self, name: &Name, verb: Verb, most: usize) -> bool {
        let is_recent = |at: &Instant| at.elapsed() < Duration::from_mins(1);
        if self.0.len() >= MAX_COUNTED_MACHINES {
            self.0.retain(|_, calls| calls.iter().any(is_recent));
        }
        let calls = self.0.entry((name.clone(), verb)).or_default();
        calls.retain(is_recent);
        let is_admitted = calls.len() < most;
        if is_admitted {
            calls.push(Instant::now());
        }
        is_admitted
    }
}

/// The final state of a machine, and the one on its way.
pub(crate) fn states(verb: Verb) -> (InstanceState, InstanceState) {
    match verb {
        Verb::Start => (InstanceState::Running, InstanceState::Pending),
        Verb::Stop => (InstanceState::Stopped, InstanceState::Stopping),
        Verb::Terminate => (InstanceState::Terminated, InstanceState::ShuttingDown),
    }
}
