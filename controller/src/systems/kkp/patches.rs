//! The merge patches of a sleep and a wake: one write per object, with only our fields.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use shared::annotation::{format, keys as common};
use shared::kkp::api::Cluster;
use shared::kkp::keys;
use shared::kkp::node::NodeBefore;
use shared::kkp::record::{Machines, Record};
use shared::record::Format;
use shared::text::sanitize;

/// The pause, its reason and our annotations, in one write. Its sleep is named by the record, which is written first.
pub fn pause(cluster: &Cluster, record: Option<&Record>, expiry: Option<Timestamp>) -> Value {
    let reason = cluster.annotation(common::REASON);
    let reason = reason.map(|reason| format!(": {}", sanitize(reason))).unwrap_or_default();
    json!({
        "metadata": { "annotations": {
            keys::POWER_STATE: "Hibernating", keys::PAUSED_BY_SLEEP: record.map(Record::sleep),
            keys::CERTIFICATES_EXPIRE_AT: expiry.map(format::seconds), keys::ALLOW_UNPAUSE: null, keys::ALLOW_DELETE: null,
        } },
        "spec": { "pause": true, "pauseReason": format!("{}{reason}", keys::PAUSED_BY_US) },
    })
}

/// The end of the pause.
pub fn unpause() -> Value {
    let mut patch = disown();
    patch["spec"] = json!({ "pause": false, "pauseReason": null });
    patch
}

/// Our annotations of a pause go.
pub fn disown() -> Value {
    json!({ "metadata": { "annotations": {
        keys::PAUSED_BY_SLEEP: null, keys::CERTIFICATES_EXPIRE_AT: null, keys::ALLOW_UNPAUSE: null, keys::ALLOW_DELETE: null,
    } } })
}

/// The intent to run, in place of a request for sleep that is overruled. `request`: what the record says of the request
/// that does so, and with it who made it and why.
pub fn run(now: Timestamp, request: Option<&BTreeMap<String, String>>) -> Value {
    let mut patch = disown();
    let annotations = &mut patch["metadata"]["annotations"];
    annotations[keys::POWER_STATE] = json!("Running");
    annotations[keys::POWER_STATE_AT] = json!(format::seconds(now));
    if let Some(request) = request {
        for key in [common::REQUESTED_BY, common::REQUESTED_AT, common::REASON] {
            annotations[key] = json!(request.get(key).map(sanitize));
        }
    }
    patch
}

/// A change that has the controllers of an object reconcile it.
pub fn touch(now: Timestamp) -> Value {
    json!({ "metadata": { "annotations": { keys::TOUCHED_AT: format::seconds(now) } } })
}

/// A workload's count at 0, and what it was.
pub fn scale_down(recorded: u32) -> Value {
    json!({
        "metadata": { "annotations": { keys::DEHYDRATED_REPLICAS: recorded.to_string() } },
        "spec": { "replicas": 0 },
    })
}

/// A workload's count as it was.
pub fn restore(replicas: u32) -> Value {
    json!({ "metadata": { "annotations": { keys::DEHYDRATED_REPLICAS: null } }, "spec": { "replicas": replicas } })
}

/// Removes our copy of a workload's count.
pub fn unmark() -> Value {
    json!({ "metadata": { "annotations": { keys::DEHYDRATED_REPLICAS: null } } })
}

/// Takes a `MachineDeployment` from the autoscaler's control, and what its annotations were.
pub fn stop_autoscaler(recorded: &BTreeMap<String, String>) -> Value {
    json!({ "metadata": { "annotations": no_autoscaler(recorded) } })
}

/// A `MachineDeployment`'s count at 0, out of the autoscaler's control, and what it was.
pub fn scale_down_machines(recorded: &Machines) -> Value {
    let mut annotations = no_autoscaler(&recorded.autoscaler);
    annotations.insert(keys::DEHYDRATED_REPLICAS.to_owned(), json!(recorded.replicas.to_string()));
    json!({ "metadata": { "annotations": annotations }, "spec": { "replicas": 0 } })
}

