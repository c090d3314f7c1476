//! Which targets start, and what is refused, deferred or no member.

use super::*;
use crate::rollout::api::Targets;

#[test]
fn totals_are_frozen_before_the_first_target_starts_and_every_claim_becomes_a_record() {
    let mut hub = Hub::of(&json!({ "maxConcurrency": 2 }), &["a", "b", "c"]);
    assert_eq!((hub.pass(), hub.phase()), (vec![], RolloutPhase::Progressing));
    let status = hub.rollout.status.clone().unwrap();
    assert_eq!((status.total, status.groups[0].total, status.started_at.unwrap().0), (Some(3), 3, now()));
    assert_eq!(hub.settle(), ["a", "b"]);
    hub.later(60);
    hub.reaches("a", asleep());
    assert_eq!(hub.settle(), ["c"]);
    assert_eq!(hub.mark("a").ended.unwrap().result, Outcome::Succeeded);
    hub.reaches("b", asleep());
    hub.reaches("c", asleep());
    hub.settle();
    assert_eq!((hub.phase(), hub.message().as_str()), (RolloutPhase::Succeeded, ""));
    assert!(is_over(&hub.rollout));
    hub.rollout.spec.retry_failed = 1;
    assert!(!is_over(&hub.rollout), "retryFailed makes it go on");
}

#[test]
fn rules_refuse_and_holds_defer() {
    let key = |name: &str| format!("hibernate.sh/{name}");
    let pool = json!({ "spec": { "clusterPoolRef": { "namespace": "pools", "poolName": "big" } } });
    let claimed = json!({ "spec": { "clusterPoolRef": {
        "namespace": "pools", "poolName": "big", "claimName": "mine", "claimedTimestamp": "2026-11-20T00:00:00Z",
    } } });
    let rows = [
        (
            annotated("a", &json!({ key("protected"): "true" })),
            "Refused",
            "V6: metadata.annotations[hibernate.sh/protected]",
        ),
        (cluster("a", &json!({ "spec": { "clusterMetadata": null } })), "Refused", "V5: spec.clusterMetadata"),
        (cluster("a", &json!({ "spec": { "platform": { "aws": null, "none": {} } } })), "Refused", "V4: spec.platform"),
        (
            cluster("a", &json!({ "metadata": { "deletionTimestamp": "2026-11-24T11:00:00Z" } })),
            "Refused",
            "V3: metadata.deletionTimestamp",
        ),
        (
            annotated("a", &json!({ key("hold-awake-until"): "2026-11-24T12:30:00Z", key("hold-awake-by"): "ann" })),
            "Deferred",
            "held awake until 2026-11-24T12:30:00Z by ann",
        ),
        (annotated("a", &json!({ key("hold-awake-until"): "soon" })), "Deferred", "held awake by an unknown user"),
        (annotated("a", &json!({ "hive.openshift.io/powerstate-pause": "true" })), "Deferred", "paused: "),
        (cluster("a", &json!({ "spec": { "installed": false } })), "Deferred", "not installed yet"),
        (cluster("a", &pool), "Deferred", "unclaimed cluster of ClusterPool big"),
        (cluster("a", &claimed), "Progressing", ""),
        (sleeping("a"), "AlreadyInState", ""),
    ];
    for (cluster, state, reason) in rows {
        let mut hub = Hub::new(&json!({}), vec![cluster]);
        hub.settle();
        let found = hub.state("a");
        assert!(found.0 == state && found.1.starts_with(reason), "{found:?}, not {state} {reason}");
    }
    // A hold that ends lets the target start, after the rest.
    let held = annotated("a", &json!({ key("hold-awake-until"): "2026-11-24T12:30:00Z" }));
    let mut hub = Hub::new(&json!({}), vec![held, cluster("b", &json!({}))]);
    assert_eq!(hub.settle(), ["b"]);
    hub.reaches("b", asleep());
    hub.later(1_000);
    assert!(hub.settle().is_empty());
    assert_eq!((hub.phase(), hub.message().as_str()), (RolloutPhase::Progressing, "1 targets are deferred"));
    hub.later(800);
    assert_eq!(hub.settle(), ["a"]);
}

