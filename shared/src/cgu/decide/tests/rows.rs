//! Rows of section 2, and the differences from TALM.

use super::*;
use crate::cgu::conditions::{CLUSTERS_SELECTED, VALIDATED};

const ONE: Matrix<'static> = &[("policy1", &["spoke1", "spoke2", "spoke3"], &["spoke6"])];

fn started(spec: Value) -> Hub {
    let mut hub = Hub::new(spec, ONE);
    hub.settle();
    hub
}

fn three(strategy: &Value) -> Value {
    json!({ "clusters": ["spoke1", "spoke2", "spoke3"], "remediationStrategy": strategy })
}

/// Row 1
#[test]
fn what_is_deleted_leaves_nothing_behind() {
    let mut hub = started(three(&json!({ "maxConcurrency": 2 })));
    hub.comply(&[("spoke1", "policy1")]);
    hub.upgrade.metadata.deletion_timestamp = Some(Time(hub.now));
    let acts = hub.plan().acts;
    assert_eq!(acts, [Act::DeleteViews("spoke2".to_owned(), true), Act::DeleteObjects]);
    hub.settle();
    assert!(hub.is_gone && hub.placements.is_empty());
    assert_eq!(hub.labels("spoke2"), ["ztp-running"], "as TALM");

    for (deletes, acts) in [(true, vec![]), (false, vec![Act::DeleteObjects])] {
        let after = json!({ "afterCompletion": { "deleteObjects": deletes } });
        let mut hub = started(json!({ "clusters": ["spoke6"], "actions": after }));
        hub.upgrade.metadata.deletion_timestamp = Some(Time(hub.now));
        assert_eq!(hub.plan().acts, acts, "{deletes}");
    }
}

/// Row 3
#[test]
fn an_end_is_final() {
    let mut hub =
        started(json!({ "clusters": ["spoke6"], "actions": { "afterCompletion": { "deleteObjects": false } } }));
    assert_eq!(hub.condition(SUCCEEDED), "True/Completed");
    let before = hub.upgrade.status.clone();
    hub.spec(|spec| spec.clusters = vec!["spoke1".to_owned()]);
    assert_eq!(hub.upgrade.status, before);
    // Only what is not final is decided again once a cluster has run for long enough.
    for (hub, is_final) in [(hub, true), (started(three(&json!({ "maxConcurrency": 1 }))), false)] {
        let settles_at = Some(hub.now + SignedDuration::from_secs(1));
        let plan = decide(&Facts { settles_at, ..hub.facts() });
        assert_eq!(plan.requeue_at, settles_at.filter(|_| !is_final));
    }
}

/// Rows 4, 6 and 8
#[test]
fn what_is_wrong_before_the_start_is_named_once() {
    for (spec, type_, reason) in [
        (json!({}), CLUSTERS_SELECTED, "False/ClusterNotFound"),
        (json!({ "clusters": ["x"] }), CLUSTERS_SELECTED, "False/ClusterNotFound"),
        (json!({ "clusters": ["spoke1"], "managedPolicies": ["none"] }), VALIDATED, "False/NotAllManagedPoliciesExist"),
        (json!({ "clusters": ["spoke1"], "backup": true }), VALIDATED, "False/NotServed"),
        (json!({ "clusters": ["spoke6"], "manifestWorkTemplates": ["a"] }), VALIDATED, "False/NotServed"),
    ] {
        let mut hub = started(spec.clone());
        hub.later(600);
        assert_eq!(hub.condition(type_), reason, "{spec}");
        assert_eq!(hub.events[1], "RemediationOnHoldDueToValidationFailure", "{spec}");
        assert_eq!((hub.events.len(), hub.placements.len()), (2, 0), "{spec}: {:?}", hub.events);
    }
    let mut hub = started(json!({ "clusters": ["spoke1"], "backup": true }));
    assert_eq!(hub.message(VALIDATED), "spec.backup is not served by hibernate-controller: remove it, or let TALM run");
    hub.spec(|spec| spec.backup = false);
    assert_eq!(hub.conditions([VALIDATED, PROGRESSING]), ["True/ValidationCompleted", "True/InProgress"]);
}

