//! Row 12d of docs/reference/hive.md: into sleep.

use std::time::Duration;

use super::facts::{Facts, sleep_started};
use super::gate::{gate, missing_cluster_sync};
use super::plan::{Need, Notice, Plan, poll, with_others};
use super::wake::UNKNOWN_TIMEOUT;
use crate::cloud::InstanceState::{Pending, Running, ShuttingDown, Stopped, Stopping, Unknown};
use crate::cloud::{Instance, Inventory, Lifecycle, Verb};
use crate::hive::api::Condition;
use crate::hive::conditions::reason::DRIFT;
use crate::hive::conditions::{HIBERNATING, PROGRESS, PowerStatus, reason};
use crate::hive::data::Unit;
use crate::text::{count, list, name_some};

/// Requeue delay of a cluster with a machine that cannot be put to sleep.
const OBSTACLE: Duration = Duration::from_mins(1);

/// Whether the sleep has yet to begin: H reports none.
pub(super) fn begins(facts: &Facts<'_>) -> bool {
    const BEGUN: &[&str] = &[reason::STOPPING, reason::WAITING_FOR_MACHINES_TO_STOP, reason::FAILED_TO_STOP];
    !facts.cluster.is_true(HIBERNATING) && !BEGUN.contains(&facts.cluster.reason(HIBERNATING))
}

/// Whether H reports that machines are being stopped.
fn is_stopping(facts: &Facts<'_>) -> bool {
    matches!(facts.cluster.reason(HIBERNATING), reason::STOPPING | reason::WAITING_FOR_MACHINES_TO_STOP)
}

pub(super) fn needs(facts: &Facts<'_>) -> Option<Need> {
    let waits = begins(facts) && gate(facts).is_some();
    (facts.machines.is_none() && !waits).then_some(Need::Machines(Duration::ZERO))
}

pub(super) fn decide(facts: &Facts<'_>) -> Plan {
    let begins = begins(facts);
    if let Some(wait) = gate(facts).filter(|_| begins) {
        return wait;
    }
    let machines = match facts.machines(PowerStatus::failed_to_stop) {
        Ok(machines) => machines,
        Err(plan) => return *plan,
    };
    if machines.all(Stopped) || only_unknown_left(facts, machines) {
        return asleep(facts, machines);
    }
    if let Some(plan) = cannot_sleep(facts, machines) {
        return plan;
    }
    let notice = if begins { missing_cluster_sync(facts) } else { drift(facts, machines) };
    let plan = match &notice {
        Some(notice) if !begins && !facts.settings.stops_drift => {
            let status = PowerStatus::stopped().done(DRIFT, notice.message.clone());
            Plan::report(status).requeued(facts.settings.steady)
        }
        _ => stop(facts, machines),
    };
    Plan { notice, ..plan }
}

/// Instances of a sleeping cluster that another party has started.
fn drift(facts: &Facts<'_>, machines: &Inventory) -> Option<Notice> {
    let started = machines.in_state(&[Running, Pending]);
    let names = list(&started);
    let message =
        format!("the cluster is hibernating, but {names} were started by another party; each is billed while it runs");
    (facts.cluster.is_true(HIBERNATING) && !started.is_empty()).then(|| Notice::warning(DRIFT, message))
}

/// What preflight finds is judged once more before the first machine is stopped: a machine that would not stop, or not
/// come back as it is, keeps all of them running. Drivers of other lifecycles judge each of their own steps.
fn cannot_sleep(facts: &Facts<'_>, machines: &Inventory) -> Option<Plan> {
    let found: Vec<String> = machines.obstacles().collect();
    let has_begun = facts.cluster.is_true(HIBERNATING) || is_stopping(facts);
    if found.is_empty() || has_begun || machines.profile.lifecycle != Lifecycle::StopStart {
        return None;
    }
    let names = name_some(&found, 10);
    Some(Plan::report(PowerStatus::failed_to_stop(&names).awaiting("CannotSleep", names)).requeued(OBSTACLE))
}

/// Whether only machines are left of which the cloud does not say whether they run, and no stop of theirs has shown for
/// long. Those of a sleeping cluster do not make it one that is awake.
fn only_unknown_left(facts: &Facts<'_>, machines: &Inventory) -> bool {
    let asked = sleep_started(facts.cluster).map_or(Duration::ZERO, |then| facts.age(then));
    let is_long = asked.min(facts.unknown_for) > UNKNOWN_TIMEOUT;
    let rest_stopped = machines.all_of(Stopped, |i| i.state != Unknown);
    let by_calls = machines.profile.lifecycle == Lifecycle::StopStart;
    by_calls && rest_stopped && (is_long || facts.cluster.is_true(HIBERNATING))
}

