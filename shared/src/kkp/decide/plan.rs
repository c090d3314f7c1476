//! What a decision wants done.

use std::collections::BTreeMap;
use std::time::Duration;

use super::facts::{Facts, LostPod, is_overruled};
use crate::duration;
use crate::kkp::data::{Outcome, State};
use crate::kkp::phase::Phase;
use crate::kkp::record::{Machines, Record, Workload};

/// Requeue delay of a phase that has just begun.
const POLL: Duration = Duration::from_secs(2);
/// How long a phase is new.
pub(super) const NEW_FOR: Duration = Duration::from_secs(30);
/// Requeue delay after that.
const LATER: Duration = Duration::from_secs(5);
/// Requeue delay of a phase that makes no progress.
pub(super) const SLOW: Duration = Duration::from_secs(30);

/// Requeue delay of a cluster that is awake, and not all of whose control plane is ready.
pub(super) const LACKING_POLL: Duration = Duration::from_mins(1);

/// What a cluster waits for that begins when as many are under way as the seed takes.
pub(super) const QUEUED: &str = "waiting for a free slot: this seed has the maximum number of clusters in progress";
/// Requeue delay of one that waits for them.
pub(super) const QUEUE_POLL: Duration = Duration::from_secs(10);

/// What to do about a cluster, in this order: write the record, carry out the actions, report. A record that enters a
/// phase counts once the report is written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The record to write first, by compare-and-swap. Nothing follows if that fails.
    pub record: Option<Record>,
    /// Calls, each idempotent. The first that fails ends them.
    pub actions: Vec<Action>,
    /// What the condition says; `None` removes it.
    pub report: Option<Report>,
    /// Whether the operation is complete: the record goes after the actions.
    pub ends: bool,
    /// Whether to replace the request for sleep on the Cluster: another client has woken it, or a newer request on the
    /// record has.
    pub clears_intent: bool,
    /// What is not ready of a control plane that runs, for people; empty if all is. `None`: not observed.
    pub lacks: Option<String>,
    /// A warning Event, published when the condition changes.
    pub warning: Option<Warning>,
    /// When to reconcile again.
    pub requeue: Option<Duration>,
    /// Whether the cluster sleeps and every count of its control plane was observed at 0.
    pub at_rest: bool,
}

/// A warning Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// One word.
    pub reason: &'static str,
    /// A sentence.
    pub note: String,
}

/// The condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// Whether the cluster sleeps.
    pub dehydrated: bool,
    /// The phase, or why there is none.
    pub reason: String,
    /// A sentence.
    pub message: String,
    /// The same for programs.
    pub state: State,
}

/// One call, or several of one kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Take a `MachineDeployment` from the autoscaler's control and note its annotations, in one write.
    StopAutoscaler(String, BTreeMap<String, String>),
    /// Cordon Nodes and have KKP skip eviction.
    Cordon(Vec<String>),
    /// Undo that on Nodes that carry our annotation; one that was cordoned before stays cordoned.
    Uncordon(Vec<String>),
    /// Delete Pods with their grace period.
    DeletePods(Vec<String>),
    /// Delete Pods whose Node and Machine are gone, at once: nothing is left that could end them.
    DeleteLostPods(Vec<LostPod>),
    /// Set a `MachineDeployment`'s count to 0 and note what was before, in one write.
    ScaleDownMachines(String, Machines),
    /// Set a `MachineDeployment`'s count and autoscaler annotations and remove ours, in one write (row 53).
    RestoreMachines(String, Machines),
    /// Set a `MachineDeployment`'s autoscaler annotations and remove ours. Its count stays as it is.
    RestoreAutoscaler(String, BTreeMap<String, String>),
    /// Delete a Node without a Machine.
    DeleteNode(String),
    /// `spec.pause`, its reason and our annotation, in one write with resourceVersion.
    Pause,
    /// Set a workload's count to 0, and note the count before, in one write.
    ScaleDown(Workload, u32),
    /// Set a workload's count as it was.
    Restore(Workload, u32),
    /// Remove our copies of the counts from workloads: KKP, which restores most of them, keeps annotations (row 11).
    Unmark(Vec<Workload>),
    /// End the pause, or remove what is left of it.
    Unpause,
    /// Remove our annotations of a pause. The pause is another client's, and stays.
    Disown,
    /// Suspend `CronJobs`.
    Suspend(Vec<String>),
    /// Resume `CronJobs`.
    Unsuspend(Vec<String>),
    /// Touch `EtcdBackupConfigs`, so that backups go on (row 17).
    TouchBackups,
    /// Touch `MachineSets`: machine-controller's backoff after a refusal by a quota grows to 16 minutes (row 62).
    TouchMachineSets(Vec<String>),
}