/// Its objects have its name in a label.
#[test]
fn a_name_that_is_too_long_for_a_label_is_refused() {
    for (length, expected) in [(63, "True/ValidationCompleted"), (64, "False/NotServed")] {
        let mut hub = Hub::new(json!({ "clusters": ["spoke1"] }), ONE);
        hub.upgrade.metadata.name = Some("x".repeat(length));
        hub.settle();
        assert_eq!(hub.condition(VALIDATED), expected);
        assert_eq!(hub.placements.is_empty(), length > 63);
        assert_eq!(hub.message(VALIDATED).starts_with("metadata.name has 64 characters"), length > 63);
    }
}

/// Row 7
#[test]
fn a_release_that_is_incomplete_starts_nothing() {
    let mut hub = Hub::new(json!({ "clusters": ["spoke1"] }), ONE);
    hub.root("policy1").templates.as_mut().unwrap().releases = vec![Release::default()];
    hub.settle();
    assert_eq!(hub.conditions([VALIDATED, PROGRESSING]), ["False/InvalidPlatformImage", ""]);
    assert_eq!(hub.events, ["BuildingRemediationPlan"]);
}

/// Row 14: a cycle is named, in the condition and once in an Event.
#[test]
fn upgrades_that_wait_for_each_other_are_named() {
    let mut spec = three(&json!({ "maxConcurrency": 3 }));
    spec["blockingCRs"] = json!([{ "name": "a", "namespace": "default" }]);
    let mut hub = Hub::new(spec, ONE);
    hub.blocks("a", ClusterGroupUpgradeStatus::default());
    hub.cycle = vec![policy("cgu"), policy("a"), policy("cgu")];
    hub.settle();
    assert_eq!(hub.condition(PROGRESSING), "False/IncompleteBlockingCR");
    let message =
        "Blocking CRs that are not completed: [a], which wait for each other: default/cgu -> default/a -> default/cgu";
    assert_eq!(hub.message(PROGRESSING), message);
    assert_eq!(hub.events, ["BuildingRemediationPlan", "RemediationStarted"]);
    hub.later(60);
    assert_eq!(hub.events.len(), 2, "once");
}

/// Row 14: `partial` passes a blocker that has failed, not one under way. Row 16: who is left keeps the order.
#[test]
fn a_partial_blocker_lets_its_complete_clusters_through() {
    let mut spec = three(&json!({ "maxConcurrency": 3 }));
    spec["blockingCRs"] = json!([{ "name": "a", "namespace": "default" }, { "name": "b", "namespace": "default" }]);
    let blocker = |succeeded: Option<&str>, complete: &[&str]| {
        let clusters: Vec<Value> = complete.iter().map(|name| json!({ "name": name, "state": "complete" })).collect();
        let mut status: ClusterGroupUpgradeStatus = serde_json::from_value(json!({ "clusters": clusters })).unwrap();
        conditions::set(&mut status.conditions, Timestamp::UNIX_EPOCH, PROGRESSING, "True", "InProgress", "");
        if let Some(succeeded) = succeeded {
            conditions::set(&mut status.conditions, Timestamp::UNIX_EPOCH, SUCCEEDED, succeeded, "TimedOut", "");
        }
        status
    };
    let (none, partial) = (json!({}), json!({ COMPLETION_MODE: "partial" }));
    let filtering = json!({ COMPLETION_MODE: "partial", CLUSTER_FILTERING: "true" });
    let all = vec!["spoke1", "spoke2", "spoke3"];
    for (annotations, second, expected, plan) in [
        (&partial, None, "False/IncompleteBlockingCR", [all.clone()]),
        (&none, Some(&["spoke3", "spoke1"][..]), "False/IncompleteBlockingCR", [all.clone()]),
        (&partial, Some(&["spoke3"]), "True/InProgress", [all.clone()]),
        (&filtering, Some(&["spoke3", "spoke1"]), "True/InProgress", [vec!["spoke1", "spoke3"]]),
        (&filtering, Some(&[]), "False/Completed", [all.clone()]),
    ] {
        let mut hub = Hub::new(spec.clone(), ONE);
        hub.upgrade.metadata.annotations = serde_json::from_value(annotations.clone()).unwrap();
        hub.blocks("a", blocker(Some("True"), &["spoke1", "spoke2", "spoke3"]));
        hub.blocks("b", blocker(second.map(|_| "False"), second.unwrap_or_default()));
        hub.settle();
        assert_eq!(hub.condition(PROGRESSING), expected, "{annotations}");
        assert_eq!(hub.status().remediation_plan, plan, "{annotations}");
        assert!(plan[0].len() != 2 || hub.labels("spoke2").is_empty(), "who is dropped is not written");
    }
}

