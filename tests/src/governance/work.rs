//! The work agent of a cluster, its operators and its Jobs: a function of what is there.
//!
//! | rule | |
//! |---|---|
//! | G8 | while the cluster is awake, views get their result, and each action is tried once; the hub deletes it a while after it has ended |
//!
//! Each Subscription of a policy has one `InstallPlan`, `install-NAME` in its namespace, which waits for approval. An
//! action that names another plan, namespace or version fails, as one does that creates an object whose namespace is
//! missing. Other objects are what actions have created. A Job succeeds after a while, and fails if `(CLUSTER, JOB)` is
//! [stuck](Knobs::stuck).

use serde_json::{Value, json};

use super::Knobs;
use super::arrows::{Change, Write, change, is_child};
use super::store::{Kind, View};

/// What an action does to a cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Effect {
    Approve(String),
    Create(String, Value),
    Delete(String),
    Fail,
}

impl Effect {
    pub(super) fn carry_out(self, cluster: &str, knobs: &mut Knobs) {
        let key = |path: String| (cluster.to_owned(), path);
        match self {
            Self::Approve(plan) => drop(knobs.approved.insert(key(plan))),
            Self::Create(path, object) => drop(knobs.objects.insert(key(path), object)),
            Self::Delete(path) => {
                let namespace = path.strip_prefix("namespace//");
                let is_in = |one: &str| one == path || one.split('/').nth(1) == namespace;
                knobs.objects.retain(|(of, one), _| of != cluster || !is_in(one));
            }
            Self::Fail => {}
        }
    }
}

pub(super) fn changes(view: &View, knobs: &Knobs) -> Vec<Change> {
    let mut changes = Vec::new();
    let awake = |(cluster, _): &(String, String)| !knobs.asleep.contains(cluster);
    for ((cluster, name), object) in view.of(Kind::View).iter().filter(|(key, _)| awake(key)) {
        let scope = &object["spec"]["scope"];
        let result = result(view, knobs, cluster, scope);
        let (status, reason) =
            if result.is_some() { ("True", "GetResourceProcessing") } else { ("False", "GetResourceFailed") };
        let known = &object["status"];
        let result = result.unwrap_or_default();
        if known["conditions"][0]["reason"] == reason && known["result"] == result {
            continue;
        }
        let condition = json!({
            "type": "Processing", "status": status, "reason": reason, "lastTransitionTime": "2026-11-26T00:00:00Z",
            "message": if result.is_null() { format!("{} {} not found", scope["resource"], scope["name"]) } else { String::new() },
        });
        let status = Some(json!({ "conditions": [condition], "result": result }));
        let (namespace, name) = (cluster.clone(), name.clone());
        let write = Write::Apply { kind: Kind::View, namespace, name, object: None, status };
        changes.push(change("view", knobs.delays.work, write));
    }
    for ((cluster, name), action) in view.of(Kind::Action) {
        if action["status"]["conditions"].is_array() {
            let (kind, namespace, name) = (Kind::Action, cluster.clone(), name.clone());
            changes.push(change("collect", knobs.delays.collect, Write::Delete { kind, namespace, name }));
        } else if !knobs.asleep.contains(cluster) {
            let effect = effect(view, knobs, cluster, action);
            let write = Write::Act { cluster: cluster.clone(), action: name.clone(), effect };
            changes.push(change("act", knobs.delays.work, write));
        }
    }
    for ((cluster, path), job) in knobs.objects.iter().filter(|(key, _)| awake(key)) {
        let Some((namespace, name)) = path.strip_prefix("job/").and_then(|path| path.split_once('/')) else { continue };
        if job["status"].is_null() {
            let is_stuck = knobs.stuck.contains(&(cluster.clone(), name.to_owned()));
            let mut ended = job.clone();
            ended["status"] = if is_stuck {
                json!({ "conditions": [{ "type": "Failed", "status": "True", "reason": "BackoffLimitExceeded" }] })
            } else {
                json!({ "succeeded": 1 })
            };
            let effect = Effect::Create(format!("job/{namespace}/{name}"), ended);
            let write = Write::Act { cluster: cluster.clone(), action: String::new(), effect };
            changes.push(change("job", knobs.delays.comply, write));
        }
    }
    changes
}

/// `RESOURCE/NAMESPACE/NAME`, the resource in the singular.
fn path(resource: &Value, namespace: &Value, name: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{}/{}/{}", text(resource).trim_end_matches('s'), text(namespace), text(name))
}

fn effect(view: &View, knobs: &Knobs, cluster: &str, action: &Value) -> Effect {
    let kube = &action["spec"]["kube"];
    let (object, spec) = (&kube["template"]["metadata"], &kube["template"]["spec"]);
    let is_there = |path: &str| knobs.objects.contains_key(&(cluster.to_owned(), path.to_owned()));
    match action["spec"]["actionType"].as_str() {
        Some("Create") => {
            let namespace = &object["namespace"];
            let path_of = path(&kube["resource"], namespace, &object["name"]);
            let has_namespace = namespace.is_null() || is_there(&path(&json!("namespace"), &Value::Null, namespace));
            let is_new = has_namespace && !is_there(&path_of);
            if is_new { Effect::Create(path_of, kube["template"].clone()) } else { Effect::Fail }
        }
        Some("Delete") => {
            let path = path(&kube["resource"], &kube["namespace"], &kube["name"]);
            if is_there(&path) { Effect::Delete(path) } else { Effect::Fail }
        }
        Some("Update") if kube["resource"] == "installplan" && spec["approved"] == true => {
            let plan = object["name"].as_str().unwrap_or_default();
            let is_known = object["resourceVersion"] == version(knobs, cluster, plan)
                && spec["clusterServiceVersionNames"] == versions(plan)
                && has_plan(view, cluster, plan, &kube["namespace"]);
            if is_known { Effect::Approve(plan.to_owned()) } else { Effect::Fail }
        }
        _ => Effect::Fail,
    }
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
        "InstallPlan" => None,
        resource => {
            let key = (cluster.to_owned(), path(&json!(resource), &scope["namespace"], &scope["name"]));
            let mut object = knobs.objects.get(&key)?.clone();
            if resource == "jobs" && object["status"].is_null() {
                object["status"] = json!({ "active": 1 });
            }
            Some(object)
        }
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
