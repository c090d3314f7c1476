//! The sliding window of a rollout and its groups.

use std::time::Duration;

use jiff::Timestamp;

/// What `starts_per_minute` counts in.
pub(super) const MINUTE: Duration = Duration::from_mins(1);

/// A sliding window: a slot is filled as soon as it is free. The next group starts once every target of this one has
/// ended.
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

impl Window {
    /// About how long so many targets of each group take, if each takes so long, or until its deadline if that is
    /// shorter. A group of n takes `ceil(n / max_concurrency)` times that and its soak, or, if that is longer, the
    /// minutes of `starts_per_minute` before its last start, and that once. No promise: failures, approvals and what is
    /// deferred add to it.
    pub fn about(&self, counts: &[usize], each: Duration) -> Duration {
        let each = self.deadline.map_or(each, |limit| each.min(limit));
        let times = |length: Duration, count: usize| length.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        let group = |(count, group): (&usize, &Group)| {
            let Some(before) = count.checked_sub(1) else { return Duration::ZERO };
            let each = each.saturating_add(group.min_success_time);
            let minutes = self.starts_per_minute.map_or(0, |limit| before / limit.max(1));
            times(each, before / self.max_concurrency.max(1)).max(times(MINUTE, minutes)).saturating_add(each)
        };
        counts.iter().zip(&self.groups).map(group).fold(Duration::ZERO, Duration::saturating_add)
    }
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
