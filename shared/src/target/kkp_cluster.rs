//! KKP's `Cluster`: intent is an annotation, because KKP drops fields that it does not know (rows 24 and 25 of
//! reference/kkp-observed.md). State is in our condition: KKP itself shows a sleeping cluster as Running and healthy (row 6).

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    kind::Kind,
    lifecycle::{Change, Intent, Lifecycle, PowerAction, Progress, TargetError},
    record::{Record, StepRecord},
    row::{Column, TargetKind},
};
use crate::annotation::{annotation, format, keys as common};
use crate::kkp::api::Cluster;
use crate::kkp::keys;
use crate::kkp::phase::Phase;

/// The row. No table lists it before a controller serves it.
pub static KKP_CLUSTER: TargetKind = TargetKind {
    kind: Kind::cluster_scoped("kubermatic.k8c.io", &["v1"], "Cluster", "clusters"),
    by_default: false,
    has_schedule: false,
    has_plan: false,
    advice: None,
    asleep: "dehydrated",
    awake: "running",
    columns: &[
        Column { header: "PROVIDER", cell: |record, _| record.platform.clone().unwrap_or_default() },
        Column { header: "DATACENTER", cell: |record, _| record.region.clone().unwrap_or_default() },
    ],
    lifecycle: &KkpCluster,
};

#[derive(Debug)]
struct KkpCluster;

/// The value of the annotation that an action asks for.
fn state(action: PowerAction) -> &'static str {
    match action {
        PowerAction::Hibernate => "Hibernating",
        PowerAction::Resume => "Running",
    }
}

fn is_asleep(cluster: &Value) -> bool {
    annotation(cluster, keys::POWER_STATE) == Some(state(PowerAction::Hibernate))
}

/// The phase that our condition names.
fn phase(cluster: &Cluster) -> Option<(Phase, String)> {
    let condition = cluster.condition(keys::DEHYDRATED)?;
    let phase = condition.reason.as_deref()?.parse().ok()?;
    Some((phase, condition.message.clone().unwrap_or_default()))
}

impl Lifecycle for KkpCluster {
    /// | # | wanted | power-state | patch |
    /// |---|---|---|---|
    /// | K1 | as it is | as wanted | the reason, if another is given |
    /// | K2 | a change | the other | state, its time, and the reason or the removal of the old one |
    ///
    /// K2 carries the resourceVersion: of two requests at the same time one meets a conflict.
    fn change(&self, cluster: &Value, intent: &Intent<'_>) -> Result<Change, TargetError> {
        let changes = is_asleep(cluster) != (intent.action == PowerAction::Hibernate);
        let old_reason = annotation(cluster, common::REASON);
        let mut annotations = Map::new();
        match intent.reason {
            Some(reason) if old_reason != Some(reason) => {
                annotations.insert(common::REASON.to_owned(), json!(reason));
            }
            None if changes && old_reason.is_some() => {
                annotations.insert(common::REASON.to_owned(), Value::Null);
            }
            _ => {}
        }
        if !changes && annotations.is_empty() {
            return Ok(Change::None { message: "unchanged".to_owned(), follows: true });
        }
        let mut metadata = json!({});
        let message = if changes {
            annotations.insert(keys::POWER_STATE.to_owned(), json!(state(intent.action)));
            annotations.insert(keys::POWER_STATE_AT.to_owned(), json!(format::seconds(intent.now)));
            metadata["resourceVersion"] = cluster["metadata"]["resourceVersion"].clone();
            match intent.action {
                PowerAction::Hibernate => "dehydration requested",
                PowerAction::Resume => "hydration requested",
            }
        } else {
            "reason set"
        };
        metadata["annotations"] = Value::Object(annotations);
        Ok(Change::Patch { patch: json!({ "metadata": metadata }), message: message.to_owned(), warnings: Vec::new() })
    }

    fn progress(&self, object: &Value, action: PowerAction) -> Result<Progress, TargetError> {
        let cluster = Cluster::deserialize(object)?;
        if is_asleep(object) != (action == PowerAction::Hibernate) {
            let other = if is_asleep(object) { "it is to sleep again" } else { "it is to run again" };
            return Ok(Progress::Lost(other.to_owned()));
        }
        let going = |phase: Phase, message: String| {
            Progress::Going(if message.is_empty() { phase.to_string() } else { format!("{phase}: {message}") })
        };
        Ok(match (action, phase(&cluster)) {
            (PowerAction::Hibernate, Some((Phase::Dehydrated, _))) | (PowerAction::Resume, None) => Progress::Reached,
            (PowerAction::Hibernate, None) => Progress::Unnoticed,
            (PowerAction::Hibernate, Some((Phase::DrainTimedOut, message))) => Progress::Lost(message),
            (_, Some((phase, message))) => going(phase, message),
        })
    }

