//! Whole reconciles: what starts, what ends, and what the status says. Rows are those of the table 9.4.

mod advised;
mod crashes;
mod ends;
mod forecasts;
mod frozen;
mod others;
mod queued;
mod starts;

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::*;
use crate::admission::Settings;
use crate::annotation::mark::{Mark, Outcome};
use crate::hive::api::ClusterDeployment;
use crate::kinds::View;
use crate::kinds::lifecycle::Lifecycle;
use crate::kinds::row::STOP_START;
use crate::power::Power;
use crate::rollout::api::PowerRollout;
use crate::rollout::plan::{Candidate, Input, Plan, has_begun, is_over, plan};
use crate::rollout::snapshot::Snapshot;
use crate::rollout::status::RolloutPhase;
use crate::rollout::{Members, NamespaceLabels};

/// A rollout and its targets, and a clock.
struct Hub {
    rollout: PowerRollout,
    clusters: Vec<ClusterDeployment>,
    upgrades: BTreeMap<String, String>,
    checked: BTreeMap<String, (String, Timestamp)>,
    checking: BTreeSet<String>,
    queued: Option<&'static str>,
    blocked: Option<&'static str>,
    /// The members that were recorded last.
    snapshot: Option<Snapshot>,
    /// The generation that they were recorded of.
    snapshot_of: Option<i64>,
    /// Whether the controller has read that record.
    adopted: bool,
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

/// Of a text of its own each.
fn uid(text: &str) -> String {
    let number =
        text.bytes().fold(0, |sum: u128, byte| sum.wrapping_mul(0x0100_0193_0000_0000_013b).wrapping_add(byte.into()));
    let digits = format!("{number:032x}");
    [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-")
}

fn cluster(name: &str, change: &Value) -> ClusterDeployment {
    let mut object = json!({
        "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
        "metadata": {
            "name": name, "namespace": "fleet", "uid": uid(name), "creationTimestamp": "2026-11-01T00:00:00Z",
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
        let (upgrades, checked, checking) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        let (rollout, now, started) = (rollout(spec), now(), Vec::new());
        let (queued, blocked, snapshot, snapshot_of, adopted) = (None, None, None, None, false);
        Self {
            rollout,
            clusters,
            upgrades,
            checked,
            checking,
            queued,
            blocked,
            snapshot,
            snapshot_of,
            adopted,
            now,
            started,
        }
    }

    fn of(spec: &Value, names: &[&str]) -> Self {
        Self::new(spec, names.iter().map(|name| cluster(name, &json!({}))).collect())
    }

    fn observed(&self) -> Vec<View> {
        self.clusters.iter().map(|cluster| cluster.view(Some(&Settings::serving(&["aws"])))).collect()
    }

    fn plan(&self) -> Plan {
        let observed = self.observed();
        let candidates: Vec<Candidate<'_>> = self
            .members(&observed)
            .map(|(index, group)| (&observed[index], group))
            .map(|(object, group)| Candidate {
                object,
                group,
                domain: object.obstacles.domain.as_deref(),
                upgrade: self.upgrades.get(&object.identity.name).map(String::as_str),
                checked: self.checked.get(&object.identity.name).map(|(why, at)| (why.as_str(), *at)),
                checking: self.checking.contains(&object.identity.name),
            })
            .collect();
        let Self { rollout, queued, blocked, now, .. } = self;
        let (candidates, deadlines) = (&candidates, STOP_START);
        plan(&Input { rollout, candidates, deadlines, queued: *queued, blocked: *blocked, now: *now })
    }

    /// The members and their groups: as they were recorded, or before that as the rollout selects.
    fn members(&self, observed: &[View]) -> impl Iterator<Item = (usize, usize)> {
        let begun = has_begun(&self.rollout);
        let is_current = self.snapshot_of == Some(Snapshot::generation(&self.rollout));
        let snapshot = self.snapshot.as_ref().filter(|_| (begun || self.adopted) && is_current);
        assert!(!begun || snapshot.is_some() || self.snapshot.is_none(), "the members that it started with are gone");
        let members = Members::of(&self.rollout.spec.targets, &self.rollout.spec.groups).unwrap();
        let group = move |object: &View| match snapshot {
            Some(snapshot) => snapshot.group(object.identity.uid),
            None => members.cover(object, &NamespaceLabels::new()).then(|| members.group(object)),
        };
        let found: Vec<(usize, usize)> =
            observed.iter().map(group).enumerate().filter_map(|(index, group)| Some((index, group?))).collect();
        found.into_iter()
    }

    /// One reconcile, carried out. Names of the targets that it started.
    fn pass(&mut self) -> Vec<String> {
        let plan = self.plan();
        self.carry_out(&plan, None)
    }

    /// Carries out a plan in the controller's order: all of it, or so many writes to targets, and then the controller
    /// ends.
    fn carry_out(&mut self, plan: &Plan, crash: Option<usize>) -> Vec<String> {
        let mut started = Vec::new();
        let members: Vec<(usize, usize)> = self.members(&self.observed()).collect();
        let generation = Some(Snapshot::generation(&self.rollout));
        let is_adopted = self.adopted && self.snapshot_of == generation;
        if let (Some(new), false, true) = (&plan.snapshot, is_adopted, crash != Some(0)) {
            // Each generation has a name of its own.
            self.snapshot.take_if(|_| self.snapshot_of != generation);
            self.snapshot_of = generation;
            // Another leader may have been here before.
            let is_new = self.snapshot.get_or_insert_with(|| new.clone()) == new;
            self.adopted = crash.is_none();
            if !is_new {
                return started;
            }
        }
        self.adopted &= crash.is_none();
        for (index, mark) in plan.ends.iter().chain(&plan.starts).take(crash.unwrap_or(usize::MAX)) {
            let cluster = &mut self.clusters[members[*index].0];
            let annotations = cluster.metadata.annotations.get_or_insert_default();
            annotations.insert(crate::annotation::keys::ROLLOUT.to_owned(), mark.text());
            if mark.ended.is_none() {
                cluster.spec.power_state = Some(mark.wanted.to_string());
                annotations.insert(crate::annotation::keys::REQUESTED_AT.to_owned(), mark.since.clone());
                started.push(cluster.metadata.name.clone().unwrap());
            }
        }
        if crash.is_none() {
            // As the API server keeps it.
            self.rollout.status = serde_json::from_value(json!(plan.status)).unwrap();
        }
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
