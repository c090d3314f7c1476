//! What an edge writes to the workloads of a namespace, in the order of `kubectl hibernate ns/NAME`.
//!
//! | # | the workload | answer |
//! |---|---|---|
//! | E1 | was created after the edge, or is being deleted | it is none of this edge |
//! | E8 | is controlled or scaled by an object of an operator that the schedule includes; at a wake without a record of ours | skipped: its owner follows the edge |
//! | E2 | has a controlling owner, at a sleep | left: the owner would scale it again |
//! | E3 | refuses the sleep: protected, or its volumes would be deleted | left |
//! | E4 | others have set what a sleep sets since the edge, or it is awake with the record of this edge | left |
//! | E5 | does not say what to write, such as a malformed record | failed |
//! | E6 | is as asked | done |
//! | E7 | any other | written |
//!
//! The answers depend on the objects and on the edge alone: a controller that starts over comes to the same ones.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::annotation::{format, keys};
use crate::hub_kinds;
use crate::kinds::operators::objects::OperatorObject;
use crate::kinds::owners::Owners;
use crate::kinds::sleep_row::Switch;
use crate::kinds::workload::{DEPLOYMENT, STATEFUL_SET};
use crate::kinds::{CRON_JOB, Change, Intent, TargetError, TargetKind};
use crate::kkp::api::NAMESPACE_PREFIX;
use crate::object::managed_fields::{self, annotators, manager, written_at};
use crate::object::{controller, text};
use crate::power::Power;
use crate::text::{and_more, sanitize_to};
use crate::workload::namespaces::is_control_plane;
use crate::workload::ownership::{REPLICAS, SUSPEND};

/// What Kubernetes writes by itself, such as for an autoscaler.
const KUBERNETES: &str = "kube-controller-manager";
/// The component that grants the rights.
const COMPONENT: &str = "manifests/components/workload-schedules (components.workloadSchedules of the chart)";
/// Longest reason of one workload, in characters.
const MAX_WHY: usize = 200;

hub_kinds! {
    /// A `Deployment`, as far as it is read.
    DeploymentObject: NamespaceResourceScope = "apps", "v1", "Deployment", "deployments"; MANAGED {
        spec: WorkloadSpec,
    }

    /// A `StatefulSet`, as far as it is read.
    StatefulSetObject: NamespaceResourceScope = "apps", "v1", "StatefulSet", "statefulsets"; MANAGED {
        spec: WorkloadSpec,
    }

    /// A `CronJob`, as far as it is read.
    CronJobObject: NamespaceResourceScope = "batch", "v1", "CronJob", "cronjobs"; MANAGED {
        spec: WorkloadSpec,
    }
}

/// What the readers of the three kinds read.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct WorkloadSpec {
    /// Of a `Deployment` and a `StatefulSet`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    /// Of a `CronJob`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// Of a `StatefulSet`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub persistent_volume_claim_retention_policy: Option<Retention>,
}

/// What becomes of the volume claims of a `StatefulSet`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Retention {
    /// `Retain` or `Delete`.
    pub when_scaled: String,
}

/// A kind of workload.
pub trait Workload: Resource<DynamicType = ()> + Default {
    /// Its row.
    const ROW: &'static TargetKind;

    /// The object for its reader.
    fn value(&self) -> Value;
}

macro_rules! workloads {
    ($($name:ident: $row:ident),*) => {$(
        impl Workload for $name {
            const ROW: &'static TargetKind = &$row;

            fn value(&self) -> Value {
                json!({ "metadata": self.metadata, "spec": self.spec })
            }
        }
    )*};
}

impl<const AT: usize> Workload for OperatorObject<AT> {
    const ROW: &'static TargetKind = Self::ROW;

    fn value(&self) -> Value {
        Self::value(self)
    }
}

workloads!(DeploymentObject: DEPLOYMENT, StatefulSetObject: STATEFUL_SET, CronJobObject: CRON_JOB);

