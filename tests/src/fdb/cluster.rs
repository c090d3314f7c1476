//! A `FoundationDBCluster` as its owner creates it, and the Nodes under it.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::options::FdbOptions;
use super::{API_VERSION, KIND};

/// A database as the supervisor lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FdbInfo {
    /// Its namespace.
    pub namespace: String,
    /// Name of its `FoundationDBCluster`.
    pub name: String,
}

impl FdbInfo {
    /// Its path at the supervisor.
    pub fn path(&self) -> String {
        format!("/fdb/{}/{}", self.namespace, self.name)
    }
}

/// Namespace, service account (Pods are refused without one) and the `FoundationDBCluster`.
pub(crate) fn objects(namespace: &str, name: &str, options: &FdbOptions) -> Vec<Value> {
    vec![
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}),
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default", "namespace": namespace}}),
        foundationdb_cluster(namespace, name, options),
    ]
}

fn foundationdb_cluster(namespace: &str, name: &str, options: &FdbOptions) -> Value {
    let mut automation = json!({"removalMode": options.removal_mode, "useLocalitiesForExclusion": options.localities});
    if let Some(seconds) = options.wait_between {
        automation["waitBetweenRemovalsSeconds"] = json!(seconds);
    }
    let mut object = json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"name": name, "namespace": namespace, "annotations": options.annotations},
        "spec": {
            "version": "7.3.69",
            "databaseConfiguration": {"redundancy_mode": "double"},
            "processCounts": {"storage": options.storage, "log": options.log, "cluster_controller": 1},
            "routing": {"publicIPSource": options.public_ip_source},
            "automationOptions": automation,
            "processes": {"general": {"volumeClaimTemplate": {"spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "16Gi"}},
            }}}},
        },
    });
    if let Some(prefix) = &options.prefix {
        object["spec"]["processGroupIDPrefix"] = json!(prefix);
    }
    if !options.labels.is_null() {
        object["spec"]["labels"] = options.labels.clone();
    }
    if !options.patch.is_null() {
        json_patch::merge(&mut object, &options.patch);
    }
    object
}

/// Name of a Node, which is also the zone of its processes.
pub(crate) fn node_name(zone: usize) -> String {
    format!("fdb-node-{zone}")
}

/// A Node whose kubelet is the one at this port.
pub(crate) fn node(zone: usize, kubelet: u16) -> (Value, Value) {
    let name = node_name(zone);
    let object = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {
            "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "topology.kubernetes.io/zone": name,
        }},
    });
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet}},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    }});
    (object, status)
}
