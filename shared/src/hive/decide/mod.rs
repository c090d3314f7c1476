//! From what was found to what is to be done: the table of docs/reference/hive.md, section 1.1, row by row.
//!
//! [`decide`] is total, deterministic and idempotent. The controller asks [`needs`] what to observe, fills in the
//! [`Facts`], runs the [`Plan`]'s actions in order, writes its status if that differs, and requeues it.

mod facts;
mod gate;
mod ledger;
mod limits;
mod plan;
mod schedule;
mod sleep;
#[cfg(test)]
mod tests;
mod wake;

use std::time::Duration;

use self::schedule::Expiry;
use crate::hive::api::{FAKE_CLUSTER, INFRA_DISABLED, POWERSTATE_PAUSE, RECONCILE_PAUSE};
use crate::hive::conditions::{HIBERNATING, PowerStatus, reason};
use crate::hive::preflight;
use crate::power::Power;
use crate::savings::ledger as ledgers;
pub use facts::{Facts, LastAttempt, Settings, SyncSetState, resume_started, slept};
pub use ledger::sleep_history;
pub use plan::{Action, Need, Notice, Plan, Requeue, Watch};

/// What the first row of the table that matches calls for.
enum Stage {
    /// The plan is known without a look at the machines.
    Planned(Box<Plan>),
    /// Row 12c: `hibernateAfter` has expired.
    ToSleepBySchedule,
    /// Row 12d.
    ToSleep,
    /// Row 13b.
    ToWake,
}

impl Stage {
    fn of(facts: &Facts<'_>) -> Self {
        let cluster = facts.cluster;
        let fake = cluster.annotation_is_true(FAKE_CLUSTER);
        let disabled = cluster.spec.platform.name() == "azure" && cluster.annotation_is_true(INFRA_DISABLED);
        let sync_sets_applied = facts.sync == SyncSetState::Applied;
        match (facts.served, cluster.desired()) {
            // Row 2.
            _ if cluster.annotation_is_true(RECONCILE_PAUSE) => Self::planned(Plan::default()),
            // Row 3.
            _ if cluster.metadata.deletion_timestamp.is_some() => Self::report(PowerStatus::deleted()),
            // Rows 4 and 5.
            _ if !cluster.spec.installed => Self::report(PowerStatus::initialized(cluster)),
            // Row 6.
            _ if cluster.annotation_is_true(POWERSTATE_PAUSE) => Self::report(PowerStatus::paused()),
            // Row 7, first case.
            _ if disabled => Self::report(PowerStatus::unsupported("Infrastructure disabled by annotation")),
            // Row 7, second case.
            (false, _) => Self::report(PowerStatus::unsupported("Unsupported platform: no actuator to handle it")),
            // Row 8.
            _ if cluster.reason(HIBERNATING) == reason::UNSUPPORTED => {
                Self::planned(Plan::report(PowerStatus::hibernation_capable()).requeued(Duration::ZERO))
            }
            // Row 10.
            _ if cluster.reason(HIBERNATING) == reason::SYNC_SETS_NOT_APPLIED && sync_sets_applied => {
                Self::planned(Plan::report(PowerStatus::sync_sets_applied()).requeued(Duration::ZERO))
            }
            // Ours: the machines are another object's.
            _ if let Some(plan) = gate::identity_taken(facts) => Self::planned(plan),
            (true, Power::Hibernating) => match gate::sync_sets(facts) {
                // Ours: wake-at has come.
                _ if schedule::wake_at(facts) == Some(Duration::ZERO) => Self::planned(schedule::wake_up(facts)),
                // Row 12a.
                Some(wait) if sleep::begins(facts) => Self::planned(wait),
                // Row 12b.
                _ if fake => Self::planned(gate::or_report(facts, PowerStatus::fake_stopped())),
                _ => Self::ToSleep,
            },
            (true, Power::Running) => match schedule::expiry(facts) {
                // Row 11, not due and never observed.
                Expiry::NotYetObserved(left) => Self::planned(Plan::report(PowerStatus::initialized(cluster)).by(left)),
                Expiry::Due => Self::ToSleepBySchedule,
                // Row 13a.
                _ if fake => Self::planned(gate::or_report(facts, PowerStatus::running())),
                _ => Self::ToWake,
            },
        }
    }

    fn planned(plan: Plan) -> Self {
        Self::Planned(Box::new(plan))
    }

    fn report(status: PowerStatus) -> Self {
        Self::planned(Plan::report(status))
    }
}

/// What still has to be observed, or `None` when the facts suffice for [`decide`].
pub fn needs(facts: &Facts<'_>) -> Option<Need> {
    match Stage::of(facts) {
        Stage::Planned(_) => None,
        Stage::ToSleepBySchedule => schedule::needs(facts),
        Stage::ToSleep => sleep::needs(facts),
        Stage::ToWake => wake::needs(facts),
    }
}

/// What is to be done.
pub fn decide(facts: &Facts<'_>) -> Plan {
    let plan = match Stage::of(facts) {
        Stage::Planned(plan) => *plan,
        Stage::ToSleepBySchedule => schedule::sleep_now(facts),
        Stage::ToSleep => {
            let plan = limits::sleeping(facts, sleep::decide(facts));
            let notice = plan.notice.or_else(|| schedule::wake_ignored(facts));
            Plan { notice, ..plan }
        }
        Stage::ToWake => limits::waking(facts, wake::decide(facts)),
    };
    let event = facts.inventory().and_then(|machines| machines.event.as_ref());
    let notice = plan.notice.or_else(|| event.map(|event| Notice::warning(event.reason, event.message.clone())));
    with_ledger(with_times(Plan { notice, ..plan }, facts), facts)
}

/// The decision after the actions of the first one. What the first one said of the actions stays, and so does its ledger of
/// a sleep that they end: a machine that was started proves nothing of it.
pub fn decide_again(facts: &Facts<'_>, first: Plan) -> Plan {
    let Plan { status, requeue, due, watch, .. } = decide(facts);
    let before = first.status.as_ref().and_then(|status| status.ledger.clone());
    let status = status.map(|status| {
        let ledger = status.ledger.map(|after| before.unwrap_or(after));
        PowerStatus { ledger, ..status }
    });
    Plan { status, requeue, due, watch, ..first }
}

/// Adds the ledger to a status that begins or ends a sleep.
fn with_ledger(plan: Plan, facts: &Facts<'_>) -> Plan {
    let Some((ledger, dropped)) = plan.status.as_ref().and_then(|status| ledger::ledger(facts, status)) else {
        return plan;
    };
    let dropped = dropped.map(|why| Notice::warning(ledgers::DROPPED, ledgers::dropped_note(&why)));
    let status = plan.status.map(|status| PowerStatus { ledger: Some(ledger), ..status });
    Plan { status, notice: dropped.or(plan.notice), ..plan }
}

/// Adds the times that the user has set, and the preflight.
fn with_times(plan: Plan, facts: &Facts<'_>) -> Plan {
    let user = match facts.cluster.desired() {
        Power::Hibernating => schedule::wake_at(facts),
        Power::Running => match schedule::expiry(facts) {
            Expiry::In(left) => Some(left),
            _ => None,
        },
    };
    let preflight = preflight::due_in(facts.cluster, facts.preflight_age, facts.now);
    let later = [user, preflight].into_iter().flatten().filter(|time| !time.is_zero() && facts.served);
    let plan = later.fold(plan, Plan::by);
    Plan { preflight: facts.served && preflight == Some(Duration::ZERO), ..plan }
}
