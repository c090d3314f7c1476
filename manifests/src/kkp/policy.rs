//! Confines the controller's service account on a seed. RBAC grants objects as a whole and in every namespace; this
//! admits only what a sleep and a wake write. It judges no other account.

use k8s_openapi::api::admissionregistration::v1::{Validation, Variable};
use serde_json::Value;
use shared::admission::cel::list;
use shared::admission::policy::{forbid as deny, variable};
use shared::annotation::keys::{GROUP, NAMESPACE};
use shared::kkp::{data, keys};
use shared::rollout::snapshot::Snapshot;

use super::NAME;
use crate::confine::{
    controller, every_write, is_ours, kept_if_any, same_but, same_if_any_but, same_notes, same_object,
};
use crate::names::CONTROLLER;

/// The policy and its binding.
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
    let conditions = format!("key in {}", list(&[keys::DEHYDRATED, keys::AWAKE, data::PREFLIGHT, data::STATE]));
    vec![
        variable("resource", "request.resource.resource"),
        variable("isStatus", "request.?subResource.orValue('') == 'status'"),
        variable("name", "(object == null ? oldObject : object).metadata.?name.orValue('')"),
        // On a hub with Hive, too, the same account records the members of a rollout.
        variable(
            "isSnapshot",
            format!(
                "variables.resource == 'configmaps' && request.operation == 'CREATE'\n&& request.?namespace.orValue('') == '{NAMESPACE}' && variables.name.startsWith('{}')",
                Snapshot::PREFIX
            ),
        ),
        variable("sameMetadata", same_object(&["spec"])),
        variable("sameNotes", same_notes()),
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
            "{'deployments': ['replicas'], 'statefulsets': ['replicas'], 'cronjobs': ['suspend']}[?variables.resource].orValue([])",
        ),
        variable(
            "sameSpec",
            same_but(".spec", "key in variables.mayChange || (key == 'template' && variables.keptTemplate)"),
        ),
        variable("sameClusterSpec", same_cluster_spec()),
        variable(
            "ownPause",
            format!(
                "(object.?spec.?pause.orValue(false) == oldObject.?spec.?pause.orValue(false)
  && object.?spec.?pauseReason.orValue('') == oldObject.?spec.?pauseReason.orValue(''))
|| ({}
  && {})",
                no_pause_but_ours("oldObject"),
                no_pause_but_ours("object")
            ),
        ),
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

/// A Cluster's spec is the same but for the pause. KKP's webhook sets defaults in every write (row 31), after us and
/// before this is judged: a member that was absent or zero may be another one, down to the quantities of a component's
/// resources, and no other may change or go. It also raises the version of a CNI plugin that it supports no longer.
fn same_cluster_spec() -> String {
    fn kept(new: &str, old: &str, keys: &[(&str, &str)]) -> String {
        let [(key, but), deeper @ ..] = keys else { return "false".to_owned() };
        let (new_member, old_member) = (format!("{new}[{key}]"), format!("{old}[{key}]"));
        let deeper = match deeper {
            [] => String::new(),
            _ => format!(
                "\n  || (type({new_member}) == map && type({old_member}) == map\n  && {})",
                kept(&new_member, &old_member, deeper)
            ),
        };
        format!(
            "{old}.all({key}, {but}{old_member} in {ZERO}\n  || ({key} in {new} && ({new_member} == {old_member}{deeper})))"
        )
    }
    let raised = "(a == 'cniPlugin' && b == 'version') || ";
    let keys = [("a", "a in ['pause', 'pauseReason'] || "), ("b", raised), ("c", ""), ("d", ""), ("e", "")];
    kept("object.spec", "oldObject.spec", &keys)
}

/// What Go counts as not set.
const ZERO: &str = "[dyn(false), dyn(0), dyn(''), dyn([]), dyn({})]";

/// A Cluster is not paused, or by us.
fn no_pause_but_ours(object: &str) -> String {
    format!(
        "(!{object}.?spec.?pause.orValue(false) || {object}.?spec.?pauseReason.orValue('').startsWith('{}'))",
        keys::PAUSED_BY_US
    )
}

fn validations() -> Vec<Validation> {
    let (record, _) = keys::RECORD;
    vec![
        deny(
            "variables.resource == 'clusters' || variables.isSnapshot || request.?namespace.orValue('').startsWith('cluster-')",
            format!("{CONTROLLER} may write this kind only in namespaces cluster-ID of KKP"),
        ),
        deny(
            format!("variables.resource != 'configmaps' || variables.isSnapshot || variables.name == '{record}'"),
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
|| (request.operation == 'UPDATE' && variables.sameMetadata && variables.sameNotes && variables.sameClusterSpec)",
            format!(
                "{CONTROLLER} may change only spec.pause, spec.pauseReason and annotations of {GROUP} of a Cluster"
            ),
        ),
        deny(
            "variables.resource != 'clusters' || variables.isStatus || request.operation != 'UPDATE' || variables.ownPause",
            format!(
                "{CONTROLLER} may set and end no pause of a Cluster but its own: spec.pauseReason must begin with {:?}",
                keys::PAUSED_BY_US
            ),
        ),
        deny(
            "variables.resource != 'clusters' || !variables.isStatus || variables.sameStatus",
            format!(
                "{CONTROLLER} may change only the conditions {}, {}, {} and {} of a Cluster's status",
                keys::DEHYDRATED,
                keys::AWAKE,
                data::PREFLIGHT,
                data::STATE
            ),
        ),
    ]
}
