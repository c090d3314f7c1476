//! Row 12d: into sleep.

use std::time::Duration;

use super::{Action, Facts, Machines, Plan, Verb, name_some, poll};
use crate::cloud::InstanceState::{Running, Stopped};
use crate::hive::conditions::{HIBERNATING, PowerStatus, age, reason};

pub(super) fn decide(facts: &Facts<'_>) -> Plan {
    let machines = match facts.machines(PowerStatus::failed_to_stop) {
        Ok(machines) => machines,
        Err(plan) => return *plan,
    };
    if machines.all(Stopped) {
        let count = machines.instances.len();
        let status = PowerStatus::stopped().done(reason::HIBERNATING, format!("{count} instances stopped"));
        return Plan::report(status).again(facts.settings.steady);
    }
    stop(facts, machines)
}

/// Stops what runs. What is on its way up or down is left out of the call: EC2 refuses it, and its time comes.
fn stop(facts: &Facts<'_>, machines: &Machines) -> Plan {
    let running = machines.in_state(&[Running]);
    let left = machines.not_in_state(&[Stopped]);
    let held_back = facts.held_back(Verb::Stop);
    let failure = facts.tried.as_ref().and_then(|tried| tried.failed(Verb::Stop)).filter(|_| !running.is_empty());

    let waiting = format!("{} of {} instances are not stopped: ", left.len(), machines.instances.len());
    let waiting = waiting + &name_some(left.iter().copied(), 10);
    let begins = !matches!(facts.reason(HIBERNATING), reason::STOPPING | reason::WAITING_FOR_MACHINES_TO_STOP);
    let status = match failure {
        Some(error) => PowerStatus::failed_to_stop(&error.message),
        None if begins => PowerStatus::stopping(),
        None => PowerStatus::waiting_for_machines_to_stop(&left),
    };
    let told = facts.cluster.condition(HIBERNATING).filter(|_| !begins).and_then(|h| h.last_probe_time.as_ref());
    let since = told.map_or(Duration::ZERO, |then| age(then.0, facts.now));
    let plan = Plan::report(status.awaiting("MachinesToStop", waiting)).again(held_back.unwrap_or_else(|| poll(since)));
    match held_back {
        None if !running.is_empty() => plan.acting(Action::Stop(running.into_iter().map(str::to_owned).collect())),
        _ => plan,
    }
}
