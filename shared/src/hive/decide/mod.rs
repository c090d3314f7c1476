//! From what was found to what is to be done: the table of reference/hive.md 1.1, row by row.
//!
//! [`decide`] is total, deterministic and idempotent. The controller asks [`needs`] what to look at, fills in the
//! [`Facts`], runs the [`Plan`]'s actions in order, writes its status if that differs, and looks again after `recheck`.

mod facts;
mod sleep;
#[cfg(test)]
mod tests;
mod wake;

use std::time::Duration;

pub use facts::{Facts, Machines, NodeLook, OperatorLook, Served, Settings, Spoke, SpokeError, Tried, Verb, backoff};
use jiff::Timestamp;

use super::api::{ClusterDeployment, Desired, FAKE_CLUSTER, POWERSTATE_PAUSE, RECONCILE_PAUSE};
use super::conditions::{HIBERNATING, PowerStatus, READY, reason};

/// What is to be done about a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// To be run in this order, before the status is written. One that moves no machine ends the row: the others were to follow.
    pub actions: Vec<Action>,
    /// What to report; `None` leaves the status alone.
    pub status: Option<PowerStatus>,
    /// Something that only an Event can tell, because the status is not ours to write.
    pub notice: Option<Notice>,
    /// When to look again.
    pub recheck: Recheck,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Keep on the object when this wake began.
    MarkResumeStarted(Timestamp),
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
    /// After this time, or when the object changes.
    After(Duration),
}

/// A message for an Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// One word.
    pub reason: &'static str,
    /// One sentence.
    pub message: String,
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
}

/// Where a cluster stands: the first row of the table that matches.
enum Stage {
    ReconcilePaused,  // row 2
    Deleted,          // row 3
    NotInstalled,     // rows 4, 5
    PowerStatePaused, // row 6
    ServedByHiveOnly, // row 7, for platforms that Hive serves and we do not
    Unsupported,      // row 7
    NowSupported,     // row 8
    FakeToSleep,      // row 12b
    ToSleep,          // row 12d
    FakeToWake,       // row 13a
    ToWake,           // row 13b
}

impl Stage {
    fn of(cluster: &ClusterDeployment, served: Served) -> Self {
        let hibernating = cluster.condition(HIBERNATING).and_then(|h| h.reason.as_deref());
        let fake = cluster.annotation_is_true(FAKE_CLUSTER);
        match (served, cluster.desired()) {
            _ if cluster.annotation_is_true(RECONCILE_PAUSE) => Self::ReconcilePaused,
            _ if cluster.metadata.deletion_timestamp.is_some() => Self::Deleted,
            _ if !cluster.spec.installed => Self::NotInstalled,
            _ if cluster.annotation_is_true(POWERSTATE_PAUSE) => Self::PowerStatePaused,
            (Served::ByHiveOnly, _) => Self::ServedByHiveOnly,
            (Served::ByNobody, _) => Self::Unsupported,
            (Served::ByUs, _) if hibernating == Some(reason::UNSUPPORTED) => Self::NowSupported,
            (Served::ByUs, Desired::Hibernating) if fake => Self::FakeToSleep,
            (Served::ByUs, Desired::Hibernating) => Self::ToSleep,
            (Served::ByUs, Desired::Running) if fake => Self::FakeToWake,
            (Served::ByUs, Desired::Running) => Self::ToWake,
        }
    }
}

/// What still has to be looked at, or `None` when the facts suffice for [`decide`].
#[must_use]
pub fn needs(facts: &Facts<'_>) -> Option<Need> {
    match Stage::of(facts.cluster, facts.served) {
        Stage::ToSleep if facts.machines.is_none() => Some(Need::Machines { max_age: Duration::ZERO }),
        Stage::ToWake => wake::needs(facts),
        _ => None,
    }
}

/// What is to be done.
#[must_use]
pub fn decide(facts: &Facts<'_>) -> Plan {
    match Stage::of(facts.cluster, facts.served) {
        Stage::ReconcilePaused => Plan::default(),
        Stage::Deleted => Plan::report(PowerStatus::deleted()),
        Stage::NotInstalled => Plan::report(PowerStatus::initialized(facts.cluster)),
        Stage::PowerStatePaused => Plan::report(PowerStatus::paused()),
        Stage::ServedByHiveOnly => Plan { notice: Some(not_served(facts.cluster)), ..Plan::default() },
        Stage::Unsupported => Plan::report(PowerStatus::unsupported("Unsupported platform: no actuator to handle it")),
        Stage::NowSupported => Plan::report(PowerStatus::hibernation_capable()).again(Duration::ZERO),
        Stage::FakeToSleep => Plan::report(PowerStatus::fake_stopped()),
        Stage::FakeToWake => Plan::report(PowerStatus::running()),
        Stage::ToSleep => sleep::decide(facts),
        Stage::ToWake => wake::decide(facts),
    }
}

fn not_served(cluster: &ClusterDeployment) -> Notice {
    let platform = cluster.spec.platform.name();
    let message = format!(
        "platform {platform} has no driver in this controller yet; its power state and status are left alone. \
         Machines of this cluster do not stop or start until Hive's own hibernation controller is enabled again"
    );
    Notice { reason: "PlatformNotServed", message }
}

impl Plan {
    fn report(status: PowerStatus) -> Self {
        Self { status: Some(status), ..Self::default() }
    }

    fn again(self, after: Duration) -> Self {
        Self { recheck: Recheck::After(after), ..self }
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

impl Facts<'_> {
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
                (status.awaiting("CloudUnavailable", &error.message), wait)
            }
        };
        Err(Box::new(Plan::report(status).again(wait)))
    }

    /// Whether a failed try of `verb` is so recent that the next one has to wait, and how long.
    fn held_back(&self, verb: Verb) -> Option<Duration> {
        let tried = self.tried.as_ref().filter(|tried| tried.verb == verb)?;
        let failure = tried.failed(verb)?;
        let left = backoff(failure.kind, tried.failures).checked_sub(super::conditions::age(tried.at, self.now))?;
        (!left.is_zero()).then_some(left)
    }
}

/// How soon to look at machines again that have been moving for `since`: soon at first, later more slowly.
fn poll(since: Duration) -> Duration {
    (since / 5).clamp(Duration::from_secs(2), Duration::from_secs(10))
}

/// `a, b, c and 4 more`: names for people, at most `limit` of them.
fn name_some<'a>(names: impl ExactSizeIterator<Item = &'a str>, limit: usize) -> String {
    let more = names.len().saturating_sub(limit);
    let shown = names.take(limit).collect::<Vec<_>>().join(", ");
    if more == 0 { shown } else { format!("{shown} and {more} more") }
}
