//! What a decision says is to be done.

use std::time::Duration;

use jiff::Timestamp;
use shared::fdb::suspension::Suspension;

use super::facts::Turn;

/// Something to be done to one object, by its place in [`super::Facts::objects`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Hold it (D5 to D9).
    Stamp {
        /// Which object.
        object: usize,
        /// Since when.
        since: Timestamp,
        /// What is recorded.
        record: Box<Suspension>,
    },
    /// Let it go (D10).
    Release {
        /// Which object.
        object: usize,
    },
    /// Touch it, so that the operator reconciles again (D11).
    Wake {
        /// Which object.
        object: usize,
    },
    /// Remove every mark of ours (D2).
    Clear {
        /// Which object.
        object: usize,
    },
}

impl Action {
    /// Which object is changed.
    pub fn object(&self) -> usize {
        match self {
            Self::Stamp { object, .. } | Self::Release { object } | Self::Wake { object } | Self::Clear { object } => {
                *object
            }
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
    pub next: Option<Duration>,
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
    pub(super) fn again_in(&mut self, pause: Duration) {
        // The shortest requeue: rounded times would cause a hot loop.
        let pause = pause.max(Duration::from_millis(100));
        self.next = Some(self.next.map_or(pause, |next| next.min(pause)));
    }

    pub(super) fn again_at(&mut self, at: Timestamp, now: Timestamp) {
        self.again_in(at.duration_since(now).try_into().unwrap_or(Duration::ZERO));
    }
}

/// A process group that is due, or was released.
pub(super) struct Group {
    /// Its objects, by their place in [`super::Facts::objects`].
    pub(super) objects: Vec<usize>,
    /// Its zone.
    pub(super) zone: String,
    /// When its window ended.
    pub(super) since: Timestamp,
}