/// A row of a table of decisions: its number, and what is to be done if it applies.
pub(super) type Row = (&'static str, fn(&Facts<'_>, &Record) -> Option<Plan>);

impl Plan {
    /// Works on a phase and requeues soon.
    pub(super) fn work(phase: Phase, message: impl Into<String>, actions: impl IntoIterator<Item = Action>) -> Self {
        Self {
            actions: actions.into_iter().collect(),
            report: Some(Report::of(phase, message)),
            requeue: Some(POLL),
            ..Self::default()
        }
    }

    /// Requeues after this delay.
    pub(super) fn requeued(self, delay: Duration) -> Self {
        Self { requeue: Some(delay), ..self }
    }

    /// Reports this outcome of the phase.
    pub(super) fn with(self, outcome: Outcome) -> Self {
        Self { report: self.report.map(|report| report.with(outcome)), ..self }
    }
}

impl Report {
    /// Of a phase.
    pub fn of(phase: Phase, message: impl Into<String>) -> Self {
        let (dehydrated, reason) = (phase == Phase::Dehydrated, phase.to_string());
        Self { dehydrated, reason, message: message.into(), state: State::entered(phase) }
    }

    /// Of a cluster whose control plane lacks this.
    pub(super) fn lacking(mut self, lacks: &str) -> Self {
        if !lacks.is_empty() {
            let before = if self.message.is_empty() { String::new() } else { format!("{}; ", self.message) };
            self.message = format!("{before}ready of the control plane: {lacks}");
        }
        self
    }

    /// With this outcome of the phase.
    pub(super) fn with(self, outcome: Outcome) -> Self {
        Self { state: State { outcome, ..self.state }, ..self }
    }
}

/// The last calls, and the record goes. A request for sleep on the Cluster goes first if a newer one on the record has
/// overruled it.
pub(super) fn ending(facts: &Facts<'_>, actions: Vec<Action>) -> Plan {
    Plan { actions, ends: true, clears_intent: is_overruled(facts), ..Plan::default() }
}

impl Facts<'_> {
    /// The recorded phase waits: soon again at first, slowly once it is overdue.
    pub(super) fn waits(&self, message: &str, actions: impl IntoIterator<Item = Action>) -> Plan {
        let phase = self.record.map_or(Phase::Preflight, |record| record.phase);
        let Some(limit) = self.overdue() else {
            let poll = if self.in_phase() < NEW_FOR { POLL } else { LATER };
            return Plan::work(phase, message, actions).requeued(poll);
        };
        Plan::work(phase, duration::overdue(limit, message), actions).requeued(SLOW)
    }

    /// Enters a phase: the record says so before anything of it is done.
    pub(super) fn enters(&self, record: &Record, phase: Phase) -> Plan {
        let (record, report) = (Some(record.clone().enter(phase, self.now)), Some(Report::of(phase, "")));
        Plan { record, report, requeue: Some(Duration::ZERO), ..Plan::default() }
    }

    /// Enters it, if the user cluster answered.
    pub(super) fn enters_if_seen(&self, record: &Record, phase: Phase) -> Option<Plan> {
        self.seen().map(|_| self.enters(record, phase))
    }

    /// The recorded phase goes on once this is on the record.
    pub(super) fn records(&self, record: Record) -> Plan {
        Plan { record: Some(record), ..self.waits("", []).requeued(Duration::ZERO) }
    }
}

/// S7, W7
pub(super) fn user_is_silent(facts: &Facts<'_>, _: &Record) -> Option<Plan> {
    facts.user.err().map(|why| facts.waits(why, []))
}
