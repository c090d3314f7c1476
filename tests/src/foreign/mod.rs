//! Definitions of foreign kinds, made from our own types where there are any. They are never part of an installation.

mod fdb;
#[cfg(test)]
mod tests;

use kube::CustomResourceExt as _;
use serde_json::{Value, json};
use shared::hive::api::{ClusterDeployment, ClusterSync};

/// `CustomResourceDefinitions` of Hive's `ClusterDeployment`, `ClusterSync` and `ClusterPool`, OpenShift's
/// `ClusterOperator` and `ClusterVersion`, the `MachineDeployments` of Cluster API and of the machine-controller, and
/// `FoundationDBCluster`. Where we have a type, they hold only the fields we use, with upstream's enums, patterns and
/// required fields; unknown fields are kept.
pub(crate) fn definitions() -> Vec<Value> {
    vec![
        without_required_spec(as_upstream(json!(ClusterDeployment::crd()))),
        without_required_spec(as_upstream(json!(ClusterSync::crd()))),
        of_cluster(open("config.openshift.io/v1", "ClusterOperator", "co", &json!({ "status": {} }))),
        of_cluster(open("config.openshift.io/v1", "ClusterVersion", "", &json!({ "status": {} }))),
        open("hive.openshift.io/v1", "ClusterPool", "cp", &scaled(".spec.size", ".status.size")),
        open("cluster.x-k8s.io/v1beta1", "MachineDeployment", "md", &scaled(".spec.replicas", ".status.replicas")),
        open("cluster.k8s.io/v1alpha1", "MachineDeployment", "md", &scaled(".spec.replicas", ".status.replicas")),
        fdb::cluster(),
    ]
}

/// Kinds of KKP on a seed.
pub fn of_seed() -> Vec<Value> {
    let of = |kind: &str| open("kubermatic.k8c.io/v1", kind, "", &json!({ "status": {} }));
    vec![json!(shared::kkp::api::Cluster::crd()), of("EtcdRestore"), of("EtcdBackupConfig"), of("Seed")]
}

/// Hive's own settings.
pub fn of_hive_config() -> Value {
    of_cluster(open("hive.openshift.io/v1", "HiveConfig", "", &json!({})))
}

/// Kinds of Open Cluster Management and its governance, which keep whatever they are given.
pub fn of_governance() -> Vec<Value> {
    let status = json!({ "status": {} });
    let of = |version: &str, kind: &str| open(version, kind, "", &status);
    let mut policy = of("policy.open-cluster-management.io/v1", "Policy");
    policy["metadata"]["name"] = json!("policies.policy.open-cluster-management.io");
    policy["spec"]["names"]["plural"] = json!("policies");
    vec![
        of_cluster(of("cluster.open-cluster-management.io/v1", "ManagedCluster")),
        of("cluster.open-cluster-management.io/v1beta2", "ManagedClusterSetBinding"),
        of("cluster.open-cluster-management.io/v1beta1", "Placement"),
        of("cluster.open-cluster-management.io/v1beta1", "PlacementDecision"),
        policy,
        open("policy.open-cluster-management.io/v1", "PlacementBinding", "", &json!({})),
        of("view.open-cluster-management.io/v1beta1", "ManagedClusterView"),
        of("action.open-cluster-management.io/v1beta1", "ManagedClusterAction"),
    ]
}

/// The kind of TALM that upgrades by images.
pub fn of_image_based_upgrades() -> Value {
    open("lcm.openshift.io/v1alpha1", "ImageBasedGroupUpgrade", "ibgu", &json!({ "status": {} }))
}

/// Kinds of a user cluster of KKP. As upstream has them: a Machine's status is no subresource.
pub(crate) fn of_user_cluster() -> Vec<Value> {
    let columns = |columns: Value, mut definition: Value| {
        definition["spec"]["versions"][0]["additionalPrinterColumns"] = columns;
        definition
    };
    let column = |name: &str, path: &str| json!({ "name": name, "type": "string", "jsonPath": path });
    let counts = json!([column("Replicas", ".spec.replicas"), column("Ready", ".status.readyReplicas")]);
    let of = |kind: &str, short: &str, subresources: &Value| open("cluster.k8s.io/v1alpha1", kind, short, subresources);
    vec![
        columns(counts.clone(), of("MachineDeployment", "md", &scaled(".spec.replicas", ".status.replicas"))),
        columns(counts, of("MachineSet", "ms", &json!({ "status": {} }))),
        columns(json!([column("Node", ".status.nodeRef.name")]), of("Machine", "ma", &json!({}))),
    ]
}

fn scaled(wanted: &str, is: &str) -> Value {
    json!({ "status": {}, "scale": { "specReplicasPath": wanted, "statusReplicasPath": is } })
}

/// A kind that keeps whatever it is given.
fn open(version: &str, kind: &str, short: &str, subresources: &Value) -> Value {
    let (group, version) = version.split_once('/').unwrap_or_default();
    let (singular, plural) = (kind.to_lowercase(), format!("{}s", kind.to_lowercase()));
    let short: Vec<&str> = Some(short).into_iter().filter(|name| !name.is_empty()).collect();
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{group}"),
            // Groups below k8s.io are reserved; machine-controller's is older than that rule.
            "annotations": { "api-approved.kubernetes.io": "unapproved, older than the rule" },
        },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "kind": kind, "plural": plural, "singular": singular, "listKind": format!("{kind}List"), "shortNames": short },
            "versions": [{
                "name": version, "served": true, "storage": true, "subresources": subresources,
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
}

fn of_cluster(mut definition: Value) -> Value {
    definition["spec"]["scope"] = json!("Cluster");
    definition
}

/// Removes what Rust's types add to a schema and Go's do not: `nullable`, because an absent field is an `Option` here,
/// and defaults, because those stay with who reads the field. Adds that unknown fields are kept.
fn as_upstream(mut definition: Value) -> Value {
    strip(&mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
    definition
}

/// Hive's and FoundationDB's types leave even `spec` out of what is required.
fn without_required_spec(mut definition: Value) -> Value {
    let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("required");
    }
    definition
}

fn strip(schema: &mut Value) {
    let Some(schema) = schema.as_object_mut() else { return };
    schema.remove("nullable");
    // The one default that upstream has too: the empty name of a reference.
    schema.retain(|key, value| key != "default" || value == "");
    if let Some(items) = schema.get_mut("items") {
        strip(items);
    }
    if let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        for field in properties.values_mut() {
            strip(field);
            if field.get("properties").is_some() {
                field["x-kubernetes-preserve-unknown-fields"] = json!(true);
            }
        }
    }
}
