//! When to reconcile: reconciles that fall into step share calls to the cloud.

use std::time::Duration;

/// Reconciles that follow a pause fall into step by this: a hundred clusters on their way then share a few calls a
/// round.
pub const STEP: Duration = Duration::from_millis(250);

/// At least `pause`, up to the next step: targets that wait about as long are listed at the same moment, and so by one
/// call.
pub fn in_step(elapsed: Duration, pause: Duration, step: Duration) -> Duration {
    let step = step.as_nanos().max(1);
    let past = (elapsed + pause).as_nanos() % step;
    pause + Duration::from_nanos(u64::try_from(step - past).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_that_wait_about_as_long_are_reconciled_at_the_same_moment() {
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
