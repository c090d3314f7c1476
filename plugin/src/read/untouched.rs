//! What of a namespace does not sleep with it: what is left to its owner, what its owner scales again, and what runs by itself.

use futures::future::join_all;
use hub::{HubClient, Resource};
use serde_json::Value;
use shared::kinds::owners::{self, Owners};
use shared::kinds::{Kind, Kinds};
use shared::object::{controller, text};
use shared::text::{list, name_some};
use view::error::Failure;
use view::target::Target;

use crate::output;

/// Kinds that run Pods and do not sleep.
static KINDS: [Kind; 5] = [
    Kind::namespaced("apps", &["v1"], "DaemonSet", "daemonsets"),
    Kind::namespaced("apps", &["v1"], "ReplicaSet", "replicasets"),
    Kind::namespaced("", &["v1"], "ReplicationController", "replicationcontrollers"),
    Kind::namespaced("batch", &["v1"], "Job", "jobs"),
    Kind::namespaced("", &["v1"], "Pod", "pods"),
];

/// Owners of Pods that sleep with the namespace, or are named themselves.
const SCALED: [&str; 5] = ["ReplicaSet", "StatefulSet", "Job", "DaemonSet", "ReplicationController"];

/// How many objects a note names; the rest is counted.
const NAMED: usize = 20;

/// Names the kinds that the user may not list.
pub(crate) fn note_unseen<'a>(failures: impl IntoIterator<Item = &'a Failure>) {
    let unseen: Vec<&str> = failures.into_iter().filter(|one| one.is_unseen).map(|one| one.what.as_str()).collect();
    if !unseen.is_empty() {
        output::note(&format!("skipped, because you may not list them: {}", list(unseen)));
    }
}

/// Leaves out what the user may not list, and what other targets of the namespace control or scale, unless it wakes by a
/// record of ours. Names both.
pub(crate) fn without_owned(mut found: Vec<Result<Target, Failure>>, sleeps: bool) -> Vec<Result<Target, Failure>> {
    note_unseen(found.iter().filter_map(|one| one.as_ref().err()));
    found.retain(|one| one.as_ref().map_or_else(|failure| !failure.is_unseen, |_| true));
    let owners = Owners::of(found.iter().flatten().map(|target| (target.row, &target.object)));
    let is_owned =
        |one: &Result<Target, Failure>| one.as_ref().is_ok_and(|target| owners.own(target.row, &target.object, sleeps));
    let (owned, kept): (Vec<_>, Vec<_>) = found.into_iter().partition(is_owned);
    if !owned.is_empty() {
        let names: Vec<String> = owned.iter().flatten().map(Target::full_name).collect();
        output::note(&format!("skipped, because their owners scale them: {}", name_some(&names, NAMED)));
    }
    kept
}

/// Why an object does not sleep with its namespace.
pub(crate) fn refusal(kinds: Kinds, target: &Target) -> Option<String> {
    let why = owners::refusal(kinds, &target.object)?;
    Some(format!("{why}; to scale it anyway: kubectl hibernate ns/{} --include-owned", target.namespace))
}

/// Names what keeps running, and the kinds of which that is not known.
pub(crate) async fn note(hub: &HubClient, kinds: Kinds, namespace: &str) {
    let lists = KINDS.each_ref().map(|kind| hub.list(Resource::preferred(kind), Some(namespace), "", ""));
    let (mut untouched, mut unread) = (Vec::new(), Vec::new());
    for (kind, list) in KINDS.iter().zip(join_all(lists).await) {
        match list {
            Ok(list) => {
                let running = list.items.iter().filter(|object| runs_by_itself(kinds, kind, object));
                untouched.extend(running.map(|object| kind.full_name(text(object, "/metadata/name"))));
            }
            Err(error) => {
                unread.push(kind.resource_name());
                hub.note(&format!("cannot list {}: {error}", kind.resource_name()));
            }
        }
    }
    if !untouched.is_empty() {
        output::note(&format!("not touched: {}", name_some(&untouched, NAMED)));
    }
    if !unread.is_empty() {
        output::note(&format!("not known whether these run on, because they cannot be listed: {}", unread.join(", ")));
    }
}

