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

use super::Fdb;
use crate::runtime::{Guarded, ReconcileError, Reconciled, System};

/// Lists its Pods, and its PVCs and Services.
pub async fn list(fdb: &Fdb, cluster: &FoundationDBCluster) -> Reconciled<(Vec<Pod>, Vec<Held>)> {
    let namespace = cluster.namespace().unwrap_or_default();
    let client = || fdb.hub().client.clone();
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
    size.and_then(|Quantity(text)| parse(text)).unwrap_or_default()
}

/// Bytes of a quantity such as `16Gi`; `None` if invalid.
fn parse(text: &str) -> Option<u64> {
    const UNITS: &[(&str, f64)] = &[
        ("Ki", 1024.0),
        ("Mi", 1_048_576.0),
        ("Gi", 1_073_741_824.0),
        ("Ti", 1_099_511_627_776.0),
        ("Pi", 1_125_899_906_842_624.0),
        ("Ei", 1_152_921_504_606_846_976.0),
        ("k", 1e3),
        ("M", 1e6),
        ("G", 1e9),
        ("T", 1e12),
        ("P", 1e15),
        ("E", 1e18),
    ];
    let unit = UNITS.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)));
    let (number, factor) = unit.unwrap_or((text, 1.0));
    let bytes = number.parse::<f64>().ok()? * factor;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, and a metric has no decimals"
    )]
    bytes.is_finite().then_some(bytes as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_volumes_are_read() {
        for (text, bytes) in [
            ("16Gi", Some(17_179_869_184)),
            ("1.5Ki", Some(1536)),
            ("128G", Some(128_000_000_000)),
            ("7", Some(7)),
            ("x", None),
        ] {
            assert_eq!(parse(text), bytes, "{text}");
        }
    }
}
