//! What the controller may do to objects of operators: a role for each kind, and a policy that confines it to what the rows
//! write. Schedules of Workloads include them, and rollouts have some of them as targets.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use shared::admission::policy::{annotation_changes, not};
use shared::annotation::keys::{CONTROLLER, NAMESPACE, ROLLOUT};
use shared::kinds::operators::objects::OPERATORS;
use shared::kinds::operators::{SHOOT, VIRTUAL_MACHINE};
use shared::kinds::sleep_row::SleepRow;
use shared::kinds::{Kind, TargetKind};

use crate::files;
use crate::generated::labels;

/// Names of the policies. A role has the name of its policy, followed by its resource if there are several.
const OF_SCHEDULES: &str = "hibernate-controller-operators";
const OF_SHOOTS: &str = "hibernate-controller-shoots";
const OF_VIRTUAL_MACHINES: &str = "hibernate-controller-virtual-machines";
/// Names of the policies of claims.
const CLAIMS_ON_SHOOTS: &str = "hibernate-claims-shoots";
const CLAIMS_ON_VIRTUAL_MACHINES: &str = "hibernate-claims-virtual-machines";
/// Of all.
#[cfg(test)]
pub(crate) const NAMES: [&str; 5] =
    [OF_SCHEDULES, OF_SHOOTS, OF_VIRTUAL_MACHINES, CLAIMS_ON_SHOOTS, CLAIMS_ON_VIRTUAL_MACHINES];
/// Variables of the policy of the other workloads that these share.
const SHARED: [&str; 3] = ["within", "ofControlPlane", "sameMetadata"];
const ANNOTATIONS: &str = "/metadata/annotations/";

/// For schedules of Workloads.
pub(crate) fn of_schedules() -> Vec<Value> {
    let roles = OPERATORS.iter().flat_map(|row| {
        let name = format!("{OF_SCHEDULES}-{}", row.kind.resource_name());
        role(&name, &row.kind, &["get", "list", "patch"])
    });
    confined(OF_SCHEDULES, &OPERATORS, roles)
}

/// The component `shoots`: rights of a controller whose rollouts have shoots of Gardener as targets.
pub fn shoots() -> Vec<Value> {
    of_targets(OF_SHOOTS, CLAIMS_ON_SHOOTS, &SHOOT)
}

/// The component `virtual-machines`: rights of a controller whose rollouts have virtual machines of `KubeVirt` as targets.
pub fn virtual_machines() -> Vec<Value> {
    of_targets(OF_VIRTUAL_MACHINES, CLAIMS_ON_VIRTUAL_MACHINES, &VIRTUAL_MACHINE)
}

fn of_targets(name: &str, claims: &str, row: &'static TargetKind) -> Vec<Value> {
    let mut objects = confined(name, &[row], role(name, &row.kind, &["get", "list", "patch", "watch"]));
    objects.extend([policy_of_claims(claims, row), binding(claims)]);
    objects
}

/// Only the controller writes the claims of rollouts: the webhook has no entry for these kinds. A claim on an object that is
/// created with it counts for nothing. A record, which a claim leaves behind, may go: a wake by `kubectl replace` drops it.
fn policy_of_claims(name: &str, row: &TargetKind) -> Value {
    let mut policy = files::objects(&[files::WORKLOADS_POLICY]).swap_remove(0);
    policy["metadata"]["name"] = name.into();
    let spec = &mut policy["spec"];
    let by_the_controller = spec["matchConditions"][0]["expression"].as_str().unwrap_or_default();
    spec["matchConditions"] = json!([{ "name": "by-others", "expression": by_the_controller.replace("==", "!=") }]);
    spec["matchConstraints"]["resourceRules"] = json!([rule(row.kind.group, &[row.kind.plural], &["UPDATE"])]);
    let removed = format!("!object.metadata.?annotations[?'{ROLLOUT}'].hasValue()");
    let old = format!("oldObject.metadata.?annotations[?'{ROLLOUT}'].orValue('')");
    spec["validations"] = json!([{
        "expression": format!("{}\n|| ({removed} && {old}.contains('\"ended\":'))", not(&annotation_changes(ROLLOUT))),
        "message": format!("metadata.annotations: {ROLLOUT} is written by the controller alone, not by hand (V10)"),
        "reason": "Forbidden",
    }]);
    spec["variables"] = json!([]);
    policy
}

/// The policy, its binding, and the roles with theirs.
fn confined(name: &str, rows: &[&TargetKind], roles: impl IntoIterator<Item = Value>) -> Vec<Value> {
    [policy(name, rows), binding(name)].into_iter().chain(roles).collect()
}

fn binding(name: &str) -> Value {
    object("ValidatingAdmissionPolicyBinding", "admissionregistration.k8s.io/v1", name, |object| {
        object["spec"] = json!({ "policyName": name, "validationActions": ["Deny"] });
    })
}

fn rule(group: &str, resources: &[&str], operations: &[&str]) -> Value {
    json!({
        "apiGroups": [group], "apiVersions": ["*"], "operations": operations, "resources": resources, "scope": "*",
    })
}

fn object(kind: &str, api_version: &str, name: &str, fill: impl FnOnce(&mut Value)) -> Value {
    let metadata = json!({ "name": name, "labels": labels(CONTROLLER) });
    let mut object = json!({ "apiVersion": api_version, "kind": kind, "metadata": metadata });
    fill(&mut object);
    object
}

