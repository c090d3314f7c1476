//! From what was found of a cluster to what is to be done: dehydration and hydration, phase by phase.
//!
//! [`decide`] is total, deterministic and idempotent. Our condition says which phase has begun, and the record what it may change; after a
//! restart, or as the next leader, the controller goes on from them. A phase works until its facts say that it is complete, and only then
//! both enter the next.

mod facts;
mod plan;
mod sleep;
mod standing;
#[cfg(test)]
mod tests;
mod wake;

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;

use crate::annotation::format;

use super::api::{Cluster, Desired, Request};
use super::phase::Phase;
use super::record::Record;

pub use facts::{
    CronJob, Facts, LostPod, MachineDeployment, Machinery, Node, Pod, Quota, Replicas, Stage, User, is_paused_by_us,
    kept_awake,
};
use plan::POLL;
pub use plan::{Action, Plan, Report, Warning};
pub use standing::{Standing, phase, standing};

/// How long a phase is new.
const FIRST: Duration = Duration::from_secs(30);
/// Requeue delay after that.
const LATER: Duration = Duration::from_secs(5);
/// Requeue delay of a phase that makes no progress.
const SLOW: Duration = Duration::from_secs(30);

/// What a cluster waits for that begins when as many are under way as the seed takes.
const QUEUED: &str = "waiting for a free slot: this seed has the maximum number of clusters in progress";
/// Requeue delay of one that waits for them.
const QUEUE_POLL: Duration = Duration::from_secs(10);

/// What the condition says before the first write of a sleep: the record follows it.
const OPENS: &str = "the preflight begins";
/// What the condition says after the last write of a wake: then the record goes.
const ENDS: &str = "every count is as it was";

/// What is to be done.
pub fn decide(facts: &Facts<'_>) -> Plan {
    match standing(facts.cluster, facts.found()) {
        Standing::Held(report, Some(phase)) if wakes_without_record(facts, phase) => {
            sleep::rebuild(facts, phase, Some(report))
        }
        Standing::Held(report, _) => Plan::held(report),
        Standing::Orphaned(record, phase) => sleep::orphaned(facts, record.map(|record| *record), phase),
        Standing::Absent => before(facts, false),
        Standing::Void => before(facts, true),
        Standing::InForce(record) => {
            let plan = go_on(&Facts { record: Some(&record), ..facts.clone() }, &record);
            if !plan.ends {
                return plan;
            }
            // The record goes when the condition names no phase of it any more: one that is missed would be made again.
            let report = Some(Report::of(Phase::Preflight, ENDS));
            Plan { ends: false, report, requeue: Some(Duration::ZERO), ..plan }
        }
    }
}

/// Whether an operation in this phase is a wake, or becomes one. What cannot be read of it holds up a sleep, and no wake.
fn wakes_without_record(facts: &Facts<'_>, phase: Phase) -> bool {
    let record = Record::begin(facts.cluster.uid(), facts.now).enter(phase, facts.now);
    !phase.is_of_sleep() || effective(facts.cluster, Some(&record), facts.request, facts.now) == Desired::Running
}

/// Nothing has been done by a record yet.
fn before(facts: &Facts<'_>, has_record: bool) -> Plan {
    match effective(facts.cluster, None, facts.request, facts.now) {
        Desired::Running if has_record => ends(facts, Vec::new()),
        Desired::Running => Plan::default(),
        Desired::Hibernating => {
            let plan = sleep::before(facts);
            Plan { ends: has_record && plan.record.is_none(), ..plan }
        }
    }
}

