//! Which namespaces have a `RoleBinding` that lets the controller read their Secrets.

use std::collections::BTreeSet;

use hub::error::HubError;
use hub::{HubClient, Resource, items, text};
use serde_json::Value;
use shared::annotation::keys;
use shared::kinds::{CLUSTER_DEPLOYMENT, Kind};

/// The right to read a Secret, its binding to everywhere, and its bindings to namespaces.
pub(super) const NAME: &str = "hibernate-controller-secrets";
pub(super) const RBAC: &str = "rbac.authorization.k8s.io";
static BINDINGS: Kind = Kind::namespaced(RBAC, &["v1"], "RoleBinding", "rolebindings");

/// Namespaces with `ClusterDeployments` in which the controller of this namespace may read no Secret.
///
/// # Errors
/// When the hub does not answer.
pub(super) async fn unbound(hub: &HubClient, of: &str) -> Result<Vec<String>, HubError> {
    let named = format!("metadata.name={NAME}");
    let bindings = hub.list(Resource::preferred(&BINDINGS), None, &named, "");
    let (clusters, bindings) = tokio::try_join!(objects(hub, &CLUSTER_DEPLOYMENT.kind, None, ""), bindings)?;
    Ok(missing(&clusters, &bindings.items, of))
}

pub(super) fn missing(clusters: &[Value], bindings: &[Value], of: &str) -> Vec<String> {
    let is_ours = |subject: &Value| text(subject, "/name") == keys::CONTROLLER && text(subject, "/namespace") == of;
    let binds = |binding: &&Value| text(binding, "/roleRef/name") == NAME && items(binding, "/subjects").any(is_ours);
    let namespace = |object| text(object, "/metadata/namespace");
    let bound: BTreeSet<&str> = bindings.iter().filter(binds).map(namespace).collect();
    let all: BTreeSet<&str> = clusters.iter().map(namespace).collect();
    all.difference(&bound).map(|&name| name.to_owned()).collect()
}

/// Objects by their labels; none if the kind is not there.
pub(super) async fn objects(
    hub: &HubClient,
    kind: &'static Kind,
    namespace: Option<&str>,
    labels: &str,
) -> Result<Vec<Value>, HubError> {
    match hub.list(Resource::preferred(kind), namespace, "", labels).await {
        Ok(listed) => Ok(listed.items),
        Err(HubError::NoKind(_)) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
