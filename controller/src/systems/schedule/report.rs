//! Writes the status of a schedule.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use serde_json::json;
use shared::annotation::keys;
use shared::schedule::api::{LastEdge, NextEdge, Schedule, ScheduleStatus};
use shared::schedule::decide::Decision;
use shared::schedule::timetable::Edge;

use super::workloads::Carried;
use super::{Observation, Schedules};
use crate::runtime::{Object, ReconcileError, Reconciled};

/// Writes the status if it differs. The schedule as it was written.
pub async fn write<S: Schedule + Object>(
    schedules: &Schedules<S>,
    seen: &Observation<'_, S>,
    plan: Option<&Decision>,
) -> Reconciled<Option<S>> {
    let status = status(seen, plan);
    if seen.schedule.status() == Some(&status) {
        return Ok(None);
    }
    let patch = json!([
        { "op": "test", "path": "/metadata/resourceVersion", "value": seen.schedule.meta().resource_version },
        { "op": "add", "path": "/status", "value": status },
    ]);
    schedules.handle.hub.patch_status(seen.schedule, patch).await.map(Some).map_err(ReconcileError::status)
}

fn status<S: Schedule>(seen: &Observation<'_, S>, plan: Option<&Decision>) -> ScheduleStatus {
    let (schedule, old) = (seen.schedule, seen.schedule.status().cloned().unwrap_or_default());
    let describe = |edge: &Edge| {
        let timetable = seen.reading.timetable.as_ref();
        timetable.map(|timetable| timetable.describe(edge.source, schedule.spec())).unwrap_or_default()
    };
    let next = |edge: &Edge| NextEdge { at: Time(edge.at), power: edge.power.into(), source: describe(edge) };
    let followed = seen.rollout.as_ref().and_then(|rollout| rollout.status.as_ref());
    let last_edge = match &seen.acted {
        Some((edge, carried)) => {
            let (rollout, outcome, pending) = match carried {
                Carried::Rollout(name) => (Some(name.clone()), None, None),
                Carried::Skipped(why) => (None, Some(why.clone()), None),
                Carried::Workloads { outcome, pending, .. } => (None, Some(outcome.clone()), *pending),
            };
            let (at, power, source) = (Time(edge.at), edge.power.into(), describe(edge));
            Some(LastEdge { at, power, source, rollout, outcome, pending })
        }
        None => old.last_edge.map(|edge| {
            let phase = followed.and_then(|status| status.phase).map(|phase| phase.to_string());
            LastEdge { outcome: phase.or(edge.outcome), ..edge }
        }),
    };
    let workloads = match &seen.acted {
        Some((_, Carried::Workloads { targets, .. })) => Some(*targets),
        _ => None,
    };
    ScheduleStatus {
        observed_generation: schedule.meta().generation,
        state: plan.and_then(|plan| plan.state).map(Into::into),
        next: plan.iter().flat_map(|plan| &plan.next).map(next).collect(),
        last_edge,
        targets: workloads.or(followed.and_then(|status| status.total)).or(old.targets),
        conditions: conditions(seen, &old.conditions),
    }
}

fn conditions<S: Schedule>(seen: &Observation<'_, S>, old: &[Condition]) -> Vec<Condition> {
    let unstamped = || {
        let (by, at) = (keys::REQUESTED_BY, keys::REQUESTED_AT);
        format!(
            "annotation {by} or {at} is missing: the webhook did not see the last change of the spec; change it again"
        )
    };
    let invalid = seen.reading.fault.clone();
    let unready = match seen.author {
        None => Some(("Unstamped", unstamped())),
        Some(_) => seen.blocked.clone(),
    };
    let unready = unready.or_else(|| invalid.as_ref().map(|_| ("Invalid", "the schedule is not valid".to_owned())));
    let suspended = Some(("Suspended", "spec.suspend is true".to_owned())).filter(|_| seen.schedule.spec().suspend);
    [("Valid", "Valid", invalid.map(|why| ("Invalid", why))), ("Ready", "Ready", unready.or(suspended))]
        .map(|(type_, well, fault)| {
            let is_true = fault.is_none();
            let (reason, message) = fault.unwrap_or((well, String::new()));
            let status = if is_true { "True" } else { "False" };
            let before = old.iter().find(|one| one.type_ == type_ && one.status == status);
            Condition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                reason: reason.to_owned(),
                message,
                observed_generation: seen.schedule.meta().generation,
                last_transition_time: before.map_or(Time(seen.now), |one| one.last_transition_time.clone()),
            }
        })
        .into()
}
