//! The seed and the user cluster, as far as decisions see them. A pass carries out a plan, or dies in the middle of it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::super::control_plane::Replicas;
use super::super::*;
use super::case::replicas;
use crate::kkp::api::{Cluster, ClusterSpec, ClusterStatus, Condition, Request};
use crate::kkp::data::STATE;
use crate::kkp::keys;
use crate::kkp::node::NodeBefore;
use crate::kkp::pause::is_paused_by_us;
use crate::kkp::phase::Limits;
use crate::kkp::record::{Numbers, Record, Workload, WorkloadKind};
use crate::power::Power;
use crate::record::Format;

const TICK: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(super) struct World {
    pub(super) cluster: Cluster,
    pub(super) request: Request,
    pub(super) record: Option<Record>,
    pub(super) control_plane: BTreeMap<Workload, u32>,
    /// Our copies of counts on workloads.
    copies: BTreeMap<Workload, u32>,
    pub(super) cron_jobs: Vec<CronJob>,
    pub(super) machinery: Machinery,
    pub(super) now: Timestamp,
    /// Calls after which the controller dies, pass by pass; it lives through the rest.
    pub(super) kills: Vec<usize>,
    /// Passes at which a reconcile of KKP in flight raises the scheduler, if the cluster is paused.
    pub(super) raised: Vec<usize>,
    pub(super) volumes: u32,
    /// Whether no Pod ends.
    pub(super) stuck: bool,
    /// Whether KKP refuses the end of the pause.
    pub(super) refuses: bool,
    passes: usize,
    last: Option<Plan>,
}

pub(super) fn workload(name: &str) -> Workload {
    let kind = if name == "etcd" { WorkloadKind::StatefulSet } else { WorkloadKind::Deployment };
    Workload { kind, name: name.to_owned() }
}

/// The UID of the cluster.
pub(super) const UID: &str = "u-1";

/// The cluster with our condition in this phase, or without it.
pub(super) fn confirm(cluster: &mut Cluster, phase: Option<Phase>) {
    say(cluster, phase.map(|phase| Report::of(phase, "")));
}

pub(super) fn say(cluster: &mut Cluster, report: Option<Report>) {
    let conditions = &mut cluster.status.get_or_insert_default().conditions;
    conditions.retain(|name, _| name != keys::DEHYDRATED && name != STATE);
    let Some(Report { dehydrated, reason, message, state }) = report else { return };
    let status = if dehydrated { "True" } else { "False" }.to_owned();
    let last_heartbeat_time = "2026-11-22T18:00:00Z".to_owned();
    let (reason, message) = (Some(reason), Some(message));
    let words = Condition { status, last_heartbeat_time, reason, message, ..Condition::default() };
    let data = state.condition(&words.last_heartbeat_time);
    conditions.extend([(keys::DEHYDRATED.to_owned(), words), (STATE.to_owned(), data)]);
}

/// A cluster that KKP is done with.
pub(super) fn up_to_date() -> Cluster {
    let mut cluster = Cluster::new("abc", ClusterSpec::default());
    cluster.metadata.uid = Some(UID.to_owned());
    let condition = Condition { status: "True".into(), ..Condition::default() };
    let conditions = [("SeedResourcesUpToDate".to_owned(), condition)].into();
    cluster.status = Some(ClusterStatus { phase: Some("Running".into()), conditions, ..ClusterStatus::default() });
    cluster
}

/// Counts that KKP writes.
const KKP: [(&str, u32); 5] =
    [("apiserver", 2), ("controller-manager", 1), ("machine-controller", 1), ("scheduler", 1), ("etcd", 3)];

