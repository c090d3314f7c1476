//! The record of a sleep, as `status` shows it, and as the place of a request that KKP does not store (row 27).

use serde::Deserialize;
use serde_json::{Value, json};

use super::intent::request;
use super::state::paused_by;
use crate::annotation::{annotation, format, keys as common, reason_edit};
use crate::kinds::kind::Kind;
use crate::kinds::lifecycle::{Intent, TargetError};
use crate::kinds::record::Record;
use crate::kinds::row::Companion;
use crate::kkp::api::{Cluster, Request};
use crate::kkp::keys;
use crate::kkp::phase::Phase;
use crate::kkp::record;
use crate::power::Power;
use crate::record::{Format, RecordError};

static CONFIG_MAP: Kind = Kind::namespaced("", &["v1"], "ConfigMap", "configmaps");

/// The domain of KKP's own webhooks, such as `clusters.kubermatic.io`.
const WEBHOOKS: &str = ".kubermatic.io";

#[derive(Debug)]
pub(super) struct RecordConfigMap;

/// The request in an object's annotations.
fn request_of(object: &Value) -> Option<Request> {
    Request::of(|key| annotation(object, key))
}

/// The record of this target, or why the companion holds none.
fn read(cluster: &Cluster, companion: &Value) -> Result<record::Record, String> {
    let text = companion.get("data").and_then(|data| data.get(keys::RECORD.1)?.as_str());
    let record = text.ok_or(RecordError::Unreadable).and_then(record::Record::read);
    let record = record.map_err(|error| error.to_string());
    let record = record.and_then(|record| record.mismatch(cluster.uid()).map_or(Ok(record), Err));
    record.map_err(|why| format!("{}: {why}", cluster.record_place()))
}