    fn describe(&self, object: &Value, mut record: Record) -> Result<Record, TargetError> {
        let cluster = Cluster::deserialize(object)?;
        let action = if is_asleep(object) { PowerAction::Hibernate } else { PowerAction::Resume };
        state(action).clone_into(&mut record.desired);
        record.platform = Some(cluster.spec.cloud.provider_name.clone()).filter(|name| !name.is_empty());
        record.region = Some(cluster.spec.cloud.dc.clone()).filter(|name| !name.is_empty());
        let since = cluster.condition(keys::DEHYDRATED).and_then(|condition| condition.last_transition_time.as_deref());
        record.since = since.and_then(format::time);
        match phase(&cluster) {
            None => {
                let phase = cluster.status.as_ref().and_then(|status| status.phase.clone());
                record.observed = phase.unwrap_or_default();
            }
            Some((phase, message)) => {
                record.observed = phase.to_string();
                let failed = matches!(phase, Phase::DrainTimedOut | Phase::AwakePaused);
                let step = StepRecord { reason: phase.to_string(), message, failed };
                record.step = (phase != Phase::Dehydrated).then_some(step);
            }
        }
        Ok(record)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn cluster(annotations: &Value, reason: Option<&str>) -> Value {
        let condition = reason.map(|reason| {
            json!({
                "status": "False", "reason": reason, "message": "waiting for Pods to end: a/b", "kubermaticVersion": "v",
                "lastHeartbeatTime": "2026-11-22T18:00:00Z", "lastTransitionTime": "2026-11-22T17:00:00Z",
            })
        });
        let conditions = condition.map_or_else(|| json!({}), |condition| json!({ keys::DEHYDRATED: condition }));
        json!({
            "apiVersion": "kubermatic.k8c.io/v1", "kind": "Cluster",
            "metadata": { "name": "abc", "resourceVersion": "7", "annotations": annotations },
            "spec": { "humanReadableName": "a", "version": "1.34.1", "cloud": { "dc": "eu", "providerName": "aws" } },
            "status": { "phase": "Running", "conditions": conditions },
        })
    }

    fn now() -> Timestamp {
        "2026-11-22T18:00:00Z".parse().unwrap()
    }

    fn change(object: &Value, action: PowerAction, reason: Option<&str>) -> Option<Value> {
        let intent = Intent { action, reason, end: None, now: now(), queried: false };
        match KKP_CLUSTER.change(object, &intent).unwrap() {
            Change::Patch { patch, .. } => Some(patch),
            Change::None { .. } => None,
        }
    }

    #[test]
    fn intent_is_an_annotation_with_its_time() {
        let (hibernate, resume) = (PowerAction::Hibernate, PowerAction::Resume);
        let awake = cluster(&json!({}), None);
        let asleep =
            cluster(&json!({ keys::POWER_STATE: "Hibernating", common::REASON: "weekend" }), Some("Dehydrated"));
        let patch =
            |annotations: Value| Some(json!({ "metadata": { "resourceVersion": "7", "annotations": annotations } }));
        let at = "2026-11-22T18:00:00Z";
        assert_eq!(change(&awake, resume, None), None);
        assert_eq!(
            change(&awake, hibernate, None),
            patch(json!({ keys::POWER_STATE: "Hibernating", keys::POWER_STATE_AT: at }))
        );
        assert_eq!(
            change(&asleep, resume, None),
            patch(json!({ keys::POWER_STATE: "Running", keys::POWER_STATE_AT: at, common::REASON: null }))
        );
        assert_eq!(change(&asleep, hibernate, Some("weekend")), None);
        let only_reason = json!({ "metadata": { "annotations": { common::REASON: "holidays" } } });
        assert_eq!(change(&asleep, hibernate, Some("holidays")), Some(only_reason));
    }

    /// Row 6: KKP's own phase says Running throughout.
    #[test]
    fn state_and_progress_come_from_our_condition() {
        let wanted = json!({ keys::POWER_STATE: "Hibernating" });
        let draining = "Draining: waiting for Pods to end: a/b".to_owned();
        for (reason, observed, progress) in [
            (None, "Running", Progress::Unnoticed),
            (Some("Draining"), "Draining", Progress::Going(draining)),
            (Some("Dehydrated"), "Dehydrated", Progress::Reached),
            (Some("DrainTimedOut"), "DrainTimedOut", Progress::Lost("waiting for Pods to end: a/b".into())),
        ] {
            let object = cluster(&wanted, reason);
            assert_eq!(KKP_CLUSTER.progress(&object, PowerAction::Hibernate).unwrap(), progress);
            let record = KKP_CLUSTER.record(&object).unwrap();
            assert_eq!((record.desired.as_str(), record.observed.as_str()), ("Hibernating", observed));
            assert_eq!(record.step.is_some(), !matches!(reason, None | Some("Dehydrated")));
        }
        let object = cluster(&json!({}), None);
        assert_eq!(KKP_CLUSTER.progress(&object, PowerAction::Resume).unwrap(), Progress::Reached);
        assert!(matches!(KKP_CLUSTER.progress(&object, PowerAction::Hibernate).unwrap(), Progress::Lost(_)));
    }

    #[test]
    fn a_conditions_age_is_since_when_it_is_so() {
        let record = KKP_CLUSTER.record(&cluster(&json!({}), Some("Draining"))).unwrap();
        assert_eq!(record.since.map(|since| since.to_string()), Some("2026-11-22T17:00:00Z".to_owned()));
        assert_eq!((record.platform.as_deref(), record.region.as_deref()), (Some("aws"), Some("eu")));
    }
}
