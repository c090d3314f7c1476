//! Whole reconciles: what starts, what ends, and what the status says. Rows are those of the table 9.4.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::*;
use crate::hive::api::ClusterDeployment;
use crate::rollout::api::PowerRollout;
use crate::rollout::mark::{Mark, Outcome, Power};
use crate::rollout::observed::Observed;
use crate::rollout::plan::{Candidate, Input, Plan, is_over, plan};
use crate::rollout::status::RolloutPhase;
use crate::rollout::{Members, NamespaceLabels};

/// A rollout and its targets, and a clock.
struct Hub {
    rollout: PowerRollout,
    clusters: Vec<ClusterDeployment>,
    upgrades: BTreeMap<String, String>,
    checked: BTreeMap<String, (String, Timestamp)>,
    blocked: Option<&'static str>,
    now: Timestamp,
    /// What started while time passed.
    started: Vec<String>,
}

fn rollout(spec: &Value) -> PowerRollout {
    let mut object = json!({
        "apiVersion": "hibernate.sh/v1alpha1", "kind": "PowerRollout",
        "metadata": { "name": "night", "uid": "ours", "generation": 1 },
        "spec": {
            "action": "Hibernate", "targets": { "all": true }, "maxTargets": 100,
            "notAfter": "2026-11-24T14:00:00Z", "minSuccessTime": "0s",
        },
    });
    json_patch::merge(&mut object, &json!({ "spec": spec }));
    serde_json::from_value(object).unwrap()
}

fn cluster(name: &str, change: &Value) -> ClusterDeployment {
    let mut object = json!({
        "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
        "metadata": {
            "name": name, "namespace": "fleet", "uid": name, "creationTimestamp": "2026-11-01T00:00:00Z",
            "labels": { "env": "dev" }, "annotations": {},
        },
        "spec": {
            "baseDomain": "example.org", "clusterName": name, "installed": true, "powerState": "Running",
            "platform": { "aws": { "region": "us-east-1", "credentialsSecretRef": { "name": "aws" } } },
            "clusterMetadata": {
                "clusterID": "id", "infraID": name, "adminKubeconfigSecretRef": { "name": "kubeconfig" },
            },
        },
        "status": { "conditions": awake() },
    });
    json_patch::merge(&mut object, change);
    serde_json::from_value(object).unwrap()
}

fn condition(type_: &str, status: &str, reason: &str) -> Value {
    let at = "2026-11-20T00:00:00Z";
    json!({ "type": type_, "status": status, "reason": reason, "lastTransitionTime": at, "lastProbeTime": at })
}

fn awake() -> Value {
    json!([condition("Hibernating", "False", "ResumingOrRunning"), condition("Ready", "True", "Running")])
}

fn asleep() -> Value {
    json!([condition("Hibernating", "True", "Hibernating"), condition("Ready", "False", "StoppingOrHibernating")])
}

fn sleeping(name: &str) -> ClusterDeployment {
    cluster(name, &json!({ "spec": { "powerState": "Hibernating" }, "status": { "conditions": asleep() } }))
}

fn annotated(name: &str, annotations: &Value) -> ClusterDeployment {
    cluster(name, &json!({ "metadata": { "annotations": annotations } }))
}

impl Hub {
    fn new(spec: &Value, clusters: Vec<ClusterDeployment>) -> Self {
        let (upgrades, checked) = (BTreeMap::new(), BTreeMap::new());
        Self { rollout: rollout(spec), clusters, upgrades, checked, blocked: None, now: now(), started: Vec::new() }
    }

    fn of(spec: &Value, names: &[&str]) -> Self {
        Self::new(spec, names.iter().map(|name| cluster(name, &json!({}))).collect())
    }

    fn observed(&self) -> Vec<Observed> {
        self.clusters.iter().map(|cluster| Observed::of(cluster, &["aws"])).collect()
    }

    fn plan(&self) -> Plan {
        let observed = self.observed();
        let members = Members::of(&self.rollout.spec).unwrap();
        let candidates: Vec<Candidate<'_>> = observed
            .iter()
            .map(|object| Candidate {
                object,
                group: members.group(object),
                upgrade: self.upgrades.get(&object.name).map(String::as_str),
                checked: self.checked.get(&object.name).map(|(why, at)| (why.as_str(), *at)),
            })
            .collect();
        plan(&Input { rollout: &self.rollout, candidates: &candidates, blocked: self.blocked, now: self.now })
    }

    /// One reconcile, carried out. Names of the targets that it started.
    fn pass(&mut self) -> Vec<String> {
        let plan = self.plan();
        let mut started = Vec::new();
        for (index, mark) in plan.starts.iter().chain(&plan.ends) {
            let cluster = &mut self.clusters[*index];
            let annotations = cluster.metadata.annotations.get_or_insert_default();
            annotations.insert(crate::annotation::keys::ROLLOUT.to_owned(), mark.text());
            if mark.ended.is_none() {
                cluster.spec.power_state = Some(mark.wanted.to_string());
                annotations.insert(crate::annotation::keys::REQUESTED_AT.to_owned(), mark.since.clone());
                started.push(cluster.metadata.name.clone().unwrap());
            }
        }
        // As the API server keeps it.
        self.rollout.status = serde_json::from_value(json!(plan.status)).unwrap();
        started
    }

