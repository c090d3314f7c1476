//! Clusters whose DELETE was refused lately. One refusal must not stop KKP's deletion of a project, so the next DELETE passes.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

/// How long a refusal is remembered: longer than any backoff of KKP's controllers (at most 17 minutes).
const LIFETIME: SignedDuration = SignedDuration::from_hours(1);
/// Most refusals that are remembered. One more drops the oldest.
const MAX_REFUSALS: usize = 1_000;
/// Longest UID in bytes that is remembered. Those of the API server have 36.
const MAX_UID_BYTES: usize = 64;

/// UIDs of Clusters, and when the DELETE of each was refused. The oldest comes first.
#[derive(Clone, Debug, Default)]
pub struct Refusals(VecDeque<(Timestamp, String)>);

impl Refusals {
    /// Whether the DELETE of this object was refused lately.
    #[must_use]
    pub fn contains(&self, uid: &str, now: Timestamp) -> bool {
        self.0.iter().any(|(at, refused)| refused == uid && !is_over(*at, now))
    }

    /// Remembers a refusal.
    pub fn remember(&mut self, uid: &str, now: Timestamp) {
        while self.0.front().is_some_and(|(at, _)| is_over(*at, now)) || self.0.len() >= MAX_REFUSALS {
            self.0.pop_front();
        }
        if uid.len() <= MAX_UID_BYTES {
            self.0.push_back((now, uid.to_owned()));
        }
    }
}

fn is_over(at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(at) > LIFETIME
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minute(minute: i64) -> Timestamp {
        Timestamp::from_second(1_764_000_000 + minute * 60).unwrap()
    }

    #[test]
    fn a_refusal_is_remembered_for_an_hour() {
        let mut refusals = Refusals::default();
        refusals.remember("a", minute(0));
        for (uid, at, expected) in
            [("a", 0, true), ("a", 60, true), ("a", 61, false), ("b", 0, false), ("", 0, false), ("a", -600, true)]
        {
            assert_eq!(refusals.contains(uid, minute(at)), expected, "{uid:?} after {at} min");
        }
        refusals.remember("b", minute(61));
        assert_eq!(refusals.0.len(), 1, "what is over is dropped");
        refusals.remember("a", minute(62));
        assert!(refusals.contains("a", minute(120)), "a refusal of the next sleep counts anew");
    }

    #[test]
    fn the_table_has_an_end() {
        let mut refusals = Refusals::default();
        for number in 0..=MAX_REFUSALS {
            refusals.remember(&number.to_string(), minute(0));
        }
        assert_eq!(refusals.0.len(), MAX_REFUSALS);
        assert!(!refusals.contains("0", minute(0)) && refusals.contains("1", minute(0)));
        let long = "x".repeat(MAX_UID_BYTES + 1);
        refusals.remember(&long, minute(0));
        assert!(!refusals.contains(&long, minute(0)));
    }
}
