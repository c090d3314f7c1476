//! Sleeps by shelving in which Nova refuses some server. As in a sleep by snapshots, after a while all servers are started
//! again, and the next sleep is delayed.
//!
//! There is no record of such a sleep: what a restart forgets is tried once more, and refused again.

use std::collections::HashMap;
use std::time::Instant;

use cloud_recreate::{MAX_BACKOFF_FACTOR, SLEEP_RETRY_DELAY, STUCK_TIMEOUT};
use parking_lot::Mutex;
use shared::cloud::Refusal;

/// The sleeps in trouble, by the infraIDs of their clusters.
#[derive(Default)]
pub(crate) struct Refusals(Mutex<HashMap<String, StuckSleep>>);

struct StuckSleep {
    refusal: Refusal,
    /// Since when it is refused, or given up.
    since: Instant,
    is_given_up: bool,
    /// How many sleeps in a row were given up.
    number: u32,
}

impl StuckSleep {
    fn delay(&self) -> std::time::Duration {
        SLEEP_RETRY_DELAY * self.number.clamp(1, MAX_BACKOFF_FACTOR)
    }
}

impl Refusals {
    /// Why a sleep was given up. All servers should run until the next sleep begins.
    pub(crate) fn given_up(&self, infra_id: &str, now: Instant) -> Option<Refusal> {
        let all = self.0.lock();
        let sleep = all.get(infra_id).filter(|sleep| sleep.is_given_up)?;
        (now < sleep.since + sleep.delay()).then(|| sleep.refusal.clone())
    }

    /// Notes what was refused in a pass while other servers sleep. One refusal is no reason to give up: the next pass tries
    /// again, however late it comes.
    pub(crate) fn note(&self, infra_id: &str, refused: &[Refusal], now: Instant) {
        let Some(first) = refused.first() else { return };
        let mut all = self.0.lock();
        all.retain(|_, sleep| now < sleep.since + 2 * SLEEP_RETRY_DELAY * MAX_BACKOFF_FACTOR);
        let number = match all.get_mut(infra_id) {
            Some(sleep) if !sleep.is_given_up && refused.iter().any(|refusal| refusal.id == sleep.refusal.id) => {
                if now >= sleep.since + STUCK_TIMEOUT {
                    (sleep.is_given_up, sleep.since, sleep.number) = (true, now, sleep.number.saturating_add(1));
                }
                return;
            }
            sleep => sleep.map_or(0, |sleep| sleep.number),
        };
        let sleep = StuckSleep { refusal: first.clone(), since: now, is_given_up: false, number };
        all.insert(infra_id.to_owned(), sleep);
    }

    /// The cluster is to wake.
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
        let (refusals, mut now) = (Refusals::default(), Instant::now());
        for minutes in [10, 20, 30, 40, 50, 50] {
            for seconds in [0, 30, 29] {
                now += Duration::from_secs(seconds);
                refusals.note("demo", &[refusal("a")], now);
                assert_eq!(refusals.given_up("demo", now), None, "{minutes} after {seconds}");
            }
            now += Duration::from_secs(1);
            refusals.note("demo", &[refusal("b"), refusal("a")], now);
            let (last, end) = (Duration::from_secs(60 * minutes - 1), now + Duration::from_mins(minutes));
            assert_eq!(refusals.given_up("demo", now + last), Some(refusal("a")), "{minutes}");
            assert_eq!(refusals.given_up("other", now), None);
            assert_eq!(refusals.given_up("demo", end), None, "{minutes}");
            now = end;
        }
        refusals.forget("demo");
        refusals.note("demo", &[refusal("a")], now);
        refusals.note("demo", &[refusal("a")], now + STUCK_TIMEOUT);
        let end = now + STUCK_TIMEOUT + Duration::from_mins(10);
        assert_eq!(refusals.given_up("demo", end), None, "a wake forgets the earlier ones");
    }

    #[test]
    fn a_server_that_was_refused_once_or_in_turn_with_others_ends_no_sleep() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        refusals.note("demo", &[refusal("a")], now);
        for (minutes, all) in [(1, vec![]), (2, vec![refusal("b")]), (4, vec![refusal("c"), refusal("a")])] {
            refusals.note("demo", &all, now + Duration::from_mins(minutes));
            assert_eq!(refusals.given_up("demo", now + Duration::from_mins(minutes)), None, "{minutes}");
        }
    }
}