    /// Reconciles until nothing is left to do now. Names of the targets that were started.
    fn settle(&mut self) -> Vec<String> {
        let mut started = std::mem::take(&mut self.started);
        for _ in 0..50 {
            let before = (self.rollout.status.clone(), self.clusters.clone());
            started.extend(self.pass());
            if before == (self.rollout.status.clone(), self.clusters.clone()) {
                return started;
            }
        }
        panic!("it does not settle: {:#?}", self.plan());
    }

    /// Time passes while the controller reconciles.
    fn later(&mut self, seconds: i64) {
        for left in (0..seconds).rev().step_by(10) {
            self.jump(1 + left.min(9));
            let started = self.settle();
            self.started.extend(started);
        }
    }

    /// Time passes without a leader.
    fn jump(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    fn reaches(&mut self, name: &str, conditions: Value) {
        let at = self.now;
        let cluster = self.clusters.iter_mut().find(|one| one.metadata.name.as_deref() == Some(name)).unwrap();
        let mut conditions: Vec<crate::hive::api::Condition> = serde_json::from_value(conditions).unwrap();
        for condition in &mut conditions {
            let time = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(at);
            (condition.last_transition_time, condition.last_probe_time) = (Some(time.clone()), Some(time));
        }
        cluster.status.get_or_insert_default().conditions = conditions;
    }

    fn fails(&mut self, name: &str) {
        self.reaches(
            name,
            json!([
                condition("Hibernating", "False", "FailedToStop"),
                condition("Ready", "False", "StoppingOrHibernating"),
            ]),
        );
    }

    fn phase(&self) -> RolloutPhase {
        self.rollout.status.as_ref().unwrap().phase.unwrap()
    }

    fn message(&self) -> String {
        self.rollout.status.as_ref().unwrap().message.clone().unwrap_or_default()
    }

    fn state(&self, name: &str) -> (String, String) {
        let status = self.rollout.status.as_ref().unwrap();
        let found = status.targets.iter().find(|target| target.name == name);
        found.map(|target| (target.state.clone(), target.reason.clone())).unwrap_or_default()
    }

    fn mark(&self, name: &str) -> Mark {
        let cluster = self.clusters.iter().find(|one| one.metadata.name.as_deref() == Some(name)).unwrap();
        Mark::parse(&cluster.metadata.annotations.as_ref().unwrap()[crate::annotation::keys::ROLLOUT]).unwrap()
    }
}

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
fn who_is_a_member() {
    let mut hub = Hub::of(&json!({ "maxConcurrency": 1, "maxTargets": 3 }), &["a", "b"]);
    hub.settle();
    hub.clusters.push(cluster("new", &json!({ "metadata": { "creationTimestamp": "2026-11-24T12:00:05Z" } })));
    hub.settle();
    assert_eq!(hub.state("new").0, "", "created later");
    hub.clusters.push(cluster("relabelled", &json!({})));
    hub.settle();
    assert_eq!(hub.state("relabelled").0, "Pending", "it is older than the rollout");
    hub.clusters.push(cluster("more", &json!({})));
    hub.reaches("a", asleep());
    assert!(hub.settle().is_empty());
    assert!(hub.message().starts_with("selects 4 targets, more than maxTargets 3"), "{}", hub.message());
    assert_eq!(hub.phase(), RolloutPhase::Halted);
    hub.clusters.retain(|one| !matches!(one.metadata.name.as_deref(), Some("more" | "relabelled" | "b" | "new")));
    hub.settle();
    let counts = hub.rollout.status.as_ref().unwrap().counts.clone();
    assert_eq!(counts, BTreeMap::from([("Removed".to_owned(), 1), ("Succeeded".to_owned(), 1)]));
}

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
fn a_rollout_that_is_paused_from_the_start_shows_its_plan() {
    let mut hub = Hub::of(&json!({ "paused": true }), &["a", "b"]);
    assert!(hub.settle().is_empty());
    let status = hub.rollout.status.clone().unwrap();
    assert_eq!((hub.phase(), status.started_at, status.counts["Pending"]), (RolloutPhase::Planned, None, 2));
    hub.rollout.spec.paused = false;
    assert_eq!(hub.settle(), ["a", "b"]);
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
        assert!(hub.plan().next.is_some_and(|next| next > hub.now));
    }
    let mut hub = Hub::of(&json!({}), &[]);
    hub.settle();
    assert_eq!((hub.phase(), hub.message().starts_with("selects no targets")), (RolloutPhase::Waiting, true));
    let mut hub = Hub::of(&json!({ "notBefore": "2026-11-24T13:00:00Z" }), &["a"]);
    hub.settle();
    assert_eq!(hub.plan().next, Some("2026-11-24T13:00:00Z".parse().unwrap()));
    hub.later(3_600);
    assert_eq!(hub.settle(), ["a"]);
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
    let members = Members::of(&rollout.spec).unwrap();
    let object = |labels: Value, namespace: &str| {
        let change = json!({ "metadata": { "labels": labels, "namespace": namespace } });
        Observed::of(&cluster("a", &change), &["aws"])
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
    assert!(crate::rollout::needs_namespaces(&rollout.spec));
}