/// Whether it has Pods of its own that no Deployment, `StatefulSet` or `CronJob` takes down: what one of the kinds listed
/// here controls is named by its owner.
fn runs_by_itself(kinds: Kinds, kind: &Kind, object: &Value) -> bool {
    let number = |path: &str| object.pointer(path).and_then(Value::as_u64);
    let owner = controller(object);
    if owner.is_some_and(|owner| kinds.of_owner(owner).is_some()) {
        return false;
    }
    let owner = owner.map_or("", |owner| text(owner, "/kind"));
    match kind.kind {
        "Job" => !is_over(object),
        "Pod" => !SCALED.contains(&owner) && !["Succeeded", "Failed"].contains(&text(object, "/status/phase")),
        "ReplicaSet" => owner != "Deployment" && number("/spec/replicas").is_none_or(|replicas| replicas > 0),
        "ReplicationController" => number("/spec/replicas").is_none_or(|replicas| replicas > 0),
        _ => number("/status/desiredNumberScheduled") != Some(0) || number("/status/observedGeneration").is_none(),
    }
}

/// Whether a Job has ended or does not run.
fn is_over(object: &Value) -> bool {
    let ended = |condition: &Value| {
        condition["status"] == "True" && (condition["type"] == "Complete" || condition["type"] == "Failed")
    };
    let conditions = object.pointer("/status/conditions").and_then(Value::as_array);
    let suspended = object.pointer("/spec/suspend").and_then(Value::as_bool).unwrap_or_default();
    suspended || conditions.is_some_and(|conditions| conditions.iter().any(ended))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_jobs_under_way_are_named() {
        let condition =
            |type_: &str, status: &str| json!({ "status": { "conditions": [{ "type": type_, "status": status }] } });
        for (object, over) in [
            (json!({}), false),
            (json!({ "status": { "active": 1 } }), false),
            (condition("Complete", "True"), true),
            (condition("Failed", "True"), true),
            (condition("Failed", "False"), false),
            (condition("SuccessCriteriaMet", "True"), false),
            (json!({ "spec": { "suspend": true } }), true),
        ] {
            assert_eq!(is_over(&object), over, "{object}");
        }
    }

    #[test]
    fn what_a_deployment_or_a_kind_listed_here_controls_is_named_by_its_owner() {
        let [daemon_set, replica_set, controller, _, pod] = &KINDS;
        let owned = |kind: &str| json!([{ "kind": kind, "name": "x", "controller": true }]);
        let replicas = |replicas: u32, owner: Value| json!({ "metadata": { "ownerReferences": owner }, "spec": { "replicas": replicas } });
        let in_phase = |phase: &str, owner: Value| json!({ "metadata": { "ownerReferences": owner }, "status": { "phase": phase } });
        for (case, kind, object, runs) in [
            ("of a Deployment", replica_set, replicas(1, owned("Deployment")), false),
            ("of an Argo Rollout", replica_set, replicas(1, owned("Rollout")), true),
            (
                "of a sleeping one",
                pod,
                in_phase(
                    "Running",
                    json!([{
                        "apiVersion": "postgresql.cnpg.io/v1", "kind": "Cluster", "name": "x", "controller": true,
                    }]),
                ),
                false,
            ),
            ("by itself", replica_set, replicas(1, json!([])), true),
            ("old", replica_set, replicas(0, owned("Rollout")), false),
            ("a controller", controller, replicas(2, json!([])), true),
            ("an empty one", controller, replicas(0, json!([])), false),
            ("a bare Pod", pod, in_phase("Running", json!([])), true),
            ("one with an owner that is none", pod, in_phase("Pending", json!([{ "kind": "ConfigMap" }])), true),
            ("one that has ended", pod, in_phase("Succeeded", json!([])), false),
            ("of a ReplicaSet", pod, in_phase("Running", owned("ReplicaSet")), false),
            ("of an operator's own kind", pod, in_phase("Running", owned("StrimziPodSet")), true),
            ("a DaemonSet", daemon_set, json!({}), true),
            (
                "one without a Node",
                daemon_set,
                json!({ "status": { "observedGeneration": 1, "desiredNumberScheduled": 0 } }),
                false,
            ),
        ] {
            assert_eq!(runs_by_itself(shared::kinds::KINDS, kind, &object), runs, "{case}");
        }
    }
}
