//! machine-controller's eviction: by the real API, with real disruption budgets (rows 54 to 56).

use anyhow::Result;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{DynamicObject, EvictParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use crate::cluster::nodes::is_ready;
use crate::kkp::registry::UserCluster;
use crate::kkp::seed::unless_gone;
use crate::kkp::{SKIP_EVICTION, text};

/// Whether Pods are evicted from the Node of a Machine that is being deleted.
pub(super) fn is_due(cluster: &UserCluster, machine: &DynamicObject) -> bool {
    let name = text(machine, "/status/nodeRef/name");
    let nodes = cluster.of_user.nodes.all();
    let Some(node) = nodes.iter().find(|node| node.name_any() == name) else { return false };
    if node.annotations().contains_key(SKIP_EVICTION) || !is_ready(node) {
        return false;
    }
    // Row 56: as long as there may be another Node for them: one that is not cordoned, or a Machine that has not
    // joined.
    let other_node = nodes.iter().any(|other| other.name_any() != name && !is_cordoned(other));
    let joining = cluster.of_user.machines.all().iter().any(|other| text(other, "/status/nodeRef/name").is_empty());
    other_node || joining
}

pub(super) fn is_cordoned(node: &Node) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or_default()
}

/// Cordons the Node and evicts its Pods. Whether none is left.
pub(super) async fn evict(cluster: &UserCluster, node: &str) -> Result<bool> {
    let nodes: Api<Node> = Api::all(cluster.user.clone());
    let cordon = Patch::Merge(json!({ "spec": { "unschedulable": true } }));
    unless_gone(nodes.patch(node, &PatchParams::default(), &cordon).await)?;
    let left: Vec<_> =
        cluster.of_user.pods.all().into_iter().filter(|pod| is_on(pod, node) && !of_daemon_set(pod)).collect();
    for pod in left.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()) {
        let api: Api<Pod> = Api::namespaced(cluster.user.clone(), &pod.namespace().unwrap_or_default());
        match api.evict(&pod.name_any(), &EvictParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 429 => {
                cluster.call(
                    "machine-controller",
                    format!("a disruption budget forbids the eviction of {}", pod.name_any()),
                );
            }
            other => drop(unless_gone(other)?),
        }
    }
    Ok(left.is_empty())
}

pub(super) fn is_on(pod: &Pod, node: &str) -> bool {
    pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) == Some(node)
}

pub(super) fn of_daemon_set(pod: &Pod) -> bool {
    pod.owner_references().iter().any(|owner| owner.kind == "DaemonSet")
}