/// What an edge asks of workloads.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The state.
    pub power: Power,
    /// The time of the edge.
    pub at: Timestamp,
    /// Why they sleep; a wake removes it.
    pub reason: &'a str,
}

/// What is to be done with a workload.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Nothing: it is none of this edge.
    NotOurs,
    /// A JSON merge patch, which carries the resourceVersion that it was made from.
    Write(Value),
    /// Nothing more.
    Ended(Outcome),
}

/// What became of a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is as the edge asks.
    Done,
    /// It stays as it is, and why.
    Left(String),
    /// It is to be tried again, and why.
    Failed(String),
}

/// Why an edge changes nothing in a namespace: it is a control plane, of the hub or of a Cluster of KKP.
pub fn left(namespace: &str) -> Option<String> {
    if is_control_plane(namespace) {
        return Some("it belongs to the control plane of the hub".to_owned());
    }
    let of_a_cluster = namespace.starts_with(NAMESPACE_PREFIX);
    of_a_cluster.then(|| format!("{NAMESPACE_PREFIX}ID is the control plane of a Cluster of KKP: schedule the Cluster"))
}

/// What the controller lacks to act on schedules for workloads.
pub fn no_rights() -> String {
    format!("hibernate-controller may not change workloads: install {COMPONENT}")
}

/// What an edge does with a workload, by the rows above.
pub fn step(row: &TargetKind, object: &Value, asked: &Asked<'_>, owners: &Owners) -> Step {
    let Asked { power, at, reason } = *asked;
    let sleeps = power == Power::Hibernating;
    let is_younger = format::time(text(object, "/metadata/creationTimestamp")).is_some_and(|created| created > at);
    if is_younger || !text(object, "/metadata/deletionTimestamp").is_empty() {
        return Step::NotOurs; // E1
    }
    if owners.own(row, object, sleeps) {
        return Step::NotOurs; // E8
    }
    let intent =
        Intent { power, reason: Some(reason).filter(|_| sleeps), end: None, now: at, queried: true, force: false };
    let patch = match row.change(object, &intent) {
        Err(TargetError::Refused(why)) => return Step::Ended(Outcome::Left(why)), // E3
        Err(error) => return Step::Ended(Outcome::Failed(error.to_string())),     // E5
        Ok(Change::None { .. } | Change::RequestCheck { .. }) => return Step::Ended(Outcome::Done), // E6
        Ok(Change::Patch { patch, .. }) => patch,
    };
    let why = owner(object).filter(|_| sleeps).or_else(|| changed(row, object, at, sleeps)); // E2, E4
    why.map_or(Step::Write(patch), |why| Step::Ended(Outcome::Left(why))) // E7
}

fn owner(object: &Value) -> Option<String> {
    let owner = controller(object)?;
    Some(format!("{} {} owns it and may scale it again: put that to sleep", text(owner, "/kind"), text(owner, "/name")))
}

/// Who has set since then what a sleep sets. A field manager that has set something else in the same way counts, too.
fn changed(row: &TargetKind, object: &Value, at: Timestamp, sleeps: bool) -> Option<String> {
    let fields: Vec<String> = match row.sleep_row() {
        Some(row) => row.switches.iter().map(Switch::managed).collect(),
        None => [REPLICAS, SUSPEND].map(str::to_owned).to_vec(),
    };
    let all = fields.iter().flat_map(|field| managed_fields::owners(object, field));
    let others: Vec<&Value> = all.filter(|entry| ![keys::CONTROLLER, KUBERNETES].contains(&manager(entry))).collect();
    let timed = others.iter().filter_map(|entry| Some((written_at(entry)?, manager(entry)))).max();
    if let Some((when, by)) = timed.filter(|(when, _)| *when > at) {
        return Some(format!("{by} has changed it at {}, after the edge", format::seconds(when)));
    }
    // `kubectl scale` leaves an entry without a time, or none at all [tried, 1.36].
    let ours = |entry: &Value| manager(entry) == keys::CONTROLLER && written_at(entry).is_some_and(|when| when >= at);
    let records = [keys::REPLICAS, keys::CRON_JOB_SUSPEND, keys::BEFORE];
    let is_record_of_edge = records.into_iter().any(|record| annotators(object, record).any(ours));
    let untimed =
        others.iter().find(|entry| written_at(entry).is_none()).map_or("another client", |entry| manager(entry));
    (sleeps && is_record_of_edge).then(|| format!("{untimed} has changed it after this edge put it to sleep"))
}

