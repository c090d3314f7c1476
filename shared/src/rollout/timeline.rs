//! Lengths of time on the status: those in which no leader observed the targets, and those in which the rollout was
//! paused.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::status::{Interval, PowerRolloutStatus};
use crate::duration::age;

/// Most intervals that a status keeps. Beyond that the two oldest become one, with the time between them.
const MAX_INTERVALS: usize = 20;
/// Time without an observation that counts as an interval. Shorter ones are the ordinary pauses between two reconciles.
const GAP: Duration = Duration::from_secs(30);
/// How often the time of the last observation is written while a deadline runs.
pub const HEARTBEAT: Duration = Duration::from_secs(10);

/// How much of the time from `begin` to `now` is in these intervals.
pub fn overlap(intervals: &[Interval], begin: Timestamp, now: Timestamp) -> Duration {
    let one = |interval: &Interval| {
        let from = interval.from.0.max(begin);
        let to = interval.to.as_ref().map_or(now, |to| to.0).min(now);
        age(from, to)
    };
    intervals.iter().map(one).sum()
}

/// Records that the targets are observed now, and since when they were not. `running`: since when the oldest deadline
/// runs.
pub(super) fn observe(status: &mut PowerRolloutStatus, running: Option<Timestamp>, now: Timestamp) {
    let Some(last) = status.observed_at.as_ref().map(|at| at.0) else {
        status.observed_at = Some(Time(now));
        return;
    };
    let unobserved = age(last, now);
    // The write of a claim is an observation, too.
    let from = running.map(|since| since.max(last)).filter(|from| age(*from, now) > GAP);
    if let Some(from) = from {
        push(&mut status.unobserved, Interval { from: Time(from), to: Some(Time(now)) });
    }
    // A clock that was set back would make the next gap longer than it is.
    if (unobserved >= HEARTBEAT && running.is_some()) || last > now {
        status.observed_at = Some(Time(now));
    }
}

/// Records whether the rollout is paused.
pub(super) fn pause(status: &mut PowerRolloutStatus, paused: bool, now: Timestamp) {
    let open = status.paused.last_mut().filter(|interval| interval.to.is_none());
    match (open, paused) {
        (Some(interval), false) => interval.to = Some(Time(now.max(interval.from.0))),
        (None, true) => push(&mut status.paused, Interval { from: Time(now), to: None }),
        _ => {}
    }
}

fn push(intervals: &mut Vec<Interval>, interval: Interval) {
    intervals.push(interval);
    if intervals.len() > MAX_INTERVALS {
        let first = intervals.remove(0);
        if let Some(second) = intervals.first_mut() {
            second.from = first.from;
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::UNIX_EPOCH + SignedDuration::from_secs(seconds)
    }

    #[test]
    fn only_what_a_deadline_ran_through_counts() {
        let interval = |from, to: Option<i64>| Interval { from: Time(at(from)), to: to.map(|to| Time(at(to))) };
        let intervals = [interval(10, Some(20)), interval(50, None)];
        for (begin, now, expected) in [(0, 60, 20), (15, 60, 15), (20, 50, 0), (55, 60, 5), (70, 60, 0)] {
            assert_eq!(overlap(&intervals, at(begin), at(now)).as_secs(), expected, "{begin} to {now}");
        }
    }

    #[test]
    fn a_gap_is_recorded_once_and_only_while_a_deadline_runs() {
        let mut status = PowerRolloutStatus::default();
        for (second, runs, gaps, observed) in [
            (0, true, 0, 0),
            (9, true, 0, 0),
            (10, true, 0, 10),
            (40, true, 0, 40),
            (71, true, 1, 71),
            (72, true, 1, 71),
            (900, false, 1, 71),
            (60, true, 1, 60),
        ] {
            observe(&mut status, runs.then(|| at(0)), at(second));
            let found = status.observed_at.as_ref().unwrap().0.as_second();
            assert_eq!((status.unobserved.len(), found), (gaps, observed), "second {second}");
        }
    }

    #[test]
    fn a_gap_that_begins_with_a_claim_is_recorded() {
        for (claim, now, expected) in [(5, 30, None), (5, 35, None), (5, 36, Some(5)), (0, 36, Some(2)), (90, 36, None)]
        {
            let mut status = PowerRolloutStatus { observed_at: Some(Time(at(2))), ..PowerRolloutStatus::default() };
            observe(&mut status, Some(at(claim)), at(now));
            let found = status.unobserved.first().map(|interval| interval.from.0.as_second());
            assert_eq!(found, expected, "claimed at {claim}, observed at {now}");
        }
    }

    #[test]
    fn the_list_is_bounded_and_loses_no_time() {
        let mut status = PowerRolloutStatus::default();
        for second in 0..100 {
            pause(&mut status, second % 2 == 0, at(second));
        }
        assert_eq!(status.paused.len(), MAX_INTERVALS);
        assert!(overlap(&status.paused, at(0), at(100)).as_secs() >= 50);
        assert_eq!(status.paused[0].from.0, at(0));
    }
}
