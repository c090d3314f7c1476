//! Definitions of KKP's and machine-controller's kinds: written by us, with only the fields that are used.

use kube::CustomResourceExt as _;
use serde_json::{Value, json};

fn columns(kind: &str) -> Value {
    let column = |name: &str, path: &str| json!({ "name": name, "type": "string", "jsonPath": path });
    match kind {
        "MachineDeployment" | "MachineSet" => {
            json!([column("Replicas", ".spec.replicas"), column("Ready", ".status.readyReplicas")])
        }
        "Machine" => json!([column("Node", ".status.nodeRef.name")]),
        _ => json!([]),
    }
}

/// A kind that keeps whatever it is given.
fn definition(group: &str, version: &str, kind: &str, short: &[&str], subresources: &Value) -> Value {
    let (singular, plural) = (kind.to_lowercase(), format!("{}s", kind.to_lowercase()));
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{plural}.{group}"),
            "annotations": { "api-approved.kubernetes.io": "unapproved, older than the rule" },
        },
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": { "kind": kind, "plural": plural, "singular": singular, "listKind": format!("{kind}List"), "shortNames": short },
            "versions": [{
                "name": version, "served": true, "storage": true, "subresources": subresources, "additionalPrinterColumns": columns(kind),
                "schema": { "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true } },
            }],
        },
    })
}

/// Kinds of the seed.
pub fn of_seed() -> Vec<Value> {
    let of = |kind: &str| definition("kubermatic.k8c.io", "v1", kind, &[], &json!({ "status": {} }));
    vec![json!(shared::kkp::api::Cluster::crd()), of("EtcdRestore"), of("EtcdBackupConfig")]
}

/// Kinds of a user cluster. As upstream has them: a Machine's status is no subresource.
pub fn of_user_cluster() -> Vec<Value> {
    let scale = json!({
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas", "labelSelectorPath": ".status.labelSelector",
        },
    });
    [("MachineDeployment", "md", scale), ("MachineSet", "ms", json!({ "status": {} })), ("Machine", "ma", json!({}))]
        .map(|(kind, short, subresources)| definition("cluster.k8s.io", "v1alpha1", kind, &[short], &subresources))
        .into()
}
