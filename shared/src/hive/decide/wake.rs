//! Row 13b of docs/reference/hive.md: out of sleep, in four steps: machines, nodes, a pause, operators.

use std::time::Duration;

use jiff::Timestamp;

use super::facts::{Facts, resume_started};
use super::gate::{gate, missing_cluster_sync};
use super::plan::{Need, Notice, Plan, Watch, poll, with_others};
use crate::cloud::InstanceState::{Halted, Pending, Running, Stopped, Stopping};
use crate::cloud::{CloudErrorKind, Instance, InstanceState, Inventory, Verb};
use crate::duration::age;
use crate::hive::api::RESUME_SKIPS_CLUSTER_OPERATORS;
use crate::hive::conditions::{HIBERNATING, PowerStatus, READY, reason};
use crate::hive::data::Unit;
use crate::spoke::{NodeObservation, OperatorObservation, Spoke, SpokeError};
use crate::text::{list, name_some};

/// A sign of life that is further in the future than this comes from a wrong clock.
const MAX_CLOCK_SKEW: Duration = Duration::from_secs(10);

/// How long machines of unknown state, and Nodes without an instance of the cluster, hold a transition up.
pub(super) const UNKNOWN_TIMEOUT: Duration = Duration::from_mins(5);

/// How long after the first request to the spoke the status does not report that Nodes are awaited. Reconciles are two
/// seconds apart in the first 40 s of a wake, so the report comes within 3 s.
const NODES_REPORT_DELAY: Duration = Duration::from_millis(900);

/// How long after a wake certificate requests are approved. Kubelets request serving certificates last.
const CSR_APPROVAL_PERIOD: Duration = Duration::from_mins(10);

/// How soon a cluster that is awake is looked at again while a machine of it is on its way down.
const STOPPING_INTERVAL: Duration = Duration::from_secs(10);

/// Greatest age of the inventory while Nodes and operators are awaited, once all instances ran in this wake.
const MACHINES_MAX_AGE: Duration = Duration::from_secs(20);

/// The steps of a wake, as H and R report them.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Step {
    /// H reports that the cluster sleeps, is stopping, or was never observed: a new wake.
    Begin,
    /// The start was requested.
    Machines,
    /// A list of this wake showed all machines running.
    Nodes,
    /// Operators get time to report.
    Pause,
    /// Operators must become ready.
    Operators,
    /// Awake.
    Awake,
}

