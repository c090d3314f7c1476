//! Row 12d: into sleep.

use std::time::Duration;

use super::{Action, Drift, Facts, Machines, Need, Notice, Plan, Verb, name_some, poll, schedule};
use crate::cloud::InstanceState::{Pending, Running, Stopped};
use crate::hive::conditions::{HIBERNATING, PowerStatus, age, reason};

/// Reason of what is told about instances that somebody has started.
const DRIFT: &str = "StartedWhileAsleep";

/// Whether the sleep has yet to begin: H does not tell of one.
pub(super) fn begins(facts: &Facts<'_>) -> bool {
    const BEGUN: &[&str] = &[reason::STOPPING, reason::WAITING_FOR_MACHINES_TO_STOP, reason::FAILED_TO_STOP];
    !facts.is(HIBERNATING) && !BEGUN.contains(&facts.reason(HIBERNATING))
}

pub(super) fn needs(facts: &Facts<'_>) -> Option<Need> {
    let waits = begins(facts) && schedule::gate(facts).is_some();
    (facts.machines.is_none() && !waits).then_some(Need::Machines { max_age: Duration::ZERO })
}

pub(super) fn decide(facts: &Facts<'_>) -> Plan {
    let begins = begins(facts);
    if let Some(wait) = schedule::gate(facts).filter(|_| begins) {
        return wait;
    }
    let machines = match facts.machines(PowerStatus::failed_to_stop) {
        Ok(machines) => machines,
        Err(plan) => return *plan,
    };
    if machines.all(Stopped) {
        let count = machines.instances.len();
        let status = PowerStatus::stopped().done(reason::HIBERNATING, format!("{count} instances stopped"));
        return Plan::report(status).again(facts.settings.steady);
    }
    let notice = if begins { schedule::missing_cluster_sync(facts) } else { drift(facts, machines) };
    let plan = match (&notice, facts.settings.drift) {
        (Some(notice), Drift::Report) if !begins => {
            let status = PowerStatus::stopped().done(DRIFT, notice.message.clone());
            Plan::report(status).again(facts.settings.steady)
        }
        _ => stop(facts, machines),
    };
    Plan { notice, ..plan }
}

/// What somebody has started of a cluster that sleeps.
fn drift(facts: &Facts<'_>, machines: &Machines) -> Option<Notice> {
    let started = machines.in_state(&[Running, Pending]);
    let names = name_some(started.iter().copied(), 5);
    let message = format!("the cluster sleeps, but somebody has started {names}; each is billed while it runs");
    (facts.is(HIBERNATING) && !started.is_empty()).then(|| Notice::warning(DRIFT, message))
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
