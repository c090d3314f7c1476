//! Codes that refuse a start, and starts that fail for long.

use super::*;

#[test]
fn codes_that_pass_with_time_are_no_refusals() {
    // A webhook that denies without a code answers 400.
    for (codes, expected) in
        [(&[400, 403, 405, 413, 418, 422][..], true), (&[200, 401, 404, 408, 409, 410, 429, 500, 503, 504][..], false)]
    {
        for code in codes {
            assert_eq!(refuses(*code), expected, "{code}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_that_fails_for_a_minute_is_hopeless_unless_no_write_passes() {
    let target = (("n".to_owned(), "a".to_owned()), "uid".to_owned());
    let spoke = ReconcileError::spoke("check a target")(SpokeError::Failed("403".to_owned()));
    let target_error = |source| ReconcileError::of_other("Target", "write a target")(source);
    let write = target_error(WriteError::Failed(Box::new(kube::Error::LinesCodecMaxLineLengthExceeded)));
    let lost = target_error(WriteError::NotLeader);
    for (error, another_is_written, expected) in
        [(&spoke, false, true), (&write, false, false), (&write, true, true), (&lost, true, false)]
    {
        let mut state = TargetState::default();
        assert!(!is_hopeless(&mut state, &target, error), "{error}: the first failure");
        tokio::time::sleep(Duration::from_secs(59)).await;
        assert!(!is_hopeless(&mut state, &target, error), "{error}: less than a minute");
        state.wrote = another_is_written.then(Instant::now);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(is_hopeless(&mut state, &target, error), expected, "{error}: {another_is_written}");
    }
}
