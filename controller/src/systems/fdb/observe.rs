//! Lists the objects of a cluster: Pods, PVCs and Services, by owner reference and the cluster's own label names.

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod as KubePod, Service};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use server::hub;
use shared::annotation::{format, keys};
use shared::fdb::admission::Kind;
use shared::fdb::api::FoundationDBCluster;
use shared::fdb::decide::{Held, Pod};
use shared::fdb::suspension::Stamp;
use shared::guarded::Named;
use shared::quantity;

use super::Fdb;
use crate::runtime::{Guarded, ReconcileError, Reconciled};

/// Lists its Pods, and its PVCs and Services.
pub async fn list(fdb: &Fdb, cluster: &FoundationDBCluster) -> Reconciled<(Vec<Pod>, Vec<Held>)> {
    let namespace = cluster.namespace().unwrap_or_default();
    let client = || fdb.handle.hub.client.clone();
    let which = ListParams::default().labels(&cluster.selector());

    let volumes: Api<Guarded<PersistentVolumeClaim>> = Api::namespaced(client(), &namespace);
    let held = |kind, meta: &ObjectMeta, bytes| is_of(cluster, meta).then(|| held(cluster, kind, meta, bytes));
    let volume =
        |one: Guarded<PersistentVolumeClaim>| one.read().map(|one| held(Kind::Pvc, &one.metadata, bytes(&one)));
    let service = |one: Guarded<Named<Service>>| one.read().map(|one| held(Kind::Service, &one.metadata, 0));
    let pod = |one: Guarded<Named<KubePod>>| one.read().map(|one| pod(cluster, &one.metadata));
    // Volumes first: one that is stamped because its Pod is gone was there before the Pods were listed.
    let volumes = hub::list(&volumes, &which, volume).await.map_err(ReconcileError::list("PVCs of the cluster"))?;
    let services = hub::names(&client(), Some(&namespace), &which, service).await;
    let services = services.map_err(ReconcileError::list("Services of the cluster"))?;
    let pods = hub::names(&client(), Some(&namespace), &which, pod)
        .await
        .map_err(ReconcileError::list("Pods of the cluster"))?;
    Ok((pods.into_iter().flatten().collect(), volumes.into_iter().chain(services).flatten().collect()))
}

fn pod(cluster: &FoundationDBCluster, meta: &ObjectMeta) -> Option<Pod> {
    let group = group(cluster, meta).filter(|_| is_of(cluster, meta))?;
    Some(Pod { group, deleting: meta.deletion_timestamp.is_some() })
}

fn held(cluster: &FoundationDBCluster, kind: Kind, meta: &ObjectMeta, bytes: u64) -> Held {
    let uid = meta.uid.clone().unwrap_or_default();
    let get = |key: &str| meta.annotations.as_ref()?.get(key).map(String::as_str);
    Held {
        kind,
        name: meta.name.clone().unwrap_or_default(),
        version: meta.resource_version.clone(),
        group: group(cluster, meta),
        deleting: meta.deletion_timestamp.is_some(),
        bytes,
        stamp: Stamp::read(&uid, get),
        woken: get(keys::WOKEN_AT).and_then(format::time),
        uid,
    }
}

/// Whether the cluster, and not an earlier one of its name, owns the object.
fn is_of(cluster: &FoundationDBCluster, meta: &ObjectMeta) -> bool {
    let uid = cluster.metadata.uid.as_deref().unwrap_or_default();
    meta.owner_references.iter().flatten().any(|owner| owner.uid == uid)
}

fn group(cluster: &FoundationDBCluster, meta: &ObjectMeta) -> Option<String> {
    let labels = meta.labels.as_ref()?;
    cluster.group_labels().into_iter().find_map(|name| labels.get(name)).cloned()
}

/// Size of a volume: its capacity, else the requested storage.
fn bytes(volume: &PersistentVolumeClaim) -> u64 {
    let capacity = volume.status.as_ref().and_then(|status| status.capacity.as_ref());
    let requests = || volume.spec.as_ref()?.resources.as_ref()?.requests.as_ref();
    let size = capacity.or_else(requests).and_then(|sizes| sizes.get("storage"));
    size.and_then(|Quantity(text)| quantity::bytes(text)).unwrap_or_default()
}