impl Step {
    fn of(facts: &Facts<'_>) -> Self {
        if facts.cluster.reason(HIBERNATING) != reason::RESUMING_OR_RUNNING {
            return Self::Begin;
        }
        match facts.cluster.reason(READY) {
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

/// A wake, with what its rows read of the conditions.
struct Wake<'a> {
    facts: &'a Facts<'a>,
    machines: &'a Inventory,
    step: Step,
    /// When it began.
    began: Option<Timestamp>,
    /// How long ago that was.
    lasted: Duration,
}

pub(super) fn needs(facts: &Facts<'_>) -> Option<Need> {
    let step = Step::of(facts);
    match &facts.machines {
        None if step == Step::Begin && gate(facts).is_some() => None,
        None => {
            let past_machines = matches!(step, Step::Nodes | Step::Pause | Step::Operators);
            Some(Need::Machines(if past_machines { MACHINES_MAX_AGE } else { Duration::ZERO }))
        }
        // The nodes and operators of a steady cluster are not read; the first pass of a wake reports, the next one asks
        // the spoke.
        Some(Ok(machines)) if !matches!(step, Step::Awake | Step::Begin) => {
            let asks = facts.spoke.is_none() && Wake::of(facts, machines, step).machines_run();
            asks.then_some(Need::Spoke)
        }
        Some(_) => None,
    }
}

pub(super) fn decide(facts: &Facts<'_>) -> Plan {
    let step = Step::of(facts);
    if let Some(wait) = gate(facts).filter(|_| step == Step::Begin) {
        return wait;
    }
    let machines = match facts.machines(PowerStatus::failed_to_start) {
        Ok(machines) => machines,
        Err(plan) => return Plan { watch: Watch::Kept, ..*plan },
    };
    let wake = Wake::of(facts, machines, step);
    let plan = match step {
        // Some clouds call a machine stopping that is being deleted: the next list tells.
        Step::Awake if wake.stays_awake() && !machines.in_state(&[Stopping]).is_empty() => {
            Plan::default().requeued(STOPPING_INTERVAL)
        }
        Step::Awake if wake.stays_awake() => wake.awake(),
        Step::Begin => {
            let notice = missing_cluster_sync(facts);
            Plan { notice, ..wake.start(PowerStatus::starting()) }
        }
        _ if !wake.machines_run() => wake.start(PowerStatus::waiting_for_machines(&machines.not_in_state(&[Running]))),
        _ => match &facts.spoke {
            None => Plan::default().requeued(Duration::ZERO),
            Some(Err(error)) => wake.unreachable_spoke(error),
            Some(Ok(spoke)) => wake.nodes(spoke),
        },
    };
    // The Nodes are often ready a moment after the instances run: the delay saves a write that is obsolete immediately.
    let waits = plan.status.as_ref().is_some_and(|status| status.power_state == Some(reason::WAITING_FOR_NODES));
    let left = facts.connected_for.map_or(Duration::ZERO, |time| NODES_REPORT_DELAY.saturating_sub(time));
    let is_early = waits && step == Step::Machines && !left.is_zero();
    let plan = if is_early { Plan::default().by(left) } else { plan };
    // As soon as the spoke answers: a health check may delete a Machine that the machine API has given up.
    let is_renamed = |instance: &Instance| instance.provider_id.is_some();
    let name_machines = matches!(facts.spoke, Some(Ok(_))) && machines.instances.iter().any(is_renamed);
    Plan { watch: wake.watch(), name_machines, ..plan }
}

impl<'a> Wake<'a> {
    fn of(facts: &'a Facts<'a>, machines: &'a Inventory, step: Step) -> Self {
        let began = resume_started(facts.cluster);
        let lasted = began.map_or(Duration::ZERO, |then| facts.age(then));
        Self { facts, machines, step, began, lasted }
    }

    /// A machine that an autoscaler creates or removes does not change the state of a cluster that is awake; one that
    /// was started here is awaited, and one that its driver has to move is moved.
    fn stays_awake(&self) -> bool {
        !self.machines.instances.iter().any(|i| i.due)
            && self.machines.in_state(&[Stopped, Halted]).is_empty()
            && (self.machines_run() || !has_started(self.facts))
    }

    /// Whether all machines run. A machine of unknown state delays a wake for a bounded time.
    fn machines_run(&self) -> bool {
        let known_run = || self.machines.all_of(Running, |i| i.state != InstanceState::Unknown);
        self.machines.all(Running) || (known_run() && self.lasted.min(self.facts.unknown_for) > UNKNOWN_TIMEOUT)
    }

    /// The watch of the spoke starts as soon as its machines run.
    fn watch(&self) -> Watch {
        let ready = self.facts.cluster.true_since(READY);
        match self.step {
            Step::Awake if ready.is_some_and(|since| self.facts.age(since) < CSR_APPROVAL_PERIOD) => {
                Watch::Certificates
            }
            Step::Machines | Step::Nodes | Step::Pause | Step::Operators if may_answer(self.machines) => {
                Watch::Everything
            }
            _ => Watch::Nothing,
        }
    }

    /// Starts what is stopped, the control plane first. What is still stopping is left out: the cloud refuses it, and a
    /// later reconcile starts it.
    fn start(&self, status: PowerStatus) -> Plan {
        let control_plane = self.machines.to_start(|i| i.control_plane);
        let workers = self.machines.to_start(|i| !i.control_plane);
        let none_stopped = control_plane.is_empty() && workers.is_empty();
        let left = self.machines.named_not_in(Running);
        let (failure, held_back) = self.facts.failure(Verb::Start);
        let was_refused = self.facts.was_refused(Verb::Start);
        let failure = failure.filter(|_| !none_stopped).or_else(|| self.facts.still_given_up(self.machines));
        let status = match &failure {
            Some(error) => PowerStatus::failed_to_start(&error.message),
            None => status,
        };
        let (count, all) = (left.len(), self.machines.instances.len());
        let waiting = format!("{count} of {all} instances are not running: {}", name_some(&left, 10));
        let no_room = failure.as_ref().is_some_and(|error| {
            use CloudErrorKind::{Capacity, Denied, Unavailable};
            matches!(error.kind, Capacity | Denied | Unavailable)
        });
        let what = failure.as_ref().and_then(|error| reason::delay(error.kind)).unwrap_or("Machines");
        let status =
            if left.is_empty() { status } else { status.awaiting(what, waiting).counting(Unit::Instances, count, all) };

        let begins = matches!(self.step, Step::Begin | Step::Awake);
        let since = if begins { Duration::ZERO } else { self.lasted };
        let pause = if left.is_empty() { Duration::ZERO } else { poll(since) };
        let plan = Plan::report(status).requeued_or_retry(pause, held_back);
        match held_back {
            // Without room for any machine of the control plane, or the right to start one, workers would only be billed.
            None if was_refused && !(no_room && self.machines.all_of(Stopped, |i| i.control_plane)) => {
                let moved =
                    self.machines.instances.iter().any(|i| !i.control_plane && matches!(i.state, Pending | Running));
                plan.moving(Verb::Start, [with_others(control_plane, workers, moved), vec![]])
            }
            None => plan.moving(Verb::Start, [control_plane, workers]),
            Some(_) => plan,
        }
    }

    /// Section 1.3, checkClusterRunning 2: the machines run, the API server does not answer yet.
    fn unreachable_spoke(&self, error: &SpokeError) -> Plan {
        let what = match error {
            SpokeError::Kubeconfig(_) => "KubeconfigRefused",
            SpokeError::Unreachable(_) => "ApiServer",
            SpokeError::Failed(_) => "ApiServerFailing",
        };
        Plan::report(PowerStatus::waiting_for_nodes().awaiting(what, error.to_string())).requeued(poll(self.lasted))
    }

    /// Section 1.3, checkClusterRunning 4 and 5.
    fn nodes(&self, spoke: &Spoke) -> Plan {
        let asleep: Vec<&NodeObservation> = spoke.nodes.iter().filter(|node| !self.is_awake(node)).collect();
        let (unknown, asleep): (Vec<_>, Vec<_>) =
            asleep.into_iter().partition(|node| usable(self.machines, node).is_none() && self.lasted > UNKNOWN_TIMEOUT);
        let all_unknown = unknown.len() == spoke.nodes.len();
        if !asleep.is_empty() || all_unknown {
            let names = match asleep.len() {
                0 => "no Node of the cluster is backed by an instance".to_owned(),
                n => format!("{n} of {} nodes are not ready: {}", spoke.nodes.len(), name_nodes(&asleep)),
            };
            let status = PowerStatus::waiting_for_nodes().awaiting("Nodes", names);
            let waiting = Plan::report(status.counting(Unit::Nodes, asleep.len(), spoke.nodes.len()));
            return Plan { replace_spot: true, ..waiting.requeued(poll(self.lasted)) };
        }
        let without =
            format!("ignored by the wake, because no instance of the cluster backs them: {}", name_nodes(&unknown));
        let notice = (!unknown.is_empty()).then(|| Notice::warning("NodesWithoutMachines", without));
        let notice = unusable(self.machines).or(notice).or_else(|| old_names(self.machines, spoke));
        let plan = if self.facts.cluster.label_is_true(RESUME_SKIPS_CLUSTER_OPERATORS) {
            self.awake()
        } else {
            self.operators(spoke)
        };
        Plan { notice, ..plan }
    }

    /// Section 1.3, checkClusterRunning 5. Hive lets two minutes pass before it believes what operators say, because
    /// what they say may be from before the sleep. An operator that has renewed its Lease or written its status since
    /// the wake began is believed at once; those that keep no Lease get Hive's pause.
    fn operators(&self, spoke: &Spoke) -> Plan {
        let silent: Vec<&OperatorObservation> =
            spoke.operators.iter().filter(|operator| !self.is_alive(operator)).collect();
        let pause = self.facts.settings.operator_pause;
        let left = match self.step {
            // Who cannot prove anything was given the pause before this step.
            Step::Operators if silent.iter().any(|operator| !operator.leased) => Duration::ZERO,
            Step::Pause | Step::Operators => pause.checked_sub(self.paused_for()).unwrap_or_default(),
            _ => pause,
        };
        if silent.is_empty() || left.is_zero() {
            return self.await_healthy_operators(spoke);
        }
        let (count, all) = (silent.len(), spoke.operators.len());
        let names = name_some(silent.iter().map(|operator| &operator.name), 10);
        let names =
            format!("{count} of {all} cluster operators have given no sign of life since the wake began: {names}");
        let provable = silent.iter().all(|operator| operator.leased) && self.step != Step::Pause;
        let status = if provable { PowerStatus::waiting_for_operators() } else { PowerStatus::pausing(pause) };
        let status = status.awaiting("SignsOfLife", names).counting(Unit::Operators, count, all);
        Plan::report(status).requeued(left.min(poll(self.lasted)))
    }

    fn await_healthy_operators(&self, spoke: &Spoke) -> Plan {
        let unwell = spoke.operators.iter().filter(|operator| !operator.unwell.is_empty());
        let unwell: Vec<String> = unwell.map(|o| format!("{} ({})", o.name, o.unwell.join(", "))).collect();
        let settled = spoke.operators_well_since.map_or(Duration::ZERO, |since| self.facts.age(since));
        let left = self.facts.settings.operator_settle.checked_sub(settled).unwrap_or_default();
        if unwell.is_empty() && (left.is_zero() || spoke.operators.is_empty()) {
            return self.awake();
        }
        let status = PowerStatus::waiting_for_operators();
        if unwell.is_empty() {
            let names = "all cluster operators are ready; waiting for them to stay ready";
            return Plan::report(status.awaiting("ClusterOperators", names)).by(left);
        }
        let (count, all) = (unwell.len(), spoke.operators.len());
        let names = format!("{count} of {all} cluster operators are not ready: {}", list(&unwell));
        let status = status.awaiting("ClusterOperators", names).counting(Unit::Operators, count, all);
        Plan::report(status).requeued(poll(self.lasted))
    }

    /// A sign of life is believed if it is from this wake: what etcd holds may be from before the sleep.
    fn is_alive(&self, operator: &OperatorObservation) -> bool {
        let trusted = operator.sign_of_life.filter(|sign| self.is_trusted(*sign));
        operator.moved || trusted.zip(self.began).is_some_and(|(sign, started)| sign > started)
    }

    /// A clock that is far ahead proves nothing.
    fn is_trusted(&self, sign: Timestamp) -> bool {
        age(self.facts.now, sign) <= MAX_CLOCK_SKEW
    }

    fn awake(&self) -> Plan {
        let count = self.machines.instances.len();
        let status = PowerStatus::running().done(reason::RUNNING, format!("{count} instances running"));
        let status = status.counting(Unit::Instances, 0, count);
        Plan::report(status)
            .requeued(self.facts.settings.steady)
            .settling(self.facts.cluster.is_true(READY), self.machines)
    }

    /// Ready is believed only with a sign of life from after the node's start: what etcd holds may be from before the
    /// sleep.
    fn is_awake(&self, node: &NodeObservation) -> bool {
        let launched = instance_of(self.machines, node).and_then(|instance| instance.launched_at);
        let started = self.began.max(launched);
        let trusted = node.sign_of_life.filter(|sign| self.is_trusted(*sign));
        node.ready && (node.moved || trusted.zip(started).is_some_and(|(sign, started)| sign > started))
    }

    fn paused_for(&self) -> Duration {
        // A pause that has yet to begin was written by a clock that was set back since.
        let paused = self.facts.cluster.probed_at(READY).filter(|then| *then <= self.facts.now);
        paused.map_or(Duration::MAX, |then| self.facts.age(then))
    }
}

/// Whether machines were started since the cluster has been awake: an accepted start is no outcome.
fn has_started(facts: &Facts<'_>) -> bool {
    let started = facts.tried.as_ref().filter(|tried| tried.verb == Verb::Start);
    started.zip(facts.cluster.changed_at(READY)).is_some_and(|(started, since)| started.at >= since)
}

/// Whether enough of the control plane runs for its API server to answer.
fn may_answer(machines: &Inventory) -> bool {
    let control_plane = machines.instances.iter().filter(|instance| instance.control_plane);
    let (up, all) = control_plane.fold((0, 0), |(up, all), i| (up + usize::from(i.state == Running), all + 1));
    machines.all(Running) || 2 * up > all
}

fn name_nodes(nodes: &[&NodeObservation]) -> String {
    name_some(nodes.iter().map(|node| &node.name), 10)
}

fn instance_of<'a>(machines: &'a Inventory, node: &NodeObservation) -> Option<&'a Instance> {
    machines.instances.iter().find(|instance| instance.is_node(&node.name, node.instance.as_deref()))
}