fn role(name: &str, kind: &Kind, verbs: &[&str]) -> [Value; 2] {
    const RBAC: &str = "rbac.authorization.k8s.io";
    let version = format!("{RBAC}/v1");
    let role = object("ClusterRole", &version, name, |role| {
        role["rules"] = json!([{ "apiGroups": [kind.group], "resources": [kind.plural], "verbs": verbs }]);
    });
    let binding = object("ClusterRoleBinding", &version, name, |binding| {
        binding["roleRef"] = json!({ "apiGroup": RBAC, "kind": "ClusterRole", "name": name });
        binding["subjects"] = json!([{ "kind": "ServiceAccount", "name": CONTROLLER, "namespace": NAMESPACE }]);
    });
    [role, binding]
}

/// As the policy of the other workloads, with what each row writes.
fn policy(name: &str, rows: &[&TargetKind]) -> Value {
    let mut policy = files::objects(&[files::WORKLOADS_POLICY]).swap_remove(0);
    policy["metadata"]["name"] = name.into();
    let mut groups = BTreeMap::<&str, BTreeSet<&str>>::new();
    for row in rows {
        groups.entry(row.kind.group).or_default().insert(row.kind.plural);
    }
    let of_group = |(group, resources): (&str, BTreeSet<&str>)| {
        rule(group, &resources.into_iter().collect::<Vec<_>>(), &["CREATE", "UPDATE", "DELETE"])
    };
    let spec = &mut policy["spec"];
    spec["matchConstraints"]["resourceRules"] = groups.into_iter().map(of_group).collect();
    spec["validations"][0]["message"] =
        "hibernate-controller may change no object of an operator in a namespace of a control plane".into();
    spec["validations"][1]["message"] =
        "hibernate-controller may change only what the row of this kind writes (kubectl hibernate kinds)".into();
    let of_workloads = spec["variables"].take();
    let expression = |name: &str| {
        let found = of_workloads.as_array().into_iter().flatten().find(|variable| variable["name"] == name);
        found.and_then(|variable| variable["expression"].as_str()).unwrap_or_default().to_owned()
    };
    let of_rows = |places: fn(&TargetKind) -> Vec<String>| {
        let of = |row: &&TargetKind| (row.kind.resource_name(), places(row));
        let map: BTreeMap<_, _> = rows.iter().map(of).filter(|(_, places)| !places.is_empty()).collect();
        format!("{}[?variables.resource].orValue([])", json!(map))
    };
    let own = "key.startsWith('hibernate.sh/')";
    let kept = expression("keptLabels").replace(own, &format!("{own} || key in variables.mayAnnotate"));
    // Operators take orders by annotations: what is new is ours, too.
    let added = format!(
        "object.metadata.?annotations.orValue({{}}).all(key, {own} || key in variables.mayAnnotate || key in \
         oldObject.metadata.?annotations.orValue({{}}))"
    );
    let template = "(key == 'template' && variables.keptTemplate) || ";
    let mut variables = vec![("resource", "request.resource.resource + '.' + request.resource.group".to_owned())];
    variables.extend(SHARED.map(|name| (name, expression(name))));
    variables.extend([
        ("mayAnnotate", of_rows(annotations)),
        ("keptLabels", format!("{kept}\n&& {added}")),
        ("mayChange", of_rows(fields)),
        ("sameSpec", expression("sameSpec").replace(template, "")),
    ]);
    let variables = variables.into_iter().map(|(name, expression)| json!({ "name": name, "expression": expression }));
    spec["variables"] = variables.collect();
    policy
}

/// Annotations that a row sets or removes, and those that the operator's admission adds to such a write.
fn annotations(row: &TargetKind) -> Vec<String> {
    let key = |at: &str| at.strip_prefix(ANNOTATIONS).map(|key| key.replace("~1", "/"));
    let Some(row) = row.sleep_row() else { return Vec::new() };
    row.places().filter_map(key).chain(row.adds.iter().map(|&key| key.to_owned())).collect()
}

fn fields(row: &TargetKind) -> Vec<String> {
    row.sleep_row().into_iter().flat_map(SleepRow::spec_members).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_writes_annotations_and_members_of_the_spec_alone() {
        for row in OPERATORS.into_iter().chain([&SHOOT]) {
            let (annotations, fields, sleep) = (annotations(row), fields(row), row.sleep_row().unwrap());
            let written = sleep.places().count() + sleep.adds.len();
            assert_eq!(annotations.len() + fields.len(), written, "{}", row.kind.resource_name());
        }
    }

    #[test]
    fn the_policies_share_what_the_policy_of_the_other_workloads_says() {
        let shared = files::objects(&[files::WORKLOADS_POLICY]).swap_remove(0);
        for policy in [of_schedules(), shoots(), virtual_machines()].map(|mut objects| objects.swap_remove(0)) {
            let spec = &policy["spec"];
            assert_eq!(spec["matchConditions"], shared["spec"]["matchConditions"]);
            let variables = spec["variables"].as_array().unwrap();
            let text = |name: &str| {
                variables.iter().find(|one| one["name"] == name).unwrap()["expression"].as_str().unwrap().to_owned()
            };
            assert!(SHARED.iter().all(|name| !text(name).is_empty()));
            assert!(text("keptLabels").contains("key.startsWith('hibernate.sh/') || key in variables.mayAnnotate"));
            assert!(!text("sameSpec").contains("template") && text("sameSpec").contains("variables.mayChange"));
        }
    }
}
