//! From what was found to what is to be done: the table of reference/hive.md 1.1, row by row.
//!
//! [`decide`] is total, deterministic and idempotent. The controller asks [`needs`] what to look at, fills in the
//! [`Facts`], runs the [`Plan`]'s actions in order, writes its status if that differs, and looks again after `recheck`.

mod facts;
mod limits;
mod schedule;
mod sleep;
#[cfg(test)]
mod tests;
mod wake;

use std::time::Duration;

pub use facts::{
    Drift, Facts, Machines, NodeLook, OperatorLook, Served, Settings, Spoke, SpokeError, Sync, Tried, Upgrade, Verb,
    backoff,
};
use jiff::Timestamp;
pub use wake::resume_started;

use super::api::{ClusterDeployment, Desired, FAKE_CLUSTER, INFRA_DISABLED, POWERSTATE_PAUSE, RECONCILE_PAUSE};
use super::conditions::{HIBERNATING, PowerStatus, READY, reason};

/// What is to be done about a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// To be run in this order, before the status is written. One that moves no machine ends the row: the others were to follow.
    pub actions: Vec<Action>,
    /// What to report; `None` leaves the status alone.
    pub status: Option<PowerStatus>,
    /// Something that is to be told once, by an Event.
    pub notice: Option<Notice>,
    /// When to look again.
    pub recheck: Recheck,
    /// Something is due after this time, whatever `recheck` says.
    pub due: Option<Duration>,
    /// What of the spoke is to be watched until the next look.
    pub watch: Watch,
    /// Whether spot Machines whose instances are gone are to be made anew: only while Nodes of a waking cluster are awaited.
    pub replace_spot: bool,
}

/// What of a spoke is watched, so that a change calls for a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Watch {
    /// Nothing; no connection is kept.
    #[default]
    Nothing,
    /// Nodes, their Leases, operators and certificate requests: the cluster is waking.
    Everything,
    /// Certificate requests: the cluster has just woken.
    Certificates,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write the user's own field, because of a time that the user set.
    SetPowerState {
        /// What is wanted from now on.
        to: Desired,
        /// Why, for annotation `hibernate.sh/reason`.
        because: String,
    },
    /// Stop these instances; each of them is running.
    Stop(Vec<String>),
    /// Start these instances; each of them is stopped.
    Start(Vec<String>),
    /// Delete these instances for good; each of them is a one-time spot instance, which cannot be stopped.
    Terminate(Vec<String>),
}

/// When to look again without being asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Recheck {
    /// When the object changes.
    #[default]
    OnChange,
    /// After about this time, or when the object changes.
    After(Duration),
    /// For another try: not before this time, unless the object changes.
    Retry(Duration),
}

/// A message for an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether somebody should do something about it.
    pub warning: bool,
    /// One word.
    pub reason: &'static str,
    /// One sentence.
    pub message: String,
}

impl Notice {
    /// H, R or P were changed again and again by somebody else.
    #[must_use]
    pub fn another_controller() -> Self {
        let message = "another controller writes this cluster's power state, so it is left alone for 10 minutes: add hibernation to \
                       spec.disabledControllers of the HiveConfig, or stop this controller";
        Self::warning("AnotherController", message.to_owned())
    }

    /// Spot Machines were deleted for their `MachineSet`s to make new ones.
    #[must_use]
    pub fn spot_replaced(machines: &[String]) -> Self {
        let names = name_some(machines.iter().map(String::as_str), 10);
        Self::normal("SpotMachinesReplaced", format!("made anew, because their instances are gone: {names}"))
    }

    fn normal(reason: &'static str, message: String) -> Self {
        Self { warning: false, reason, message }
    }

    fn warning(reason: &'static str, message: String) -> Self {
        Self { warning: true, reason, message }
    }
}

/// What has to be looked at before deciding, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The instances; a list that is this old at the most will do.
    Machines {
        /// Greatest age of the list.
        max_age: Duration,
    },
    /// The spoke's API server.
    Spoke,
    /// Whether the spoke is being upgraded.
    Upgrade,
}

/// Where a cluster stands: the first row of the table that matches.
enum Stage {
    ReconcilePaused,       // row 2
    Deleted,               // row 3
    NotInstalled,          // rows 4, 5
    PowerStatePaused,      // row 6
    InfrastructureRemoved, // row 7, first case
    ServedByHiveOnly,      // row 7, for platforms that Hive serves and we do not
    Unsupported,           // row 7, second case
    NowSupported,          // row 8
    SyncSetsApplied,       // row 10
    Unseen(Duration),      // row 11, not due and never looked at
    ToWakeBySchedule,      // ours: wake-at has come
    SyncSetsNotApplied,    // row 12a
    FakeToSleep,           // row 12b
    ToSleepBySchedule,     // row 12c
    ToSleep,               // row 12d
    FakeToWake,            // row 13a
    ToWake,                // row 13b
}

