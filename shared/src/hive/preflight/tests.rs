//! The table row by row, what carries over a sleep, when to look, and that what is written is read back.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::*;
use crate::annotation::format;
use crate::cloud::{CloudError, CloudErrorKind, Instance, InstanceState, Inventory, Lifecycle, Profile, Spot};
use crate::finding::Severity;

const NOW: &str = "2026-11-21T18:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

type Cloud = Result<Inventory, CloudError>;

fn found(instances: usize, spot: &[&str]) -> Inventory {
    let selector = "tag kubernetes.io/cluster/demo=owned in us-east-1".to_owned();
    let instance = |number: usize| {
        let instance = Instance::new(format!("i-{number}"), InstanceState::Running);
        Instance { spot: spot.contains(&instance.id.as_str()).then_some(Spot::OneTime), ..instance }
    };
    let profile = Profile { selector, ..Profile::default() };
    Inventory { profile, instances: (0..instances).map(instance).collect(), ..Inventory::default() }
}

/// Instances that a sleep deletes, one of them with an obstacle.
fn recreated(obstacle: Option<&str>) -> Inventory {
    let mut found = found(2, &[]);
    found.profile.lifecycle = Lifecycle::Recreate;
    found.instances[0].obstacle = obstacle.map(str::to_owned);
    found
}

fn refused(kind: CloudErrorKind) -> CloudError {
    CloudError { kind, message: "it says no".to_owned() }
}

/// A cluster in which all is well.
fn well() -> SpokeObservation {
    SpokeObservation {
        version: Ok(Some(VersionObservation { progressing: false, from: None, to: None })),
        certificates: Ok(Some(vec![
            Certificate { name: "ns/late".to_owned(), not_after: now() + SignedDuration::from_hours(48) },
            Certificate { name: "ns/first".to_owned(), not_after: now() + SignedDuration::from_hours(24) },
        ])),
        pending_requests: Ok(Some(0)),
        webhooks: Ok(Some(Vec::new())),
        kube_system: BTreeMap::new(),
        budgets: Ok(Some(Vec::new())),
    }
}

/// `block Credentials`, one for each finding, and the verdict.
fn detail(cloud: Option<&Cloud>, spoke: &SpokePreflight) -> (Vec<String>, String) {
    let answer = answer(cloud, spoke, None, now());
    let findings = answer.findings;
    assert!(findings.is_sorted(), "{findings:?}");
    let words = findings.iter().map(|finding| format!("{} {}", finding.severity, finding.code)).collect();
    (words, format!("{} {}", answer.status, answer.reason))
}

#[test]
fn the_cloud_row_by_row() {
    use CloudErrorKind::{Capacity, Credentials, Denied, Invalid, Throttled, Unavailable};
    type Case<'a> = (Option<Cloud>, &'a [&'a str], &'a str);
    let spoke = SpokePreflight::Looked(Box::new(SpokeObservation { certificates: Ok(None), ..well() }));
    let fine: &[&str] = &["info Credentials", "info StopProtection"];
    let cases: &[Case<'_>] = &[
        (None, &["warn CloudNotAsked"], "Unknown NotLookedAt"),
        (Some(Err(refused(Credentials))), &["block Credentials"], "False Blocked"), // C1
        (Some(Err(refused(Denied))), &["block Credentials"], "False Blocked"),      // C1
        (Some(Err(refused(Invalid))), &["block Credentials"], "False Blocked"),     // C1
        (Some(Ok(found(0, &[]))), &["block NoInstances"], "False Blocked"),         // C2
        (Some(Err(refused(Throttled))), &["warn CloudNotAsked"], "Unknown NotLookedAt"), // C3
        (Some(Err(refused(Unavailable))), &["warn CloudNotAsked"], "Unknown NotLookedAt"), // C3
        (Some(Err(refused(Capacity))), &["warn CloudNotAsked"], "Unknown NotLookedAt"), // C3
        (Some(Ok(found(6, &[]))), fine, "True Clear"),                              // C4
        (Some(Ok(found(6, &["i-1"]))), &["warn SpotInstances", fine[0], fine[1]], "False Slowed"), // C5
        (Some(Ok(recreated(None))), &[fine[0], "info Recreated"], "True Clear"),    // C4
        (Some(Ok(recreated(Some("Locked")))), &["block CannotSleep", fine[0], "info Recreated"], "False Blocked"), // C6
    ];
    for (cloud, expected, verdict) in cases {
        let (words, result) = detail(cloud.as_ref(), &spoke);
        assert_eq!(
            (words.as_slice(), result.as_str()),
            (&expected.iter().map(|&word| word.to_owned()).collect::<Vec<_>>()[..], *verdict),
            "{cloud:?}"
        );
    }
}