fn go_on(facts: &Facts<'_>, record: &Record) -> Plan {
    if let Some(plan) = forget_counts(facts, record) {
        return plan;
    }
    let wakes = effective(facts.cluster, Some(record), facts.request, facts.now) == Desired::Running;
    let enters_wake = matches!(record.phase, Phase::Pausing | Phase::ScalingDownControlPlane | Phase::Dehydrated);
    match record.phase {
        // Until then the cluster is as it was: one whose pause another client has ended does not wait.
        phase if enters_wake && wakes && !facts.may_begin && !is_unpaused_by_others(facts.cluster, record) => Plan {
            report: Some(Report { dehydrated: phase == Phase::Dehydrated, ..Report::of(phase, QUEUED) }),
            requeue: Some(QUEUE_POLL),
            ..Plan::default()
        },
        Phase::DrainTimedOut => sleep::timed_out(facts, record),
        phase if phase.is_of_sleep() && !wakes => sleep::go_on(facts, record),
        phase if phase.is_of_sleep() => match phase.resumes_at() {
            Some(phase) => {
                let is_by_others = is_unpaused_by_others(facts.cluster, record);
                let woken = record.woken.clone().or_else(|| is_by_others.then(|| format::seconds(facts.now)));
                let plan = Plan::enter(&Record { woken, ..record.clone() }, phase, facts.now);
                Plan { warning: sleep::deleted_too_late(facts), ..plan }
            }
            None => ends(facts, Vec::new()),
        },
        // A sleep that is requested again begins when the wake is complete.
        _ => {
            let plan = wake::go_on(facts, record);
            let clears_intent = plan.clears_intent || record.woken.is_some() && is_overruled(facts);
            Plan { clears_intent, ..plan }
        }
    }
}

/// The state that is reconciled: as requested, but for a cluster that is kept awake. What a sleep of that has begun is undone; one that
/// sleeps already stays asleep.
pub fn effective(cluster: &Cluster, record: Option<&Record>, request: Request, now: Timestamp) -> Desired {
    let is_undone =
        record.is_some_and(|record| record.phase != Phase::Dehydrated) && kept_awake(cluster, now).is_some();
    if is_undone { Desired::Running } else { requested(cluster, record, request) }
}

/// As requested, unless another client has ended our pause, or the cluster is being deleted. KKP deletes nothing of a cluster whose API
/// server is down (row 20).
fn requested(cluster: &Cluster, record: Option<&Record>, request: Request) -> Desired {
    let is_deleted = cluster.metadata.deletion_timestamp.is_some();
    let is_woken = |record: &Record| {
        let woken = record.woken.as_deref().and_then(format::time);
        is_unpaused_by_others(cluster, record) || woken.is_some_and(|woken| request.at.is_none_or(|at| at <= woken))
    };
    if is_deleted || record.is_some_and(is_woken) { Desired::Running } else { request.desired }
}

/// Whether another client ended our pause while the cluster slept, or was about to: KKP brings up everything but etcd (row 8).
fn is_unpaused_by_others(cluster: &Cluster, record: &Record) -> bool {
    !cluster.spec.pause && matches!(record.phase, Phase::ScalingDownControlPlane | Phase::Dehydrated)
}

/// An `EtcdRestore` brings back the `MachineDeployments` of the backup, with the counts of that day (row 18): those of the record go.
fn forget_counts(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    if !facts.is_restored() || record.phase <= Phase::Pausing || record.machine_deployments.is_empty() {
        return None;
    }
    let record = Record { machine_deployments: BTreeMap::new(), ..record.clone() };
    let report =
        Report::of(record.phase, "an EtcdRestore is under way: the recorded counts of MachineDeployments are dropped");
    Some(Plan { record: Some(record), report: Some(report), requeue: Some(Duration::ZERO), ..Plan::default() })
}

/// The last calls, and the record goes. A request for sleep on the Cluster goes first if a newer one on the record has overruled it.
fn ends(facts: &Facts<'_>, actions: Vec<Action>) -> Plan {
    Plan { actions, ends: true, clears_intent: is_overruled(facts), ..Plan::default() }
}

/// Whether the Cluster still requests a sleep that is void: another client has woken the cluster since, or a newer request is on the record.
fn is_overruled(facts: &Facts<'_>) -> bool {
    let on_cluster = facts.cluster.metadata.annotations.as_ref().and_then(Request::of);
    on_cluster.is_some_and(|request| request.desired == Desired::Hibernating)
        && !facts.is_deleted()
        && requested(facts.cluster, facts.record, facts.request) == Desired::Running
}

/// A phase that waits: soon again at first, slowly once it is overdue.
fn waits(facts: &Facts<'_>, phase: Phase, message: &str, actions: Vec<Action>) -> Plan {
    let Some(limit) = facts.overdue(phase) else {
        let poll = if facts.in_phase() < FIRST { POLL } else { LATER };
        return Plan { requeue: Some(poll), ..Plan::work(phase, message, actions) };
    };
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
