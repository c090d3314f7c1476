//! Deadlines, failures and the ways out of a halt, pauses, aborts.

use super::*;

#[test]
fn too_many_failures_halt_until_a_person_decides() {
    let spec = json!({ "maxConcurrency": 2, "maxFailures": 0, "deadline": "1m" });
    let halted = || {
        let mut hub = Hub::of(&spec, &["a", "b", "c"]);
        hub.settle();
        hub.fails("a");
        assert!(hub.settle().is_empty());
        assert_eq!(hub.phase(), RolloutPhase::Halted);
        assert!(hub.message().starts_with("too many failures in the remaining targets"), "{}", hub.message());
        hub.later(10);
        hub.reaches("b", asleep());
        assert!(hub.settle().is_empty(), "what is under way finishes, nothing starts");
        assert_eq!(hub.mark("b").ended.unwrap().result, Outcome::Succeeded);
        hub
    };
    let mut hub = halted();
    hub.later(50);
    hub.settle();
    let record = hub.mark("a").ended.unwrap();
    assert_eq!(record.result, Outcome::Failed);
    // It stays halted when the failed target is gone: only a person ends a halt.
    let mut without = Hub { clusters: hub.clusters[1..].to_vec(), ..halted() };
    assert!(without.settle().is_empty());
    assert_eq!(without.phase(), RolloutPhase::Halted);
    // Accepting goes on without the failed.
    hub.rollout.spec.accept_failures = 1;
    assert_eq!(hub.settle(), ["c"]);
    assert_eq!(hub.phase(), RolloutPhase::Progressing);
    // Retrying takes it again.
    let mut hub = halted();
    hub.later(50);
    hub.settle();
    hub.rollout.spec.retry_failed = 1;
    let mut started = hub.settle();
    started.sort();
    assert_eq!(started, ["a", "c"]);
    assert_eq!((hub.mark("a").attempt, hub.mark("a").before), (1, Power::Running));
    assert_eq!(
        (hub.state("a").0.as_str(), hub.phase()),
        ("Progressing", RolloutPhase::Progressing),
        "no new failure yet"
    );
    // Another failure halts again.
    hub.later(5);
    hub.fails("a");
    hub.settle();
    assert_eq!(hub.phase(), RolloutPhase::Halted);
}

#[test]
fn a_pause_stops_starts_and_the_soak_and_no_deadline() {
    let spec = json!({ "maxConcurrency": 2, "minSuccessTime": "1m", "deadline": "5m" });
    let mut hub = Hub::of(&spec, &["a", "b", "c"]);
    hub.settle();
    hub.reaches("a", asleep());
    hub.rollout.spec.paused = true;
    hub.later(59);
    assert!(hub.settle().is_empty());
    assert_eq!(hub.phase(), RolloutPhase::Paused);
    hub.later(200);
    assert!(hub.mark("a").ended.is_none(), "its minSuccessTime does not run");
    hub.later(60);
    assert_eq!(hub.mark("b").ended.unwrap().result, Outcome::TimeOut);
    hub.rollout.spec.paused = false;
    hub.settle();
    hub.later(61);
    hub.settle();
    assert_eq!(hub.mark("a").ended.unwrap().result, Outcome::Succeeded);
}

#[test]
fn abort_and_not_after_end_the_starts_and_reverse_nothing() {
    for end in [json!({ "abort": true }), json!({ "notAfter": "2026-11-24T12:00:00Z" })] {
        let mut hub = Hub::of(&json!({ "maxConcurrency": 1 }), &["a", "b"]);
        hub.settle();
        let mut object = json!(hub.rollout);
        json_patch::merge(&mut object, &json!({ "spec": end }));
        hub.rollout = serde_json::from_value(object).unwrap();
        hub.settle();
        assert_eq!(hub.phase(), RolloutPhase::Progressing, "{end}: one is under way");
        hub.reaches("a", asleep());
        assert!(hub.settle().is_empty());
        let over = if hub.rollout.spec.abort { RolloutPhase::Aborted } else { RolloutPhase::Finished };
        assert_eq!((hub.phase(), hub.clusters[1].spec.power_state.as_deref()), (over, Some("Running")));
        assert!(hub.rollout.status.as_ref().unwrap().finished_at.is_some());
    }
}

