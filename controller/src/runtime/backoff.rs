//! How soon a target is reconciled again that has failed in a way that would repeat itself.

use std::time::Duration;

/// Doubling pauses.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    /// The first.
    pub first: Duration,
    /// The longest.
    pub most: Duration,
}

impl Backoff {
    /// The pause after so many more failures than one.
    pub fn pause(self, before: u32) -> Duration {
        self.first.saturating_mul(1 << before.min(20)).min(self.most)
    }
}

/// After a panic. Whatever caused it is still there: only a change of the object, or a new version of ours, helps.
pub const PANIC_BACKOFF: Backoff = Backoff { first: Duration::from_mins(1), most: Duration::from_mins(30) };

/// After the end of the process that worked on it. Most have ended for another reason: the first pause is short.
pub const CRASH_BACKOFF: Backoff = Backoff { first: Duration::from_secs(2), most: Duration::from_mins(30) };

/// After a write that the API server refused: a schema, a policy or another webhook, which may change.
pub const REFUSED_BACKOFF: Backoff = Backoff { first: Duration::from_secs(2), most: Duration::from_mins(5) };

/// After work that is not about one target, such as a whole watch, has panicked.
pub const RESTART_BACKOFF: Backoff = Backoff { first: Duration::from_secs(1), most: Duration::from_mins(5) };

/// Failures in a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Streak(u32);

impl Streak {
    /// Counts one more. Returns how long to wait.
    pub fn next(&mut self, backoff: Backoff) -> Duration {
        let pause = backoff.pause(self.0);
        self.0 = self.0.saturating_add(1);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_their_limit() {
        let mut streak = Streak::default();
        let minutes: Vec<u64> = (0..7).map(|_| streak.next(PANIC_BACKOFF).as_secs() / 60).collect();
        assert_eq!(minutes, [1, 2, 4, 8, 16, 30, 30]);
        let mut streak = Streak::default();
        assert!((0..100).all(|_| streak.next(REFUSED_BACKOFF) <= Duration::from_mins(5)));
    }
}
