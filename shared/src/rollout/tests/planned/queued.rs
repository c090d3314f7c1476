//! Rollouts of a requester who has too many.

use super::*;

const WHY: &str = "ann has 50 unfinished rollouts";

#[test]
fn a_rollout_waits_for_its_turn_and_can_be_ended_before() {
    let names = json!({ "all": false, "names": [{ "namespace": "fleet", "name": "a" }] });
    let mut hub = Hub { queued: Some(WHY), ..Hub::of(&json!({ "targets": names, "groups": [] }), &["a"]) };
    // What the controller keeps of it has no names.
    let whole = std::mem::take(&mut hub.rollout.spec.targets);
    assert!(hub.settle().is_empty());
    let status = hub.rollout.status.clone().unwrap();
    let reasons: Vec<&str> = status.conditions.iter().map(|condition| condition.reason.as_str()).collect();
    assert_eq!((hub.phase(), hub.message().as_str()), (RolloutPhase::Waiting, WHY));
    assert_eq!((reasons, status.started_at, hub.snapshot.clone()), (vec!["TooManyRollouts"; 2], None, None));
    assert_eq!(hub.plan().requeue_at, Some(hub.now + SignedDuration::from_secs(30)), "it looks for its turn");
    for (abort, seconds, phase, message) in [
        (true, 0, RolloutPhase::Aborted, "0 of 0 targets are in their state"),
        (false, 7_200, RolloutPhase::Finished, "notAfter has passed: ann has 50 unfinished rollouts"),
    ] {
        let mut ended = Hub { rollout: hub.rollout.clone(), queued: Some(WHY), ..Hub::of(&json!({}), &["a"]) };
        ended.rollout.spec.abort = abort;
        ended.jump(seconds);
        ended.settle();
        assert_eq!((ended.phase(), ended.message().as_str()), (phase, message));
    }
    (hub.queued, hub.rollout.spec.targets) = (None, whole);
    assert_eq!(hub.settle(), ["a"]);
    let conditions = hub.rollout.status.clone().unwrap().conditions;
    assert!(conditions.iter().all(|condition| condition.reason == "Progressing"), "{conditions:#?}");
}