#[test]
fn an_upgrade_or_a_silent_spoke_defers_a_sleep_until_it_is_over() {
    let mut hub = Hub::of(&json!({}), &["a", "b"]);
    hub.upgrades.insert("a".into(), "ClusterGroupUpgrade ztp/one is upgrading it".into());
    hub.checked.insert("b".into(), ("its API server does not answer".into(), now()));
    assert!(hub.settle().is_empty());
    assert_eq!(hub.state("a").0, "Deferred");
    hub.later(29);
    assert!(hub.settle().is_empty());
    hub.later(1);
    assert_eq!(hub.settle(), ["b"], "it is checked again");
    hub.upgrades.clear();
    assert_eq!(hub.settle(), ["a"]);
    // A wake does not wait for an upgrade.
    let mut hub = Hub::new(&json!({ "action": "Resume" }), vec![sleeping("a")]);
    hub.upgrades.insert("a".into(), "upgrade".into());
    assert_eq!(hub.settle(), ["a"]);
}

#[test]
fn canaries_go_first_and_those_that_prove_nothing_are_replaced() {
    let groups = json!({ "groups": [{ "name": "canary", "names": [
        { "namespace": "fleet", "name": "x" }, { "namespace": "fleet", "name": "y" },
    ] }] });
    let mut hub = Hub::of(&groups, &["a", "x", "y", "z"]);
    assert_eq!(hub.settle(), ["x", "y"]);
    hub.reaches("x", asleep());
    assert!(hub.settle().is_empty());
    hub.reaches("y", asleep());
    assert_eq!(hub.settle(), ["a", "z"]);
    let mut hub = Hub::new(
        &groups,
        vec![
            cluster("c", &json!({})),
            cluster("a", &json!({})),
            cluster("b", &json!({})),
            sleeping("x"),
            sleeping("y"),
        ],
    );
    assert_eq!(hub.settle(), ["a", "b"], "they take the place of x and y");
    assert_eq!((hub.mark("a").group, hub.settle().len()), (0, 0));
    hub.later(5);
    hub.reaches("a", asleep());
    hub.reaches("b", asleep());
    assert_eq!(hub.settle(), ["c"]);
    assert_eq!(hub.mark("c").group, 1);
}

#[test]
fn a_group_that_pauses_waits_for_approval() {
    let group = json!({ "name": "canary", "names": [{ "namespace": "fleet", "name": "x" }], "pauseAfter": true });
    let mut hub = Hub::of(&json!({ "groups": [group] }), &["a", "x"]);
    hub.settle();
    hub.reaches("x", asleep());
    assert!(hub.settle().is_empty());
    let status = hub.rollout.status.clone().unwrap();
    assert_eq!((hub.phase(), status.awaits_approval.as_deref()), (RolloutPhase::Paused, Some("canary")));
    hub.rollout.spec.groups[0].pause_after = false;
    assert_eq!(hub.settle(), ["a"]);
}

#[test]
fn a_rollout_that_is_paused_from_the_start_shows_its_plan() {
    let mut hub = Hub::of(&json!({ "paused": true }), &["a", "b"]);
    assert!(hub.settle().is_empty());
    let status = hub.rollout.status.clone().unwrap();
    assert_eq!((hub.phase(), status.started_at, status.counts["Pending"]), (RolloutPhase::Planned, None, 2));
    hub.rollout.spec.paused = false;
    assert_eq!(hub.settle(), ["a", "b"]);
}