/// What became of the workloads of an edge.
#[derive(Clone, Debug, Default)]
pub struct Tally(BTreeMap<String, BTreeMap<String, Outcome>>);

impl Tally {
    /// Whether nothing more is to be done for a workload of a namespace, by its full name.
    pub fn has_ended(&self, namespace: &str, name: &str) -> bool {
        let found = self.0.get(namespace).and_then(|all| all.get(name));
        found.is_some_and(|outcome| !matches!(outcome, Outcome::Failed(_)))
    }

    /// Keeps what a pass over a namespace has come to, in place of what failed in an earlier one.
    pub fn add(&mut self, namespace: &str, outcomes: impl IntoIterator<Item = (String, Outcome)>) {
        let of = self.0.entry(namespace.to_owned()).or_default();
        of.retain(|_, outcome| !matches!(outcome, Outcome::Failed(_)));
        of.extend(outcomes);
    }

    /// Namespaces in which something failed.
    pub fn failed(&self) -> impl Iterator<Item = &String> {
        self.having(|outcome| matches!(outcome, Outcome::Failed(_)))
    }

    fn having(&self, is: fn(&Outcome) -> bool) -> impl Iterator<Item = &String> {
        self.0.iter().filter(move |(_, of)| of.values().any(is)).map(|(namespace, _)| namespace)
    }

    /// Forgets what is done, so that it is observed anew. The namespaces in which something is.
    pub fn reopen(&mut self) -> Vec<String> {
        let namespaces = self.having(|outcome| *outcome == Outcome::Done).cloned().collect();
        self.0.values_mut().for_each(|of| of.retain(|_, outcome| *outcome != Outcome::Done));
        namespaces
    }

    /// How many workloads there are, how many of them are done, and how many have failed.
    pub fn counts(&self) -> (usize, usize, usize) {
        let all = || self.0.values().flat_map(BTreeMap::values);
        let failed = all().filter(|one| matches!(one, Outcome::Failed(_))).count();
        (all().count(), all().filter(|one| **one == Outcome::Done).count(), failed)
    }

    /// `12 of 14 done; failed: shop/deployment.apps/web: ... (and 1 more)`. `waiting`: namespaces that are still to be
    /// looked at.
    pub fn text(&self, waiting: usize) -> String {
        let all = || self.0.iter().flat_map(|(space, of)| of.iter().map(move |(name, outcome)| (space, name, outcome)));
        let (total, done, _) = self.counts();
        let mut line = format!("{done} of {total} done");
        if waiting > 0 {
            let _ = write!(line, "; namespaces to go: {waiting}");
        }
        let mut add = |word: &str, pick: fn(&Outcome) -> Option<&String>| {
            let mut named = all().filter_map(|(space, name, outcome)| Some((space, name, pick(outcome)?)));
            let Some((space, name, why)) = named.next() else { return };
            let first = sanitize_to(&format!("{space}/{name}: {why}"), MAX_WHY);
            let more = and_more(named.count()).map(|more| format!(" ({more})")).unwrap_or_default();
            let _ = write!(line, "; {word}: {first}{more}");
        };
        add("failed", |outcome| if let Outcome::Failed(why) = outcome { Some(why) } else { None });
        add("left", |outcome| if let Outcome::Left(why) = outcome { Some(why) } else { None });
        line
    }
}
