//! Kinds of governance, and writes to their objects.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use shared::guarded::Named;

use super::Upgrades;
use crate::runtime::{Guarded, Key, ReconcileError, System as _};

/// Names of kinds: group, version, kind, plural.
pub(super) const MANAGED_CLUSTER: [&str; 4] =
    ["cluster.open-cluster-management.io", "v1", "ManagedCluster", "managedclusters"];
pub(super) const PLACEMENT: [&str; 4] = ["cluster.open-cluster-management.io", "v1beta1", "Placement", "placements"];
pub(super) const BINDING: [&str; 4] =
    ["policy.open-cluster-management.io", "v1", "PlacementBinding", "placementbindings"];
pub(super) const POLICY: [&str; 4] = ["policy.open-cluster-management.io", "v1", "Policy", "policies"];
pub(super) const VIEW: [&str; 4] =
    ["view.open-cluster-management.io", "v1beta1", "ManagedClusterView", "managedclusterviews"];
pub(super) const ACTION: [&str; 4] =
    ["action.open-cluster-management.io", "v1beta1", "ManagedClusterAction", "managedclusteractions"];
pub(super) const CONFIG: [&str; 4] = ["ran.openshift.io", "v1alpha1", "PreCachingConfig", "precachingconfigs"];
pub(super) const MAP: [&str; 4] = ["", "v1", "ConfigMap", "configmaps"];
pub(super) const IMAGE_BASED: [&str; 4] =
    ["lcm.openshift.io", "v1alpha1", "ImageBasedGroupUpgrade", "imagebasedgroupupgrades"];
pub(super) const DEFINITION: [&str; 4] =
    ["apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"];

/// A kind as kube names it.
pub(super) fn resource([group, version, kind, plural]: [&str; 4]) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// An object as an Event names it.
pub(super) fn reference(
    [group, version, kind, _]: [&str; 4],
    (namespace, name): Key,
    uid: Option<&str>,
) -> ObjectReference {
    ObjectReference {
        api_version: Some(format!("{group}/{version}")),
        kind: Some(kind.to_owned()),
        name: Some(name),
        namespace: Some(namespace).filter(|namespace| !namespace.is_empty()),
        uid: uid.map(str::to_owned),
        ..ObjectReference::default()
    }
}

/// Objects of a kind, of whose content nothing is read.
pub(super) type Objects = Guarded<Named<DynamicObject>>;

pub(super) fn api(upgrades: &Upgrades, kind: [&str; 4], namespace: &str) -> Api<Objects> {
    Api::namespaced_with(upgrades.hub().client.clone(), namespace, &resource(kind))
}

pub(super) fn lead(upgrades: &Upgrades) -> Result<(), ReconcileError> {
    upgrades.hub().lead().map_err(ReconcileError::write("governance"))
}
