//! Writes to governance objects. One that exists already was created by an earlier attempt.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DeleteParams, ListParams};
use kube::core::Status;
use kube::{Api, Resource};
use serde_json::Value;
use shared::guarded::Named;
use shared::read::Foreign;

use super::Upgrades;
use crate::runtime::{Guarded, Key, ReconcileError, Reconciled};

pub(super) trait Namespaced: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug {}

impl<K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug> Namespaced for K {}

/// An object as an Event names it.
pub(super) fn reference<K: Resource<DynamicType = ()>>((namespace, name): Key, uid: Option<&str>) -> ObjectReference {
    ObjectReference {
        api_version: Some(K::api_version(&()).into_owned()),
        kind: Some(K::kind(&()).into_owned()),
        name: Some(name),
        namespace: Some(namespace).filter(|namespace| !namespace.is_empty()),
        uid: uid.map(str::to_owned),
        ..ObjectReference::default()
    }
}

pub(super) fn lead(upgrades: &Upgrades) -> Reconciled<()> {
    upgrades.handle.hub.lead().map_err(ReconcileError::write("governance"))
}

/// `None`: an object of its name exists already, or its namespace or kind does not.
pub(super) async fn create<K: Foreign + Resource<DynamicType = ()>>(
    upgrades: &Upgrades,
    object: &Value,
) -> Reconciled<Option<Guarded<K>>> {
    lead(upgrades)?;
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    let what = format!("{} {}/{}", K::kind(&()), text("namespace"), text("name"));
    let path = K::url_path(&(), Some(text("namespace")));
    match upgrades.handle.hub.create::<Guarded<K>>(&path, object).await {
        Ok(written) => Ok(Some(written)),
        Err(kube::Error::Api(status)) if status.is_already_exists() || is_gone(&K::kind(&()), &status) => Ok(None),
        Err(error) => Err(ReconcileError::unversioned(what)(error)),
    }
}

/// Whether the namespace of a cluster is gone or terminating, or the hub does not serve views and actions. That must not
/// hold up other clusters.
fn is_gone(kind: &str, status: &Status) -> bool {
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    let is_terminating = causes.any(|cause| cause.reason == "NamespaceTerminating");
    matches!(kind, "ManagedClusterView" | "ManagedClusterAction") && (is_terminating || status.is_not_found())
}

/// Deletes an object of a cluster, if it exists.
pub(super) async fn delete<K: Namespaced>(upgrades: &Upgrades, cluster: &str, name: &str) -> Reconciled<()> {
    lead(upgrades)?;
    let api: Api<Guarded<Named<K>>> = Api::namespaced(upgrades.handle.hub.client.clone(), cluster);
    let deleted = api.delete(name, &DeleteParams::default()).await;
    unless_absent(deleted, || format!("{} {cluster}/{name}", K::kind(&()))).map(drop)
}

/// Deletes every object of a kind with these labels.
pub(super) async fn delete_all<K: Namespaced>(upgrades: &Upgrades, namespace: &str, labels: &str) -> Reconciled<()> {
    lead(upgrades)?;
    let api: Api<Guarded<Named<K>>> = Api::namespaced(upgrades.handle.hub.client.clone(), namespace);
    let deleted = api.delete_collection(&DeleteParams::default(), &ListParams::default().labels(labels)).await;
    unless_absent(deleted, || format!("{} of namespace {namespace}", K::plural(&()))).map(drop)
}

/// The answer to a write; `None` if its object does not exist.
pub(super) fn unless_absent<T>(answer: kube::Result<T>, what: impl FnOnce() -> String) -> Reconciled<Option<T>> {
    match answer {
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        answer => answer.map(Some).map_err(|error| ReconcileError::unversioned(what())(error)),
    }
}
