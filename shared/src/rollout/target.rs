//! A member of a rollout, as it was observed.

use std::time::Duration;

use jiff::Timestamp;

pub use crate::kinds::view::Cause;

/// A member of a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name, unique within the rollout.
    pub name: String,
    /// The index of its group in the strategy.
    pub group: usize,
    /// Its namespace: a domain closes on what several of them say.
    pub namespace: String,
    /// What shares a cloud's limits with it: platform, region and account. Targets start round robin over domains.
    /// While it is not known, what its cloud does counts for no other target, and what others met does not hold it up.
    pub domain: Option<String>,
    /// What it does.
    pub state: State,
    /// When this state began; for a deferred target, when its reason was checked last.
    pub since: Timestamp,
    /// When it was started, if it was. The deadline runs from here.
    pub started: Option<Timestamp>,
    /// Time since then in which no leader observed it. The deadline excludes it.
    pub unobserved: Duration,
    /// Time since this state began in which the rollout was paused. The soak excludes it.
    pub paused: Duration,
    /// Whether the rollout's claim is on it. Until the claim is a record, the rollout is not complete.
    pub claimed: bool,
    /// Whether it is being checked whether it may start. Others start meanwhile.
    pub checking: bool,
}

/// What a member of a rollout does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// It has not been started.
    Pending,
    /// It cannot be started yet. It holds neither a slot nor its group.
    Deferred,
    /// It is under way.
    Progressing,
    /// It is in progress, and its cloud lacks capacity or rate-limits requests.
    Held(Cause),
    /// It has reached its state.
    Succeeded,
    /// It has failed, and may recover until its deadline.
    Failed,
    /// Its deadline has passed.
    TimedOut,
    /// The rollout leaves it alone: refused, overridden, removed, or in its state already.
    Excluded,
}
