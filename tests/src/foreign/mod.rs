//! Definitions of foreign kinds, made from our own types. They are never part of an installation.

mod fdb;
#[cfg(test)]
mod tests;

use kube::CustomResourceExt as _;
use serde_json::{Map, Value, json};
use shared::hive::api::{ClusterDeployment, ClusterSync};

/// `CustomResourceDefinitions` of Hive's `ClusterDeployment`, `ClusterSync` and `ClusterPool`, OpenShift's
/// `ClusterOperator` and `ClusterVersion`, the `MachineDeployments` of Cluster API and of the machine-controller, and
/// `FoundationDBCluster`. They hold only the fields we use, with upstream's enums, patterns and required fields;
/// unknown fields are kept.
pub(crate) fn definitions() -> Vec<Value> {
    vec![
        without_required_spec(as_upstream(json!(ClusterDeployment::crd()))),
        without_required_spec(as_upstream(json!(ClusterSync::crd()))),
        cluster_operator(),
        cluster_pool(),
        cluster_version(),
        machine_deployment("cluster.x-k8s.io", "v1beta1", &["clusterName", "selector", "template"], "md"),
        machine_deployment("cluster.k8s.io", "v1alpha1", &["selector", "template"], "md"),
        fdb::cluster(),
    ]
}

/// Removes what Rust's types add to a schema and Go's do not: `nullable`, because an absent field is an `Option` here,
/// and defaults, because those stay with who reads the field.
fn as_upstream(mut definition: Value) -> Value {
    strip(&mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]);
    definition
}

/// Hive's types leave even `spec` out of what is required.
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
        properties.values_mut().for_each(strip);
    }
}

fn machine_deployment(group: &str, version: &str, required: &[&str], short_name: &str) -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut fields: Map<String, Value> =
        [("clusterName", json!({"type": "string"})), ("selector", open.clone()), ("template", open.clone())]
            .into_iter()
            .filter(|(name, _)| required.contains(name))
            .map(|(name, schema)| (name.to_owned(), schema))
            .collect();
    fields.insert("replicas".to_owned(), json!({"type": "integer", "format": "int32"}));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("machinedeployments.{group}"),
            // Groups below k8s.io are reserved; machine-controller's is older than that rule.
            "annotations": {"api-approved.kubernetes.io": "unapproved, older than the rule"},
        },
        "spec": {
            "group": group,
            "names": {
                "kind": "MachineDeployment",
                "listKind": "MachineDeploymentList",
                "plural": "machinedeployments",
                "singular": "machinedeployment",
                "shortNames": [short_name],
            },
            "scope": "Namespaced",
            "versions": [{
                "name": version,
                "served": true,
                "storage": true,
                "subresources": {
                    "status": {},
                    "scale": {
                        "specReplicasPath": ".spec.replicas",
                        "statusReplicasPath": ".status.replicas",
                    },
                },
                "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {
                        "spec": {
                            "type": "object",
                            "required": required,
                            "properties": fields,
                            "x-kubernetes-preserve-unknown-fields": true,
                        },
                        "status": {
                            "type": "object",
                            "properties": {"replicas": {"type": "integer", "format": "int32"}},
                            "x-kubernetes-preserve-unknown-fields": true,
                        },
                    },
                }},
            }],
        },
    })
}

/// Only what the plugin shows. Whoever makes one has to give what upstream requires.
fn cluster_pool() -> Value {
    let number = || json!({"type": "integer", "format": "int32"});
    let count = || json!({"type": "integer", "format": "int32", "minimum": 0});
    let version = json!({
        "name": "v1",
        "served": true,
        "storage": true,
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"},
        },
        "schema": {"openAPIV3Schema": {
            "type": "object",
            "required": ["spec"],
            "properties": {
                "spec": {
                    "type": "object",
                    "required": ["baseDomain", "imageSetRef", "platform", "size"],
                    "properties": {
                        "baseDomain": {"type": "string"},
                        "imageSetRef": {
                            "type": "object",
                            "required": ["name"],
                            "properties": {"name": {"type": "string"}},
                        },
                        "platform": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                        "size": count(),
                        "runningCount": count(),
                        "maxSize": number(),
                        "hibernateAfter": {
                            "type": "string",
                            "pattern": r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$",
                        },
                    },
                    "x-kubernetes-preserve-unknown-fields": true,
                },
                "status": {
                    "type": "object",
                    "required": ["ready", "size"],
                    "properties": {"size": number(), "standby": number(), "ready": number()},
                    "x-kubernetes-preserve-unknown-fields": true,
                },
            },
        }},
    });
    definition("hive.openshift.io", ("ClusterPool", "clusterpools", &["cp"]), "Namespaced", &version)
}

/// Of an operator of the cluster's own components: what it reports of itself.
fn cluster_operator() -> Value {
    let related = json!({
        "type": "object",
        "required": ["group", "name", "resource"],
        "properties": {"group": text(), "name": text(), "resource": text()},
        "x-kubernetes-preserve-unknown-fields": true,
    });
    let status = json!({"conditions": conditions(), "relatedObjects": {"type": "array", "items": related}});
    openshift(("ClusterOperator", "clusteroperators", &["co"]), &["spec"], &status)
}

/// Of a cluster's version: whether it is changing, and from what to what. Requires less than upstream does: nobody of
/// ours writes one.
fn cluster_version() -> Value {
    let status = json!({
        "desired": open(&json!({"version": text()})),
        "history": {"type": "array", "items": open(&json!({"version": text(), "state": text()}))},
        "conditions": conditions(),
    });
    openshift(("ClusterVersion", "clusterversions", &[]), &[], &status)
}

fn openshift(names: (&str, &str, &[&str]), required: &[&str], status: &Value) -> Value {
    let version = json!({
        "name": "v1",
        "served": true,
        "storage": true,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {
            "type": "object",
            "required": required,
            "properties": {"spec": open(&json!({})), "status": open(status)},
        }},
    });
    definition("config.openshift.io", names, "Cluster", &version)
}

fn text() -> Value {
    json!({"type": "string"})
}

fn open(properties: &Value) -> Value {
    json!({"type": "object", "properties": properties, "x-kubernetes-preserve-unknown-fields": true})
}

fn conditions() -> Value {
    let condition = json!({
        "type": "object",
        "required": ["lastTransitionTime", "status", "type"],
        "properties": {
            "type": text(), "status": text(), "reason": text(), "message": text(),
            "lastTransitionTime": {"type": "string", "format": "date-time"},
        },
    });
    json!({"type": "array", "items": condition})
}

fn definition(group: &str, (kind, plural, short): (&str, &str, &[&str]), scope: &str, version: &Value) -> Value {
    let mut names = json!({
        "kind": kind, "listKind": format!("{kind}List"), "plural": plural, "singular": kind.to_ascii_lowercase(),
    });
    if !short.is_empty() {
        names["shortNames"] = json!(short);
    }
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {"group": group, "names": names, "scope": scope, "versions": [version]},
    })
}
