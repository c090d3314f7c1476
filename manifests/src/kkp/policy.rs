//! Confines the controller's service account on a seed. RBAC grants objects as a whole and in every namespace; this admits only what a
//! sleep and a wake write. It judges no other account.

use k8s_openapi::api::admissionregistration::v1::{Validation, Variable};
use serde_json::Value;
use shared::admission::policy::{forbid as deny, variable};
use shared::annotation::keys::GROUP;
use shared::kkp::{data, keys};

use super::rbac::NAME;
use crate::confine::{controller, every_write, is_ours, kept_if_any, same_but, same_if_any_but, same_object};
use crate::names::CONTROLLER;

/// The policy and its binding.
#[must_use]
pub fn policy() -> Vec<Value> {
    let rules = vec![
        every_write("apps", &["deployments", "statefulsets"]),
        every_write("batch", &["cronjobs"]),
        every_write("", &["configmaps"]),
        every_write("kubermatic.k8c.io", &["etcdbackupconfigs", "clusters", "clusters/status"]),
    ];
    controller(NAME, rules, variables(), validations())
}

fn variables() -> Vec<Variable> {
    let ours = is_ours();
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
        variable("sameMetadata", same_object(&["spec"])),
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
    let (record, _) = keys::RECORD;
    vec![
        deny(
            "variables.resource == 'clusters' || request.?namespace.orValue('').startsWith('cluster-')",
            format!("{CONTROLLER} may write this kind only in namespaces cluster-ID of KKP"),
        ),
        deny(
            format!("variables.resource != 'configmaps' || variables.name == '{record}'"),
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