#[test]
fn the_spoke_row_by_row() {
    type Change = fn(&mut SpokeObservation);
    let expires = |minutes: i64| {
        let not_after = now() + SignedDuration::from_mins(minutes);
        SpokeObservation { certificates: Ok(Some(vec![Certificate { name: "ns/c".to_owned(), not_after }])), ..well() }
    };
    let changed = |change: Change| {
        let mut observation = well();
        change(&mut observation);
        observation
    };
    let upgrading = |observation: &mut SpokeObservation| {
        observation.version =
            Ok(Some(VersionObservation { progressing: true, from: Some("4.20.8".into()), to: Some("4.20.9".into()) }));
    };
    let webhook = |observation: &mut SpokeObservation| {
        let rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"] });
        let rules = vec![serde_json::from_value(rule).unwrap()];
        let one = WebhookObservation {
            name: "policy/check".into(),
            service: Some("policy/x".into()),
            rules,
            ..WebhookObservation::default()
        };
        observation.webhooks = Ok(Some(vec![one]));
    };
    for (observation, expected, verdict) in [
        (well(), "info CertificateExpires", "True Clear"),
        (changed(upgrading), "warn UpgradeInProgress", "False Slowed"), // S3
        (changed(|observation| observation.version = Ok(None)), "info CertificateExpires", "True Clear"),
        (expires(0), "warn CertificateExpires", "False Slowed"), // S4
        (expires(-60), "warn CertificateExpires", "False Slowed"), // S4
        (expires(24 * 60 - 1), "warn CertificateExpires", "False Slowed"), // S4
        (expires(24 * 60), "info CertificateExpires", "True Clear"), // S4
        (changed(|observation| observation.pending_requests = Ok(Some(2))), "warn PendingRequests", "False Slowed"), // S5
        (changed(webhook), "warn WebhooksOnWake", "False Slowed"), // S6
        (
            changed(|observation| observation.budgets = Ok(Some(vec!["shop/db".into()]))),
            "info DisruptionBudgets",
            "True Clear",
        ), // S7
        (changed(|observation| observation.budgets = Err("forbidden".into())), "warn NotRead", "Unknown NotLookedAt"), // S8
    ] {
        let (words, result) = detail(Some(&Ok(found(6, &[]))), &SpokePreflight::Looked(Box::new(observation.clone())));
        assert!(words.contains(&expected.to_owned()), "{expected}: {words:?}");
        assert_eq!(result, verdict, "{expected}");
    }
    let silent = SpokePreflight::NotAsked("connection refused".into());
    let (words, result) = detail(Some(&Ok(found(6, &[]))), &silent); // S2
    assert_eq!((words[0].as_str(), result.as_str()), ("warn SpokeNotAsked", "Unknown NotLookedAt"));
}

/// S6 names two ways out: each ends the finding, also that of a webhook that is slow.
#[test]
fn what_the_finding_of_a_webhook_advises_ends_it() {
    let rule = json!({ "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"] });
    let webhook = WebhookObservation {
        name: "policy/check".to_owned(),
        service: Some("policy/x".to_owned()),
        rules: vec![serde_json::from_value(rule).unwrap()],
        timeout: Some(30),
        ..WebhookObservation::default()
    };
    let found = |webhook: WebhookObservation| {
        let mut observation = well();
        observation.kube_system = [("kubernetes.io/metadata.name".to_owned(), "kube-system".to_owned())].into();
        observation.webhooks = Ok(Some(vec![webhook]));
        let findings = answer(None, &SpokePreflight::Looked(Box::new(observation)), None, now()).findings;
        findings.into_iter().find(|finding| finding.code == "WebhooksOnWake").map(|finding| finding.sentence)
    };
    let finding = found(webhook.clone()).unwrap();
    let (_, advice) = finding.split_once("; exclude kube-system, or set failurePolicy: ").unwrap();
    let (policy, timeout) = advice.split_once(" and timeoutSeconds to ").unwrap();
    let timeout = Some(timeout.strip_suffix(" at most").unwrap().parse().unwrap());
    let ignored = WebhookObservation { failure_policy: Some(policy.to_owned()), timeout, ..webhook.clone() };
    let not = json!({ "key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"] });
    let namespaces = serde_json::from_value(json!({ "matchExpressions": [not] })).unwrap();
    assert_eq!((found(ignored), found(WebhookObservation { namespaces, ..webhook })), (None, None), "{finding}");
}

#[test]
fn findings_name_what_is_meant() {
    let mut observation = well();
    observation.version =
        Ok(Some(VersionObservation { progressing: true, from: Some("4.20.8".into()), to: Some("4.20.9".into()) }));
    observation.pending_requests = Ok(Some(1));
    observation.budgets = Ok(Some((0..7).map(|number| format!("shop/db-{number}")).collect()));
    let answer =
        answer(Some(&Ok(found(6, &["i-1", "i-2"]))), &SpokePreflight::Looked(Box::new(observation)), None, now());
    insta::assert_snapshot!(answer.message());
}