#[test]
fn nothing_starts_before_its_time_without_the_policy_or_with_an_empty_group() {
    let empty = json!({ "groups": [{ "name": "canary", "selector": { "matchLabels": { "tier": "none" } } }] });
    let cases = [
        (json!({ "notBefore": "2026-11-24T13:00:00Z" }), None, RolloutPhase::Waiting, "starts at 2026-11-24T13:00:00Z"),
        (json!({}), Some("the policy is missing"), RolloutPhase::Waiting, "the policy is missing"),
        (empty, None, RolloutPhase::Halted, "group canary selects none of the targets"),
        (json!({ "wakeAt": "2026-11-24T11:00:00Z" }), None, RolloutPhase::Waiting, "wakeAt has passed"),
        (json!({ "maxTargets": 1 }), None, RolloutPhase::Halted, "selects 2 targets, more than maxTargets 1"),
    ];
    for (spec, blocked, phase, message) in cases {
        let mut hub = Hub { blocked, ..Hub::of(&spec, &["a", "b"]) };
        assert!(hub.settle().is_empty(), "{spec}");
        assert_eq!(hub.phase(), phase, "{spec}");
        assert!(hub.message().starts_with(message), "{}", hub.message());
        assert!(hub.plan().requeue_at.is_some_and(|next| next > hub.now));
    }
    let mut hub = Hub::of(&json!({}), &[]);
    hub.settle();
    assert_eq!((hub.phase(), hub.message().starts_with("selects no targets")), (RolloutPhase::Waiting, true));
    let mut hub = Hub::of(&json!({ "notBefore": "2026-11-24T13:00:00Z" }), &["a"]);
    hub.settle();
    assert_eq!(hub.plan().requeue_at, Some("2026-11-24T13:00:00Z".parse().unwrap()));
    hub.later(3_600);
    assert_eq!(hub.settle(), ["a"]);
}

#[test]
fn a_status_is_bounded() {
    let reason = "x".repeat(5_000);
    let hold = |index: usize| {
        let name = format!("{index:0>60}");
        annotated(&name, &json!({ "hibernate.sh/hold-awake-until": "soon", "hibernate.sh/hold-awake-by": reason }))
    };
    let mut hub = Hub::new(&json!({ "maxTargets": 1000 }), (0..1_000).map(hold).collect());
    hub.settle();
    let text = json!(hub.rollout.status).to_string();
    assert!(text.len() < 64 * 1024, "{}", text.len());
    assert_eq!(hub.rollout.status.as_ref().unwrap().targets.len(), 50);
}

#[test]
fn selectors_and_groups_choose_by_labels_and_namespaces() {
    let spec = json!({
        "targets": { "all": null, "selector": { "matchLabels": { "env": "dev" } }, "namespaceSelector": { "matchLabels": { "team": "a" } } },
        "groups": [{ "name": "one", "selector": { "matchExpressions": [{ "key": "tier", "operator": "In", "values": ["canary"] }] } }],
    });
    let rollout = rollout(&spec);
    let members = Members::of(&rollout.spec.targets, &rollout.spec.groups).unwrap();
    let object = |labels: Value, namespace: &str| {
        let change = json!({ "metadata": { "labels": labels, "namespace": namespace } });
        cluster("a", &change).view(Some(&Settings::serving(&["aws"])))
    };
    let namespaces = NamespaceLabels::from([("x".to_owned(), BTreeMap::from([("team".to_owned(), "a".to_owned())]))]);
    for (labels, namespace, covered, group) in [
        (json!({}), "x", true, 1),
        (json!({ "tier": "canary" }), "x", true, 0),
        (json!({ "env": "prod" }), "x", false, 1),
        (json!({}), "y", false, 1),
    ] {
        let object = object(labels, namespace);
        assert_eq!((members.cover(&object, &namespaces), members.group(&object)), (covered, group), "{object:?}");
    }
    assert!(crate::rollout::needs_namespaces(&rollout.spec.targets));
}

fn domain_of(cluster: &ClusterDeployment) -> String {
    cluster.view(None).obstacles.domain.unwrap_or_default()
}

#[test]
fn copies_of_an_accounts_secret_are_one_domain() {
    let domain = |name: &str, secret: &str| {
        let aws = json!({ "region": "eu-west-1", "credentialsSecretRef": { "name": secret } });
        domain_of(&cluster(name, &json!({ "spec": { "platform": { "aws": aws } } })))
    };
    assert_eq!(domain("a", "shared"), "aws/eu-west-1/shared");
    assert_eq!(domain("demo", "demo-aws-creds"), domain("demo-2", "demo-2-aws-creds"));
    assert_eq!(domain("demo", "demo-aws-creds"), "aws/eu-west-1/*-aws-creds");
    assert_ne!(domain("a", "aws-creds"), domain("b", "b-aws-creds"), "only a whole word is the cluster's name");
    let role = json!({ "credentialsAssumeRole": { "roleARN": "arn:aws:iam::1:role/x" } });
    let role = domain_of(&cluster("a", &json!({ "spec": { "platform": { "aws": role } } })));
    assert_eq!(role, "aws/us-east-1/arn:aws:iam::1:role/x");
}

