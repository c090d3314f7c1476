//! What is reported of a `ClusterDeployment`'s power: the conditions `Hibernating` (H) and `Ready` (R) and
//! `status.powerState` (P).
//!
//! Types, reasons and messages of H, R and P are Hive's own, to the letter: ClusterPool, ClusterClaim and other
//! software read them. H and R are always written as a pair, so that they cannot contradict each other. Rows and
//! sections are those of docs/reference/hive.md.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::Value;

use super::api::{ClusterDeployment, Condition};
use super::data::{self, Count, DATA, Data, Unit};
use crate::duration::{age, go_string};
use crate::record::Format;
use crate::savings::ledger::{self, LEDGER, Ledger};
use crate::text::sanitize_to;

/// Condition type H.
pub const HIBERNATING: &str = "Hibernating";
/// Condition type R.
pub const READY: &str = "Ready";
/// Condition type of ours: what a transition is waiting for, by name, or what it ended with.
pub const PROGRESS: &str = "HibernationProgress";
/// Condition type: the API server cannot be reached, or need not be tried.
pub const UNREACHABLE: &str = "Unreachable";
/// Condition type: of the two URLs that a cluster with `apiURLOverride` has, the override is the one that answers.
pub const ACTIVE_OVERRIDE: &str = "ActiveAPIURLOverride";

/// The reasons of H, R and P that decisions depend on.
pub mod reason {
    use crate::cloud::CloudErrorKind;

    /// H, R: nothing was observed yet.
    pub const INITIALIZED: &str = "Initialized";
    /// H: no driver for the platform.
    pub const UNSUPPORTED: &str = "Unsupported";
    /// H: see R.
    pub const RESUMING_OR_RUNNING: &str = "ResumingOrRunning";
    /// H, P: the cluster's `SyncSet`s must have been applied once before it may sleep.
    pub const SYNC_SETS_NOT_APPLIED: &str = "SyncSetsNotApplied";
    /// H: now they have.
    pub const SYNC_SETS_APPLIED: &str = "SyncSetsApplied";
    /// H, R: no controller may start or stop the machines.
    pub const PAUSED: &str = "PowerStatePaused";
    /// R: see H.
    pub const STOPPING_OR_HIBERNATING: &str = "StoppingOrHibernating";
    /// H, P: the stop was requested.
    pub const STOPPING: &str = "Stopping";
    /// H, P: machines are not all stopped.
    pub const WAITING_FOR_MACHINES_TO_STOP: &str = "WaitingForMachinesToStop";
    /// H, P: the cloud refused to stop a machine.
    pub const FAILED_TO_STOP: &str = "FailedToStop";
    /// H, P: asleep.
    pub const HIBERNATING: &str = "Hibernating";
    /// R, P: the start was requested.
    pub const STARTING_MACHINES: &str = "StartingMachines";
    /// R, P: machines are not all running.
    pub const WAITING_FOR_MACHINES: &str = "WaitingForMachines";
    /// R, P: the cloud refused to start a machine.
    pub const FAILED_TO_START_MACHINES: &str = "FailedToStartMachines";
    /// R, P: nodes are not all ready.
    pub const WAITING_FOR_NODES: &str = "WaitingForNodes";
    /// R, P: operators get time to notice that they are awake.
    pub const PAUSING: &str = "PausingForClusterOperatorsToSettle";
    /// R, P: operators are not all well.
    pub const WAITING_FOR_CLUSTER_OPERATORS: &str = "WaitingForClusterOperators";
    /// R, P: awake.
    pub const RUNNING: &str = "Running";

    /// Progress: the cloud has no machines of this kind just now.
    pub const CAPACITY: &str = "Capacity";
    /// Progress: the cloud rate-limits requests.
    pub const THROTTLED: &str = "Throttled";
    /// Progress: the cloud did not answer the last try.
    pub const CLOUD_UNREACHABLE: &str = "CloudUnreachable";

    /// Progress: another party has started instances of a sleeping cluster.
    pub const DRIFT: &str = "StartedWhileAsleep";
    /// Progress: the cloud refuses instances that are between two states.
    pub const IN_TRANSIT: &str = "InTransit";

