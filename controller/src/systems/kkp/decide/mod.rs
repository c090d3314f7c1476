//! From what was found of a cluster to what is to be done: dehydration and hydration, phase by phase.
//!
//! [`decide`] is total, deterministic and idempotent. Our condition says which phase has begun, and the record what it
//! may change; after a restart, or as the next leader, the controller goes on from them. A phase works until its facts
//! say that it is complete, and only then both enter the next.

pub mod control_plane;
mod facts;
mod intent;
mod plan;
pub mod preflight;
mod sleep;
mod standing;
#[cfg(test)]
mod tests;
mod wake;

use std::collections::BTreeMap;
use std::time::Duration;

use shared::annotation::format;
use shared::kkp::data::Outcome;
use shared::kkp::api::Desired;
use shared::kkp::phase::Phase;
use shared::kkp::record::Record;

pub use facts::{CronJob, Facts, LostPod, MachineDeployment, Machinery, Node, Pod, Quota, Stage, User, kept_awake};
pub use intent::effective;
use intent::{is_overruled, is_unpaused_by_others};
pub use plan::{Action, Plan, Report, Warning};
use plan::{QUEUE_POLL, QUEUED, ends};
pub use standing::{Standing, phase, standing};

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

/// Whether an operation in this phase is a wake, or becomes one. What cannot be read of it holds up a sleep, and no
/// wake.
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
            report: Some(Report::of(phase, QUEUED).with(Outcome::Pending)),
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

/// An `EtcdRestore` brings back the `MachineDeployments` of the backup, with the counts of that day (row 18): those of
/// the record go.
fn forget_counts(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    if !facts.is_restored() || record.phase <= Phase::Pausing || record.machine_deployments.is_empty() {
        return None;
    }
    let record = Record { machine_deployments: BTreeMap::new(), ..record.clone() };
    let report =
        Report::of(record.phase, "an EtcdRestore is under way: the recorded counts of MachineDeployments are dropped");
    Some(Plan { record: Some(record), report: Some(report), requeue: Some(Duration::ZERO), ..Plan::default() })
}