#[test]
fn names_without_a_target_are_reported() {
    let names = |names: &[&str]| -> Vec<Value> {
        names.iter().map(|name| json!({ "namespace": "fleet", "name": name })).collect()
    };
    let targets = json!({ "all": false, "names": names(&["a", "b", "w", "x"]) });
    let groups = json!([{ "name": "canary", "names": names(&["b", "y", "z"]) }]);
    let mut hub = Hub::of(&json!({ "targets": targets, "groups": groups, "paused": true }), &["a", "b"]);
    hub.settle();
    let message = "created paused: unpause it to start; not found: fleet/w, fleet/x, fleet/y and 1 more";
    assert_eq!((hub.phase(), hub.message().as_str()), (RolloutPhase::Planned, message));
    // Once it has started, nobody has to read the names again.
    hub.rollout.spec.paused = false;
    hub.settle();
    (hub.rollout.spec.targets, hub.rollout.spec.groups[0].names) = (Targets::default(), Vec::new());
    for name in ["a", "b"] {
        hub.reaches(name, asleep());
        hub.settle();
    }
    assert_eq!(
        (hub.phase(), hub.message().as_str()),
        (RolloutPhase::Succeeded, "not found: fleet/w, fleet/x, fleet/y and 1 more")
    );
}

#[test]
fn a_rollout_of_invented_names_is_over_once_it_could_start() {
    let names: Vec<Value> =
        (0..1_000).map(|number| json!({ "namespace": "fleet", "name": format!("x{number:03}") })).collect();
    let targets = json!({ "all": false, "names": names });
    let record = json!({ "name": "day", "uid": "undone" });
    for (spec, phase) in [
        (json!({}), RolloutPhase::Finished),
        (json!({ "action": "Restore", "restoreOf": record }), RolloutPhase::Finished),
        (json!({ "paused": true }), RolloutPhase::Waiting),
        (json!({ "notBefore": "2026-11-24T13:00:00Z" }), RolloutPhase::Waiting),
    ] {
        let mut hub = Hub::of(&spec, &["a"]);
        hub.rollout.spec.targets = serde_json::from_value(targets.clone()).unwrap();
        hub.settle();
        let status = hub.rollout.status.clone().unwrap();
        let found = status.not_found.map(|found| (found.count, found.names.len()));
        assert_eq!((hub.phase(), found, status.started_at), (phase, Some((1_000, 3)), None), "{spec}");
        assert!(hub.message().ends_with("; not found: fleet/x000, fleet/x001, fleet/x002 and 997 more"), "{spec}");
        assert_eq!(is_over(&hub.rollout), phase.is_over(), "{spec}");
    }
}

#[test]
fn targets_start_in_place_of_one_that_is_being_checked_and_groups_wait_for_it() {
    let canaries = json!([{ "name": "canary", "selector": { "matchLabels": { "tier": "first" } } }]);
    let first = |name| cluster(name, &json!({ "metadata": { "labels": { "tier": "first" } } }));
    let clusters = vec![first("a"), first("b"), cluster("c", &json!({}))];
    let mut hub = Hub::new(&json!({ "groups": canaries, "maxConcurrency": 1 }), clusters);
    hub.checking.insert("a".to_owned());
    assert_eq!(hub.settle(), ["b"]);
    hub.reaches("b", asleep());
    assert_eq!(hub.settle(), [""; 0], "a may still start before c");
    // Its spoke does not answer.
    hub.checking.clear();
    hub.checked.insert("a".to_owned(), ("silent".to_owned(), hub.now));
    assert_eq!(hub.settle(), ["c"]);
    hub.reaches("c", asleep());
    assert_eq!(hub.settle(), [""; 0]);
    hub.checking.insert("a".to_owned());
    hub.jump(60);
    assert_eq!(hub.settle(), [""; 0], "its next check is under way");
    hub.checking.clear();
    assert_eq!(hub.settle(), ["a"]);
}
