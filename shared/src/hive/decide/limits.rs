//! Overdue transitions: an Event reports them, and retries slow down.

use std::time::Duration;

use super::facts::{Facts, resume_started, sleep_started};
use super::plan::{Notice, Plan, Requeue};
use crate::cloud::InstanceState::Halted;
use crate::cloud::Limits;
use crate::duration;
use crate::hive::conditions::{HIBERNATING, READY};

/// How often an overdue transition is reconciled.
const OVERDUE_INTERVAL: Duration = Duration::from_mins(1);

/// A sleep that takes too long. A cluster that sleeps is never overdue.
pub(super) fn sleeping(facts: &Facts<'_>, plan: Plan) -> Plan {
    if facts.cluster.is_true(HIBERNATING) {
        return plan;
    }
    let since = sleep_started(facts.cluster).map(|then| facts.age(then));
    let limit = facts.settings.sleep_limit.max(platform(facts).sleep);
    // Halted machines are an outage until the sleep ends or is given up: requeue as often as before.
    let is_halted = facts.inventory().is_some_and(|machines| !machines.in_state(&[Halted]).is_empty());
    overdue(plan, since, limit, "SleepTakesTooLong", if is_halted { Duration::ZERO } else { OVERDUE_INTERVAL })
}

/// A wake that takes too long. A cluster that is awake is never overdue.
pub(super) fn waking(facts: &Facts<'_>, plan: Plan) -> Plan {
    if facts.cluster.is_true(READY) {
        return plan;
    }
    let since = resume_started(facts.cluster).map(|then| facts.age(then));
    let limit = facts.settings.wake_limit.max(platform(facts).wake);
    overdue(plan, since, limit, "WakeTakesTooLong", OVERDUE_INTERVAL)
}

/// The platform's own limits: images take longer than a stop.
fn platform(facts: &Facts<'_>) -> Limits {
    facts.inventory().map_or_else(Limits::default, |machines| machines.profile.limits)
}

fn overdue(mut plan: Plan, since: Option<Duration>, limit: Duration, what: &'static str, least: Duration) -> Plan {
    let Some(status) = plan.status.as_mut().filter(|_| since.is_some_and(|since| since > limit)) else { return plan };
    let Some(awaited) = status.progress.as_mut().filter(|progress| progress.status == "True") else { return plan };
    awaited.message = duration::overdue(limit, &awaited.message);
    // What the plan noticed before was published before it became overdue.
    plan.notice = Some(Notice::warning(what, format!("waiting {}", awaited.message)));
    plan.requeue = match plan.requeue {
        Requeue::OnChange => Requeue::OnChange,
        Requeue::After(pause) => Requeue::After(pause.max(least)),
        Requeue::Retry(pause) => Requeue::Retry(pause.max(least)),
    };
    plan
}