impl Companion for RecordConfigMap {
    fn kind(&self) -> &'static Kind {
        &CONFIG_MAP
    }

    fn place(&self, target: &Value) -> (String, String) {
        let namespace = Cluster::deserialize(target).map(|cluster| cluster.control_plane_namespace());
        (namespace.unwrap_or_default(), keys::RECORD.0.to_owned())
    }

    /// A cluster that runs and is to run has none.
    fn is_expected(&self, target: &Value) -> bool {
        let is_reported = target.pointer("/status/conditions").and_then(|all| all.get(keys::DEHYDRATED)).is_some();
        is_reported || annotation(target, keys::POWER_STATE) == Some("Hibernating")
    }

    fn overlay(&self, target: &mut Value, companion: &Value) {
        let (on_cluster, on_record) = (request_of(target), request_of(companion));
        let newest = Some(Request::newest(on_cluster, on_record));
        if on_record.is_none() || on_record == on_cluster || newest != on_record {
            return;
        }
        if target["metadata"]["annotations"].is_null() {
            target["metadata"]["annotations"] = json!({});
        }
        let Some(annotations) = target["metadata"]["annotations"].as_object_mut() else { return };
        for key in keys::REQUEST {
            match annotation(companion, key) {
                Some(value) => annotations.insert(key.to_owned(), json!(value)),
                None => annotations.remove(key),
            };
        }
    }

    fn describe(&self, target: &Value, companion: Option<&Value>, mut shown: Record) -> Record {
        let Ok(cluster) = Cluster::deserialize(target) else { return shown };
        let phase: Option<Phase> = shown.observed.parse().ok();
        let missing = || {
            let phase = phase.filter(|phase| *phase != Phase::Preflight)?; // which has no record yet
            let place = cluster.record_place();
            Some(format!(
                "its record does not exist, although it is in phase {phase}: restore {place}, or undo the sleep by hand"
            ))
        };
        let record = match companion.map(|companion| read(&cluster, companion)) {
            Some(Ok(record)) => record,
            other => {
                let error = other.map_or_else(missing, Result::err);
                shown.more.extend(error.map(|error| ("recordError", json!(error))));
                return shown;
            }
        };
        shown.more.extend(paused_by(&cluster, Some(&record)).map(|by| ("pausedBy", json!(by))));
        if phase == Some(record.phase) {
            shown.since = format::time(&record.entered).or(shown.since);
        }
        let numbers = record.numbers;
        let remaining = json!({ "volumes": numbers.volumes, "loadBalancers": numbers.load_balancers });
        let back: u32 = record.machine_deployments.values().fold(0, |sum, one| sum.saturating_add(one.replicas));
        if !record.rebuilt {
            shown.more.insert("remaining", remaining);
            shown.more.insert("scaledDownMachines", json!(back));
        }
        shown
    }

    fn is_webhook_of_system(&self, name: &str) -> bool {
        name.ends_with(WEBHOOKS)
    }

    fn request(&self, target: &Value, companion: &Value, intent: &Intent<'_>) -> Result<Value, TargetError> {
        let cluster = Cluster::deserialize(target)?;
        if intent.power == Power::Hibernating {
            let place = cluster.record_place();
            let why = format!(
                "the Cluster cannot be updated, and {place}, takes only a resume: a sleep must change the Cluster"
            );
            return Err(TargetError::Impossible(why));
        }
        read(&cluster, companion).map_err(TargetError::Impossible)?;
        let mut annotations = request(&cluster, intent);
        for key in [common::REQUESTED_BY, common::REQUESTED_AT] {
            if annotation(companion, key).is_some() {
                annotations.insert(key.to_owned(), Value::Null);
            }
        }
        annotations.extend(reason_edit(annotation(companion, common::REASON), intent.reason, true));
        let version = companion.pointer("/metadata/resourceVersion").cloned().unwrap_or_default();
        Ok(json!({ "metadata": { "resourceVersion": version, "annotations": annotations } }))
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;
    use crate::kinds::kkp_cluster::KKP_CLUSTER;
    use crate::kinds::kkp_cluster::tests::cluster;
    use crate::kkp::record::{Machines, Numbers};

    const EARLY: &str = "2026-11-22T17:00:00Z";
    const LATE: &str = "2026-11-22T18:00:00Z";

    fn now() -> Timestamp {
        LATE.parse().unwrap()
    }

    fn record_of(phase: Phase) -> record::Record {
        let mut record = record::Record::begin("u-1", EARLY.parse().unwrap()).enter(phase, now());
        record.numbers = Numbers { volumes: 3, load_balancers: 2, machines: 5 };
        record.note_machines("kube-system/a", Machines { replicas: 3, ..Machines::default() });
        record.note_machines("kube-system/b", Machines { replicas: 2, ..Machines::default() });
        record
    }

    fn config_map(annotations: &Value, text: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap", "data": { keys::RECORD.1: text },
            "metadata": { "name": keys::RECORD.0, "namespace": "cluster-abc", "resourceVersion": "9", "annotations": annotations },
        })
    }

    fn asks(state: &str, at: &str) -> Value {
        json!({ keys::POWER_STATE: state, keys::POWER_STATE_AT: at })
    }

    /// Row 27.
    #[test]
    fn the_newest_request_counts() {
        let both = |state: &str, at: &str| {
            let mut all = asks(state, at);
            json_patch::merge(&mut all, &json!({ common::REASON: "weekend", common::REQUESTED_BY: "alice" }));
            all
        };
        for (on_cluster, on_record, desired, reason) in [
            (both("Hibernating", EARLY), json!({}), "Hibernating", Some("weekend")),
            (asks("Hibernating", EARLY), both("Running", LATE), "Running", Some("weekend")),
            // Without the webhook nobody is named.
            (both("Hibernating", EARLY), asks("Running", LATE), "Running", None),
            (both("Hibernating", LATE), asks("Running", EARLY), "Hibernating", Some("weekend")),
            (both("Hibernating", LATE), asks("Running", LATE), "Hibernating", Some("weekend")),
            (both("Hibernating", LATE), asks("Hibernating", LATE), "Hibernating", Some("weekend")),
            (both("Hibernating", LATE), asks("awake", LATE), "Hibernating", Some("weekend")),
            // A sleep is requested on the Cluster alone.
            (json!({}), asks("Hibernating", EARLY), "Running", None),
        ] {
            let mut object = cluster(&on_cluster, Some(("Dehydrated", "")));
            RecordConfigMap.overlay(&mut object, &config_map(&on_record, ""));
            let shown = KKP_CLUSTER.record(&object).unwrap();
            assert_eq!(
                (shown.desired.as_str(), shown.reason.as_deref()),
                (desired, reason),
                "{on_cluster} {on_record}"
            );
            assert_eq!(shown.requested_by.is_some(), reason.is_some(), "who asked goes with the request");
        }
    }

    #[test]
    fn the_record_has_the_numbers() {
        let (text, ours) = (record_of(Phase::Dehydrated).text(), record_of(Phase::Dehydrated).sleep());
        let mut object = cluster(&asks("Hibernating", EARLY), Some(("Dehydrated", "")));
        object["metadata"]["annotations"][keys::PAUSED_BY_SLEEP] = json!(ours);
        object["spec"]["pause"] = json!(true);
        object["spec"]["pauseReason"] = json!(keys::PAUSED_BY_US);
        let shown = KKP_CLUSTER.record(&object).unwrap();
        let shown = RecordConfigMap.describe(&object, Some(&config_map(&json!({}), &text)), shown);
        let json = serde_json::to_value(&shown).unwrap();
        assert_eq!(json["remaining"], json!({ "volumes": 3, "loadBalancers": 2 }));
        assert_eq!((&json["scaledDownMachines"], &json["pausedBy"]), (&json!(5), &json!("hibernate-controller")));
        assert_eq!(json["since"], json!(LATE), "when the phase began, not when the condition's status changed");
        assert_eq!((KKP_CLUSTER.columns[4].cell)(&shown, now()), "5");
        assert_eq!((KKP_CLUSTER.columns[5].cell)(&shown, now()), "3");
        assert!((KKP_CLUSTER.warnings)(&shown, now()).is_empty());
        object["metadata"]["annotations"][keys::PAUSED_BY_SLEEP] = json!("u-1/2026-11-21T17:00:00Z");
        let shown = KKP_CLUSTER.record(&object).unwrap();
        let shown = RecordConfigMap.describe(&object, Some(&config_map(&json!({}), &text)), shown);
        assert_eq!(shown.more["pausedBy"], "another client", "the pause of an earlier sleep");
    }

    #[test]
    fn a_record_that_cannot_be_used_is_named() {
        let text = record_of(Phase::Dehydrated).text();
        let place = "ConfigMap cluster-abc/hibernate-record, key record.json";
        for (detail, companion, part) in [
            (Some(("Dehydrated", "")), None, "its record does not exist, although it is in phase Dehydrated: restore "),
            (Some(("Preflight", "waiting")), None, ""),
            (None, None, ""),
            (Some(("Draining", "")), Some("{}".to_owned()), "it is malformed"),
            (
                Some(("Draining", "")),
                Some(text.replace("\"v\":1", "\"v\":7")),
                "it has version 7, and this release reads version 1",
            ),
            (
                Some(("Dehydrated", "")),
                Some(text.replace("u-1", "u-2")),
                "it is of the Cluster with UID \"u-2\", and this Cluster has UID \"u-1\"",
            ),
            (Some(("Dehydrated", "")), Some(text), ""),
        ] {
            let object = cluster(&asks("Hibernating", EARLY), detail);
            let companion = companion.map(|text| config_map(&json!({}), &text));
            let shown = RecordConfigMap.describe(&object, companion.as_ref(), KKP_CLUSTER.record(&object).unwrap());
            let warnings = (KKP_CLUSTER.warnings)(&shown, now()).concat();
            assert_eq!(warnings.is_empty(), part.is_empty(), "{detail:?}: {warnings}");
            assert!(part.is_empty() || warnings.contains(part) && warnings.contains(place), "{warnings}");
        }
    }

    #[test]
    fn a_record_is_expected_of_clusters_that_do_not_just_run() {
        for (annotations, detail, expected) in [
            (json!({}), None, false),
            (asks("Running", EARLY), None, false),
            (asks("Hibernating", EARLY), None, true),
            (json!({}), Some(("WaitingForNodes", "")), true),
        ] {
            let object = cluster(&annotations, detail);
            assert_eq!(RecordConfigMap.is_expected(&object), expected, "{annotations} {detail:?}");
            assert_eq!(RecordConfigMap.place(&object), ("cluster-abc".to_owned(), keys::RECORD.0.to_owned()));
        }
    }

    #[test]
    fn a_request_on_the_record_is_newer_than_any_before() {
        let (text, stale) = (record_of(Phase::Dehydrated).text(), json!({ common::REASON: "old" }));
        let request = |action: Power, companion: &Value, reason: Option<&str>| {
            let intent =
                Intent { power: action, reason, end: None, now: EARLY.parse().unwrap(), queried: false, force: false };
            RecordConfigMap.request(&cluster(&asks("Hibernating", LATE), None), companion, &intent)
        };
        let wake = |companion: &Value, reason| request(Power::Running, companion, reason);
        let after = "2026-11-22T18:00:01Z";
        for (annotations, reason, expected) in [
            (json!({}), None, json!({})),
            (stale.clone(), None, json!({ common::REASON: null })),
            (stale, Some("new"), json!({ common::REASON: "new" })),
        ] {
            let patch = wake(&config_map(&annotations, &text), reason).unwrap();
            let mut all = asks("Running", after);
            all.as_object_mut().unwrap().extend(expected.as_object().unwrap().clone());
            assert_eq!(patch, json!({ "metadata": { "resourceVersion": "9", "annotations": all } }));
        }
        let error = wake(&config_map(&json!({}), &text.replace("u-1", "u-2")), None).unwrap_err();
        assert!(error.to_string().contains("it is of the Cluster with UID \"u-2\""), "{error}");
        let error = wake(&config_map(&json!({}), "{}"), None).unwrap_err();
        assert_eq!(error.to_string(), "ConfigMap cluster-abc/hibernate-record, key record.json: it is malformed");
        // The controller begins a sleep on the Cluster alone, and its admission rules guard only that.
        for text in [&*text, "{}"] {
            let error = request(Power::Hibernating, &config_map(&json!({}), text), None).unwrap_err();
            assert!(
                error.to_string().starts_with("the Cluster cannot be updated, and ConfigMap cluster-abc/"),
                "{error}"
            );
        }
    }

    #[test]
    fn only_kkps_own_webhooks_judge_the_whole_cluster() {
        for (name, is_kkps) in [
            ("clusters.kubermatic.io", true),
            ("into-sleep.kkp.hibernate.sh", false),
            ("validate.kyverno.svc-fail", false),
            ("kubermatic.io.example.com", false),
        ] {
            assert_eq!(RecordConfigMap.is_webhook_of_system(name), is_kkps, "{name}");
        }
    }
}