fn cluster(change: &Value) -> ClusterDeployment {
    let mut object = json!({
        "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
        "metadata": { "name": "demo", "namespace": "x", "resourceVersion": "7", "annotations": {} },
        "spec": { "baseDomain": "d", "clusterName": "demo", "platform": {}, "installed": true },
        "status": { "conditions": [
            { "type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T12:00:00Z" },
        ] },
    });
    for (pointer, value) in change.as_object().into_iter().flatten() {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = object.pointer_mut(parent).unwrap();
        match parent.as_array_mut() {
            Some(list) => list.push(value.clone()),
            None => parent[key] = value.clone(),
        }
    }
    serde_json::from_value(object).unwrap()
}

fn condition(found: &str, status: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": PREFLIGHT, "status": status, "reason": reason, "message": message,
        "lastProbeTime": found, "lastTransitionTime": "2026-11-01T00:00:00Z",
    })
}

/// A cluster that has been given this answer.
fn answered(cluster: &ClusterDeployment, answer: &Answer, at: Timestamp) -> ClusterDeployment {
    let mut object = serde_json::to_value(cluster).unwrap();
    let edits: json_patch::Patch = serde_json::from_value(patch(cluster, answer, at).unwrap()).unwrap();
    json_patch::patch(&mut object, &edits).unwrap();
    serde_json::from_value(object).unwrap()
}

/// A cluster with a request.
fn with_request(mut cluster: ClusterDeployment, at: &str) -> ClusterDeployment {
    cluster.metadata.annotations = Some([(keys::PREFLIGHT_REQUESTED_AT.to_owned(), at.to_owned())].into());
    cluster
}

#[test]
fn a_sleeping_cluster_keeps_what_was_said_of_it_with_its_date() {
    let awake = answer(Some(&Ok(found(6, &[]))), &SpokePreflight::Looked(Box::new(well())), None, now());
    let stored = answered(&cluster(&json!({})), &awake, now());
    let later = now() + SignedDuration::from_hours(5);
    let asleep = |stored: &ClusterDeployment| {
        answer(Some(&Ok(found(6, &[]))), &SpokePreflight::NotAwake, findings(stored).zip(found_at(stored)), later)
    };
    let first = asleep(&stored);
    assert!(first.message().contains("its API server was last checked at 2026-11-21T18:00:00Z"), "{}", first.message());
    assert!(first.message().contains("the first certificate to expire is that in ns/first"), "{}", first.message());
    let stored = answered(&stored, &first, later);
    assert_eq!(asleep(&stored), first, "the date does not move with each look");
    let never = answer(Some(&Ok(found(6, &[]))), &SpokePreflight::NotAwake, None, later);
    assert!(never.message().contains("its API server has never been checked"), "{}", never.message());
}

#[test]
fn a_planned_sleep_makes_an_end_within_it_a_warning() {
    let ends = format::time("2026-11-22T18:00:00Z");
    let certificate = Finding { ends, ..Finding::new(Severity::Info, code::CERTIFICATE_EXPIRES, "the first is ns/c") };
    let severity = |end: &str| within(certificate.clone(), end.parse().ok()).severity;
    assert_eq!(severity("2026-11-22T17:59:59Z"), Severity::Info);
    assert_eq!(severity("2026-11-22T18:00:00Z"), Severity::Warn);
    let other = Finding { code: "Other".to_owned(), ..certificate.clone() };
    assert_eq!(within(other.clone(), Some(now() + SignedDuration::from_hours(999))), other);
}

