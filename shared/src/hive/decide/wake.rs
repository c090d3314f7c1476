//! Row 13b: out of sleep, in four steps: machines, nodes, a pause, operators.

use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;

use super::{Action, Facts, Machines, Need, NodeLook, Plan, Spoke, SpokeError, Verb, name_some, poll};
use crate::cloud::CloudErrorKind;
use crate::cloud::InstanceState::{Running, Stopped};
use crate::hive::api::RESUME_SKIPS_CLUSTER_OPERATORS;
use crate::hive::conditions::{HIBERNATING, PowerStatus, READY, age, reason};
use crate::keys;

/// A sign of life further in the future than this comes from a clock that cannot be trusted.
const CLOCK_SKEW: Duration = Duration::from_secs(10);

/// Once all machines were seen running in this wake, how old that look may be while nodes and operators are awaited.
const MACHINES_MAX_AGE: Duration = Duration::from_secs(20);

/// The steps of a wake, as H and R tell them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// H says that the cluster sleeps, is going to, or was never looked at: a new wake.
    Begin,
    /// Machines have been told to start.
    Machines,
    /// All machines were running at some look of this wake.
    Nodes,
    /// Operators get time to notice.
    Pause,
    /// Operators have to become well.
    Operators,
    /// Awake.
    Awake,
}

impl Step {
    fn of(facts: &Facts<'_>) -> Self {
        if facts.reason(HIBERNATING) != reason::RESUMING_OR_RUNNING {
            return Self::Begin;
        }
        match facts.reason(READY) {
            reason::RUNNING => Self::Awake,
            reason::WAITING_FOR_NODES => Self::Nodes,
            reason::PAUSING => Self::Pause,
            reason::WAITING_FOR_CLUSTER_OPERATORS => Self::Operators,
            reason::STARTING_MACHINES | reason::WAITING_FOR_MACHINES | reason::FAILED_TO_START_MACHINES => {
                Self::Machines
            }
            _ => Self::Begin,
        }
    }
}

pub(super) fn needs(facts: &Facts<'_>) -> Option<Need> {
    let step = Step::of(facts);
    match &facts.machines {
        None => {
            let past_machines = matches!(step, Step::Nodes | Step::Pause | Step::Operators);
            Some(Need::Machines { max_age: if past_machines { MACHINES_MAX_AGE } else { Duration::ZERO } })
        }
        // A steady cluster's nodes and operators are its own business; the first look of a wake reports, the next asks.
        Some(Ok(machines)) if machines.all(Running) && !matches!(step, Step::Awake | Step::Begin) => {
            facts.spoke.is_none().then_some(Need::Spoke)
        }
        Some(_) => None,
    }
}

pub(super) fn decide(facts: &Facts<'_>) -> Plan {
    let machines = match facts.machines(PowerStatus::failed_to_start) {
        Ok(machines) => machines,
        Err(plan) => return *plan,
    };
    match Step::of(facts) {
        Step::Awake if machines.all(Running) => awake(facts, machines),
        Step::Begin => start(facts, machines, PowerStatus::starting()),
        _ if !machines.all(Running) => {
            let waiting = PowerStatus::waiting_for_machines(&machines.not_in_state(&[Running]));
            start(facts, machines, waiting)
        }
        step => match &facts.spoke {
            None => Plan::default().again(Duration::ZERO),
            Some(Err(error)) => unreachable_spoke(facts, error),
            Some(Ok(spoke)) => nodes(facts, machines, spoke, step),
        },
    }
}

/// Starts what is stopped, the control plane first. What is still stopping is left out: EC2 refuses it, and its time comes.
fn start(facts: &Facts<'_>, machines: &Machines, status: PowerStatus) -> Plan {
    let control_plane = machines.ids(&[Stopped], |i| i.control_plane);
    let workers = machines.ids(&[Stopped], |i| !i.control_plane);
    let none_stopped = control_plane.is_empty() && workers.is_empty();
    let left = machines.not_in_state(&[Running]);
    let held_back = facts.held_back(Verb::Start);
    let failure = facts.tried.as_ref().and_then(|tried| tried.told(Verb::Start)).filter(|_| !none_stopped);
    let status = match failure {
        Some(error) => PowerStatus::failed_to_start(&error.message),
        None => status,
    };
    let waiting = format!("{} of {} instances are not running: ", left.len(), machines.instances.len());
    let waiting = waiting + &name_some(left.iter().copied(), 10);
    let what =
        if failure.is_some_and(|error| error.kind == CloudErrorKind::Capacity) { "Capacity" } else { "Machines" };
    let status = if left.is_empty() { status } else { status.awaiting(what, waiting) };

    let begins = matches!(Step::of(facts), Step::Begin | Step::Awake);
    let pause = match (left.is_empty(), begins) {
        (true, _) => Duration::ZERO,
        (false, true) => poll(Duration::ZERO),
        (false, false) => poll(since_start(facts)),
    };
    let mut plan = Plan::report(status).again(held_back.unwrap_or(pause));
    if begins || resume_started(facts).is_none() {
        plan = plan.acting(Action::MarkResumeStarted(facts.now));
    }
    match held_back {
        None => plan.moving(Action::Start, [control_plane, workers]),
        Some(_) => plan,
    }
}

