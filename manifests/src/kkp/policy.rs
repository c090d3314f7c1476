//! Confines the controller's service account on a seed. RBAC grants objects as a whole and in every namespace; this admits only what a
//! sleep and a wake write. It judges no other account.

use k8s_openapi::api::admissionregistration::v1::{MatchResources, NamedRuleWithOperations, Validation, Variable};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::Value;
use shared::annotation::keys::GROUP;
use shared::kkp::{data, keys};

use super::rbac::NAME;
use crate::cel::condition;
use crate::deny::Deny;
use crate::names::{CONTROLLER, NAMESPACE, strings};

/// The policy and its binding.
#[must_use]
pub fn policy() -> Vec<Value> {
    let rule = |group: &str, resources: &[&str]| NamedRuleWithOperations {
        api_groups: Some(strings(&[group])),
        api_versions: Some(strings(&["*"])),
        operations: Some(strings(&["CREATE", "UPDATE", "DELETE"])),
        resources: Some(strings(resources)),
        scope: Some("*".to_owned()),
        ..NamedRuleWithOperations::default()
    };
    let by_the_controller = format!("request.userInfo.username == 'system:serviceaccount:{NAMESPACE}:{CONTROLLER}'");
    let writes = MatchResources {
        // Defaults are written out: server-side apply compares the field as a whole.
        namespace_selector: Some(LabelSelector::default()),
        object_selector: Some(LabelSelector::default()),
        resource_rules: Some(vec![
            rule("apps", &["deployments", "statefulsets"]),
            rule("batch", &["cronjobs"]),
            rule("", &["configmaps"]),
            rule("kubermatic.k8c.io", &["etcdbackupconfigs", "clusters", "clusters/status"]),
        ]),
        ..MatchResources::default()
    };
    let conditions = vec![condition("by-the-controller", by_the_controller)];
    let (variables, validations) = (variables(), validations());
    Deny { name: NAME, program: CONTROLLER, writes, conditions, variables, validations }.objects()
}

/// Two maps are the same but for some keys.
fn same_but(path: &str, but: &str) -> String {
    let (new, old) = (format!("object{path}"), format!("oldObject{path}"));
    format!(
        "{new}.all(key, {but} || (key in {old} && {new}[key] == {old}[key]))
&& {old}.all(key, {but} || key in {new})"
    )
}

/// The same of maps that may be absent.
fn same_if_any_but(path: &str, but: &str) -> String {
    let (new, old) = (format!("object{path}"), format!("oldObject{path}"));
    format!(
        "{new}.orValue({{}}).all(key, {but} || {new}[?key] == {old}[?key])
&& {old}.orValue({{}}).all(key, {but} || {new}[?key] == {old}[?key])"
    )
}

/// What one map that may be absent holds, the other holds, too.
fn kept_if_any(path: &str, but: &str) -> String {
    let (new, old) = (format!("object{path}"), format!("oldObject{path}"));
    format!("{old}.orValue({{}}).all(key, {but} || {new}[?key] == {old}[?key])")
}

