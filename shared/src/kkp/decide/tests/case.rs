//! A situation, for the tests of what is decided in single ones.

use std::time::Duration;

use jiff::Timestamp;

use super::super::*;
use super::control_plane::Replicas;
use super::world::{UID, confirm, up_to_date, workload};
use crate::finding::Finding;
use crate::kkp::api::{Cluster, Request};
use crate::kkp::keys;
use crate::kkp::node::NodeBefore;
use crate::kkp::phase::Limits;
use crate::kkp::record::{Machines, Numbers, Record};
use crate::power::Power;
use crate::record::RecordError;

pub(super) const NOW: &str = "2026-11-22T18:00:00Z";
/// The sleep of the records below.
pub(super) const SLEEP: &str = "u-1/2026-11-22T18:00:00Z";

pub(super) fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// A situation, to be changed by a case.
pub(super) struct Case {
    pub(super) cluster: Cluster,
    pub(super) desired: Power,
    pub(super) record: Option<Record>,
    pub(super) unread: Option<RecordError>,
    pub(super) control_plane: Vec<Replicas>,
    pub(super) cron_jobs: Vec<CronJob>,
    /// Whether a pause that has ended leaves its reason, and the sleep that it names.
    pub(super) left: bool,
    /// The sleep that the pause names.
    pub(super) sleep: Option<&'static str>,
    pub(super) machinery: Option<Machinery>,
    pub(super) may_begin: bool,
    pub(super) unpause_refused: Option<&'static str>,
    pub(super) later: Duration,
    /// When the request was made, after the beginning.
    pub(super) requested: Duration,
    pub(super) findings: Vec<Finding>,
}

pub(super) fn replicas(name: &str, wanted: u32) -> Replicas {
    Replicas {
        workload: workload(name),
        wanted,
        ready: wanted,
        running: wanted > 0,
        copy: None,
        deletes_volumes: false,
    }
}

impl Case {
    pub(super) fn new(desired: Power, phase: Option<Phase>) -> Self {
        let record = phase.map(|phase| {
            let mut record = Record::begin(UID, now()).enter(phase, now());
            for (name, count) in [("apiserver", 2), ("scheduler", 1), ("etcd", 3)] {
                record.note(workload(name), count);
            }
            record.note_machines("kube-system/a", Machines { replicas: 2, ..Machines::default() });
            record
        });
        let mut cluster = up_to_date();
        confirm(&mut cluster, phase.or((desired == Power::Hibernating).then_some(Phase::Preflight)));
        cluster.spec.pause =
            matches!(phase, Some(Phase::ScalingDownControlPlane | Phase::Dehydrated | Phase::StartingControlPlane));
        cluster.spec.pause_reason = Some(keys::PAUSED_BY_US.to_owned());
        Self {
            cluster,
            desired,
            record,
            unread: None,
            control_plane: vec![replicas("apiserver", 0), replicas("scheduler", 0), replicas("etcd", 0)],
            cron_jobs: Vec::new(),
            left: false,
            sleep: Some(SLEEP),
            machinery: None,
            may_begin: true,
            unpause_refused: None,
            later: Duration::ZERO,
            requested: Duration::ZERO,
            findings: Vec::new(),
        }
    }

    pub(super) fn plan(&self) -> Plan {
        let mut cluster = self.cluster.clone();
        if !cluster.spec.pause && !self.left {
            cluster.spec.pause_reason = None;
        } else if let Some(sleep) = self.sleep {
            let annotations = cluster.metadata.annotations.get_or_insert_default();
            annotations.insert(keys::PAUSED_BY_SLEEP.to_owned(), sleep.to_owned());
        }
        decide(&Facts {
            cluster: &cluster,
            request: Request { desired: self.desired, at: Some(now() + self.requested) },
            forced: false,
            record: self.record.as_ref(),
            unread: self.unread,
            preflight: Some(&self.findings),
            control_plane: &self.control_plane,
            numbers: Numbers::default(),
            cron_jobs: &self.cron_jobs,
            user: self.machinery.as_ref().ok_or("connection refused"),
            may_begin: self.may_begin,
            unpause_refused: self.unpause_refused,
            now: now() + self.later,
            limits: Limits::default(),
        })
    }

    /// The record as it is written, and then our condition.
    pub(super) fn enter(&mut self, phase: Phase) {
        self.record = self.record.take().map(|record| record.enter(phase, now()));
        confirm(&mut self.cluster, Some(phase));
    }

    pub(super) fn ends(&self) -> bool {
        is_over(&self.plan())
    }

    pub(super) fn enters(&self) -> Option<Phase> {
        self.plan().record.map(|record| record.phase)
    }

    pub(super) fn says(&self) -> String {
        self.plan().report.map(|report| report.message).unwrap_or_default()
    }
}

/// The condition says so before the record goes.
pub(super) fn is_over(plan: &Plan) -> bool {
    !plan.ends && plan.report == Some(Report::of(Phase::Preflight, ENDS))
}

pub(super) fn node(name: &str) -> Node {
    Node {
        name: name.into(),
        cordoned: true,
        skips_eviction: true,
        ours: true,
        before: NodeBefore::default(),
        has_machine: true,
        leaves: false,
        ready: true,
        stale: false,
    }
}

pub(super) fn deployment(replicas: u32) -> MachineDeployment {
    let copy = (replicas == 0).then_some(2);
    MachineDeployment { name: "kube-system/a".into(), replicas, copy, ..MachineDeployment::default() }
}

pub(super) fn raised(name: &str, replicas: u32) -> Action {
    Action::RestoreMachines(name.into(), Machines { replicas, ..Machines::default() })
}
