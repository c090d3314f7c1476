//! What a decision reads.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use super::control_plane::Replicas;
use crate::annotation::{Hold, NAMELESS, format, hold, keys as common, protected};
use crate::finding::Finding;
use crate::kkp::api::{Cluster, Request};
use crate::kkp::keys;
use crate::kkp::node::NodeBefore;
use crate::kkp::pause::{is_paused_by_us, is_unpaused_by_others};
use crate::kkp::phase::{Limits, Phase};
use crate::kkp::record::{Machines, Numbers, Record};
use crate::power::Power;
use crate::record::RecordError;

/// Everything that is known of a cluster.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The Cluster.
    pub cluster: &'a Cluster,
    /// What is wanted.
    pub request: Request,
    /// Whether the user accepts what only a force overrides.
    pub forced: bool,
    /// The record of the sleep, if there is one.
    pub record: Option<&'a Record>,
    /// Why it cannot be read, if there is one and it cannot.
    pub unread: Option<RecordError>,
    /// What the preflight found, if it was asked.
    pub preflight: Option<&'a [Finding]>,
    /// Deployments and `StatefulSets` of the control plane.
    pub control_plane: &'a [Replicas],
    /// What the preflight counted.
    pub numbers: Numbers,
    /// `CronJobs` of the control plane.
    pub cron_jobs: &'a [CronJob],
    /// The user cluster; or why it did not answer, or was not asked because the phase needs nothing of it.
    pub user: Result<&'a Machinery, &'a str>,
    /// Whether there is a slot for what would begin now: a seed wakes a few clusters at once (row 10).
    pub may_begin: bool,
    /// KKP's answer to the last try to end the pause, if it refused.
    pub unpause_refused: Option<&'a str>,
    /// Now.
    pub now: Timestamp,
    /// How long the phases may take.
    pub limits: Limits,
}

impl<'a> Facts<'a> {
    /// Whether the cluster is paused, and by the sleep of the record.
    pub fn is_paused_by_us(&self) -> bool {
        is_paused_by_us(self.cluster, self.record)
    }

    /// [`effective`] for this record.
    pub(super) fn desired(&self, record: Option<&Record>) -> Power {
        effective(self.cluster, record, self.request, self.now)
    }

    /// Whether another client has paused the cluster. An `EtcdRestore` ends its pause by itself.
    pub(super) fn is_paused_by_others(&self) -> bool {
        self.cluster.spec.pause && !self.is_paused_by_us() && !self.is_restored()
    }

    /// [`kept_awake`] now.
    pub(super) fn kept_awake(&self) -> Option<String> {
        kept_awake(self.cluster, self.now)
    }

    /// The user cluster, if it answered.
    pub(super) fn seen(&self) -> Option<&'a Machinery> {
        self.user.ok()
    }

    /// Whether an `EtcdRestore` is under way.
    pub fn is_restored(&self) -> bool {
        self.cluster.annotation(keys::ACTIVE_RESTORE).is_some()
    }

    /// Whether the cluster is being deleted.
    pub fn is_deleted(&self) -> bool {
        self.cluster.metadata.deletion_timestamp.is_some()
    }

    /// How long the recorded phase has lasted.
    pub fn in_phase(&self) -> Duration {
        self.record.map(|record| record.in_phase(self.now)).unwrap_or_default()
    }

    /// The limit of the recorded phase, if that has exceeded it.
    pub(super) fn overdue(&self) -> Option<Duration> {
        self.record.and_then(|record| self.limits.exceeded(record.phase, self.in_phase()))
    }
}

/// The state that is reconciled: as requested, but for a cluster that is kept awake. What a sleep of that has begun is
/// undone; one that sleeps already stays asleep.
pub fn effective(cluster: &Cluster, record: Option<&Record>, request: Request, now: Timestamp) -> Power {
    let is_undone =
        record.is_some_and(|record| record.phase != Phase::Dehydrated) && kept_awake(cluster, now).is_some();
    if is_undone { Power::Running } else { requested(cluster, record, request) }
}

/// As requested, unless another client has ended our pause, or the cluster is being deleted. KKP deletes nothing of a
/// cluster whose API server is down (row 20).
fn requested(cluster: &Cluster, record: Option<&Record>, request: Request) -> Power {
    let is_deleted = cluster.metadata.deletion_timestamp.is_some();
    let is_woken = |record: &Record| {
        let woken = record.woken.as_deref().and_then(format::time);
        is_unpaused_by_others(cluster, record) || woken.is_some_and(|woken| request.at.is_none_or(|at| at <= woken))
    };
    if is_deleted || record.is_some_and(is_woken) { Power::Running } else { request.desired }
}

/// Whether the Cluster still requests a sleep that is void: another client has woken the cluster since, or a newer
/// request is on the record.
pub(super) fn is_overruled(facts: &Facts<'_>) -> bool {
    let on_cluster = Request::of(|key| facts.cluster.annotation(key));
    on_cluster.is_some_and(|request| request.desired == Power::Hibernating)
        && !facts.is_deleted()
        && requested(facts.cluster, facts.record, facts.request) == Power::Running
}

