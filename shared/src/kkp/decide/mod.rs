//! From what was found of a cluster to what is to be done: dehydration and hydration, phase by phase.
//!
//! [`decide`] is total, deterministic and idempotent. Our condition says which phase has begun, and the record what it
//! may change; after a restart, or as the next leader, the controller goes on from them. A phase works until its facts
//! say that it is complete, and only then both enter the next.
//!
//! Each phase is a table of rows, and each row a function: what is to be done if it applies. The first that applies
//! decides. [`sleep`] and [`wake`] hold the tables; these rows come before those of any phase:
//!
//! | # | phase | if | then |
//! |---|---|---|---|
//! | F1 | after Pausing | an `EtcdRestore` is under way, and counts of `MachineDeployments` are recorded | drop these |
//! | F2 | Pausing to Dehydrated | to wake, and no slot is free | wait |
//! | F3 | on the way to sleep | to wake | the phase of the wake that undoes it: `StartingControlPlane` if the pause is ours |

pub mod control_plane;
mod drain;
mod facts;
mod plan;
pub mod preflight;
mod rebuild;
mod sleep;
mod standing;
mod stop;
#[cfg(test)]
mod tests;
mod wake;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::annotation::format;
use crate::kkp::data::Outcome;
use crate::kkp::pause::is_unpaused_by_others;
use crate::kkp::phase::Phase;
use crate::kkp::record::Record;
use crate::power::Power;

use facts::is_overruled;
pub use facts::{
    CronJob, Facts, LostPod, MachineDeployment, Machinery, Node, Pod, Quota, Stage, effective, kept_awake,
};
pub use plan::{Action, Plan, Report};
use plan::{LACKING_POLL, QUEUE_POLL, QUEUED, Row, ending};
pub use sleep::{REST, is_at_rest};
pub use standing::{Standing, phase, standing};

/// What the condition says after the last write of a wake: then the record goes.
const ENDS: &str = "every count is as it was";

/// What is to be done.
pub fn decide(facts: &Facts<'_>) -> Plan {
    match standing(facts.cluster, facts.found()) {
        Standing::Held(report, Some(phase)) if wakes_without_record(facts, phase) => {
            rebuild::rebuild(facts, phase, Some(report))
        }
        Standing::Held(report, _) => Plan::held(report),
        Standing::Orphaned(record, phase) => rebuild::orphaned(facts, record.map(|record| *record), phase),
        Standing::Absent if facts.desired(None) == Power::Running => awake(facts),
        Standing::Absent => before(facts, false),
        Standing::Void => before(facts, true),
        Standing::InForce(record) => match go_on(&Facts { record: Some(&record), ..facts.clone() }, &record) {
            // The record goes when the condition names no phase of it any more: one that is missed would be made again.
            plan if plan.ends => {
                let (report, lacks) = (Some(Report::of(Phase::Preflight, ENDS)), Some(wake::lacks(facts)));
                Plan { ends: false, report, lacks, requeue: Some(Duration::ZERO), ..plan }
            }
            plan => plan,
        },
    }
}

/// Whether an operation in this phase is a wake, or becomes one. What cannot be read of it holds up a sleep, and no
/// wake.
fn wakes_without_record(facts: &Facts<'_>, phase: Phase) -> bool {
    let record = Record::begin(facts.cluster.uid(), facts.now).enter(phase, facts.now);
    !phase.is_of_sleep() || facts.desired(Some(&record)) == Power::Running
}

/// What the last wake left unready and still is; `None` if there was nothing, or it was not read.
fn still_lacks(facts: &Facts<'_>) -> Option<String> {
    facts.cluster.lacks().filter(|_| !facts.control_plane.is_empty()).map(|_| wake::lacks(facts))
}

/// Desired state is awake. Observes what the last wake left unready until it is ready.
fn awake(facts: &Facts<'_>) -> Plan {
    let lacks = still_lacks(facts);
    Plan { requeue: lacks.as_ref().filter(|lacks| !lacks.is_empty()).map(|_| LACKING_POLL), lacks, ..Plan::default() }
}