/// A `MachineDeployment` as it was, in one write: any change of its annotations has OSM make its bootstrap Secrets anew
/// (row 53).
pub fn restore_machines(recorded: &Machines) -> Value {
    let mut patch = restore_autoscaler(&recorded.autoscaler);
    patch["spec"] = json!({ "replicas": recorded.replicas });
    patch
}

/// Its annotations as they were; its count stays.
pub fn restore_autoscaler(recorded: &BTreeMap<String, String>) -> Value {
    let mut annotations: Map<String, Value> = recorded.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
    let copies = keys::DEHYDRATED_AUTOSCALER.into_iter().chain([keys::DEHYDRATED_REPLICAS]);
    annotations.extend(copies.map(|key| (key.to_owned(), Value::Null)));
    json!({ "metadata": { "annotations": annotations } })
}

fn no_autoscaler(recorded: &BTreeMap<String, String>) -> Map<String, Value> {
    let both = |(key, copy): (&str, &str)| [(key.to_owned(), Value::Null), (copy.to_owned(), json!(recorded.get(key)))];
    keys::AUTOSCALER.into_iter().zip(keys::DEHYDRATED_AUTOSCALER).flat_map(both).collect()
}

/// Cordons a Node and has machine-controller skip eviction: either alone is not enough (rows 54 to 56). What it was
/// before stands on it.
pub fn cordon(before: &NodeBefore) -> Value {
    json!({
        "metadata": { "annotations": { keys::SKIP_EVICTION: "true", keys::CORDONED: before.text() } },
        "spec": { "unschedulable": true },
    })
}

/// Undoes that. A Node that was cordoned before stays as it is.
pub fn uncordon(before: &NodeBefore) -> Value {
    let annotations = json!({ keys::SKIP_EVICTION: before.skip_eviction, keys::CORDONED: null });
    let mut patch = json!({ "metadata": { "annotations": annotations } });
    if !before.unschedulable {
        patch["spec"] = json!({ "unschedulable": null });
    }
    patch
}