/// What keeps a cluster awake, whatever is requested: its protection, or a hold. The webhook refuses the request; it
/// may have been down.
pub fn kept_awake(cluster: &Cluster, now: Timestamp) -> Option<String> {
    if protected(cluster.annotation(common::PROTECTED)) {
        return Some(format!("annotation {}: the cluster is protected from sleep", common::PROTECTED));
    }
    let hold = match hold(|key| cluster.annotation(key), now) {
        Hold::None => return None,
        Hold::Malformed { text, .. } => format!("found {text:?}, which is not a time: the hold has no end"),
        Hold::Until { until, by } => {
            format!("the cluster is held awake until {} by {}", format::seconds(until), by.unwrap_or(NAMELESS))
        }
    };
    Some(format!("annotation {}: {hold}", common::HOLD_AWAKE_UNTIL))
}

/// A `CronJob` of the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CronJob {
    /// Its name.
    pub name: String,
    /// `spec.suspend`.
    pub suspended: bool,
    /// Whether it carries our annotation: a sleep has suspended it.
    pub ours: bool,
}

/// What a user cluster runs on.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Machinery {
    /// `MachineDeployments`.
    pub deployments: Vec<MachineDeployment>,
    /// Names of all Machines.
    pub machines: Vec<String>,
    /// Nodes.
    pub nodes: Vec<Node>,
    /// Pods that a drain deletes: those of `DaemonSets` and static ones are left out.
    pub pods: Vec<Pod>,
    /// `VolumeAttachments`.
    pub attachments: Vec<String>,
    /// What a `MachineDeployment`'s count needs and does not run yet, for people: a webhook, OSM, its bootstrap
    /// Secrets.
    pub unready: Option<String>,
    /// Pods that are still bound to Nodes that are gone.
    pub lost_pods: Vec<LostPod>,
    /// `MachineSets` whose Machines a quota refuses, if there are any.
    pub quota: Option<Quota>,
}

/// A Pod that is bound to a Node that is gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostPod {
    /// `namespace/name`.
    pub name: String,
    /// Its UID: a new Pod may have the name by the time of the call.
    pub uid: String,
}

/// A quota that refuses Machines. Only Events of the `MachineSets` tell (row 62).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quota {
    /// The refusal.
    pub why: String,
    /// `MachineSets`, as `namespace/name`.
    pub sets: Vec<String>,
}

/// A `MachineDeployment`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineDeployment {
    /// `namespace/name`.
    pub name: String,
    /// `spec.replicas`.
    pub replicas: u32,
    /// Their cloud's word for the size of its Machines; empty if it names none.
    pub machine_type: String,
    /// The annotations that put it under an autoscaler's control.
    pub autoscaler: BTreeMap<String, String>,
    /// Our copy of its count, if it carries one.
    pub copy: Option<u32>,
    /// Our copies of these annotations.
    pub autoscaler_copy: BTreeMap<String, String>,
}

impl MachineDeployment {
    /// What a sleep has to give back. A copy is older than what another client has written since.
    pub(super) fn before(&self) -> Machines {
        let replicas = if self.replicas == 0 { self.copy.unwrap_or_default() } else { self.replicas };
        let autoscaler = self.autoscaler_copy.iter().chain(&self.autoscaler);
        let autoscaler = autoscaler.map(|(key, value)| (key.clone(), value.clone())).collect();
        Machines { replicas, autoscaler, machine_type: self.machine_type.clone() }
    }
}

/// A Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "facts of an object, each by itself")]
pub struct Node {
    /// Its name.
    pub name: String,
    /// `spec.unschedulable`.
    pub cordoned: bool,
    /// Whether it carries KKP's annotation that skips eviction.
    pub skips_eviction: bool,
    /// Whether it carries our annotation: a sleep has changed it.
    pub ours: bool,
    /// What it was before that, or what it is.
    pub before: NodeBefore,
    /// Whether a Machine belongs to it.
    pub has_machine: bool,
    /// Whether that Machine is being deleted.
    pub leaves: bool,
    /// Whether it is Ready.
    pub ready: bool,
    /// Whether its Lease has not been renewed for minutes.
    pub stale: bool,
}

/// A Pod that a drain deletes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// `namespace/name`.
    pub name: String,
    /// When it goes.
    pub stage: Stage,
    /// Whether it was deleted and its grace period runs.
    pub terminating: bool,
    /// Whether the kubelet of its Node is gone: a deletion of it never completes.
    pub is_lost: bool,
    /// When it was created, if it tolerates cordoned Nodes: its controller places it there again.
    pub returned: Option<Timestamp>,
}

/// The order in which Pods are deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Workloads with volumes.
    WithVolumes,
    /// Other workloads.
    #[default]
    Others,
    /// kube-system, where the CSI controllers detach volumes (row 60).
    System,
}