/// Row 19, before the first batch: no cluster has started, and none is recorded (row 42).
#[test]
fn without_time_nobody_is_recorded() {
    let mut hub = Hub::new(three(&json!({ "maxConcurrency": 2, "timeout": -1 })), ONE);
    hub.settle();
    assert_eq!((hub.condition(SUCCEEDED).as_str(), hub.records().len()), ("False/TimedOut", 0));
    assert_eq!(hub.events[hub.events.len() - 2..], ["RemediationInBatchStarted", "RemediationTimeout"]);
}

/// Row 22: who decides what follows a batch whose time is over, in any letter case; a canary is one by name.
#[test]
fn a_batch_whose_time_is_over_ends_or_goes_on() {
    let canaries = |canaries: Value| three(&json!({ "maxConcurrency": 1, "timeout": 9, "canaries": canaries }));
    for (spec, action, expected, records) in [
        (three(&json!({ "maxConcurrency": 1, "timeout": 9 })), "", "", vec!["spoke1 timedout"]),
        (three(&json!({ "maxConcurrency": 1, "timeout": 9 })), "Continue", "", vec!["spoke1 timedout"]),
        (three(&json!({ "maxConcurrency": 1, "timeout": 9 })), "abort", " on some clusters", vec!["spoke1 timedout"]),
        (three(&json!({ "maxConcurrency": 1, "timeout": 9 })), "Abort", " on some clusters", vec!["spoke1 timedout"]),
        (canaries(json!(["spoke2"])), "Continue", " on canary clusters", vec![]),
    ] {
        let mut hub = Hub::new(spec, ONE);
        hub.spec(|spec| action.clone_into(&mut spec.batch_timeout_action));
        assert_eq!(hub.plan().requeue_at.unwrap().duration_since(hub.now).as_secs(), 180, "a third of nine minutes");
        hub.later(180);
        assert_eq!(hub.records(), [""; 0], "the limit is not exceeded");
        hub.at_limit();
        assert_eq!(hub.records(), records, "{action}");
        let message = hub.status().condition(SUCCEEDED).map(|end| end.message.clone()).unwrap_or_default();
        let wanted =
            if expected.is_empty() { String::new() } else { format!("Policy remediation took too long{expected}") };
        assert_eq!(message, wanted, "{action}");
    }
    // Case 4 of section 3: a canary that complied at first is no reason to treat the first batch as one.
    let mut spec = canaries(json!(["spoke6"]));
    spec["clusters"] = json!(["spoke6", "spoke1", "spoke2"]);
    let mut hub = started(spec);
    hub.at_limit();
    assert_eq!(
        (hub.records(), hub.status().status.current_batch),
        (vec!["spoke6 complete".to_owned(), "spoke1 timedout".to_owned()], 2)
    );
}

/// `BatchTimeout` of section 5.2: minutes, batches, current one, seconds since the start, and the limit in minutes.
#[test]
fn a_batch_has_its_share_of_the_time_that_is_left() {
    for (timeout, batches, current, elapsed, limit) in [
        (100, 1, 1, 0, 100),
        (200, 2, 1, 0, 100),
        (200, 2, 2, 6000, 100),
        (240, 5, 1, 0, 48),
        (240, 5, 2, 2400, 50),
        (240, 5, 5, 6000, 140),
        (100, 100, 100, 3000, 50),
        // Out of time, or of sense.
        (0, 2, 1, 0, 0),
        (-5, 2, 1, 0, 0),
        (10, 2, 2, 900, 0),
        (i64::MAX, 0, i64::MIN, 0, 153_722_867_280_912_930),
    ] {
        let started = Timestamp::from_second(1_000_000).unwrap();
        let batch_started = Timestamp::from_second(1_000_000 + elapsed).unwrap();
        let found = super::super::batch::batch_limit(timeout, batches, current, started, batch_started);
        assert_eq!(found.as_secs() / 60, limit, "{timeout} {batches} {current} {elapsed}");
    }
}

/// Row 23: an earlier cluster that regresses is waited for, and not enforced (row 45).
#[test]
fn the_last_batch_waits_for_earlier_ones() {
    let mut hub = started(three(&json!({ "maxConcurrency": 2 })));
    hub.comply(&[("spoke1", "policy1"), ("spoke2", "policy1")]);
    hub.set("spoke1", "policy1", Compliance::NonCompliant);
    hub.comply(&[("spoke3", "policy1")]);
    assert_eq!((hub.condition(PROGRESSING).as_str(), hub.selected("policy1")), ("True/InProgress", vec!["spoke3"]));
    hub.comply(&[("spoke1", "policy1")]);
    assert_eq!(hub.condition(SUCCEEDED), "True/Completed");
}