impl Stage {
    fn of(facts: &Facts<'_>) -> Self {
        let cluster = facts.cluster;
        let fake = cluster.annotation_is_true(FAKE_CLUSTER);
        let disabled = cluster.spec.platform.name() == "azure" && cluster.annotation_is_true(INFRA_DISABLED);
        match (facts.served, cluster.desired()) {
            _ if cluster.annotation_is_true(RECONCILE_PAUSE) => Self::ReconcilePaused,
            (Served::ByHiveOnly, _) if !disabled => Self::ServedByHiveOnly,
            _ if cluster.metadata.deletion_timestamp.is_some() => Self::Deleted,
            _ if !cluster.spec.installed => Self::NotInstalled,
            _ if cluster.annotation_is_true(POWERSTATE_PAUSE) => Self::PowerStatePaused,
            _ if disabled => Self::InfrastructureRemoved,
            (Served::ByHiveOnly | Served::ByNobody, _) => Self::Unsupported,
            _ if facts.reason(HIBERNATING) == reason::UNSUPPORTED => Self::NowSupported,
            _ if facts.reason(HIBERNATING) == reason::SYNC_SETS_NOT_APPLIED && facts.sync == Sync::Applied => {
                Self::SyncSetsApplied
            }
            (Served::ByUs, Desired::Hibernating) => match schedule::wake_at(facts) {
                Some(Duration::ZERO) => Self::ToWakeBySchedule,
                _ if sleep::begins(facts) && schedule::sync_sets(facts).is_some() => Self::SyncSetsNotApplied,
                _ if fake => Self::FakeToSleep,
                _ => Self::ToSleep,
            },
            (Served::ByUs, Desired::Running) => match schedule::expiry(facts) {
                schedule::Expiry::Unseen(left) => Self::Unseen(left),
                schedule::Expiry::Due => Self::ToSleepBySchedule,
                _ if fake => Self::FakeToWake,
                _ => Self::ToWake,
            },
        }
    }
}

/// What still has to be looked at, or `None` when the facts suffice for [`decide`].
#[must_use]
pub fn needs(facts: &Facts<'_>) -> Option<Need> {
    match Stage::of(facts) {
        Stage::ToSleep => sleep::needs(facts),
        Stage::ToWake => wake::needs(facts),
        Stage::ToSleepBySchedule => schedule::needs(facts),
        _ => None,
    }
}

/// What is to be done.
#[must_use]
pub fn decide(facts: &Facts<'_>) -> Plan {
    match Stage::of(facts) {
        Stage::ReconcilePaused => Plan::default(),
        Stage::Deleted => Plan::report(PowerStatus::deleted()),
        Stage::NotInstalled => Plan::report(PowerStatus::initialized(facts.cluster)),
        Stage::PowerStatePaused => Plan::report(PowerStatus::paused()),
        Stage::InfrastructureRemoved => Plan::report(PowerStatus::unsupported("Infrastructure disabled by annotation")),
        Stage::ServedByHiveOnly => Plan { notice: Some(not_served(facts.cluster)), ..Plan::default() },
        Stage::Unsupported => Plan::report(PowerStatus::unsupported("Unsupported platform: no actuator to handle it")),
        Stage::NowSupported => Plan::report(PowerStatus::hibernation_capable()).again(Duration::ZERO),
        Stage::SyncSetsApplied => Plan::report(PowerStatus::sync_sets_applied()).again(Duration::ZERO),
        Stage::Unseen(left) => Plan::report(PowerStatus::initialized(facts.cluster)).by(left),
        Stage::ToWakeBySchedule => schedule::wake_up(facts),
        Stage::SyncSetsNotApplied => schedule::sync_sets(facts).unwrap_or_default(),
        Stage::FakeToSleep => schedule::gate(facts).unwrap_or_else(|| Plan::report(PowerStatus::fake_stopped())),
        Stage::ToSleepBySchedule => schedule::sleep_now(facts),
        Stage::FakeToWake => schedule::gate(facts).unwrap_or_else(|| Plan::report(PowerStatus::running())),
        Stage::ToSleep => limits::sleeping(facts, sleep::decide(facts)),
        Stage::ToWake => limits::waking(facts, wake::decide(facts)),
    }
    .due(facts)
}

fn not_served(cluster: &ClusterDeployment) -> Notice {
    let platform = cluster.spec.platform.name();
    let message = format!(
        "platform {platform} has no driver in this controller yet; its power state and status are left alone. \
         Machines of this cluster do not stop or start until Hive's own hibernation controller is enabled again"
    );
    Notice::warning("PlatformNotServed", message)
}

impl Plan {
    fn report(status: PowerStatus) -> Self {
        Self { status: Some(status), ..Self::default() }
    }

    fn again(self, after: Duration) -> Self {
        Self { recheck: Recheck::After(after), ..self }
    }

    /// The next look, which is another try if the last one has to be waited for.
    fn again_or_retry(self, after: Duration, held_back: Option<Duration>) -> Self {
        match held_back {
            Some(left) => Self { recheck: Recheck::Retry(left), ..self },
            None => self.again(after),
        }
    }

    /// Whatever else calls for a look, there is one after this time.
    fn by(self, time: Duration) -> Self {
        Self { due: Some(self.due.map_or(time, |due| due.min(time))), ..self }
    }