fn asleep(facts: &Facts<'_>, machines: &Inventory) -> Plan {
    let unknown = machines.unknown();
    let total = machines.instances.len() - unknown.len();
    let stopped = count(total, "instance");
    let result = match machines.lost_spot {
        0 if machines.instances.iter().all(|i| i.recorded) => format!("{stopped} deleted and recorded"),
        0 => format!("{stopped} stopped"),
        lost => format!("{stopped} stopped, {} terminated", count(lost, "one-time spot instance")),
    };
    // The cloud stops listing terminated instances: the message from when the cluster fell asleep stays.
    let is_end = |progress: &Condition| progress.status == "False" && progress.reason.as_deref() != Some(DRIFT);
    let reported = facts.cluster.condition(PROGRESS).is_some_and(is_end);
    let is_asleep = facts.cluster.is_true(HIBERNATING);
    let status = PowerStatus::stopped();
    let left =
        format!("the cloud does not say whether these are stopped; each is billed while it runs: {}", list(&unknown));
    let result = if unknown.is_empty() { result } else { format!("{result}; {left}") };
    let status = if reported && is_asleep {
        status
    } else {
        status.done(reason::HIBERNATING, result).counting(Unit::Instances, unknown.len(), machines.instances.len())
    };
    let notice = (!unknown.is_empty()).then(|| Notice::warning("MachineUnusable", left));
    let plan = Plan::report(status).requeued(facts.settings.steady).settling(is_asleep, machines);
    Plan { notice, ..plan }
}

/// Stops running instances, the control plane last. Instances in transition are skipped: the cloud rejects the call, and
/// a later reconcile stops them.
///
/// One-time spot instances cannot be stopped. They are terminated once everything else is stopping.
fn stop(facts: &Facts<'_>, machines: &Inventory) -> Plan {
    let workers = machines.to_stop(|i| !i.control_plane && !is_lost(i));
    let control_plane = machines.to_stop(|i| i.control_plane);
    let lost = machines.select(|i| matches!(i.state, Running | Pending), is_lost);
    let nothing_to_stop = workers.is_empty() && control_plane.is_empty();
    let (verb, waits) = if nothing_to_stop && may_terminate(machines) && !lost.is_empty() {
        (Verb::Terminate, true)
    } else {
        // What was refused stays named while what it leaves behind is brought back.
        (Verb::Stop, !nothing_to_stop || facts.was_refused(Verb::Stop))
    };
    let (failure, held_back) = facts.failure(verb);
    let failure = failure.filter(|_| waits);

    let begins = !is_stopping(facts);
    let left = machines.not_in_state(&[Stopped]);
    let status = match &failure {
        Some(error) => PowerStatus::failed_to_stop(&error.message),
        None if begins => PowerStatus::stopping(),
        None => PowerStatus::waiting_for_machines_to_stop(&left),
    };
    let began = facts.cluster.probed_at(HIBERNATING).filter(|_| !begins);
    let since = began.map_or(Duration::ZERO, |then| facts.age(then));
    let what = failure.as_ref().and_then(|error| reason::delay(error.kind)).unwrap_or("MachinesToStop");
    let status = status.awaiting(what, waiting(machines));
    let status = status.counting(Unit::Instances, left.len(), machines.instances.len());
    let plan = Plan::report(status).requeued_or_retry(poll(since), held_back);
    match verb {
        _ if held_back.is_some() => plan,
        Verb::Terminate => plan.moving(verb, [lost, vec![]]),
        _ if facts.was_refused(verb) => {
            let moved = machines.instances.iter().any(|i| i.control_plane && matches!(i.state, Stopping | Stopped));
            plan.moving(verb, [with_others(workers, control_plane, moved), vec![]])
        }
        _ => plan.moving(verb, [workers, control_plane]),
    }
}

fn waiting(machines: &Inventory) -> String {
    let left = machines.named_not_in(Stopped);
    let names = name_some(&left, 10);
    let waiting = format!("{} of {} instances are not stopped: {names}", left.len(), machines.instances.len());
    let lost: Vec<&str> = machines.instances.iter().filter(|i| is_lost(i)).map(|i| i.id.as_str()).collect();
    if lost.is_empty() {
        return waiting;
    }
    let lost = name_some(lost, 10);
    format!("{waiting}; one-time spot instances cannot be stopped and are terminated at the end: {lost}")
}

/// Instances that cannot be stopped but can be recreated. A machine of the control plane is never one of them.
fn is_lost(instance: &Instance) -> bool {
    instance.is_one_time_spot() && !instance.control_plane
}

/// Whether there are instances that can be stopped, and all of them are stopping: terminated instances need a cluster
/// that can recreate them.
fn may_terminate(machines: &Inventory) -> bool {
    let mut rest = machines.instances.iter().filter(|i| !is_lost(i)).peekable();
    rest.peek().is_some() && rest.all(|i| matches!(i.state, Stopping | Stopped | ShuttingDown))
}