#[test]
fn a_deadline_runs_only_while_a_leader_observes() {
    let mut hub = Hub::of(&json!({ "deadline": "2m" }), &["a"]);
    hub.settle();
    hub.later(60);
    hub.settle();
    // No leader for an hour.
    hub.jump(3_600);
    hub.settle();
    assert!(hub.mark("a").ended.is_none());
    assert_eq!(hub.rollout.status.as_ref().unwrap().unobserved.len(), 1);
    hub.later(50);
    assert!(hub.mark("a").ended.is_none());
    hub.later(20);
    let record = hub.mark("a").ended.unwrap();
    assert_eq!((record.result, record.reason.as_str()), (Outcome::TimeOut, "not Hibernating within 2m0s"));
}

#[test]
fn a_soak_ends_after_an_abort_although_the_rollout_is_paused() {
    let mut hub = Hub::of(&json!({ "minSuccessTime": "1m" }), &["a"]);
    hub.settle();
    hub.reaches("a", asleep());
    hub.rollout.spec.paused = true;
    hub.later(30);
    hub.rollout.spec.abort = true;
    hub.later(70);
    assert_eq!((hub.phase(), hub.mark("a").ended.unwrap().result), (RolloutPhase::Aborted, Outcome::Succeeded));
}

#[test]
fn a_failing_target_is_retried_before_its_deadline_and_accepted_once() {
    let failing = || {
        let mut hub = Hub::of(&json!({ "maxFailures": 0, "maxConcurrency": 1, "deadline": "5m" }), &["a", "b"]);
        hub.settle();
        hub.later(20);
        hub.fails("a");
        hub.later(10);
        assert_eq!((hub.settle().len(), hub.phase()), (0, RolloutPhase::Halted));
        hub
    };
    let mut retried = failing();
    retried.rollout.spec.retry_failed = 1;
    assert_eq!(retried.settle(), ["a"]);
    assert_eq!((retried.mark("a").attempt, retried.phase()), (1, RolloutPhase::Progressing));
    retried.reaches("a", asleep());
    assert_eq!(retried.settle(), ["b"]);
    let mut accepted = failing();
    accepted.rollout.spec.accept_failures = 1;
    accepted.later(400);
    assert_eq!((accepted.settle(), accepted.phase()), (vec!["b".to_owned()], RolloutPhase::Progressing));
    assert_eq!(accepted.mark("a").ended.unwrap().result, Outcome::Failed);
}

#[test]
fn a_retry_after_not_after_waits_until_targets_may_start() {
    let mut hub = Hub::of(&json!({ "deadline": "1m" }), &["a"]);
    hub.settle();
    hub.later(100);
    assert_eq!(hub.phase(), RolloutPhase::Finished);
    hub.now = "2026-11-24T15:00:00Z".parse().unwrap();
    hub.rollout.spec.retry_failed = 1;
    assert!(hub.settle().is_empty() && !is_over(&hub.rollout));
    assert_eq!((hub.state("a").0.as_str(), hub.phase()), ("TimeOut", RolloutPhase::Finished));
    assert!(hub.message().ends_with("retryFailed waits: notAfter has passed"), "{}", hub.message());
    hub.rollout.spec.not_after.0 = "2026-11-24T16:00:00Z".parse().unwrap();
    assert_eq!(hub.settle(), ["a"]);
}

