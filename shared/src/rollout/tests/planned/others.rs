//! Writes of users and of other rollouts.

use super::*;

#[test]
fn a_persons_write_always_wins() {
    let mut hub = Hub::of(&json!({ "maxConcurrency": 1 }), &["a", "b"]);
    hub.settle();
    hub.clusters[0].spec.power_state = Some("Running".into());
    hub.later(10);
    assert_eq!(hub.settle(), ["b"]);
    let record = hub.mark("a").ended.unwrap();
    assert_eq!(
        (record.result, record.reason.as_str()),
        (Outcome::Overridden, "another client has since requested Running")
    );
    // A request that is newer than the start of the rollout, on a target without a claim.
    let mut hub = Hub::of(&json!({ "maxConcurrency": 1 }), &["a", "b"]);
    hub.settle();
    let annotations = hub.clusters[1].metadata.annotations.get_or_insert_default();
    annotations.insert("hibernate.sh/requested-at".into(), "2026-11-24T12:00:10Z".into());
    hub.reaches("a", asleep());
    assert!(hub.settle().is_empty());
    assert_eq!((hub.state("b").0.as_str(), hub.phase()), ("Overridden", RolloutPhase::Finished));
}

#[test]
fn two_opposite_rollouts_share_a_fleet() {
    let mut sleep = Hub::of(&json!({}), &["a", "b"]);
    sleep.settle();
    for name in ["a", "b"] {
        sleep.reaches(name, json!([condition("Hibernating", "False", "Stopping")]));
    }
    let mut wake = Hub::new(&json!({ "action": "Resume" }), sleep.clusters.clone());
    wake.rollout.metadata.uid = Some("theirs".into());
    wake.rollout.metadata.name = Some("morning".into());
    wake.later(5);
    assert_eq!(wake.settle(), ["a", "b"], "a Resume takes over");
    sleep.clusters = wake.clusters.clone();
    sleep.later(5);
    assert!(sleep.settle().is_empty());
    assert_eq!(sleep.state("a"), ("Deferred".to_owned(), "in progress in rollout morning".to_owned()));
    for name in ["a", "b"] {
        wake.reaches(name, awake());
    }
    wake.settle();
    assert_eq!(wake.phase(), RolloutPhase::Succeeded);
    sleep.clusters = wake.clusters.clone();
    assert!(sleep.settle().is_empty());
    assert_eq!((sleep.state("a").0.as_str(), sleep.phase()), ("Overridden", RolloutPhase::Finished));
}

#[test]
fn a_newer_hibernate_is_a_newer_request() {
    let mut wake = Hub::new(&json!({ "action": "Resume", "maxConcurrency": 1 }), vec![sleeping("a"), sleeping("b")]);
    wake.settle();
    let mut sleep = Hub::new(&json!({}), vec![cluster("b", &json!({}))]);
    sleep.rollout.metadata.uid = Some("theirs".into());
    sleep.later(20);
    sleep.settle();
    sleep.reaches("b", asleep());
    sleep.settle();
    wake.later(30);
    wake.clusters[1] = sleep.clusters[0].clone();
    wake.reaches("a", awake());
    assert!(wake.settle().is_empty());
    assert_eq!((wake.state("b").0.as_str(), wake.phase()), ("Overridden", RolloutPhase::Finished));
}

#[test]
fn a_stale_deferral_takes_no_target_of_another_rollout() {
    let mut hub = Hub::of(&json!({}), &["a"]);
    hub.checked.insert("a".into(), ("its API server does not answer".into(), now()));
    hub.settle();
    let mut other = Hub::new(&json!({}), hub.clusters.clone());
    other.rollout.metadata.uid = Some("theirs".into());
    other.settle();
    hub.clusters = other.clusters.clone();
    hub.later(60);
    assert!(hub.settle().is_empty());
    assert_eq!(hub.mark("a").uid, "theirs");
}

#[test]
fn a_forged_claim_on_a_new_object_makes_no_member() {
    let mut hub = Hub::of(&json!({ "maxFailures": 0, "maxConcurrency": 1 }), &["a", "b"]);
    hub.settle();
    let claim = hub.mark("a");
    for (name, mark) in [("x", claim.clone()), ("y", claim.end(Outcome::Failed, "", now()))] {
        let change = json!({ "metadata": {
            "creationTimestamp": "2026-11-24T12:00:05Z", "annotations": { "hibernate.sh/rollout": mark.text() },
        } });
        hub.clusters.push(cluster(name, &change));
    }
    hub.later(10);
    hub.reaches("a", asleep());
    assert_eq!((hub.settle(), hub.phase()), (vec!["b".to_owned()], RolloutPhase::Progressing));
}

#[test]
fn an_undo_gives_back_the_states_from_before() {
    let mut sleep = Hub::new(&json!({}), vec![cluster("a", &json!({})), cluster("b", &json!({})), sleeping("c")]);
    sleep.settle();
    for name in ["a", "b"] {
        sleep.reaches(name, asleep());
    }
    sleep.settle();
    let spec = json!({ "action": "Restore", "restoreOf": { "name": "night", "uid": "ours" } });
    let mut undo = Hub::new(&spec, sleep.clusters.clone());
    undo.rollout.metadata.uid = Some("undo".into());
    undo.jump(100);
    // A person has woken one of them since, and put it to sleep again.
    let annotations = undo.clusters[1].metadata.annotations.get_or_insert_default();
    annotations.insert("hibernate.sh/requested-at".into(), "2026-11-24T12:01:00Z".into());
    assert_eq!(undo.settle(), ["a"]);
    assert_eq!((undo.mark("a").wanted, undo.state("b").0.as_str()), (Power::Running, "Overridden"));
    assert_eq!(undo.state("c").0, "", "that rollout has not changed it");
}

#[test]
fn an_undo_ends_the_hold_of_the_undone_rollout_and_no_other() {
    let held = |written: &str, until: &str| {
        let record = json!({
            "v": 1, "by": "day", "uid": "undone", "action": "Resume", "group": 0, "attempt": 0, "before": "Hibernating",
            "wanted": "Running", "at": "2026-11-24T11:00:00Z", "heldUntil": written,
            "ended": { "result": "Succeeded", "at": "2026-11-24T11:05:00Z" },
        });
        let hold = json!({ "hibernate.sh/hold-awake-until": until, "hibernate.sh/rollout": record.to_string() });
        let spec = json!({ "action": "Restore", "restoreOf": { "name": "day", "uid": "undone" } });
        let mut hub = Hub::new(&spec, vec![annotated("a", &hold)]);
        (hub.settle(), hub.state("a").0)
    };
    let (noon, evening) = ("2026-11-25T12:00:00Z", "2026-11-25T20:00:00Z");
    assert_eq!(held(noon, noon), (vec!["a".to_owned()], "Progressing".to_owned()));
    assert_eq!(held(noon, evening), (vec![], "Deferred".to_owned()), "a person has held it longer since");
}
