//! What a decision says is to be done.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::facts::Turn;
use crate::annotation::{format, keys};
use crate::duration::age;
use crate::fdb::suspension::{Suspension, no_annotations};

/// Something to be done to one object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Action {
    /// Its place in [`super::Facts::objects`].
    pub object: usize,
    /// What is to be done.
    pub change: Change,
}

/// What is to be done to an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Hold it since then, with this record (D5 to D9).
    Stamp(Timestamp, Box<Suspension>),
    /// Let it go (D10).
    Release,
    /// Touch it, so that the operator reconciles again (D11).
    Wake,
    /// Remove every mark of ours (D2).
    Clear,
}

impl Change {
    /// Our annotations after it, as a merge patch.
    pub fn annotations(&self, now: Timestamp) -> Value {
        match self {
            Self::Stamp(since, record) => record.annotations(*since),
            Self::Release => json!({ keys::RELEASED_AT: format::seconds(now) }),
            Self::Wake => json!({ keys::WOKEN_AT: format::seconds(now) }),
            Self::Clear => no_annotations(),
        }
    }
}

/// All that is to be done, and what is to be reported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// What is to be done; each object once.
    pub actions: Vec<Action>,
    /// Whose turn it is after these actions.
    pub turn: Option<Turn>,
    /// When to reconcile again if nothing changes; `None` if nothing is left to wait for.
    pub requeue: Option<Duration>,
    /// Process groups that are held, those that are stamped by this plan included.
    pub held: usize,
    /// Bytes of their volumes.
    pub held_bytes: u64,
    /// Process groups whose window has passed and whose turn it is not yet.
    pub waiting: usize,
    /// Process groups that were released and are still there.
    pub released: usize,
}

impl Plan {
    pub(super) fn act(&mut self, object: usize, change: Change) {
        self.actions.push(Action { object, change });
    }

    pub(super) fn requeue_in(&mut self, pause: Duration) {
        // The shortest requeue: rounded times would cause a hot loop.
        let pause = pause.max(Duration::from_millis(100));
        self.requeue = Some(self.requeue.map_or(pause, |soonest| soonest.min(pause)));
    }

    pub(super) fn requeue_at(&mut self, at: Timestamp, now: Timestamp) {
        self.requeue_in(age(now, at));
    }
}

/// A process group that is due, or was released.
pub(super) struct Group {
    /// Its objects, by their place in [`super::Facts::objects`].
    pub(super) objects: Vec<usize>,
    pub(super) zone: String,
    /// When its window ended.
    pub(super) since: Timestamp,
}