/// Nothing has been done by a record yet.
fn before(facts: &Facts<'_>, has_record: bool) -> Plan {
    match facts.desired(None) {
        Power::Running => ending(facts, Vec::new()),
        Power::Hibernating => {
            // What is found of another record counts for nothing.
            let record = Record::begin(facts.cluster.uid(), facts.now);
            let facts = &Facts { record: Some(&record), ..facts.clone() };
            let plan = first(facts, &record, &[sleep::rows(Phase::Preflight)]);
            match plan.record {
                None => Plan { ends: has_record, lacks: still_lacks(facts), ..plan },
                Some(_) => plan,
            }
        }
    }
}

/// What every phase does first.
const FIRST: &[Row] =
    &[("F1", forget_counts), ("F2", wake_waits), ("F3", turn_around), ("W1", wake::restore_is_under_way)];

fn go_on(facts: &Facts<'_>, record: &Record) -> Plan {
    let is_wake = record.phase.is_of_wake();
    let rows = if is_wake { wake::rows(record.phase) } else { sleep::rows(record.phase) };
    let plan = first(facts, record, &[FIRST, rows]);
    let clears_intent = plan.clears_intent || is_wake && record.woken.is_some() && is_overruled(facts);
    let lacks = if is_wake && record.phase > Phase::WaitingForApi { wake::lacks(facts) } else { String::new() };
    let report = plan.report.map(|report| report.lacking(&lacks));
    Plan { report, clears_intent, ..plan }
}

/// What the first row says that applies. While none does, the phase waits.
fn first(facts: &Facts<'_>, record: &Record, tables: &[&[Row]]) -> Plan {
    let plan = tables.iter().copied().flatten().find_map(|(_, row)| row(facts, record));
    plan.unwrap_or_else(|| facts.waits("", []))
}

/// F1. An `EtcdRestore` brings back the `MachineDeployments` of the backup, with the counts of that day (row 18): those
/// of the record go.
fn forget_counts(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let forgets = facts.is_restored() && record.phase > Phase::Pausing && !record.machine_deployments.is_empty();
    let emptied = || Record { machine_deployments: BTreeMap::new(), ..record.clone() };
    let message = "an EtcdRestore is under way: the recorded counts of MachineDeployments are dropped";
    forgets.then(|| Plan { report: Some(Report::of(record.phase, message)), ..facts.records(emptied()) })
}

/// Whether a sleep is under way that is to be undone.
fn turns_around(facts: &Facts<'_>, record: &Record) -> bool {
    let desired = || facts.desired(Some(record));
    record.phase.is_of_sleep() && desired() == Power::Running
}

/// Where the wake begins. A drain that goes on after the pause (S24) has that to end, too, and before its Nodes are
/// ready.
fn resumes_at(facts: &Facts<'_>, record: &Record) -> Option<Phase> {
    let phase = record.phase.resumes_at()?;
    Some(if facts.is_paused_by_us() { Phase::StartingControlPlane } else { phase })
}

/// F2. A wake that needs the control plane waits for a slot. Until then the cluster is as it was: one whose pause
/// another client has ended does not wait.
fn wake_waits(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let needs_slot = turns_around(facts, record) && resumes_at(facts, record) == Some(Phase::StartingControlPlane);
    let waits = needs_slot && !facts.may_begin && !is_unpaused_by_others(facts.cluster, record);
    waits.then(|| Plan::work(record.phase, QUEUED, []).with(Outcome::Pending).requeued(QUEUE_POLL))
}

/// F3. A sleep that is requested again during a wake begins when the wake is complete.
fn turn_around(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let wakes = |phase| {
        let is_by_others = is_unpaused_by_others(facts.cluster, record);
        let woken = record.woken.clone().or_else(|| is_by_others.then(|| format::seconds(facts.now)));
        let plan = facts.enters(&Record { woken, ..record.clone() }, phase);
        Plan { warning: sleep::deleted_too_late(facts), ..plan }
    };
    let plan = || resumes_at(facts, record).map_or_else(|| ending(facts, Vec::new()), wakes);
    turns_around(facts, record).then(plan)
}