    /// What the progress awaits after a failure that passes by itself.
    pub fn delay(kind: CloudErrorKind) -> Option<&'static str> {
        match kind {
            CloudErrorKind::Capacity => Some(CAPACITY),
            CloudErrorKind::Throttled => Some(THROTTLED),
            CloudErrorKind::Unavailable => Some(CLOUD_UNREACHABLE),
            CloudErrorKind::InTransit => Some(IN_TRANSIT),
            _ => None,
        }
    }

    /// Whether the last try failed. It is repeated.
    pub fn is_failure(reason: &str) -> bool {
        matches!(reason, FAILED_TO_STOP | FAILED_TO_START_MACHINES)
    }
}

/// Every value of P that is ours to write, for labels of metrics.
pub const POWER_STATES: &[&str] = &[
    "Unknown",
    reason::SYNC_SETS_NOT_APPLIED,
    reason::STOPPING,
    reason::WAITING_FOR_MACHINES_TO_STOP,
    reason::FAILED_TO_STOP,
    reason::HIBERNATING,
    reason::STARTING_MACHINES,
    reason::WAITING_FOR_MACHINES,
    reason::FAILED_TO_START_MACHINES,
    reason::WAITING_FOR_NODES,
    reason::PAUSING,
    reason::WAITING_FOR_CLUSTER_OPERATORS,
    reason::RUNNING,
];

const SEE_READY: &str = "Cluster is resuming or running, see Ready condition for details";
const SEE_HIBERNATING: &str = "Cluster is shutting down or hibernating, see Hibernating condition for details";

/// Longest message of a condition in characters: the instances of a large cluster, which Hive lists all of.
const MAX_MESSAGE_CHARS: usize = 32_768;
/// Shortest time between writes of a condition that differs only in the names it lists.
const NAMES_WRITE_INTERVAL: Duration = Duration::from_secs(8);
/// Shortest time between writes of the progress while H, R and P do not change.
const PROGRESS_WRITE_INTERVAL: Duration = Duration::from_secs(2);

/// One condition as it should be: status, reason, message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Word {
    /// `True`, `False` or `Unknown`.
    pub status: &'static str,
    /// One word why.
    pub reason: &'static str,
    /// One sentence why.
    pub message: String,
}

impl Word {
    /// Bounds the message, and makes one line of it.
    pub fn new(status: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self { status, reason, message: scrub(&message.into()) }
    }

    /// A condition that nothing is known of yet.
    pub fn initialized() -> Self {
        Self::new("Unknown", reason::INITIALIZED, "Condition Initialized")
    }
}

/// What is to be reported. A member that is `None` is left as it stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PowerStatus {
    /// Condition `Hibernating`.
    pub hibernating: Option<Word>,
    /// Condition `Ready`.
    pub ready: Option<Word>,
    /// `status.powerState`.
    pub power_state: Option<&'static str>,
    /// Condition `HibernationProgress`.
    pub progress: Option<Word>,
    /// What the progress counts, for condition `HibernationData`.
    pub count: Option<Count>,
    /// Of a status that begins or ends a sleep: for condition [`LEDGER`].
    pub ledger: Option<Ledger>,
}

