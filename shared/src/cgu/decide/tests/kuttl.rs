//! The cases of section 5.1.

use super::*;

const TWO: Matrix<'static> =
    &[("policy1", &["spoke1", "spoke4"], &["spoke6"]), ("policy2", &["spoke1", "spoke4"], &["spoke6"])];

/// upgrade-complete: the golden trace.
#[test]
fn upgrade_complete() {
    let mut hub = Hub::new(json!({ "clusters": ["spoke1", "spoke4", "spoke6"], "enable": false }), TWO);
    hub.settle();
    assert_eq!(hub.condition(PROGRESSING), "False/NotEnabled");
    assert_eq!(hub.status().remediation_plan, [["spoke1"], ["spoke4"]]);
    assert_eq!(hub.placements.len(), 2);
    assert!(hub.placements.values().all(BTreeSet::is_empty));
    assert_eq!(hub.events, ["BuildingRemediationPlan"]);
    assert_eq!(hub.status().placements, ["cgu-policy1-placement-abcde", "cgu-policy2-placement-abcde"]);
    assert_eq!(hub.labels("spoke6"), [""; 0]);

    hub.spec(|spec| spec.enable = true);
    hub.settle();
    assert_eq!(hub.condition(PROGRESSING), "True/InProgress");
    assert_eq!(
        (hub.labels("spoke1"), hub.labels("spoke4"), hub.labels("spoke6")),
        (vec!["ztp-running"], vec!["ztp-running"], vec!["ztp-done"])
    );
    assert_eq!(hub.records(), ["spoke6 complete"]);
    assert_eq!((hub.progress("spoke1").as_str(), hub.selected("policy1")), ("InProgress 0", vec!["spoke1"]));
    let started = ["RemediationStarted", "RemediationInBatchStarted", "RemediationInClusterStarted spoke1"];
    assert_eq!(hub.events[1..], started);

    hub.complies("spoke1", "policy1");
    hub.settle();
    assert_eq!(
        (hub.progress("spoke1").as_str(), hub.selected("policy1"), hub.selected("policy2")),
        ("InProgress 1", vec!["spoke1"], vec!["spoke1"])
    );
    hub.complies("spoke1", "policy2");
    hub.settle();
    assert_eq!(hub.records(), ["spoke6 complete", "spoke1 complete"]);
    assert_eq!((hub.status().status.current_batch, hub.selected("policy1")), (2, vec!["spoke4"]));
    assert_eq!(hub.labels("spoke1"), ["ztp-done"]);

    hub.complies("spoke4", "policy1");
    hub.complies("spoke4", "policy2");
    hub.settle();
    assert_eq!(
        (hub.condition(PROGRESSING), hub.condition(SUCCEEDED)),
        ("False/Completed".to_owned(), "True/Completed".to_owned())
    );
    assert_eq!(hub.records(), ["spoke6 complete", "spoke1 complete", "spoke4 complete"]);
    let last = ["RemediationInClusterCompleted spoke4", "RemediationInBatchCompleted", "RemediationCompleted"];
    assert_eq!(hub.events[hub.events.len() - 3..], last);
    let status = hub.status();
    assert!(status.status.completed_at.is_some() && status.status.current_batch == 0);
    assert!(status.status.current_batch_remediation_progress.is_empty() && status.placements.is_empty());
    assert!(hub.placements.is_empty());
    assert_eq!(hub.plan().events, [], "once");
    let types: Vec<&str> = status.conditions.iter().map(|one| one.type_.as_str()).collect();
    assert_eq!(types, ["ClustersSelected", "Validated", "Progressing", "Succeeded"]);
}

/// upgrade-starts-complete: then no backup is made either.
#[test]
fn upgrade_starts_complete() {
    let mut hub = Hub::new(json!({ "clusters": ["spoke6"], "enable": false, "backup": true, "preCaching": true }), TWO);
    hub.settle();
    assert_eq!((hub.condition(PROGRESSING), hub.labels("spoke6")), ("False/NotEnabled".to_owned(), vec![]));
    assert_eq!(hub.status().managed_policies_compliant_before_upgrade, ["policy1", "policy2"]);
    hub.spec(|spec| spec.enable = true);
    hub.settle();
    assert_eq!((hub.condition(SUCCEEDED), hub.labels("spoke6")), ("True/Completed".to_owned(), vec!["ztp-done"]));
    assert_eq!(hub.message(SUCCEEDED), "All clusters already compliant with the specified managed policies");
}

