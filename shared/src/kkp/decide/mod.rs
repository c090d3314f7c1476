//! From what was found of a cluster to what is to be done: dehydration and hydration, phase by phase.
//!
//! [`decide`] is total, deterministic and idempotent. The record says which phase has begun; after a restart, or as
//! the next leader, the controller goes on from it. A phase works until its facts say that it is complete, and only then the record enters the next.

mod facts;
mod plan;
mod sleep;
#[cfg(test)]
mod tests;
mod wake;

use std::time::Duration;

use super::api::Desired;
use super::phase::Phase;
use super::record::Record;

pub use facts::{CronJob, Facts, MachineDeployment, Machinery, Node, Pod, Replicas, Stage, User};
pub use plan::{Action, Plan, Report};

/// Requeue delay of a phase that makes no progress.
const SLOW: Duration = Duration::from_secs(30);

/// What a cluster waits for that begins when as many are under way as the seed takes.
const QUEUED: &str = "waiting for other clusters of the seed: as many as it takes are under way";
/// Requeue delay of one that waits for them.
const QUEUE_POLL: Duration = Duration::from_secs(5);

/// What is to be done.
#[must_use]
pub fn decide(facts: &Facts<'_>) -> Plan {
    let Some(record) = facts.record else {
        return match facts.request.desired {
            Desired::Running => Plan::default(),
            Desired::Hibernating if !facts.may_begin => {
                Plan { requeue: Some(QUEUE_POLL), ..Plan::work(Phase::Preflight, QUEUED, Vec::new()) }
            }
            Desired::Hibernating => sleep::begin(facts),
        };
    };
    let wakes = facts.request.desired == Desired::Running || is_unpaused_by_others(facts, record);
    let enters_wake = matches!(record.phase, Phase::Pausing | Phase::ScalingDownControlPlane | Phase::Dehydrated);
    match record.phase {
        // Until then the cluster is as it was: one whose pause another client has ended does not wait.
        phase if enters_wake && wakes && !facts.may_begin && !is_unpaused_by_others(facts, record) => Plan {
            report: Some(Report { dehydrated: phase == Phase::Dehydrated, ..Report::of(phase, QUEUED) }),
            requeue: Some(QUEUE_POLL),
            ..Plan::default()
        },
        Phase::DrainTimedOut => sleep::timed_out(facts, record),
        phase if phase.is_of_sleep() && !wakes => sleep::go_on(facts, record),
        phase if phase.is_of_sleep() => match phase.resumes_at() {
            Some(phase) => {
                Plan { clears_intent: is_unpaused_by_others(facts, record), ..Plan::enter(record, phase, facts.now) }
            }
            None => Plan { ends: true, ..Plan::default() },
        },
        // A sleep that is wanted again begins when the wake is complete.
        _ => wake::go_on(facts, record),
    }
}

/// Whether another client ended our pause while the cluster slept, or was about to: KKP brings up everything but etcd (row 8).
fn is_unpaused_by_others(facts: &Facts<'_>, record: &Record) -> bool {
    record.paused
        && !facts.cluster.spec.pause
        && matches!(record.phase, Phase::ScalingDownControlPlane | Phase::Dehydrated)
}

/// The limit of a phase that has exceeded it.
fn overdue(facts: &Facts<'_>, phase: Phase) -> Option<Duration> {
    facts.limits.of(phase).filter(|limit| facts.in_phase() > *limit)
}

/// A phase that waits: soon again at first, slowly once it is overdue.
fn waits(facts: &Facts<'_>, phase: Phase, message: &str, actions: Vec<Action>) -> Plan {
    let Some(limit) = overdue(facts, phase) else { return Plan::work(phase, message, actions) };
    let message = format!("for more than {} s: {message}", limit.as_secs());
    Plan { requeue: Some(SLOW), ..Plan::work(phase, message, actions) }
}

/// The user cluster, or the plan of a phase that waits for it to answer.
fn seen<'a>(facts: &Facts<'a>, phase: Phase) -> Result<&'a Machinery, Box<Plan>> {
    match facts.user {
        User::Seen(user) => Ok(user),
        User::Silent(why) => Err(Box::new(waits(facts, phase, why, Vec::new()))),
        User::NotAsked => Err(Box::new(waits(facts, phase, "the user cluster was not asked", Vec::new()))),
    }
}

/// `a, b and 3 more`.
fn names<'a>(of: impl IntoIterator<Item = &'a str>) -> String {
    super::preflight::list(&of.into_iter().map(str::to_owned).collect::<Vec<_>>())
}