/// 1.3 checkClusterRunning 2: the machines run, the API server does not answer yet.
fn unreachable_spoke(facts: &Facts<'_>, error: &SpokeError) -> Plan {
    let what = match error {
        SpokeError::Kubeconfig(_) => "KubeconfigRefused",
        SpokeError::Unreachable(_) => "ApiServer",
        SpokeError::Failed(_) => "ApiServerFailing",
    };
    Plan::report(PowerStatus::waiting_for_nodes().awaiting(what, error.to_string())).again(poll(since_start(facts)))
}

/// 1.3 checkClusterRunning 4 and 5.
fn nodes(facts: &Facts<'_>, machines: &Machines, spoke: &Spoke, step: Step) -> Plan {
    let asleep: Vec<&str> =
        spoke.nodes.iter().filter(|node| !is_awake(facts, machines, node)).map(|node| node.name.as_str()).collect();
    if spoke.nodes.is_empty() || !asleep.is_empty() {
        let names = match asleep.len() {
            0 => "the cluster has no Nodes".to_owned(),
            n => format!("{n} of {} nodes are not ready: {}", spoke.nodes.len(), name_some(asleep.iter().copied(), 10)),
        };
        return Plan::report(PowerStatus::waiting_for_nodes().awaiting("Nodes", names)).again(poll(since_start(facts)));
    }
    if facts.cluster.label_is_true(RESUME_SKIPS_CLUSTER_OPERATORS) {
        return awake(facts, machines);
    }
    let pause = facts.settings.operator_pause;
    match step {
        Step::Operators => operators(facts, machines, spoke),
        Step::Pause => match pause.checked_sub(paused_for(facts)).filter(|left| !left.is_zero()) {
            Some(left) => pausing(pause).again(left),
            None => operators(facts, machines, spoke),
        },
        _ => pausing(pause).again(pause),
    }
}

fn pausing(pause: Duration) -> Plan {
    Plan::report(
        PowerStatus::pausing(pause).awaiting("Pause", "cluster operators get time to notice that they are awake"),
    )
}

fn operators(facts: &Facts<'_>, machines: &Machines, spoke: &Spoke) -> Plan {
    let unwell = spoke.operators.iter().filter(|operator| !operator.unwell.is_empty());
    let unwell: Vec<String> = unwell.map(|o| format!("{} ({})", o.name, o.unwell.join(", "))).collect();
    if unwell.is_empty() {
        return awake(facts, machines);
    }
    let names = format!("{} of {} cluster operators are not ready: ", unwell.len(), spoke.operators.len());
    let names = names + &name_some(unwell.iter().map(String::as_str), 5);
    Plan::report(PowerStatus::waiting_for_operators().awaiting("ClusterOperators", names))
        .again(poll(since_start(facts)))
}

fn awake(facts: &Facts<'_>, machines: &Machines) -> Plan {
    let count = machines.instances.len();
    let status = PowerStatus::running().done(reason::RUNNING, format!("{count} instances running"));
    Plan::report(status).again(facts.settings.steady)
}

/// Ready is believed only with a sign of life from after the node's start: what etcd holds may be from before the sleep.
fn is_awake(facts: &Facts<'_>, machines: &Machines, node: &NodeLook) -> bool {
    let launched = machines.instances.iter().find(|i| i.private_dns.as_deref() == Some(&node.name));
    let started = resume_started(facts).max(launched.and_then(|i| i.launched_at));
    let trusted = node.sign_of_life.filter(|sign| age(facts.now, *sign) <= CLOCK_SKEW);
    node.ready && (node.moved || trusted.zip(started).is_some_and(|(sign, started)| sign > started))
}

/// When this wake began, as it is kept on the object.
fn resume_started(facts: &Facts<'_>) -> Option<Timestamp> {
    facts.cluster.annotations().get(keys::RESUME_STARTED_AT)?.parse().ok()
}

fn since_start(facts: &Facts<'_>) -> Duration {
    resume_started(facts).map_or(Duration::ZERO, |then| age(then, facts.now))
}

fn paused_for(facts: &Facts<'_>) -> Duration {
    let paused = facts.cluster.condition(READY).and_then(|r| r.last_probe_time.as_ref());
    paused.map_or(Duration::MAX, |then| age(then.0, facts.now))
}