/// A `CronJob` that is suspended, or not, and that it was us.
pub fn suspend(suspended: bool) -> Value {
    let ours = suspended.then_some("true");
    json!({ "metadata": { "annotations": { keys::SUSPENDED: ours } }, "spec": { "suspend": suspended } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_come_back_in_one_write_with_their_autoscaler_and_without_our_copy() {
        let autoscaler =
            [(keys::AUTOSCALER[0].to_owned(), "1".to_owned()), (keys::AUTOSCALER[1].to_owned(), "5".to_owned())];
        let recorded = Machines { replicas: 3, autoscaler: autoscaler.into(), ..Machines::default() };
        let before = json!({
            "metadata": { "annotations": { keys::AUTOSCALER[0]: "1", keys::AUTOSCALER[1]: "5", "theirs": "x" } },
            "spec": { "replicas": 3, "paused": true },
        });
        let mut object = before.clone();
        json_patch::merge(&mut object, &stop_autoscaler(&recorded.autoscaler));
        assert_eq!(object["metadata"]["annotations"][keys::DEHYDRATED_AUTOSCALER[1]], "5");
        json_patch::merge(&mut object, &scale_down_machines(&recorded));
        assert_eq!(
            object,
            json!({
                "metadata": { "annotations": {
                    keys::DEHYDRATED_REPLICAS: "3", "theirs": "x",
                    keys::DEHYDRATED_AUTOSCALER[0]: "1", keys::DEHYDRATED_AUTOSCALER[1]: "5",
                } },
                "spec": { "replicas": 0, "paused": true },
            })
        );
        json_patch::merge(&mut object, &restore_machines(&recorded));
        assert_eq!(object, before);
    }

    #[test]
    fn a_node_is_as_it_was_before_the_drain() {
        let (open, cordoned) = (json!({}), json!({ "unschedulable": true }));
        for (spec, skips) in [(&open, None), (&open, Some("")), (&cordoned, None), (&cordoned, Some("mine"))] {
            let annotations = skips.map_or_else(|| json!({}), |value| json!({ keys::SKIP_EVICTION: value }));
            let before = json!({ "metadata": { "annotations": annotations }, "spec": spec });
            let mut node = before.clone();
            json_patch::merge(&mut node, &cordon(&NodeBefore::of(*spec == cordoned, skips)));
            let annotations = &node["metadata"]["annotations"];
            assert!(node["spec"]["unschedulable"] == true && annotations[keys::SKIP_EVICTION] == "true", "{node}");
            let kept = NodeBefore::read_or_open(annotations[keys::CORDONED].as_str().unwrap());
            json_patch::merge(&mut node, &uncordon(&kept));
            assert_eq!(node, before);
        }
    }

    #[test]
    fn a_pause_says_who_and_why() {
        let mut cluster = Cluster::new("abc", shared::kkp::api::ClusterSpec::default());
        assert_eq!(pause(&cluster, None, None)["spec"]["pauseReason"], "dehydrated by kubectl-hibernate");
        let reason = (common::REASON.to_owned(), "weekend".to_owned());
        cluster.metadata.annotations = Some([reason].into());
        let expiry = Some("2027-01-02T00:00:00Z".parse().unwrap());
        let record = Record::begin("u-1", "2026-11-22T18:00:00Z".parse().unwrap());
        let paused = pause(&cluster, Some(&record), expiry);
        assert_eq!(paused["metadata"]["annotations"][keys::PAUSED_BY_SLEEP], "u-1/2026-11-22T18:00:00Z");
        assert_eq!(paused["spec"]["pauseReason"], "dehydrated by kubectl-hibernate: weekend");
        assert_eq!(paused["metadata"]["annotations"][keys::CERTIFICATES_EXPIRE_AT], "2027-01-02T00:00:00Z");
        // What was allowed for one sleep is not allowed for the next.
        for patch in [&paused, &unpause(), &disown()] {
            assert_eq!(patch["metadata"]["annotations"].get(keys::ALLOW_DELETE), Some(&Value::Null), "{patch}");
        }
        let now = "2026-11-22T19:00:00Z".parse().unwrap();
        for patch in [unpause(), disown(), run(now, None)] {
            let mut after = paused.clone();
            json_patch::merge(&mut after, &patch);
            let annotations = after["metadata"]["annotations"].as_object().unwrap();
            assert!(!annotations.contains_key(keys::PAUSED_BY_SLEEP), "{patch}");
            assert!(!annotations.contains_key(keys::CERTIFICATES_EXPIRE_AT), "{patch}");
        }
        assert_eq!((unpause()["spec"]["pause"].as_bool(), disown().get("spec")), (Some(false), None));
    }

    /// Who asks for the sleep says nothing of who ends it.
    #[test]
    fn the_request_of_the_record_is_carried_over_with_who_made_it_and_why() {
        let now = "2026-11-22T19:00:00Z".parse().unwrap();
        let sleep = json!({ common::REQUESTED_BY: "alice", common::REQUESTED_AT: "2026-11-22T17:00:00Z", common::REASON: "weekend" });
        let (by, at, why) = ("bob", "2026-11-22T18:30:00Z", "needed\u{1b}");
        let stamped = [(common::REQUESTED_BY, by), (common::REQUESTED_AT, at), (common::REASON, why)];
        let long = "x".repeat(5_000);
        for (request, expected) in [
            (None::<Vec<_>>, [json!("alice"), json!("2026-11-22T17:00:00Z"), json!("weekend")]),
            (Some(vec![]), [Value::Null, Value::Null, Value::Null]), // without the webhook
            (Some(stamped.to_vec()), [json!(by), json!(at), json!("needed")]),
            (Some(vec![(common::REASON, long.as_str())]), [Value::Null, Value::Null, json!(long[..512])]),
        ] {
            let request: Option<BTreeMap<String, String>> =
                request.map(|all| all.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect());
            let mut cluster = json!({ "metadata": { "annotations": sleep } });
            json_patch::merge(&mut cluster, &run(now, request.as_ref()));
            let annotations = &cluster["metadata"]["annotations"];
            assert_eq!(annotations[keys::POWER_STATE], "Running");
            let found =
                [common::REQUESTED_BY, common::REQUESTED_AT, common::REASON].map(|key| annotations[key].clone());
            assert_eq!(found, expected, "{request:?}");
        }
    }
}
