//! The work agent of a cluster, and its operators: a function of what is there.
//!
//! | rule | |
//! |---|---|
//! | G8 | while the cluster is awake, views get their result, and actions are carried out; the hub deletes these after a while |
//!
//! Each Subscription of a policy has one `InstallPlan`, `install-NAME` in its namespace, which waits for approval. An
//! action that names another plan, namespace or version stays, as one that the cluster refuses does.

use serde_json::{Value, json};

use super::Knobs;
use super::arrows::{Change, Write, change, is_child};
use super::store::{Kind, View};

pub(super) fn changes(view: &View, knobs: &Knobs) -> Vec<Change> {
    let mut changes = Vec::new();
    for ((cluster, name), object) in
        view.of(Kind::View).iter().filter(|((cluster, _), _)| !knobs.asleep.contains(cluster))
    {
        let (reason, result) = match result(view, knobs, cluster, &object["spec"]["scope"]) {
            Some(result) => ("GetResourceProcessing", result),
            None => ("GetResourceFailed", Value::Null),
        };
        let known = &object["status"];
        if known["conditions"][0]["reason"] == reason && known["result"] == result {
            continue;
        }
        let condition = json!({
            "type": "Processing", "status": if result.is_null() { "False" } else { "True" }, "reason": reason,
            "message": "", "lastTransitionTime": "2026-11-26T00:00:00Z",
        });
        let status = Some(json!({ "conditions": [condition], "result": result }));
        let (namespace, name) = (cluster.clone(), name.clone());
        let write = Write::Apply { kind: Kind::View, namespace, name, object: None, status };
        changes.push(change("view", knobs.delays.work, write));
    }
    for ((cluster, name), action) in
        view.of(Kind::Action).iter().filter(|((cluster, _), _)| !knobs.asleep.contains(cluster))
    {
        let kube = &action["spec"]["kube"];
        let (plan, spec) = (&kube["template"]["metadata"], &kube["template"]["spec"]);
        if is_approved(knobs, cluster, name) {
            let (kind, namespace, name) = (Kind::Action, cluster.clone(), name.clone());
            changes.push(change("collect", knobs.delays.collect, Write::Delete { kind, namespace, name }));
            continue;
        }
        let is_approval = spec["approved"] == true
            && action["spec"]["actionType"] == "Update"
            && kube["resource"] == "installplan"
            && plan["name"] == json!(name)
            && plan["resourceVersion"] == version(knobs, cluster, name)
            && spec["clusterServiceVersionNames"] == versions(name)
            && has_plan(view, cluster, name, &kube["namespace"]);
        if is_approval {
            let write = Write::Approve { cluster: cluster.clone(), plan: name.clone() };
            changes.push(change("act", knobs.delays.work, write));
        }
    }
    changes
}

/// The object that a view asks for, if the cluster has it.
fn result(view: &View, knobs: &Knobs, cluster: &str, scope: &Value) -> Option<Value> {
    let name = scope["name"].as_str()?;
    match scope["resource"].as_str()? {
        "Subscription.operators.coreos.com" => {
            let plan = plan_of(name);
            let is_there = has_plan(view, cluster, &plan, &scope["namespace"]);
            let state = if is_approved(knobs, cluster, &plan) { "AtLatestKnown" } else { "UpgradePending" };
            let status = json!({ "state": state, "installplan": { "name": plan } });
            let api = "operators.coreos.com/v1alpha1";
            is_there.then(
                || json!({ "apiVersion": api, "kind": "Subscription", "metadata": { "name": name }, "status": status }),
            )
        }
        "InstallPlan" if has_plan(view, cluster, name, &scope["namespace"]) => {
            let spec = json!({
                "approval": "Manual", "approved": is_approved(knobs, cluster, name), "clusterServiceVersionNames": versions(name),
            });
            let metadata = json!({ "name": name, "resourceVersion": version(knobs, cluster, name) });
            let api = "operators.coreos.com/v1alpha1";
            Some(json!({ "apiVersion": api, "kind": "InstallPlan", "metadata": metadata, "spec": spec }))
        }
        _ => None,
    }
}

fn plan_of(subscription: &str) -> String {
    format!("install-{subscription}")
}

fn versions(plan: &str) -> Value {
    json!([format!("{plan}.v1")])
}

fn is_approved(knobs: &Knobs, cluster: &str, plan: &str) -> bool {
    knobs.approved.contains(&(cluster.to_owned(), plan.to_owned()))
}

fn version(knobs: &Knobs, cluster: &str, plan: &str) -> &'static str {
    if is_approved(knobs, cluster, plan) { "2" } else { "1" }
}

/// Whether a Subscription of an enforced policy has made this plan.
fn has_plan(view: &View, cluster: &str, plan: &str, namespace: &Value) -> bool {
    let policies = view.of(Kind::Policy).iter().filter(|((of, _), policy)| of == cluster && is_child(policy));
    let enforced = policies.filter(|(_, policy)| policy["spec"]["remediationAction"] == "enforce");
    enforced
        .flat_map(|(_, policy)| subscriptions(policy))
        .any(|one| one["namespace"] == *namespace && one["name"].as_str().is_some_and(|name| plan_of(name) == plan))
}

/// Metadata of the Subscriptions of a policy.
fn subscriptions(policy: &Value) -> impl Iterator<Item = &Value> {
    let templates = policy["spec"]["policy-templates"].as_array().into_iter().flatten();
    let objects = templates.filter_map(|one| one["objectDefinition"]["spec"]["object-templates"].as_array()).flatten();
    let definitions = objects.map(|one| &one["objectDefinition"]);
    definitions.filter(|one| one["kind"] == "Subscription").map(|one| &one["metadata"])
}

/// Whether everything that a policy subscribes to is installed.
pub(super) fn is_installed(cluster: &str, policy: &Value, knobs: &Knobs) -> bool {
    subscriptions(policy)
        .all(|one| one["name"].as_str().is_some_and(|name| is_approved(knobs, cluster, &plan_of(name))))
}
