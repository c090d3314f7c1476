//! The condition on the Cluster, and Events when a phase begins.

use kube::runtime::events::EventType;
use kube::{Resource, ResourceExt};
use serde_json::{Value, json};
use shared::annotation::format;
use shared::kkp::api::{Cluster, Condition};
use shared::kkp::data::PREFLIGHT;
use shared::kkp::keys;
use shared::kkp::phase::Phase;
use shared::text::sanitize_to;
use tracing::info;

use super::decide::{Plan, Report};
use super::{ACTION, Kkp, Observation};
use crate::metrics::Noticed;
use crate::runtime::{Done, ReconcileError, System, Target};

/// Bytes of a condition's message.
const MAX_MESSAGE: usize = 2_000;

/// Writes what has changed.
pub async fn report(
    kkp: &Kkp,
    observation: &Observation<'_>,
    plan: &Plan,
    target: &mut Target<Kkp>,
) -> Result<Done, ReconcileError> {
    // What an action got back is newer than what was observed.
    let cluster = observation.written.as_deref().unwrap_or(observation.cluster);
    let is_over = plan.record.as_ref().is_some_and(|record| record.phase == Phase::Dehydrated);
    let phase: Option<Phase> = plan.report.as_ref().and_then(|report| report.reason.parse().ok());
    if is_over || phase.is_none_or(|phase| phase == Phase::Preflight) {
        kkp.slots.free(&cluster.name_any());
    }
    let mut changed = plan.record.is_some() || !plan.actions.is_empty() || plan.ends;
    let now = format::seconds(observation.now);
    let conditions = [
        (keys::DEHYDRATED, plan.report.as_ref().map(condition)),
        (PREFLIGHT, observation.answer.clone().or_else(|| cluster.condition(PREFLIGHT).cloned())),
    ];
    if let Some(patch) = patch(cluster, conditions, &now) {
        let written = kkp.hub().patch_status(cluster, patch).await.map_err(ReconcileError::Cluster)?;
        target.wrote(&written);
        changed = true;
        // A phase has begun once the condition names it: until then the next reconcile enters it again.
        match (&plan.record, &plan.warning) {
            (Some(record), _) => announce(kkp, cluster, record.phase, plan).await,
            (None, Some(warning)) => {
                publish(kkp, cluster, EventType::Warning, warning.reason, &warning.note).await;
            }
            (None, None) => {}
        }
    } else if let Some(written) = &observation.written {
        target.wrote(written);
    }
    target.state.answer = None;
    Ok(Done { requeue: [plan.requeue, observation.asked_in].into_iter().flatten().min(), changed })
}

/// Events about a phase that has begun.
async fn announce(kkp: &Kkp, cluster: &Cluster, phase: Phase, plan: &Plan) {
    let kind =
        if matches!(phase, Phase::DrainTimedOut | Phase::AwakePaused) { EventType::Warning } else { EventType::Normal };
    let is_woken = plan.record.as_ref().is_some_and(|record| record.woken.is_some());
    let (reason, note) = if is_woken && phase == Phase::StartingControlPlane {
        ("PauseEndedByOthers", "another client set spec.pause to false: the cluster wakes".to_owned())
    } else {
        (phase.into(), format!("{phase} has begun"))
    };
    publish(kkp, cluster, kind, reason, &note).await;
    if let Some(warning) = &plan.warning {
        publish(kkp, cluster, EventType::Warning, warning.reason, &warning.note).await;
    }
}

async fn publish(kkp: &Kkp, cluster: &Cluster, kind: EventType, reason: &'static str, note: &str) {
    let name = cluster.name_any();
    info!(cluster = name, reason, "{note}");
    kkp.hub().metrics.notices.get_or_create(&Noticed { system: "kkp", reason }).inc();
    kkp.hub().events.publish(&cluster.object_ref(&()), &name, kind, (ACTION, reason), note).await;
}

/// Status, reason and message of the condition about a sleep.
fn condition(report: &Report) -> Condition {
    Condition {
        status: if report.dehydrated { "True" } else { "False" }.to_owned(),
        reason: Some(report.reason.clone()),
        message: Some(sanitize_to(&report.message, MAX_MESSAGE)).filter(|text| !text.is_empty()),
        ..Condition::default()
    }
}