impl PowerStatus {
    /// The cluster is on its way to sleep, or there: H speaks, R points to H.
    fn asleep(status: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            hibernating: Some(Word::new(status, reason, message)),
            ready: Some(Word::new("False", reason::STOPPING_OR_HIBERNATING, SEE_HIBERNATING)),
            power_state: Some(reason),
            ..Self::default()
        }
    }

    /// The cluster is on its way to being awake, or there: R speaks, H points to R.
    fn awake(status: &'static str, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            hibernating: Some(Word::new("False", reason::RESUMING_OR_RUNNING, SEE_READY)),
            ready: Some(Word::new(status, reason, message)),
            power_state: Some(reason),
            ..Self::default()
        }
    }

    /// The cluster stays where it is: H speaks, R is left as it stands.
    fn hibernating(reason: &'static str, message: &str) -> Self {
        Self { hibernating: Some(Word::new("False", reason, message)), ..Self::default() }
    }

    fn unknown(reason: &'static str, message: &str) -> Self {
        let word = Word::new("Unknown", reason, message);
        Self { hibernating: Some(word.clone()), ready: Some(word), power_state: Some("Unknown"), ..Self::default() }
    }

    /// Row 3.
    pub fn deleted() -> Self {
        Self::unknown("ClusterDeploymentDeleted", "ClusterDeployment has been marked for deletion")
    }

    /// Row 4: the conditions that the cluster does not have yet.
    pub fn initialized(cluster: &ClusterDeployment) -> Self {
        let missing = |type_| cluster.condition(type_).is_none().then(Word::initialized);
        Self { hibernating: missing(HIBERNATING), ready: missing(READY), ..Self::default() }
    }

    /// Row 6.
    pub fn paused() -> Self {
        Self::unknown(reason::PAUSED, "the powerstate-pause annotation is set")
    }

    /// Row 7.
    pub fn unsupported(message: &str) -> Self {
        Self {
            ready: Some(Word::new("True", reason::RUNNING, "No power state actuator -- assuming running")),
            power_state: Some(reason::RUNNING),
            ..Self::hibernating(reason::UNSUPPORTED, message)
        }
    }

    /// Row 8.
    pub fn hibernation_capable() -> Self {
        Self::hibernating(reason::RESUMING_OR_RUNNING, "Hibernation capable")
    }

    /// Row 10.
    pub fn sync_sets_applied() -> Self {
        Self::hibernating(reason::SYNC_SETS_APPLIED, "SyncSets have been applied")
    }

    /// Row 12a.
    pub fn sync_sets_not_applied() -> Self {
        let status = Self::hibernating(reason::SYNC_SETS_NOT_APPLIED, "Cluster SyncSets have not been applied");
        Self { power_state: Some(reason::SYNC_SETS_NOT_APPLIED), ..status }
    }

    /// Row 12b.
    pub fn fake_stopped() -> Self {
        Self::asleep("True", reason::HIBERNATING, "Fake cluster is stopped")
    }

    /// Section 1.3, stopMachines.
    pub fn stopping() -> Self {
        Self::asleep("False", reason::STOPPING, "Stopping cluster machines")
    }

    /// Section 1.3, stopMachines, refused by the cloud.
    pub fn failed_to_stop(error: &str) -> Self {
        let message = format!("Failed to stop machines: {error} (more detail may be available in the logs)");
        Self::asleep("False", reason::FAILED_TO_STOP, message)
    }

    /// Section 1.3, checkClusterStopped, `ids` are not stopped yet.
    pub fn waiting_for_machines_to_stop(ids: &[&str]) -> Self {
        let message = format!("Stopping cluster machines. Some machines have not yet stopped: {}", ids.join(","));
        Self::asleep("False", reason::WAITING_FOR_MACHINES_TO_STOP, message)
    }

    /// Section 1.3, checkClusterStopped, done.
    pub fn stopped() -> Self {
        Self::asleep("True", reason::HIBERNATING, "Cluster is stopped")
    }

    /// Section 1.3, startMachines.
    pub fn starting() -> Self {
        Self::awake("False", reason::STARTING_MACHINES, "Starting cluster machines (step 1/4)")
    }

    /// Section 1.3, startMachines, refused by the cloud.
    pub fn failed_to_start(error: &str) -> Self {
        let message = format!("Failed to start machines: {error} (more detail may be available in the logs)");
        Self::awake("False", reason::FAILED_TO_START_MACHINES, message)
    }

    /// Section 1.3, checkClusterRunning 1, `ids` are not running yet.
    pub fn waiting_for_machines(ids: &[&str]) -> Self {
        let ids = ids.join(",");
        let message =
            format!("Waiting for cluster machines to start. Some machines are not yet running: {ids} (step 1/4)");
        Self::awake("False", reason::WAITING_FOR_MACHINES, message)
    }

    /// Section 1.3, checkClusterRunning 2 and 4.
    pub fn waiting_for_nodes() -> Self {
        Self::awake("False", reason::WAITING_FOR_NODES, "Waiting for Nodes to be ready (step 2/4)")
    }

    /// Section 1.3, checkClusterRunning 5, the pause of length `pause`.
    pub fn pausing(pause: Duration) -> Self {
        let message = format!("Pausing {} for ClusterOperators to settle (step 3/4)", go_string(pause));
        Self::awake("False", reason::PAUSING, message)
    }

    /// Section 1.3, checkClusterRunning 5, after the pause.
    pub fn waiting_for_operators() -> Self {
        let message = "Waiting for ClusterOperators to be ready (step 4/4)";
        Self::awake("False", reason::WAITING_FOR_CLUSTER_OPERATORS, message)
    }

    /// Row 13a, section 1.3, checkClusterRunning 6.
    pub fn running() -> Self {
        Self::awake("True", reason::RUNNING, "Cluster is running")
    }

    /// The same status, with what is awaited: `what` in one word, `names` in one sentence.
    pub fn awaiting(self, what: &'static str, names: impl Into<String>) -> Self {
        Self { progress: Some(Word::new("True", what, names)), ..self }
    }

    /// The same status, with nothing awaited any more.
    pub fn done(self, what: &'static str, result: impl Into<String>) -> Self {
        Self { progress: Some(Word::new("False", what, result)), ..self }
    }

    /// The same status, with a count of what the progress lists: how many are awaited, and how many there are.
    pub fn counting(self, unit: Unit, awaited: usize, total: usize) -> Self {
        Self { count: Some(Count { unit, awaited, total }), ..self }
    }

    /// Whether what is awaited has changed and was not written, because it had been written so recently.
    pub fn defers_progress(&self, cluster: &ClusterDeployment) -> bool {
        let wanted = self.progress.as_ref().filter(|wanted| wanted.status == "True" && cluster.is_true(PROGRESS));
        wanted.is_some_and(|wanted| cluster.reason(PROGRESS) != wanted.reason)
    }

    /// The JSON patch for the status subresource that makes `cluster` say this, or `None` if it already does.
    ///
    /// It keeps Hive's order of conditions and fails if another client wrote in between. A condition that does not
    /// change is not written, and one that only names other machines waits a little. The count is written with the
    /// progress, never by itself. `lastProbeTime` moves with every change, `lastTransitionTime` with the status, as
    /// Hive does it; but for R when a wake begins.
    pub fn patch(&self, cluster: &ClusterDeployment, now: Timestamp) -> Option<Value> {
        let power_state = self.power_state.filter(|power_state| *power_state != cluster.power_state());
        let mut new = Vec::new();
        for (type_, word) in self.words() {
            let old = cluster.condition(type_);
            let nothing_else = new.is_empty() && power_state.is_none();
            if type_ == PROGRESS && word.status == "False" && old.is_none() && nothing_else {
                continue; // A cluster that is where it should be is not written to only to say so.
            }
            let can_wait = old.is_some_and(|old| word.can_wait(old, now));
            let only_names = word.names_machines() && old.is_some_and(|old| word.is_step_of(old));
            let names = (type_ == PROGRESS && word.status == "True") || only_names;
            if can_wait && nothing_else && names {
                continue;
            }
            let begins_a_wake = type_ == READY && word.begins_a_wake(cluster);
            let stopped = begins_a_wake.then(|| Time(cluster.true_since(HIBERNATING).unwrap_or(now)));
            let replaced = word.replaces(type_, old, now);
            new.extend(
                replaced.map(|new| Condition { last_transition_time: stopped.or(new.last_transition_time), ..new }),
            );
        }
        if new.iter().any(|new| new.type_ == PROGRESS) {
            new.extend(Data::of(cluster).with_progress(now, self.count).replaces(cluster, now));
        }
        if let Some(ledger) = &self.ledger {
            let word = Word::new("False", ledger::REASON, ledger.text());
            new.extend(word.replaces(LEDGER, cluster.condition(LEDGER), now));
        }
        super::edit::status(cluster, new, power_state)
    }

    /// Whether all that has changed is which machines are awaited.
    pub fn only_names_machines(&self, cluster: &ClusterDeployment) -> bool {
        let is_same = |old: &Condition, word: &Word| old.status == word.status && word.is_step_of(old);
        self.words().all(|(type_, word)| cluster.condition(type_).is_some_and(|old| is_same(old, word)))
            && self.words().any(|(_, word)| word.names_machines())
            && self.power_state.is_none_or(|state| state == cluster.power_state())
    }

    /// The conditions to report, by type.
    fn words(&self) -> impl Iterator<Item = (&'static str, &Word)> {
        let words = [(HIBERNATING, &self.hibernating), (READY, &self.ready), (PROGRESS, &self.progress)];
        words.into_iter().filter_map(|(type_, word)| Some((type_, word.as_ref()?)))
    }
}