impl World {
    pub(super) fn new() -> Self {
        let now = "2026-11-22T18:00:00Z".parse().unwrap();
        let deployment = |name: &str, replicas, autoscaled: bool| MachineDeployment {
            name: format!("kube-system/{name}"),
            replicas,
            machine_type: String::new(),
            autoscaler: if autoscaled {
                [(keys::AUTOSCALER[0].to_owned(), "1".to_owned())].into()
            } else {
                BTreeMap::new()
            },
            copy: None,
            autoscaler_copy: BTreeMap::new(),
        };
        let mut world = Self {
            cluster: up_to_date(),
            request: Request::default(),
            record: None,
            control_plane: KKP.iter().map(|(name, count)| (workload(name), *count)).collect(),
            copies: BTreeMap::new(),
            cron_jobs: vec![cron_job("etcd-defragger", false), cron_job("suspended-by-its-user", true)],
            machinery: Machinery {
                deployments: vec![deployment("a", 3, true), deployment("b", 2, false), deployment("off", 0, false)],
                ..Machinery::default()
            },
            now,
            kills: Vec::new(),
            raised: Vec::new(),
            volumes: 0,
            stuck: false,
            refuses: false,
            passes: 0,
            last: None,
        };
        world.machines_follow();
        world.machinery.pods = vec![
            pod("shop/db-0", Stage::WithVolumes),
            pod("shop/web", Stage::Others),
            pod("kube-system/csi", Stage::System),
        ];
        world.machinery.attachments = vec!["csi-1".to_owned()];
        world
    }

    /// Requests it on the Cluster.
    pub(super) fn want(&mut self, desired: Power) {
        self.request = Request { desired, at: Some(self.now) };
        let state = if desired == Power::Hibernating { "Hibernating" } else { "Running" };
        let annotations = self.cluster.metadata.annotations.get_or_insert_default();
        annotations.insert(keys::POWER_STATE.to_owned(), state.to_owned());
        annotations.insert(keys::POWER_STATE_AT.to_owned(), format::seconds(self.now));
    }

    /// Falls asleep until the pause is written. Meanwhile a client raises a `MachineDeployment`, on whose Nodes a Pod
    /// does not end.
    pub(super) fn pause_and_raise(&mut self) {
        self.want(Power::Hibernating);
        for _ in 0..200 {
            if self.phase() == Some(Phase::Pausing) {
                break;
            }
            self.run(1);
        }
        self.machinery.deployments[1].replicas = 2;
        self.machinery.pods.push(pod("shop/late", Stage::Others));
        self.stuck = true;
        self.run(1);
        assert!(self.cluster.spec.pause && self.phase() == Some(Phase::Pausing), "{self:#?}");
    }

    pub(super) fn delete(&mut self) {
        self.cluster.metadata.deletion_timestamp = Some(Time(self.now));
    }

    /// The phase in our condition; `None` at the end, with nothing left.
    pub(super) fn phase(&self) -> Option<Phase> {
        let phase = phase(&self.cluster);
        assert!(phase.is_some() || self.record.is_none() && self.copies.is_empty(), "{self:#?}");
        phase
    }

    /// What a sleep must give back.
    pub(super) fn counts(&self) -> (BTreeMap<Workload, u32>, Vec<MachineDeployment>) {
        (self.control_plane.clone(), self.machinery.deployments.clone())
    }

    pub(super) fn api_answers(&self) -> bool {
        self.control_plane[&workload("etcd")] == 3 && self.control_plane[&workload("apiserver")] > 0
    }

    pub(super) fn run(&mut self, passes: usize) {
        for _ in 0..passes {
            self.pass();
            self.passes += 1;
            self.now += TICK;
            self.others_act();
        }
    }

