//! Sleeps by shelving that Nova holds up by refusing a server. As with snapshots, all servers are started again after a
//! while, and the next sleep is delayed.
//!
//! There is no record of such a sleep. Servers are started again only by the process that has begun the sleep, and only
//! until all of them sleep: what a sleeping cluster refuses later, such as a server that another client has started,
//! wakes nothing.

use std::collections::HashMap;
use std::time::Instant;

use cloud_recreate::{MAX_BACKOFF_FACTOR, STALL_TIMEOUT, sleep_retry_delay};
use parking_lot::Mutex;
use shared::cloud::Refusal;

/// The sleeps that this process has begun, by the infraIDs of their clusters.
#[derive(Default)]
pub(crate) struct SleepAttempts(Mutex<HashMap<String, SleepAttempt>>);

struct SleepAttempt {
    /// What holds it up.
    refusal: Option<Refusal>,
    /// When it began; since when it is refused, or given up.
    since: Instant,
    is_given_up: bool,
    /// How many sleeps in a row were given up.
    number: u32,
}

impl SleepAttempts {
    /// Records that a sleep begins: its first servers are about to be shelved.
    pub(crate) fn begin(&self, infra_id: &str, now: Instant) {
        let mut all = self.0.lock();
        all.retain(|_, sleep| now < sleep.since + 2 * sleep_retry_delay(MAX_BACKOFF_FACTOR));
        let number = all.get(infra_id).map_or(0, |sleep| sleep.number);
        all.insert(infra_id.to_owned(), SleepAttempt { refusal: None, since: now, is_given_up: false, number });
    }

    /// Why a sleep was given up. All servers should run until the next sleep begins.
    pub(crate) fn given_up(&self, infra_id: &str, now: Instant) -> Option<Refusal> {
        let all = self.0.lock();
        let sleep = all.get(infra_id).filter(|sleep| sleep.is_given_up)?;
        sleep.refusal.clone().filter(|_| now < sleep.since + sleep_retry_delay(sleep.number))
    }

    /// Counts what was refused in a pass that tried these servers while others sleep. One refusal is no reason to give up: the
    /// next pass tries again, however late it comes.
    pub(crate) fn record(&self, infra_id: &str, tried: &[String], refused: &[Refusal], now: Instant) {
        let mut all = self.0.lock();
        let Some(sleep) = all.get_mut(infra_id) else { return };
        let before = sleep.refusal.as_ref().map(|refusal| refusal.id.as_str());
        let is_same = before.is_some_and(|id| refused.iter().any(|refusal| refusal.id == id));
        match refused.first() {
            Some(_) if is_same && !sleep.is_given_up && now >= sleep.since + STALL_TIMEOUT => {
                (sleep.is_given_up, sleep.since, sleep.number) = (true, now, sleep.number.saturating_add(1));
            }
            Some(_) if is_same && !sleep.is_given_up => {}
            Some(first) => (sleep.refusal, sleep.since, sleep.is_given_up) = (Some(first.clone()), now, false),
            // Nova has accepted what it refused before.
            None if before.is_some_and(|id| tried.iter().any(|one| one == id)) => sleep.refusal = None,
            None => {}
        }
    }

    /// Forgets the sleep: the cluster is asleep, or is to wake.
    pub(crate) fn forget(&self, infra_id: &str) {
        self.0.lock().remove(infra_id);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use shared::cloud::CloudErrorKind;

    use super::*;

    fn refusal(id: &str) -> Refusal {
        let (code, message) = ("Conflict".to_owned(), "no".to_owned());
        Refusal { id: id.to_owned(), kind: CloudErrorKind::Refused, code, message }
    }

    #[test]
    fn a_sleep_that_a_server_refuses_for_a_minute_is_given_up_and_tried_again_later_each_time() {
        let (attempts, mut now) = (SleepAttempts::default(), Instant::now());
        for minutes in [10, 20, 30, 40, 50, 50] {
            attempts.begin("demo", now);
            for seconds in [0, 30, 29] {
                now += Duration::from_secs(seconds);
                attempts.record("demo", &[], &[refusal("a")], now);
                assert_eq!(attempts.given_up("demo", now), None, "{minutes} after {seconds}");
            }
            now += Duration::from_secs(1);
            attempts.record("demo", &[], &[refusal("b"), refusal("a")], now);
            let (last, end) = (Duration::from_secs(60 * minutes - 1), now + Duration::from_mins(minutes));
            assert_eq!(attempts.given_up("demo", now + last), Some(refusal("a")), "{minutes}");
            assert_eq!(attempts.given_up("other", now), None);
            assert_eq!(attempts.given_up("demo", end), None, "{minutes}");
            now = end;
        }
        attempts.forget("demo");
        attempts.begin("demo", now);
        attempts.record("demo", &[], &[refusal("a")], now);
        attempts.record("demo", &[], &[refusal("a")], now + STALL_TIMEOUT);
        let end = now + STALL_TIMEOUT + Duration::from_mins(10);
        assert_eq!(attempts.given_up("demo", end), None, "a wake forgets the earlier ones");
    }

    #[test]
    fn a_server_that_was_refused_once_or_in_turn_with_others_ends_no_sleep() {
        let (attempts, now) = (SleepAttempts::default(), Instant::now());
        let tried = ["a".to_owned()];
        attempts.begin("demo", now);
        attempts.record("demo", &tried, &[refusal("a")], now);
        for (minutes, tried, all) in [
            (1, &tried[..], vec![]), // accepted at the second try
            (2, &tried[..], vec![refusal("a")]),
            (3, &[][..], vec![refusal("b")]),
            (5, &[][..], vec![refusal("c"), refusal("a")]),
        ] {
            attempts.record("demo", tried, &all, now + Duration::from_mins(minutes));
            assert_eq!(attempts.given_up("demo", now + Duration::from_mins(minutes)), None, "{minutes}");
        }
    }

    /// Another client has started a server of a sleeping cluster and locked it; or another process began the sleep.
    #[test]
    fn nothing_ends_a_sleep_that_is_complete_or_of_another_process() {
        let (attempts, now) = (SleepAttempts::default(), Instant::now());
        attempts.begin("demo", now);
        attempts.record("demo", &[], &[refusal("a")], now);
        attempts.forget("demo"); // all sleep
        for cluster in ["demo", "of-another"] {
            for minutes in 0..5 {
                attempts.record(cluster, &[], &[refusal("a")], now + Duration::from_mins(minutes));
            }
            assert_eq!(attempts.given_up(cluster, now + Duration::from_mins(5)), None, "{cluster}");
        }
    }
}