impl Word {
    /// Whether what is awaited was written so recently that a write for this alone can wait.
    fn can_wait(&self, old: &Condition, now: Timestamp) -> bool {
        let every = if self.is_step_of(old) { NAMES_WRITE_INTERVAL } else { PROGRESS_WRITE_INTERVAL };
        let young = old.last_probe_time.as_ref().is_some_and(|probed| age(probed.0, now) < every);
        young && self.status == old.status
    }

    /// Whether its message lists the machines that are awaited.
    fn names_machines(&self) -> bool {
        matches!(self.reason, reason::WAITING_FOR_MACHINES | reason::WAITING_FOR_MACHINES_TO_STOP)
    }

    /// Whether `old` reports the same step.
    fn is_step_of(&self, old: &Condition) -> bool {
        old.reason.as_deref() == Some(self.reason)
    }

    /// The condition to write in place of `old`, or `None` if `old` says the same.
    pub fn replaces(&self, type_: &str, old: Option<&Condition>, now: Timestamp) -> Option<Condition> {
        let says_this = |old: &Condition| {
            let message = old.message.as_deref().unwrap_or_default();
            old.status == self.status && self.is_step_of(old) && message == self.message
        };
        (!old.is_some_and(says_this)).then(|| self.condition(type_, old, now))
    }