    fn pass(&mut self) {
        let control_plane: Vec<Replicas> = self
            .control_plane
            .iter()
            .map(|(one, wanted)| Replicas { copy: self.copies.get(one).copied(), ..replicas(&one.name, *wanted) })
            .collect();
        let plan = decide(&Facts {
            cluster: &self.cluster,
            request: self.request,
            forced: false,
            record: self.record.as_ref(),
            unread: None,
            preflight: Some(&[]),
            control_plane: &control_plane,
            numbers: Numbers { volumes: self.volumes, ..Numbers::default() },
            cron_jobs: &self.cron_jobs,
            user: if self.api_answers() { Ok(&self.machinery) } else { Err("connection refused") },
            may_begin: true,
            unpause_refused: self.refuses.then_some("invalid datacenter name"),
            now: self.now,
            limits: Limits::default(),
        });
        let mut calls = if self.kills.is_empty() { usize::MAX } else { self.kills.remove(0) };
        let mut lives = || {
            calls = calls.saturating_sub(1);
            calls > 0
        };
        self.last = Some(plan.clone());
        if let Some(record) = &plan.record {
            if !lives() {
                return;
            }
            // What is stored can be read by the next controller.
            self.record = Some(Record::read(&record.text()).unwrap());
        }
        for action in &plan.actions {
            if !lives() {
                return;
            }
            self.carry_out(action);
        }
        if plan.clears_intent && lives() {
            self.want(Power::Running);
            self.note_pause(None);
        }
        if plan.ends && lives() {
            self.record = None;
        }
        if lives() {
            say(&mut self.cluster, plan.report);
        }
    }

    fn carry_out(&mut self, action: &Action) {
        let user_api = self.api_answers();
        let deployment = |world: &mut Self, name: &str, change: &dyn Fn(&mut MachineDeployment)| {
            assert!(user_api, "{action:?} while the API server is down");
            change(world.machinery.deployments.iter_mut().find(|one| one.name == name).unwrap());
        };
        match action {
            Action::StopAutoscaler(name, recorded) => deployment(self, name, &|one: &mut MachineDeployment| {
                (one.autoscaler, one.autoscaler_copy) = (BTreeMap::new(), recorded.clone());
            }),
            Action::Cordon(names) => self.nodes(names, |node| {
                if !node.ours {
                    node.before = NodeBefore::of(node.cordoned, node.skips_eviction.then_some(""));
                }
                (node.ours, node.cordoned, node.skips_eviction) = (true, true, true);
            }),
            Action::Uncordon(names) => self.nodes(names, |node| {
                (node.ours, node.cordoned) = (false, node.before.unschedulable);
                node.skips_eviction = node.before.skip_eviction.is_some();
            }),
            Action::DeleteLostPods(pods) => {
                let is_over = self.machinery.machines.is_empty() && self.machinery.nodes.is_empty();
                assert!(user_api && is_over, "Pods are deleted that may still run");
                self.machinery.lost_pods.retain(|pod| !pods.contains(pod));
            }
            Action::RestoreAutoscaler(name, autoscaler) => deployment(self, name, &|one: &mut MachineDeployment| {
                (one.autoscaler, one.autoscaler_copy, one.copy) = (autoscaler.clone(), BTreeMap::new(), None);
            }),
            Action::DeletePods(names) => {
                for pod in self.machinery.pods.iter_mut().filter(|pod| names.contains(&pod.name)) {
                    pod.terminating = true;
                }
            }
            Action::ScaleDownMachines(name, machines) => deployment(self, name, &|one: &mut MachineDeployment| {
                (one.replicas, one.copy) = (0, Some(machines.replicas));
                (one.autoscaler, one.autoscaler_copy) = (BTreeMap::new(), machines.autoscaler.clone());
            }),
            Action::RestoreMachines(name, machines) => deployment(self, name, &|one: &mut MachineDeployment| {
                one.replicas = machines.replicas;
                (one.autoscaler, one.autoscaler_copy, one.copy) = (machines.autoscaler.clone(), BTreeMap::new(), None);
            }),
            Action::DeleteNode(name) => self.machinery.nodes.retain(|node| node.name != *name),
            Action::Pause => {
                assert!(self.machinery.machines.is_empty(), "paused while a Machine exists");
                assert!(self.record.is_some(), "paused without a record");
                self.cluster.spec.pause = true;
                self.cluster.spec.pause_reason = Some(keys::PAUSED_BY_US.to_owned());
                self.note_pause(self.record.as_ref().map(Record::sleep));
            }
            Action::Unpause if self.refuses => {}
            Action::Unpause => {
                let is_by_others = self.cluster.spec.pause && !is_paused_by_us(&self.cluster, self.record.as_ref());
                assert!(!is_by_others, "the pause of another client ended");
                (self.cluster.spec.pause, self.cluster.spec.pause_reason) = (false, None);
                self.note_pause(None);
            }
            Action::Disown => self.note_pause(None),
            Action::ScaleDown(workload, count) => {
                assert!(self.cluster.spec.pause, "{workload:?} scaled down without a pause");
                let recorded = self.record.as_ref().and_then(|record| record.control_plane.get(workload)).copied();
                assert!(recorded.is_some_and(|count| count > 0), "{workload:?} scaled down without a record");
                self.control_plane.insert(workload.clone(), 0);
                self.copies.insert(workload.clone(), *count);
            }
            Action::Restore(workload, count) => {
                self.control_plane.insert(workload.clone(), *count);
                self.copies.remove(workload);
            }
            Action::Unmark(workloads) => self.copies.retain(|workload, _| !workloads.contains(workload)),
            Action::Suspend(names) | Action::Unsuspend(names) => {
                for job in self.cron_jobs.iter_mut().filter(|job| names.contains(&job.name)) {
                    job.suspended = matches!(action, Action::Suspend(_));
                    job.ours = job.suspended;
                }
            }
            Action::TouchBackups | Action::TouchMachineSets(_) => {}
        }
        let etcd = self.control_plane[&workload("etcd")];
        assert!(etcd == 0 || etcd == 3, "etcd only ever has all of its members or none");
    }

