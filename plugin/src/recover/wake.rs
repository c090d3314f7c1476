//! R11: wakes an operator that has no reason to reconcile, while nothing but its report is missing.
//!
//! The operator watches the volumes of a cluster, and queues what changes during a pass for the next pass. So the write
//! goes to the claim: a write to the cluster would come into a slow pass, whose status update is then refused with a
//! conflict and retried a minute later.

use std::time::Duration;

use super::facts::Facts;
use super::patch::{self, Edit};
use super::presence::Missing;

/// Pause before the first wake-up: a process reports some seconds after its Pod has started.
const FIRST: Duration = Duration::from_secs(3);
/// Longest pause between two wake-ups.
const LONGEST: Duration = Duration::from_secs(15);

/// The wake-ups of one run. Moments are times since the run began.
#[derive(Clone, Debug, Default)]
pub struct Wakes {
    missing: Vec<Missing>,
    since: Duration,
    last: Duration,
}

impl Wakes {
    /// The pause until the operator is to be woken; zero is now, and counts as done. None if no report is awaited.
    pub fn pause(&mut self, missing: &[Missing], now: Duration) -> Option<Duration> {
        let missing: Vec<Missing> = missing.iter().filter(|one| one.is_up).cloned().collect();
        if missing.is_empty() || missing != self.missing {
            *self = Self { missing, since: now, last: now };
        }
        if self.missing.is_empty() {
            return None;
        }
        // As long again as it has been tried for: 3, 6, 12, 24 and 39 s after the start.
        let tried = self.last.saturating_sub(self.since);
        let pause = (self.last + tried.clamp(FIRST, LONGEST)).saturating_sub(now);
        if pause.is_zero() {
            self.last = now;
        }
        Some(pause)
    }
}

/// The write that wakes the operator. None if no report is awaited.
pub fn touch(facts: &Facts<'_>, missing: &[Missing]) -> Option<Edit> {
    let up = missing.iter().find(|one| one.is_up)?;
    let claim = facts.claim_of(&up.group, &up.pod)?;
    Some(patch::wake(claim, facts.now))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missing(group: &str, is_up: bool) -> Missing {
        Missing { group: group.to_owned(), pod: String::new(), what: String::new(), is_up }
    }

    /// When a run wakes the operator that looks every half second for two minutes, while this is missing.
    fn woken(missing: impl Fn(u64) -> Vec<Missing>) -> Vec<u64> {
        let mut wakes = Wakes::default();
        let halves = (0..240_u64).filter(|half| {
            let now = Duration::from_millis(half * 500);
            wakes.pause(&missing(half / 2), now) == Some(Duration::ZERO)
        });
        halves.map(|half| half / 2).collect()
    }

    #[test]
    fn it_is_woken_while_only_the_report_is_missing_and_ever_less_often() {
        assert_eq!(woken(|_| vec![missing("storage-1", true)]), [3, 6, 12, 24, 39, 54, 69, 84, 99, 114]);
        assert_eq!(woken(|_| vec![missing("storage-1", false)]), [0_u64; 0]);
        assert_eq!(woken(|_| Vec::new()), [0_u64; 0]);
        let starts = |at: u64| move |second: u64| vec![missing("storage-1", second >= at)];
        assert_eq!(woken(starts(100)), [103, 106, 112]);
    }

    #[test]
    fn another_group_that_starts_is_waited_for_anew_and_one_that_hangs_delays_nobody() {
        let found = woken(|second| vec![missing("storage-1", true), missing("storage-2", second >= 40)]);
        assert_eq!(found, [3, 6, 12, 24, 39, 43, 46, 52, 64, 79, 94, 109]);
    }
}