#[test]
fn a_halt_that_a_retry_after_not_after_meets_ends_once_targets_may_start() {
    let mut hub = Hub::of(&json!({ "deadline": "1m", "maxFailures": 0, "maxConcurrency": 1 }), &["a", "b"]);
    hub.settle();
    hub.later(100);
    assert_eq!(hub.phase(), RolloutPhase::Halted);
    hub.now = "2026-11-24T15:00:00Z".parse().unwrap();
    hub.settle();
    assert_eq!(hub.phase(), RolloutPhase::Finished);
    hub.rollout.spec.retry_failed = 1;
    assert!(hub.settle().is_empty());
    hub.rollout.spec.not_after.0 = "2026-11-24T16:00:00Z".parse().unwrap();
    assert_eq!((hub.settle(), hub.phase()), (vec!["a".to_owned()], RolloutPhase::Progressing));
}

#[test]
fn a_rollout_whose_targets_have_ended_does_not_wait_for_its_wake_at() {
    let mut hub = Hub::of(&json!({ "wakeAt": "2026-11-24T12:10:00Z" }), &["a"]);
    hub.settle();
    hub.reaches("a", asleep());
    hub.now = "2026-11-24T12:20:00Z".parse().unwrap();
    hub.settle();
    assert_eq!((hub.phase(), hub.message()), (RolloutPhase::Succeeded, String::new()));
}

#[test]
fn a_retry_that_cannot_start_any_more_leaves_no_claim() {
    for aborts in [true, false] {
        let mut hub = Hub::of(&json!({ "deadline": "2m", "maxFailures": 0 }), &["a"]);
        hub.settle();
        hub.fails("a");
        hub.settle();
        hub.rollout.spec.paused = true;
        hub.rollout.spec.retry_failed = 1;
        assert!(hub.settle().is_empty(), "paused");
        if aborts {
            hub.rollout.spec.abort = true;
        } else {
            hub.rollout.spec.not_after.0 = hub.now;
        }
        hub.later(130);
        assert_eq!(hub.mark("a").ended.unwrap().result, Outcome::Failed);
        let over = if aborts { RolloutPhase::Aborted } else { RolloutPhase::Finished };
        assert_eq!(hub.phase(), over, "{}", hub.message());
    }
}

#[test]
fn what_never_had_a_target_does_not_succeed() {
    let undo = json!({ "action": "Restore", "restoreOf": { "name": "night", "uid": "gone" } });
    for (spec, detail) in [(json!({}), "selects no targets"), (undo, "has a record of rollout night with UID gone")] {
        let mut hub = Hub::of(&spec, &[]);
        hub.settle();
        assert_eq!(hub.phase(), RolloutPhase::Waiting);
        assert!(hub.message().contains(detail), "{}", hub.message());
        hub.rollout.spec.not_after.0 = hub.now;
        hub.settle();
        assert_eq!(hub.phase(), RolloutPhase::Finished);
        assert!(hub.message().contains(detail), "{}", hub.message());
    }
}

#[test]
fn targets_that_were_in_their_state_all_along_succeed_although_nothing_started() {
    let mut hub = Hub::new(&json!({ "paused": true }), vec![sleeping("a"), sleeping("b")]);
    hub.settle();
    assert_eq!(hub.phase(), RolloutPhase::Planned);
    hub.rollout.spec.not_after.0 = hub.now;
    hub.settle();
    assert_eq!((hub.phase(), hub.message().as_str()), (RolloutPhase::Succeeded, ""));
}

#[test]
fn a_rollout_that_is_over_asks_for_no_approval() {
    let group = json!({ "name": "canary", "names": [{ "namespace": "fleet", "name": "a" }], "pauseAfter": true });
    let mut hub = Hub::of(&json!({ "groups": [group] }), &["a"]);
    hub.settle();
    hub.reaches("a", asleep());
    hub.settle();
    assert_eq!(hub.phase(), RolloutPhase::Succeeded, "{}", hub.message());
    assert_eq!(hub.rollout.status.unwrap().awaits_approval, None);
}