/// blocking-mechanisms: a is blocked by c; its compliant canary waits, too.
#[test]
fn blocking_mechanisms() {
    let mut hub = Hub::new(
        json!({
            "clusters": ["spoke1", "spoke2", "spoke3"], "blockingCRs": [{ "name": "c", "namespace": "default" }],
            "remediationStrategy": { "maxConcurrency": 2, "canaries": ["spoke1"] },
        }),
        &[("policy1", &["spoke3"], &["spoke1", "spoke2"])],
    );
    hub.settle();
    assert_eq!(
        (hub.condition(PROGRESSING), hub.message(PROGRESSING)),
        ("False/MissingBlockingCR".to_owned(), "Missing blocking CRs: [c]")
    );
    let mut blocker = ClusterGroupUpgradeStatus::default();
    hub.blockers.insert(policy("c"), blocker.clone());
    hub.settle();
    assert_eq!(hub.message(PROGRESSING), "Blocking CRs that are not completed: [c]");
    assert_eq!((hub.condition(PROGRESSING).as_str(), hub.labels("spoke1")), ("False/IncompleteBlockingCR", vec![]));
    assert_eq!(hub.status().status.started_at, None, "time that it is blocked does not count");

    hub.later(100_000);
    conditions::set(&mut blocker.conditions, hub.now, SUCCEEDED, "True", "Completed", "");
    hub.blockers.insert(policy("c"), blocker);
    hub.settle();
    assert_eq!((hub.condition(PROGRESSING).as_str(), hub.labels("spoke1")), ("True/InProgress", vec!["ztp-done"]));
    assert_eq!(hub.status().remediation_plan, [["spoke3"]]);
    assert_eq!(hub.events.iter().filter(|event| *event == "RemediationStarted").count(), 1);
}

/// upgrade-batch-timeout: the first batch is done, then the time is over.
#[test]
fn upgrade_batch_timeout() {
    let mut hub = Hub::new(json!({ "clusters": ["spoke1", "spoke4"] }), TWO);
    hub.settle();
    for name in ["policy1", "policy2"] {
        hub.complies("spoke1", name);
    }
    hub.settle();
    hub.later(1);
    hub.spec(|spec| spec.remediation_strategy.timeout = 0);
    hub.settle();
    assert_eq!(
        (hub.condition(PROGRESSING).as_str(), hub.condition(SUCCEEDED).as_str()),
        ("False/TimedOut", "False/TimedOut")
    );
    assert_eq!(hub.message(SUCCEEDED), "Policy remediation took too long");
    assert_eq!(hub.records(), ["spoke1 complete", "spoke4 timedout"]);
    let current = hub.status().clusters[1].current_policy.clone().unwrap();
    assert_eq!((current.name.as_str(), current.status.as_str()), ("policy1", "NonCompliant"));
    assert_eq!(hub.labels("spoke4"), ["ztp-running"]);
    assert_eq!(hub.events[hub.events.len() - 2..], ["RemediationInBatchTimeout", "RemediationTimeout"]);
}

/// upgrade-partial-batch-timeout: indexes advance independently.
#[test]
fn upgrade_partial_batch_timeout() {
    let spec =
        json!({ "clusters": ["spoke1", "spoke4"], "remediationStrategy": { "maxConcurrency": 2, "timeout": 10 } });
    let mut hub = Hub::new(spec, TWO);
    hub.settle();
    hub.complies("spoke1", "policy1");
    hub.complies("spoke4", "policy2");
    hub.settle();
    assert_eq!((hub.progress("spoke1").as_str(), hub.progress("spoke4").as_str()), ("InProgress 1", "InProgress 0"));
    hub.complies("spoke1", "policy2");
    hub.settle();
    assert_eq!((hub.progress("spoke1").as_str(), hub.selected("policy2")), ("Completed -", vec!["spoke1"]));
    let limit = hub.plan().next.unwrap();
    hub.now = limit;
    hub.settle();
    assert_eq!(hub.records(), ["spoke1 complete", "spoke4 timedout"]);
}