    /// The sleep that the pause names.
    pub(super) fn note_pause(&mut self, sleep: Option<String>) {
        let annotations = self.cluster.metadata.annotations.get_or_insert_default();
        annotations.remove(keys::PAUSED_BY_SLEEP);
        annotations.extend(sleep.map(|sleep| (keys::PAUSED_BY_SLEEP.to_owned(), sleep)));
    }

    fn nodes(&mut self, names: &[String], change: impl Fn(&mut Node)) {
        self.machinery.nodes.iter_mut().filter(|node| names.contains(&node.name)).for_each(change);
    }

    /// KKP, machine-controller and the workloads.
    fn others_act(&mut self) {
        if self.cluster.spec.pause && self.raised.contains(&self.passes) {
            self.control_plane.insert(workload("scheduler"), 1);
        }
        // Of a cluster that is deleted KKP restores nothing (row 20).
        if !self.cluster.spec.pause && self.cluster.metadata.deletion_timestamp.is_none() {
            for (name, count) in KKP.iter().filter(|(name, _)| *name != "etcd") {
                self.control_plane.insert(workload(name), *count);
            }
        }
        if self.api_answers() {
            self.machinery.pods.retain(|pod| !pod.terminating || self.stuck);
            if !self.machinery.pods.iter().any(|pod| pod.stage < Stage::System) {
                self.machinery.attachments.clear();
            }
            self.machines_follow();
        }
    }

    /// machine-controller: as many Machines and Nodes as the counts say.
    fn machines_follow(&mut self) {
        let names = self
            .machinery
            .deployments
            .iter()
            .flat_map(|one| (0..one.replicas).map(|number| format!("{}-{number}", one.name)));
        let names: BTreeSet<String> = names.collect();
        // Pods of DaemonSets stay behind.
        let gone = self.machinery.nodes.extract_if(.., |node| !names.contains(&node.name));
        let lost = gone.map(|node| LostPod { name: format!("kube-system/cni-{}", node.name), uid: node.name });
        self.machinery.lost_pods.extend(lost);
        self.machinery.lost_pods.retain(|pod| !names.contains(&pod.uid));
        for name in &names {
            if !self.machinery.machines.contains(name) {
                self.machinery.nodes.push(Node {
                    name: name.clone(),
                    has_machine: true,
                    ready: true,
                    ..Node::default()
                });
            }
        }
        self.machinery.machines = names.into_iter().collect();
    }
}

fn cron_job(name: &str, suspended: bool) -> CronJob {
    CronJob { name: name.to_owned(), suspended, ours: false }
}

fn pod(name: &str, stage: Stage) -> Pod {
    Pod { name: name.to_owned(), stage, ..Pod::default() }
}
