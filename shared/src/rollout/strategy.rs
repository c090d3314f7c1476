//! How a rollout goes on.

use std::time::Duration;

use jiff::Timestamp;

/// How a rollout goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Strategy {
    /// A sliding window over one group after another.
    Window(Window),
}

/// A sliding window: a slot is filled as soon as it is free. The next group starts once every target of this one has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The groups, in order.
    pub groups: Vec<Group>,
    /// How many targets hold a slot at once.
    pub max_concurrency: usize,
    /// How many targets start in any 60 s.
    pub starts_per_minute: Option<usize>,
    /// How long a target may take from its start.
    pub deadline: Option<Duration>,
    /// Failures until then were accepted: they do not count.
    pub accepted_until: Option<Timestamp>,
}

/// Targets that start before those of the next group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// How many of its targets may fail. One more, and nothing starts in any group.
    pub max_failures: usize,
    /// How long success must last before it counts. Until then it holds its slot.
    pub min_success_time: Duration,
    /// Whether nothing starts after this group until a person approves; false once one has.
    pub pause_after: bool,
}