/// Difference 1: compliance after a time-out completes the upgrade, for a day.
#[test]
fn a_time_out_is_undone_by_late_compliance() {
    for (annotation, hours, expected) in [
        (None, 23, "True/Completed"),
        (None, 25, "False/TimedOut"),
        (Some("false"), 23, "False/TimedOut"),
        (Some("true"), 23, "True/Completed"),
    ] {
        let mut hub = started(three(&json!({ "maxConcurrency": 3, "timeout": 1 })));
        hub.upgrade.metadata.annotations =
            annotation.map(|value| BTreeMap::from([(LATE_COMPLETION.to_owned(), value.to_owned())]));
        hub.comply(&[("spoke1", "policy1")]);
        hub.later(61);
        assert_eq!((hub.condition(SUCCEEDED).as_str(), hub.placements.len()), ("False/TimedOut", 0));
        hub.later(hours * 3_600);
        assert_eq!(is_final(&hub.upgrade, hub.now), expected == "False/TimedOut", "{annotation:?} {hours}");
        hub.comply(&[("spoke2", "policy1")]);
        assert_eq!(hub.condition(SUCCEEDED), "False/TimedOut", "one of them does not comply");
        hub.comply(&[("spoke3", "policy1")]);
        assert_eq!(hub.condition(SUCCEEDED), expected, "{annotation:?} {hours}");
        let states = if expected == "True/Completed" { "complete" } else { "timedout" };
        assert_eq!(
            hub.records(),
            ["spoke1 complete".to_owned(), format!("spoke2 {states}"), format!("spoke3 {states}")]
        );
        assert_eq!(hub.labels("spoke3"), [if states == "complete" { "ztp-done" } else { "ztp-running" }]);
        let ends = hub.events.iter().filter(|event| *event == "RemediationCompleted").count();
        assert_eq!(ends, usize::from(states == "complete"));
    }
}

/// Step 9: what a cluster that sleeps has last said is not believed: it is planned, and never complete.
#[test]
fn a_cluster_that_sleeps_is_never_complete() {
    let spec =
        json!({ "clusters": ["spoke1", "spoke6"], "remediationStrategy": { "maxConcurrency": 2, "timeout": 1 } });
    let mut hub = Hub::new(spec, ONE);
    hub.asleep.insert("spoke6".to_owned());
    hub.comply(&[("spoke1", "policy1")]);
    assert_eq!(hub.status().remediation_plan, [["spoke6"]]);
    assert_eq!((hub.progress("spoke6").as_str(), hub.labels("spoke6")), ("InProgress 0", vec!["ztp-running"]));
    assert_eq!(hub.events.iter().filter(|event| *event == "RemediationInBatchStarted").count(), 2, "and who sleeps");
    hub.later(61);
    assert_eq!(hub.records(), ["spoke1 complete", "spoke6 timedout"]);
    hub.asleep.clear();
    hub.settle();
    assert_eq!((hub.condition(SUCCEEDED).as_str(), hub.labels("spoke6")), ("True/Completed", vec!["ztp-done"]));
}

/// Row 23: a cluster that this upgrade has completed may sleep.
#[test]
fn a_complete_cluster_that_sleeps_holds_up_no_other() {
    let mut hub = started(three(&json!({ "maxConcurrency": 2 })));
    hub.comply(&[("spoke1", "policy1"), ("spoke2", "policy1")]);
    hub.asleep.insert("spoke1".to_owned());
    hub.settle();
    assert_eq!(hub.condition(PROGRESSING), "True/InProgress", "spoke3 does not comply");
    hub.comply(&[("spoke3", "policy1")]);
    assert_eq!(hub.condition(SUCCEEDED), "True/Completed");
}