    /// `ClusterPool` counts its resumeTimeout from the transition of H, and replaces a cluster whose time is up. A
    /// sleep that is given up midway is False before and after, and yet its resume begins now. So does a sleep that
    /// follows an unfinished resume.
    fn begins_a_transition(&self, old: &Condition) -> bool {
        [reason::RESUMING_OR_RUNNING, reason::STOPPING_OR_HIBERNATING].contains(&self.reason) && !self.is_step_of(old)
    }

    /// As R. Until the cluster is awake, R's transition is the record of when all machines had stopped; of the wake
    /// itself, if they never had.
    fn begins_a_wake(&self, cluster: &ClusterDeployment) -> bool {
        let asleep = cluster.reason(READY) == reason::STOPPING_OR_HIBERNATING;
        asleep && self.status == "False" && self.reason != reason::STOPPING_OR_HIBERNATING
    }

    /// The condition that says this from now on, in place of `old`.
    pub fn condition(&self, type_: &str, old: Option<&Condition>, now: Timestamp) -> Condition {
        let same_status = old.filter(|old| old.status == self.status && !self.begins_a_transition(old));
        let moved = same_status.and_then(|old| old.last_transition_time.clone());
        Condition {
            type_: type_.to_owned(),
            status: self.status.to_owned(),
            last_probe_time: Some(Time(now)),
            last_transition_time: Some(moved.unwrap_or(Time(now))),
            reason: Some(self.reason.to_owned()),
            message: Some(self.message.clone()),
        }
    }
}

impl Data {
    /// The condition that holds this, in place of the cluster's. `None` if there is nothing to hold and the cluster has
    /// none, or if the cluster's holds the same.
    pub fn replaces(&self, cluster: &ClusterDeployment, now: Timestamp) -> Option<Condition> {
        let old = cluster.condition(DATA);
        let word = Word { status: "False", reason: data::REASON, message: self.text() };
        word.replaces(DATA, old, now).filter(|_| old.is_some() || *self != Self::default())
    }
}

/// One sanitized line, however the cloud broke it.
fn scrub(message: &str) -> String {
    let lines = message.split(['\n', '\r', '\t']).map(str::trim).filter(|part| !part.is_empty());
    sanitize_to(&lines.collect::<Vec<_>>().join(", "), MAX_MESSAGE_CHARS)
}