/// timeout-not-block-next-batch: the next batch completes, and the upgrade waits for the earlier one.
#[test]
fn timeout_not_block_next_batch() {
    let spec =
        json!({ "clusters": ["spoke1", "spoke4"], "remediationStrategy": { "maxConcurrency": 1, "timeout": 10 } });
    let mut hub = Hub::new(spec, TWO);
    hub.settle();
    hub.now = hub.plan().next.unwrap();
    hub.settle();
    assert_eq!((hub.records(), hub.status().status.current_batch), (vec!["spoke1 timedout".to_owned()], 2));
    assert_eq!(hub.selected("policy1"), ["spoke1", "spoke4"], "it stays until the next batch ends");
    for name in ["policy1", "policy2"] {
        hub.complies("spoke4", name);
    }
    hub.settle();
    assert_eq!(
        (hub.condition(PROGRESSING).as_str(), hub.progress("spoke4").as_str()),
        ("True/InProgress", "Completed -")
    );
    assert_eq!(hub.events.iter().filter(|event| *event == "RemediationInBatchCompleted").count(), 1);
    hub.now = hub.plan().next.unwrap();
    hub.settle();
    assert_eq!(hub.condition(SUCCEEDED), "False/TimedOut");
    assert_eq!(hub.records(), ["spoke1 timedout", "spoke4 complete"]);
}

/// skip-compliant-policies and do-not-skip-compliant-policies-with-status.
#[test]
fn skip_compliant_policies() {
    let matrix: Matrix<'_> = &[("policy0", &[], &["spoke1"]), ("policy1", &["spoke1"], &[])];
    let mut hub = Hub::new(json!({ "clusters": ["spoke1"] }), matrix);
    hub.settle();
    assert_eq!(hub.status().managed_policies_compliant_before_upgrade, ["policy0"]);
    assert_eq!(hub.status().managed_policies_for_upgrade.len(), 1);

    let mut hub = Hub::new(json!({ "clusters": ["spoke1"] }), matrix);
    Arc::make_mut(hub.roots.get_mut(&policy("policy0")).unwrap()).templates.as_mut().unwrap().has_status = true;
    hub.settle();
    assert_eq!(hub.status().managed_policies_for_upgrade.len(), 2);
    assert_eq!(hub.progress("spoke1"), "InProgress 1");
}

/// soaking: it complies, and stays until it has done so for long enough.
#[test]
fn soaking() {
    let mut hub = Hub::new(json!({ "clusters": ["spoke1"] }), &[("policy1", &["spoke1"], &[])]);
    Arc::make_mut(hub.roots.get_mut(&policy("policy1")).unwrap()).soak = Some(std::time::Duration::from_secs(5));
    hub.settle();
    hub.complies("spoke1", "policy1");
    hub.settle();
    assert_eq!(hub.progress("spoke1"), "InProgress 0");
    let since = hub.status().status.current_batch_remediation_progress["spoke1"].first_compliant_at.clone().unwrap();
    assert_eq!((since.0, hub.plan().next.unwrap().duration_since(hub.now).as_secs()), (hub.now, 5));
    hub.later(3);
    hub.set("spoke1", "policy1", Compliance::NonCompliant);
    hub.settle();
    assert_eq!(hub.status().status.current_batch_remediation_progress["spoke1"].first_compliant_at, None);
    hub.complies("spoke1", "policy1");
    hub.settle();
    hub.later(5);
    hub.settle();
    assert_eq!(hub.progress("spoke1"), "InProgress 0", "more than the time");
    hub.now = hub.plan().next.unwrap();
    hub.settle();
    assert_eq!(hub.condition(SUCCEEDED), "True/Completed");
}