/// Difference 1: a cluster that no policy lists any more has never complied.
#[test]
fn a_time_out_stays_while_a_cluster_is_not_listed() {
    let mut hub = started(three(&json!({ "maxConcurrency": 3, "timeout": 1 })));
    hub.comply(&[("spoke1", "policy1"), ("spoke2", "policy1")]);
    hub.later(61);
    assert_eq!(hub.condition(SUCCEEDED), "False/TimedOut");
    // One that was complete may sleep.
    hub.asleep.insert("spoke1".to_owned());
    hub.root("policy1").compliance.as_mut().unwrap().remove("spoke3");
    hub.settle();
    assert_eq!((hub.condition(SUCCEEDED).as_str(), hub.labels("spoke3")), ("False/TimedOut", vec!["ztp-running"]));
    hub.comply(&[("spoke3", "policy1")]);
    assert_eq!((hub.condition(SUCCEEDED).as_str(), hub.labels("spoke3")), ("True/Completed", vec!["ztp-done"]));
}

/// Difference 1: a policy is for some clusters only. What has dropped a cluster since it timed out there does not count.
#[test]
fn a_late_completion_asks_the_policies_that_list_a_cluster() {
    const TWO: Matrix<'static> = &[("policy1", &["spoke1"], &["spoke2"]), ("policy2", &["spoke2"], &[])];
    for drops in [false, true] {
        let strategy = json!({ "maxConcurrency": 2, "timeout": 1 });
        let mut hub = Hub::new(json!({ "clusters": ["spoke1", "spoke2"], "remediationStrategy": strategy }), TWO);
        hub.settle();
        hub.later(61);
        assert_eq!(hub.condition(SUCCEEDED), "False/TimedOut");
        hub.set("spoke1", "policy1", Compliance::Compliant);
        if drops {
            hub.root("policy2").compliance.as_mut().unwrap().remove("spoke2");
        } else {
            hub.set("spoke2", "policy2", Compliance::Compliant);
        }
        hub.settle();
        assert_eq!(hub.condition(SUCCEEDED), if drops { "False/TimedOut" } else { "True/Completed" });
    }
}

/// Row 21: in every batch, the last one included.
#[test]
fn a_policy_that_is_deleted_midway_is_named_once() {
    const TWO: Matrix<'static> =
        &[("policy1", &["spoke1", "spoke2"], &[]), ("policy2", &["spoke1", "spoke2"], &["spoke6"])];
    for size in [1, 2] {
        let strategy = json!({ "maxConcurrency": size });
        let mut hub = Hub::new(json!({ "clusters": ["spoke1", "spoke2"], "remediationStrategy": strategy }), TWO);
        hub.settle();
        let root = hub.known.roots.remove(&policy("policy2")).unwrap();
        hub.comply(&[("spoke1", "policy1")]);
        let message = "Remediating non-compliant policies. Missing managed policies: [policy2] ";
        assert_eq!((hub.condition(PROGRESSING).as_str(), hub.message(PROGRESSING)), ("True/InProgress", message));
        assert_eq!((hub.progress("spoke1").as_str(), hub.selected("policy2").len()), ("InProgress 1", 0));
        hub.later(60);
        let told = hub.events.iter().filter(|event| *event == "RemediationOnHoldDueToValidationFailure").count();
        assert_eq!(told, 1, "{:?}", hub.events);
        hub.known.roots.insert(policy("policy2"), root);
        hub.settle();
        assert_eq!(hub.message(PROGRESSING), "Remediating non-compliant policies");
        assert_eq!(hub.selected("policy2"), ["spoke1"]);
    }
}

/// TALM has started it with manifest works: it has no policies, or its policies say nothing.
#[test]
fn a_rollout_of_manifest_works_is_left_to_talm() {
    for (templates, has_policies) in [(&["works"][..], false), (&["works"], true), (&[], false)] {
        let mut hub = started(three(&json!({ "maxConcurrency": 3 })));
        hub.upgrade.spec.manifest_work_templates = templates.iter().map(ToString::to_string).collect();
        if !has_policies {
            hub.upgrade.status.as_mut().unwrap().managed_policies_for_upgrade.clear();
        }
        let (status, events) = (hub.upgrade.status.clone(), hub.events.len());
        hub.comply(&[("spoke1", "policy1"), ("spoke2", "policy1"), ("spoke3", "policy1")]);
        hub.later(20_000);
        assert_eq!((&hub.upgrade.status, hub.events.len()), (&status, events), "{templates:?} {has_policies}");
        assert_eq!(hub.labels("spoke1"), ["ztp-running"], "{templates:?} {has_policies}");
        hub.upgrade.metadata.deletion_timestamp = Some(Time(hub.now));
        hub.settle();
        assert!(hub.is_gone, "{templates:?} {has_policies}");
    }
}