fn variables() -> Vec<Variable> {
    let variable = |name: &str, expression: String| Variable { name: name.to_owned(), expression };
    let ours = format!("key.startsWith('{GROUP}/')");
    let conditions = format!("key in ['{}', '{}']", keys::DEHYDRATED, data::PREFLIGHT);
    vec![
        variable("resource", "request.resource.resource".to_owned()),
        variable("isStatus", "request.?subResource.orValue('') == 'status'".to_owned()),
        variable("name", "(object == null ? oldObject : object).metadata.?name.orValue('')".to_owned()),
        // KKP's mutating webhook runs first, and changes in this very write whatever it has to: the write must pass, or the cluster stays
        // paused.
        variable(
            "endsPause",
            "variables.resource == 'clusters' && request.operation == 'UPDATE'
&& oldObject.?spec.?pause.orValue(false) && !object.?spec.?pause.orValue(false)"
                .to_owned(),
        ),
        variable(
            "sameMetadata",
            format!(
                "{}\n&& {}",
                same_but("", "key in ['metadata', 'spec']"),
                same_but(".metadata", "key in ['annotations', 'labels', 'managedFields', 'generation', 'resourceVersion']"),
            ),
        ),
        variable("sameLabels", same_if_any_but(".metadata.?labels", "false")),
        variable("sameAnnotations", same_if_any_but(".metadata.?annotations", &ours)),
        // Mutating policies of the seed may add labels and annotations to what we write.
        variable(
            "keptLabels",
            format!(
                "{}\n&& {}",
                kept_if_any(".metadata.?labels", "false"),
                kept_if_any(".metadata.?annotations", &ours)
            ),
        ),
        variable(
            "keptTemplate",
            format!(
                "variables.resource in ['deployments', 'statefulsets']\n&& {}\n&& {}\n&& {}\n&& {}",
                same_but(".spec.template", "key == 'metadata'"),
                same_if_any_but(".spec.template.?metadata", "key in ['labels', 'annotations']"),
                kept_if_any(".spec.template.?metadata.?labels", "false"),
                kept_if_any(".spec.template.?metadata.?annotations", "false"),
            ),
        ),
        variable(
            "mayChange",
            "{'deployments': ['replicas'], 'statefulsets': ['replicas'], 'cronjobs': ['suspend']}[?variables.resource].orValue([])".to_owned(),
        ),
        variable("sameSpec", same_but(".spec", "key in variables.mayChange || (key == 'template' && variables.keptTemplate)")),
        variable("sameClusterSpec", same_cluster_spec()),
        variable(
            "sameStatus",
            format!(
                "{}\n&& {}",
                same_if_any_but(".?status", "key == 'conditions'"),
                same_if_any_but(".?status.?conditions", &conditions)
            ),
        ),
    ]
}

/// A Cluster's spec is the same but for the pause. KKP's webhook sets defaults in every write (row 31): a member that was absent may
/// appear, at the first three levels, and no member may change or go. A write that ends the pause is exempt.
fn same_cluster_spec() -> String {
    let kept = |new: &str, old: &str, key: &str, deeper: &str| {
        format!("{old}.all({key}, {key} in {new} && ({new}[{key}] == {old}[{key}]{deeper}))")
    };
    let maps = |new: &str, old: &str, deeper: &str| {
        format!("\n  || (type({new}) == map && type({old}) == map\n  && {deeper})")
    };
    let third = kept("object.spec[a][b]", "oldObject.spec[a][b]", "c", "");
    let second =
        kept("object.spec[a]", "oldObject.spec[a]", "b", &maps("object.spec[a][b]", "oldObject.spec[a][b]", &third));
    let first = maps("object.spec[a]", "oldObject.spec[a]", &second);
    format!(
        "oldObject.spec.all(a, a in ['pause', 'pauseReason'] || (a in object.spec && (object.spec[a] == oldObject.spec[a]{first})))"
    )
}

fn validations() -> Vec<Validation> {
    let deny = |unless: &str, message: String| Validation {
        expression: unless.to_owned(),
        message: Some(message),
        reason: Some("Forbidden".to_owned()),
        ..Validation::default()
    };
    let (record, _) = keys::RECORD;
    vec![
        deny(
            "variables.resource == 'clusters' || request.?namespace.orValue('').startsWith('cluster-')",
            format!("{CONTROLLER} may write this kind only in namespaces cluster-ID of KKP"),
        ),
        deny(
            &format!("variables.resource != 'configmaps' || variables.name == '{record}'"),
            format!("{CONTROLLER} may write no ConfigMap but {record}"),
        ),
        deny(
            "variables.resource in ['configmaps', 'clusters']
|| (request.operation == 'UPDATE' && variables.sameMetadata && variables.keptLabels && variables.sameSpec)",
            format!(
                "{CONTROLLER} may change only spec.replicas of Deployments and StatefulSets, spec.suspend of CronJobs, and annotations of {GROUP}"
            ),
        ),
        deny(
            "variables.resource != 'clusters' || variables.isStatus
|| (request.operation == 'UPDATE' && variables.sameMetadata && variables.sameLabels
  && (variables.endsPause || (variables.sameAnnotations && variables.sameClusterSpec)))",
            format!(
                "{CONTROLLER} may change only spec.pause, spec.pauseReason and annotations of {GROUP} of a Cluster, unless the write ends the pause"
            ),
        ),
        deny(
            "variables.resource != 'clusters' || !variables.isStatus || variables.sameStatus",
            format!(
                "{CONTROLLER} may change only the conditions {} and {} of a Cluster's status",
                keys::DEHYDRATED,
                data::PREFLIGHT
            ),
        ),
    ]
}