    /// Adds the times that the user has set.
    fn due(self, facts: &Facts<'_>) -> Self {
        let time = match facts.cluster.desired() {
            Desired::Hibernating => schedule::wake_at(facts),
            Desired::Running => match schedule::expiry(facts) {
                schedule::Expiry::In(left) => Some(left),
                _ => None,
            },
        };
        match time.filter(|time| !time.is_zero() && facts.served == Served::ByUs) {
            Some(time) => self.by(time),
            None => self,
        }
    }

    fn acting(self, action: Action) -> Self {
        let mut actions = self.actions;
        actions.push(action);
        Self { actions, ..self }
    }

    /// One action for each group of machines that is not empty, in this order.
    fn moving(self, action: fn(Vec<String>) -> Action, groups: [Vec<String>; 2]) -> Self {
        groups.into_iter().filter(|ids| !ids.is_empty()).fold(self, |plan, ids| plan.acting(action(ids)))
    }
}

/// A try that lies further ahead than this was dated by another clock.
const CLOCK: Duration = Duration::from_secs(5);

/// So many looks in a row have to fail before a cluster that waits for nothing tells of it.
const HICCUPS: u32 = 3;

impl Facts<'_> {
    /// Time since a moment, zero if it is in the future.
    fn age(&self, then: Timestamp) -> Duration {
        super::conditions::age(then, self.now)
    }

    /// Reason of a condition, empty if the cluster does not have it.
    fn reason(&self, type_: &str) -> &str {
        self.cluster.condition(type_).and_then(|c| c.reason.as_deref()).unwrap_or_default()
    }

    /// Whether a condition is True.
    fn is(&self, type_: &str) -> bool {
        self.cluster.condition(type_).is_some_and(|c| c.status == "True")
    }

    /// The machines, or a plan that says why nothing can be said about them.
    fn machines(&self, failed: impl FnOnce(&str) -> PowerStatus) -> Result<&Machines, Box<Plan>> {
        use crate::cloud::CloudErrorKind::{Capacity, NotLeader, Throttled, Unavailable};
        let there = self.is(match self.cluster.desired() {
            Desired::Hibernating => HIBERNATING,
            Desired::Running => READY,
        });
        let (status, wait) = match &self.machines {
            None => return Err(Box::default()),
            Some(Ok(machines)) if !machines.instances.is_empty() => return Ok(machines),
            Some(Ok(machines)) => {
                let message = format!("nothing matches {}: check infraID, region and credentials", machines.selector);
                (failed(&message).awaiting("NoInstances", message), backoff(crate::cloud::CloudErrorKind::Invalid, 3))
            }
            Some(Err(error)) => {
                let wait = backoff(error.kind, self.failed_looks + 1);
                let passing = matches!(error.kind, Throttled | Unavailable | Capacity | NotLeader);
                // A cluster that was where it should be when the cloud was last heard is not called ill because the cloud is silent.
                let status = if passing || there { PowerStatus::default() } else { failed(&error.message) };
                // One hiccup of a shared call is no reason to write to hundreds of clusters that wait for nothing.
                let hiccup = there && passing && self.failed_looks < HICCUPS;
                let status = if hiccup { status } else { status.awaiting("CloudUnavailable", &error.message) };
                (status, wait)
            }
        };
        Err(Box::new(Plan::report(status).again(wait)))
    }

    /// Whether single machines were refused when `verb` was tried last.
    fn was_refused(&self, verb: Verb) -> bool {
        use crate::cloud::CloudErrorKind::{Capacity, Refused};
        let failure = self.tried.as_ref().and_then(|tried| tried.failed(verb));
        failure.is_some_and(|failure| matches!(failure.kind, Refused | Capacity))
    }

    /// Whether a failed try of `verb` is so recent that the next one has to wait, and how long.
    fn held_back(&self, verb: Verb) -> Option<Duration> {
        let tried = self.tried.as_ref().filter(|tried| tried.verb == verb)?;
        let failure = tried.failed(verb)?;
        if super::conditions::age(self.now, tried.at) > CLOCK {
            return None; // the clock was set back since
        }
        let left = backoff(failure.kind, tried.failures).checked_sub(self.age(tried.at))?;
        (!left.is_zero()).then_some(left)
    }
}

/// What goes in one call after a try in which machines of the first kind were refused: they must not hold the other kind up for
/// ever. Of that one machine goes at first; once `moved` shows that the cloud does not refuse everything, all do.
fn with_others(first: Vec<String>, others: Vec<String>, moved: bool) -> Vec<String> {
    let count = if moved || first.is_empty() { others.len() } else { 1 };
    first.into_iter().chain(others.into_iter().take(count)).collect()
}

/// How soon to look at machines again that have been moving for `since`: soon while most are done (so that a change is told within
/// 3 s), later more slowly.
fn poll(since: Duration) -> Duration {
    (since / 20).clamp(Duration::from_secs(2), Duration::from_secs(10))
}

/// `a, b, c and 4 more`: names for people, at most `limit` of them.
fn name_some<'a>(names: impl ExactSizeIterator<Item = &'a str>, limit: usize) -> String {
    let more = names.len().saturating_sub(limit);
    let shown = names.take(limit).collect::<Vec<_>>().join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}
