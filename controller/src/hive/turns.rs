//! Whose turn it is to look, and when: looks that fall into step share calls to the cloud.

use std::time::Duration;

use tokio::sync::Semaphore;

/// Looks that follow a pause fall into step by this: a hundred clusters on their way then share a few calls a round.
pub const STEP: Duration = Duration::from_millis(250);

/// How soon a look that is only to make sure is tried again when too many others are under way. All of those try at the same
/// moment, so that they share calls.
pub const TURN: Duration = Duration::from_secs(3);

/// How many looks may be under way at once that are only to make sure: a quarter of all is kept for clusters at work. With much
/// fewer turns they could not fill the calls that they share, and a round through thousands of clusters would take too long.
#[must_use]
pub fn idle_at_once(concurrency: u16) -> usize {
    match concurrency {
        0 => Semaphore::MAX_PERMITS,
        concurrency => usize::from(concurrency - concurrency / 4),
    }
}

/// At least `pause`, up to the next step: whoever waits about as long looks at the same moment, and so by the same call.
#[must_use]
pub fn in_step(elapsed: Duration, pause: Duration, step: Duration) -> Duration {
    let step = step.as_nanos().max(1);
    let past = (elapsed + pause).as_nanos() % step;
    pause + Duration::from_nanos(u64::try_from(step - past).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quarter_of_all_looks_is_kept_for_clusters_at_work() {
        assert_eq!([256, 64, 3, 1].map(idle_at_once), [192, 48, 3, 1]);
        assert_eq!(idle_at_once(0), Semaphore::MAX_PERMITS, "without a limit");
    }

    #[test]
    fn whoever_waits_about_as_long_looks_at_the_same_moment() {
        let at = |elapsed: u64, pause: u64| {
            let (elapsed, pause) = (Duration::from_millis(elapsed), Duration::from_millis(pause));
            (elapsed + in_step(elapsed, pause, STEP)).as_millis()
        };
        assert_eq!([at(0, 1_700), at(100, 1_700), at(299, 1_700), at(301, 1_700)], [1_750, 2_000, 2_000, 2_250]);
        for elapsed in (0..3_000).step_by(7) {
            let paused = at(elapsed, 1_700) - u128::from(elapsed);
            assert!((1_700..=1_950).contains(&paused) && at(elapsed, 1_700) % 250 == 0, "{elapsed}: {paused}");
        }
        let steady = in_step(Duration::from_secs(61), Duration::ZERO, Duration::from_mins(10));
        assert_eq!(steady, Duration::from_secs(539));
    }
}
