//! The plan that a decision returns, and the builders that the rows use.

use std::time::Duration;

use crate::cloud::{Inventory, Verb};
use crate::hive::conditions::PowerStatus;
use crate::power::Power;
use crate::text::name_some;

/// What to do about a cluster, in this order: the actions, the status, and the rest, which is the spoke's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Actions in order. An action that moves no instance ends the sequence.
    pub actions: Vec<Action>,
    /// What to report; `None` leaves the status alone.
    pub status: Option<PowerStatus>,
    /// An Event to publish once.
    pub notice: Option<Notice>,
    /// When to reconcile again.
    pub requeue: Requeue,
    /// Reconcile after this time at the latest, whatever `requeue` says.
    pub due: Option<Duration>,
    /// Whether to look for what could stand in the way of a sleep, and to write what was found.
    pub preflight: bool,
    /// What to watch of the spoke until the next reconcile.
    pub watch: Watch,
    /// Whether to replace spot Machines whose instances are gone. Only while a waking cluster waits for Nodes.
    pub replace_spot: bool,
    /// Whether to give Machines the names of the instances that were made in place of theirs.
    pub name_machines: bool,
}

/// What is watched of a spoke. A change triggers a reconcile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Watch {
    /// Nothing; no connection is kept.
    #[default]
    Nothing,
    /// Nodes, their Leases, operators and certificate requests: the cluster is waking.
    Everything,
    /// Certificate requests: the cluster has just woken.
    Certificates,
    /// What is watched already: nothing is known of the machines.
    Kept,
}

/// One thing to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write the user's own field, because of a time that the user set; and why, for annotation `hibernate.sh/reason`.
    SetPowerState(Power, String),
    /// Move these machines. Each of them runs or sleeps, is halted or has a step due; what is terminated is a one-time
    /// spot instance, which cannot be stopped.
    Move(Verb, Vec<String>),
    /// Remove what the transition left behind, now that its end was reported.
    Settle,
}

/// When to reconcile again without a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Requeue {
    /// When the object changes.
    #[default]
    OnChange,
    /// After about this time, or when the object changes.
    After(Duration),
    /// Retry: not before this time, unless the object changes.
    Retry(Duration),
}

/// An Event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Whether it is a warning.
    pub warning: bool,
    /// One word.
    pub reason: &'static str,
    /// One sentence.
    pub message: String,
}

impl Notice {
    /// Another controller keeps changing H, R or P.
    pub fn another_controller() -> Self {
        let message = "another controller writes this cluster's power state, so it is left alone for 10 minutes: add hibernation to \
                       spec.disabledControllers of the HiveConfig, or stop this controller";
        Self::warning("AnotherController", message.to_owned())
    }

    /// Spot Machines were deleted, so that their `MachineSet`s create new ones.
    pub fn spot_replaced(machines: &[String]) -> Self {
        let names = name_some(machines, 10);
        Self::normal("SpotMachinesReplaced", format!("replaced, because their instances are gone: {names}"))
    }

    pub(super) fn normal(reason: &'static str, message: String) -> Self {
        Self { warning: false, reason, message }
    }

    pub(super) fn warning(reason: &'static str, message: String) -> Self {
        Self { warning: true, reason, message }
    }
}

/// What to observe before the decision, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// The instances, from a list of at most this age.
    Machines(Duration),
    /// The spoke's API server.
    Spoke,
    /// Whether the spoke is being upgraded.
    Upgrade,
}

/// How often a driver is asked to remove what it could not remove before.
pub(super) const OWED: Duration = Duration::from_mins(1);

impl Plan {
    pub(super) fn report(status: PowerStatus) -> Self {
        Self { status: Some(status), ..Self::default() }
    }

    pub(super) fn requeued(self, after: Duration) -> Self {
        Self { requeue: Requeue::After(after), ..self }
    }

    /// Reconciles after this time, or retries if the last attempt is backing off.
    pub(super) fn requeued_or_retry(self, after: Duration, held_back: Option<Duration>) -> Self {
        match held_back {
            Some(left) => Self { requeue: Requeue::Retry(left), ..self },
            None => self.requeued(after),
        }
    }

    /// Reconciles after this time at the latest.
    pub(super) fn by(self, time: Duration) -> Self {
        Self { due: Some(self.due.map_or(time, |due| due.min(time))), ..self }
    }

    /// Lets the driver remove what a transition left behind, once the end of the transition is on the object.
    pub(super) fn settling(self, is_reported: bool, machines: &Inventory) -> Self {
        match (machines.owed, is_reported) {
            (false, _) => self,
            (true, false) => self.requeued(Duration::ZERO),
            (true, true) => self.acting(Action::Settle).requeued(OWED),
        }
    }

    pub(super) fn acting(self, action: Action) -> Self {
        let mut actions = self.actions;
        actions.push(action);
        Self { actions, ..self }
    }

    /// One action for each group of machines that is not empty, in this order.
    pub(super) fn moving(self, verb: Verb, groups: [Vec<String>; 2]) -> Self {
        groups.into_iter().filter(|ids| !ids.is_empty()).fold(self, |plan, ids| plan.acting(Action::Move(verb, ids)))
    }
}

/// The instances for one call after the cloud refused some of `first`, which must not block `others` forever. The call
/// includes one of `others`; once `moved` shows that the cloud accepts some, it includes all.
pub(super) fn with_others(first: Vec<String>, others: Vec<String>, moved: bool) -> Vec<String> {
    let count = if moved || first.is_empty() { others.len() } else { 1 };
    first.into_iter().chain(others.into_iter().take(count)).collect()
}

/// When to poll instances again that started to move `since` ago: every 2 s at first, so that the status is at most 3 s
/// old, and up to every 10 s later.
pub(super) fn poll(since: Duration) -> Duration {
    (since / 20).clamp(Duration::from_secs(2), Duration::from_secs(10))
}
