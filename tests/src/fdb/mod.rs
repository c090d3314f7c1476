//! The double of the `FoundationDB` operator and of the databases that it runs, for want of the real ones.
//!
//! What is real: the API server, owner references, garbage collection, the protection of volumes in use, `kubectl exec`
//! down to the streams. What is simulated: the operator, the database and fdbcli, by [`fdb_simulator`]; Pods and Nodes
//! ([`machines`]). See "The FoundationDB double" in doubles.md of the docs.

pub mod cluster;
pub mod common;
pub mod handle;
pub(crate) mod kubelet;
pub mod machines;
pub mod operator;
pub mod options;
pub(crate) mod server;
mod wait;

pub use fdb_simulator::{API_VERSION, KIND, database};

/// Name of the hub's user that the operator is.
pub const OPERATOR: &str = "fdb-kubernetes-operator-controller-manager";

/// How the API server's clients name the kind.
pub fn resource() -> kube::api::ApiResource {
    let kind = kube::core::GroupVersionKind::gvk("apps.foundationdb.org", "v1beta2", KIND);
    kube::api::ApiResource::from_gvk_with_plural(&kind, "foundationdbclusters")
}
