//! Calls that the cloud has accepted, until their machines have arrived.

use std::collections::HashMap;
use std::time::Duration;

use shared::cloud::{InstanceState, Priority, Refusal, Verb};
use tokio::time::Instant;

/// How long an accepted call counts without any sign of it: lists lag behind calls.
const LAG: Duration = Duration::from_secs(10);

/// How long an accepted call is believed to be under way while the machine rests, and how long anything is remembered of
/// a machine that is no longer listed.
pub(crate) const PATIENCE: Duration = Duration::from_mins(10);

/// Machines whose calls are counted. Beyond, those of the last minute stay.
const COUNTED: usize = 10_000;

/// What identifies a machine: its cluster's infraID, and its own ID.
pub(crate) type Name = (String, String);

/// Code and message of why a start was given up, as a list has them.
pub(crate) type Reason = Option<(String, String)>;

/// The last call for a machine.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    pub(crate) verb: Verb,
    at: Instant,
    /// What it is read back by.
    pub(crate) operation: Option<String>,
    /// What the list said before: an earlier start may have been given up as well.
    before: Reason,
    /// Why the cloud has given it up.
    pub(crate) given_up: Option<Refusal>,
}

impl Sent {
    pub(crate) fn new(verb: Verb, operation: Option<String>, before: Reason) -> Self {
        Self { verb, at: Instant::now(), operation, before, given_up: None }
    }

    /// Whether a machine that rests may still be on its way.
    pub(crate) fn is_under_way(&self) -> bool {
        let patience = if self.operation.is_some() { PATIENCE } else { LAG };
        self.given_up.is_none() && self.at.elapsed() < patience
    }

    /// Whether the same call need not be made once more.
    pub(crate) fn covers(&self, verb: Verb) -> bool {
        self.verb == verb && self.given_up.is_none() && self.at.elapsed() < LAG
    }

    /// Whether what a list says of a start that was given up is about this one.
    pub(crate) fn is_meant_by(&self, reason: &Reason) -> bool {
        self.verb == Verb::Start && (*reason != self.before || self.at.elapsed() >= LAG)
    }

    /// Whether people who wait with this priority wait for it.
    pub(crate) fn is_awaited(&self, priority: Priority) -> bool {
        matches!((self.verb, priority), (Verb::Start, Priority::Waking) | (Verb::Stop, Priority::Sleeping))
    }

    /// The call is done; the next list shows what has come of it.
    pub(crate) fn is_done(&mut self) {
        self.operation = None;
        self.at = Instant::now();
    }

    /// Whether nothing will come of it any more.
    pub(crate) fn is_old(&self) -> bool {
        self.at.elapsed() >= PATIENCE
    }
}

/// How often each machine was moved within the last minute.
#[derive(Debug, Default)]
pub(crate) struct Counts(HashMap<(Name, Verb), Vec<Instant>>);

impl Counts {
    /// Counts one more call, unless there were `most` within a minute.
    pub(crate) fn admit(&mut self, name: &Name, verb: Verb, most: usize) -> bool {
        let is_recent = |at: &Instant| at.elapsed() < Duration::from_mins(1);
        if self.0.len() >= COUNTED {
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

/// Where a machine is in the end, and on its way there.
pub(crate) fn states(verb: Verb) -> (InstanceState, InstanceState) {
    match verb {
        Verb::Start => (InstanceState::Running, InstanceState::Pending),
        Verb::Stop => (InstanceState::Stopped, InstanceState::Stopping),
        Verb::Terminate => (InstanceState::Terminated, InstanceState::ShuttingDown),
    }
}