#[test]
fn it_is_looked_once_an_hour_and_when_somebody_asks() {
    let hours = |hours| Some(Duration::from_hours(hours));
    let due = |cluster: &ClusterDeployment, last| due_in(cluster, last, now()).map(|left| left.as_secs());
    let at = |time: &str| cluster(&json!({ "/status/conditions/-": condition(time, "True", "Clear", "") }));
    let young = cluster(&json!({ "/status/conditions": [
        { "type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T17:01:00Z" },
    ] }));
    let asleep = cluster(&json!({ "/spec/powerState": "Hibernating" }));
    for (case, cluster, last, expected) in [
        ("never looked at", cluster(&json!({})), None, Some(0)),
        ("looked at by this process", cluster(&json!({})), Some(Duration::from_mins(59)), None),
        ("an hour ago", cluster(&json!({})), hours(1), Some(0)),
        ("looked at by another process", at("2026-11-21T17:30:00Z"), None, None),
        ("long ago by another process", at("2026-11-21T16:30:00Z"), None, Some(0)),
        ("just woken", young.clone(), None, None),
        ("asleep", asleep.clone(), None, None),
        ("asleep, asked", with_request(asleep, NOW), None, Some(0)),
        ("just woken, asked", with_request(young, NOW), hours(1), Some(0)),
        ("asked and answered", with_request(at(NOW), NOW), hours(0), None),
        ("asked after the answer", with_request(at("2026-11-21T17:59:59Z"), NOW), hours(0), Some(15)),
        ("asked with a fraction", with_request(at(NOW), "2026-11-21T18:00:00.9Z"), hours(0), None),
        ("asked by a broken clock", with_request(at(NOW), "2099-01-01T00:00:00Z"), hours(0), None),
        ("asked badly", with_request(at(NOW), "now"), hours(0), None),
        ("being deleted", with_request(cluster(&json!({ "/metadata/deletionTimestamp": NOW })), NOW), None, None),
        ("not installed", with_request(cluster(&json!({ "/spec/installed": false })), NOW), None, None),
    ] {
        assert_eq!(due(&cluster, last), expected, "{case}");
    }
    let mut paused = with_request(cluster(&json!({})), NOW);
    paused.metadata.annotations.as_mut().unwrap().insert(RECONCILE_PAUSE.to_owned(), "true".to_owned());
    assert_eq!(due(&paused, None), None, "paused");
    let asked = with_request(cluster(&json!({})), NOW);
    for (ago, left) in [(0, 15), (14, 1), (15, 0), (60, 0)] {
        assert_eq!(due(&asked, Some(Duration::from_secs(ago))), Some(left), "asked {ago} s after the last look");
    }
}

#[test]
fn a_request_is_always_newer_than_the_answer_before() {
    let at = |time: &str| cluster(&json!({ "/status/conditions/-": condition(time, "True", "Clear", "") }));
    assert_eq!(request_time(&cluster(&json!({})), now()), now());
    assert_eq!(request_time(&at("2026-11-21T17:00:00Z"), now()), now());
    for ahead in [NOW, "2026-11-21T18:10:00Z"] {
        let stored = at(ahead);
        let request = request_time(&stored, now());
        assert!(!answers(&stored, request), "{ahead}");
    }
}

#[test]
fn only_what_differs_is_written_and_a_request_is_answered_in_any_case() {
    let answer = Answer { status: "True", reason: "Clear", findings: vec![Finding::new(Severity::Info, "A", "b")] };
    let at = |time: &str| cluster(&json!({ "/status/conditions/-": condition(time, "True", "Clear", "info A: b") }));
    assert_eq!(patch(&at("2026-11-21T17:00:00Z"), &answer, now()), None);
    let again = patch(&at("2026-11-20T17:00:00Z"), &answer, now()).unwrap();
    assert_eq!(again[1]["value"]["lastTransitionTime"], "2026-11-01T00:00:00Z", "the status is the same");
    let answered = patch(&with_request(at("2026-11-21T17:00:00Z"), "2026-11-21T18:10:00Z"), &answer, now()).unwrap();
    assert_eq!(answered[0], json!({ "op": "test", "path": "/metadata/resourceVersion", "value": "7" }));
    assert_eq!((&answered[1]["op"], &answered[1]["path"]), (&json!("replace"), &json!("/status/conditions/1")));
    assert_eq!(answered[1]["value"]["lastProbeTime"], "2026-11-21T18:10:00Z", "never older than the request");
    let new = patch(&cluster(&json!({})), &answer, now()).unwrap();
    assert_eq!((&new[1]["path"], &new[1]["value"]["lastProbeTime"]), (&json!("/status/conditions/-"), &json!(NOW)));
    let mut bare = cluster(&json!({}));
    bare.status = None;
    assert_eq!(patch(&bare, &answer, now()).unwrap()[1]["path"], "/status");
    let changed = Answer { status: "False", reason: "Slowed", ..answer };
    let moved = patch(&at("2026-11-21T17:00:00Z"), &changed, now()).unwrap();
    assert_eq!(moved[1]["value"]["lastTransitionTime"], NOW);
}

#[test]
fn the_findings_are_read_from_the_data_that_describe_the_condition() {
    let certificate = Finding::new(Severity::Info, code::CERTIFICATE_EXPIRES, "the first is ns/c");
    let certificate = Finding { ends: format::time("2027-01-01T00:00:00Z"), ..certificate };
    let answer = Answer { status: "True", reason: "Clear", findings: vec![certificate] };
    let mut stored = answered(&cluster(&json!({})), &answer, now());
    assert_eq!(findings(&stored), Some(answer.findings));
    // Another client writes the condition.
    let conditions = &mut stored.status.as_mut().unwrap().conditions;
    let preflight = conditions.iter_mut().find(|condition| condition.type_ == PREFLIGHT).unwrap();
    preflight.last_probe_time = Some(Time(now() + SignedDuration::from_hours(1)));
    assert_eq!(findings(&stored), None);
    assert_eq!(findings(&cluster(&json!({}))), None);
}