/// The instance of a Node, unless the instance's state is unknown.
fn usable<'a>(machines: &'a Inventory, node: &NodeObservation) -> Option<&'a Instance> {
    instance_of(machines, node).filter(|instance| instance.state != InstanceState::Unknown)
}

/// The Event about machines that the wake ignores.
fn unusable(machines: &Inventory) -> Option<Notice> {
    let unknown = machines.unknown();
    let names = name_some(&unknown, 10);
    let message = format!("instances in an unknown state; the wake continues without them: {names}");
    (!unknown.is_empty()).then(|| Notice::warning("MachineUnusable", message))
}

/// The Event about Nodes that name servers which are gone: the API server rejects a change of that field.
fn old_names(machines: &Inventory, spoke: &Spoke) -> Option<Notice> {
    let has_old = |node: &&NodeObservation| {
        let id = instance_of(machines, node).and_then(|instance| instance.provider_id.as_ref());
        id.is_some_and(|id| id.rsplit('/').next() != node.instance.as_deref())
    };
    let names: Vec<&String> = spoke.nodes.iter().filter(has_old).map(|node| &node.name).collect();
    let message = format!(
        "the providerID of these Nodes names a server that is gone. They stay while they are Ready; docs/hive.md says what \
         to do when one is NotReady: {}",
        name_some(&names, 10)
    );
    (!names.is_empty()).then(|| Notice::normal("NodesNameOldServers", message))
}