/// What makes the conditions say this; `None` if they do.
fn patch<const N: usize>(
    cluster: &Cluster,
    conditions: [(&'static str, Option<Condition>); N],
    now: &str,
) -> Option<Value> {
    let changes: Vec<Value> =
        conditions.into_iter().filter_map(|(name, wanted)| change(cluster, name, wanted, now)).collect();
    if changes.is_empty() {
        return None;
    }
    let version = cluster.metadata.resource_version.as_deref();
    let mut operations = vec![json!({ "op": "test", "path": "/metadata/resourceVersion", "value": version })];
    if cluster.status.is_none() {
        operations.push(json!({ "op": "add", "path": "/status", "value": {} }));
    }
    if cluster.status.as_ref().is_none_or(|status| status.conditions.is_empty()) {
        operations.push(json!({ "op": "add", "path": "/status/conditions", "value": {} }));
    }
    operations.extend(changes);
    Some(json!(operations))
}

/// The operation on one condition, if it differs.
fn change(cluster: &Cluster, name: &str, wanted: Option<Condition>, now: &str) -> Option<Value> {
    let old = cluster.condition(name);
    let path = format!("/status/conditions/{name}");
    let Some(wanted) = wanted else {
        old?;
        return Some(json!({ "op": "remove", "path": path }));
    };
    let content = |one: &Condition| (one.status.clone(), one.reason.clone(), one.message.clone());
    if old.is_some_and(|old| content(old) == content(&wanted)) {
        return None;
    }
    let since = old.filter(|old| old.status == wanted.status).and_then(|old| old.last_transition_time.as_deref());
    let condition = Condition {
        // Required by the schema: the KKP that runs is the one that wrote this.
        kubermatic_version: cluster
            .condition("SeedResourcesUpToDate")
            .map_or_else(|| "unknown".to_owned(), |one| one.kubermatic_version.clone()),
        last_heartbeat_time: now.to_owned(),
        last_transition_time: Some(since.unwrap_or(now).to_owned()),
        ..wanted
    };
    Some(json!({ "op": "add", "path": path, "value": condition }))
}

#[cfg(test)]
mod tests {
    use shared::kkp::api::ClusterSpec;

    use super::*;

    const EARLY: &str = "2026-11-22T18:00:00Z";
    const LATE: &str = "2026-11-22T18:05:00Z";

    fn about(cluster: &Cluster, report: Option<&Report>, now: &str) -> Option<Value> {
        patch(cluster, [(keys::DEHYDRATED, report.map(condition))], now)
    }

    fn applied(cluster: &Cluster, report: Option<&Report>, now: &str) -> Option<Cluster> {
        let patch: json_patch::Patch = serde_json::from_value(about(cluster, report, now)?).unwrap();
        let mut object = serde_json::to_value(cluster).unwrap();
        json_patch::patch(&mut object, &patch).unwrap();
        Some(serde_json::from_value(object).unwrap())
    }

    #[test]
    fn the_condition_is_written_when_it_changes_and_removed_at_the_end() {
        let mut cluster = Cluster::new("abc", ClusterSpec::default());
        cluster.metadata.resource_version = Some("7".into());
        let report = |dehydrated, reason: &str, message: &str| Report {
            dehydrated,
            reason: reason.into(),
            message: message.into(),
        };
        assert_eq!(about(&cluster, None, EARLY), None);
        let draining = report(false, "Draining", "waiting");
        let first = applied(&cluster, Some(&draining), EARLY).unwrap();
        assert_eq!(about(&first, Some(&draining), LATE), None);
        let second = applied(&first, Some(&report(false, "Pausing", "\u{1b}[31mred")), LATE).unwrap();
        let said = second.condition(keys::DEHYDRATED).unwrap();
        assert_eq!((said.last_transition_time.as_deref(), said.last_heartbeat_time.as_str()), (Some(EARLY), LATE));
        assert!(!said.message.as_deref().unwrap().contains('\u{1b}'));
        let asleep = applied(&second, Some(&report(true, "Dehydrated", "")), LATE).unwrap();
        let said = asleep.condition(keys::DEHYDRATED).unwrap();
        assert_eq!((said.status.as_str(), said.last_transition_time.as_deref()), ("True", Some(LATE)));
        assert_eq!(applied(&asleep, None, LATE).unwrap().condition(keys::DEHYDRATED), None);
    }
}
