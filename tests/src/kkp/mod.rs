//! The double of KKP (Kubermatic) and of machine-controller, for want of the real ones and of a cloud.
//!
//! What is real: both API servers (the hub is the seed, a spoke is the user cluster), Deployments, `StatefulSets` and
//! their Pods, eviction and disruption budgets, garbage collection, the admission webhooks down to their TLS. What is
//! played: KKP's seed controllers ([`seed`]), the seed's kubelets and etcd ([`etcd`]), machine-controller,
//! operating-system-manager, the cloud, kubelets, scheduler and CSI driver of the user cluster ([`user`]). It follows
//! what the real programs were seen to do: "row n" is a row of docs/reference/kkp.md. See "The KKP double" in
//! doubles.md of the docs.

pub mod certificates;
pub mod cloud;
pub mod control_plane;
pub mod etcd;
pub mod handle;
pub mod log;
pub mod options;
pub mod registry;
pub(crate) mod seed;
pub mod server;
pub(crate) mod user;
pub(crate) mod watched;
pub mod workloads;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};

/// The Secret with the kubeconfig that KKP itself uses, and its key.
pub const KUBECONFIG: (&str, &str) = ("internal-admin-kubeconfig", "kubeconfig");

/// On a Node: machine-controller deletes its Machine without evicting Pods.
pub const SKIP_EVICTION: &str = "kubermatic.io/skip-eviction";

/// On a Cluster: an `EtcdRestore` is under way.
pub const ACTIVE_RESTORE: &str = "kubermatic.k8c.io/active-restore";

/// On a Node: the UID of its Machine.
pub const OWNED_BY: &str = "machine-controller/owned-by";

/// How the seed's clients name a kind of KKP.
pub fn kubermatic(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("kubermatic.k8c.io", "v1", kind))
}

/// How the user cluster's clients name a kind of machine-controller.
pub fn machinery(kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk("cluster.k8s.io", "v1alpha1", kind))
}

/// A number in an object, 0 if it is not there.
pub(crate) fn number(object: &DynamicObject, pointer: &str) -> i64 {
    object.data.pointer(pointer).and_then(Value::as_i64).unwrap_or_default()
}

/// A text in an object, empty if it is not there.
pub(crate) fn text<'a>(object: &'a DynamicObject, pointer: &str) -> &'a str {
    object.data.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a Pod is Ready.
pub(crate) fn is_pod_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// A kubelet's status of a Pod whose containers run.
pub(crate) fn running(pod: &Pod, ready: bool) -> Value {
    let status = if ready { "True" } else { "False" };
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let containers = containers.map(|one| {
        let state = json!({ "running": { "startedAt": pod.metadata.creation_timestamp } });
        json!({ "name": one.name, "image": one.image, "imageID": "", "ready": ready, "started": true, "restartCount": 0, "state": state })
    });
    let conditions = json!([{ "type": "Ready", "status": status }, { "type": "ContainersReady", "status": status }]);
    json!({ "status": { "phase": "Running", "conditions": conditions, "containerStatuses": containers.collect::<Vec<_>>() } })
}
