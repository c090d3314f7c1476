//! An accepted start is no outcome: the cloud may stop the machine again.

use super::*;

const WHY: &str = "Client.InternalError: Client error on launch";
const FAILED: &str = "FailedToStartMachines";
const WAITING: &str = "WaitingForMachines";

/// A machine that was started so many seconds ago and is stopped, and one that runs.
fn machines(launched: i64, why: Option<&str>) -> Vec<Instance> {
    let stop_reason = why.map(str::to_owned);
    let stopped = Instance { launched_at: Some(at(-launched)), stop_reason, ..Instance::new("i-0", Stopped) };
    vec![stopped, Instance { launched_at: Some(at(-20)), ..Instance::new("i-1", Running) }]
}

/// The wake began 30 s ago. This process remembers nothing: it has just been restarted.
#[test]
fn a_machine_that_was_started_in_this_wake_and_is_stopped_again_is_a_failure_in_the_clouds_words() {
    let running = ("True", reason::RUNNING);
    for (case, ready, launched, why, detail) in [
        ("not started yet in this wake", ("False", WAITING), 31, Some(WHY), WAITING),
        ("started with it", ("False", WAITING), 30, Some(WHY), FAILED),
        ("started in it", ("False", WAITING), 5, Some(WHY), FAILED),
        ("the cloud does not say why", ("False", WAITING), 5, None, FAILED),
        ("after all ran once", ("False", "WaitingForNodes"), 5, Some(WHY), FAILED),
        ("somebody stops a machine of a running cluster", running, 5, Some(WHY), WAITING),
    ] {
        let cluster = waking(ready);
        let plan = decide(&facts(&cluster).listed(machines(launched, why)));
        assert_eq!((says(&plan).2, plan.actions.as_slice()), (detail, [start(&["i-0"])].as_slice()), "{case}");
        if detail == FAILED {
            let words = why.unwrap_or("the cloud gives no reason");
            let words = format!("Failed to start machines: i-0: StoppedAgain: {words} (more detail");
            assert!(message(&plan).starts_with(&words), "{case}: {}", message(&plan));
        }
    }
}

#[test]
fn starts_that_the_cloud_gives_up_are_ever_further_apart() {
    let cluster = waking(("False", FAILED));
    for (failures, pause) in [(0, 5), (1, 10), (2, 20), (9, 20)] {
        let found = |seconds_ago: i64| Facts {
            tried: Some(attempt(Verb::Start, seconds_ago, None, failures)),
            ..facts(&cluster).listed(machines(seconds_ago, Some(WHY)))
        };
        let plan = decide(&found(pause - 1));
        let retry = Requeue::Retry(Duration::from_secs(1));
        assert_eq!((says(&plan).2, plan.actions.len(), plan.requeue), (FAILED, 0, retry), "{failures}");
        assert_eq!(decide(&found(pause)).actions, [start(&["i-0"])], "{failures}");
    }
}

#[test]
fn the_clouds_words_stand_until_the_machine_runs() {
    let cluster = waking(("False", FAILED));
    let given_up = facts(&cluster).listed(machines(10, Some(WHY))).given_up(Verb::Start);
    assert_eq!(given_up.len(), 1);
    for (case, seconds_ago, states, detail) in [
        ("on its way again", 2, [Pending, Running], FAILED),
        ("it runs, another does not yet", 2, [Running, Pending], WAITING),
        ("what was in an earlier wake", 40, [Pending, Running], WAITING),
    ] {
        let tried = LastAttempt { given_up: given_up.clone(), ..attempt(Verb::Start, seconds_ago, None, 1) };
        let plan = decide(&Facts { tried: Some(tried), ..facts(&cluster).machines_are(&states) });
        assert_eq!((says(&plan).2, plan.actions.len()), (detail, 0), "{case}");
    }
}

/// A machine that an autoscaler makes changes no state; one that was started here, because it had been stopped, is
/// awaited.
#[test]
fn a_machine_of_a_running_cluster_that_was_started_is_awaited() {
    let cluster = waking(("True", reason::RUNNING));
    for (case, tried, states, detail) in [
        ("started just now", Some(1), [Pending, Running], WAITING),
        ("it runs", Some(1), [Running, Running], reason::RUNNING),
        ("the start was that of the wake", Some(7200), [Pending, Running], reason::RUNNING),
        ("nothing was started", None, [Pending, Running], reason::RUNNING),
    ] {
        let tried = tried.map(|seconds_ago| attempt(Verb::Start, seconds_ago, None, 0));
        let plan = decide(&Facts { tried, ..facts(&cluster).machines_are(&states) });
        assert_eq!((says(&plan).2, plan.actions.len()), (detail, 0), "{case}");
    }
}
