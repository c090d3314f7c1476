//! What there is of a cluster: Pods, PVCs and Services, by owner reference and the cluster's own label names.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod as KubePod, Service};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use shared::annotation::{format, keys};
use shared::fdb::admission::Kind;
use shared::fdb::api::FoundationDBCluster;
use shared::fdb::suspension::Stamp;

use super::Fdb;
use super::decide::{Held, Pod};
use crate::runtime::{ReconcileError, System};

/// What was seen of a cluster.
pub struct Seen {
    /// Its Pods.
    pub pods: Vec<Pod>,
    /// Its PVCs and Services, as decisions see them.
    pub objects: Vec<Held>,
    /// Name and version of each of these.
    pub names: Vec<Name>,
}

/// Which object it is.
pub struct Name {
    /// Its name.
    pub name: String,
    /// The version that was listed.
    pub version: Option<String>,
}

/// Lists all of it.
pub async fn list(fdb: &Fdb, cluster: &FoundationDBCluster) -> Result<Seen, ReconcileError> {
    let namespace = cluster.namespace().unwrap_or_default();
    let client = || fdb.hub().client.clone();
    let labels = cluster.match_labels().iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>();
    let which = ListParams::default().labels(&labels.join(","));
    let failed = |what| move |source| ReconcileError::List(what, Box::new(source));

    let pods: Api<KubePod> = Api::namespaced(client(), &namespace);
    let volumes: Api<PersistentVolumeClaim> = Api::namespaced(client(), &namespace);
    let services: Api<Service> = Api::namespaced(client(), &namespace);
    // Volumes first: one that is stamped because its Pod is gone was there before the Pods were listed.
    let volumes = volumes.list(&which).await.map_err(failed("PVCs of the cluster"))?;
    let services = services.list_metadata(&which).await.map_err(failed("Services of the cluster"))?;
    let pods = pods.list_metadata(&which).await.map_err(failed("Pods of the cluster"))?;

    let mut seen = Seen { pods: vec![], objects: vec![], names: vec![] };
    for volume in volumes.items.iter().filter(|volume| is_of(cluster, &volume.metadata)) {
        seen.add(cluster, Kind::Pvc, &volume.metadata, bytes(volume));
    }
    for service in services.items.iter().filter(|service| is_of(cluster, &service.metadata)) {
        seen.add(cluster, Kind::Service, &service.metadata, 0);
    }
    for pod in pods.items.iter().filter(|pod| is_of(cluster, &pod.metadata)) {
        let deleting = pod.metadata.deletion_timestamp.is_some();
        seen.pods.extend(group(cluster, &pod.metadata).map(|group| Pod { group, deleting }));
    }
    Ok(seen)
}

impl Seen {
    fn add(&mut self, cluster: &FoundationDBCluster, kind: Kind, meta: &ObjectMeta, bytes: u64) {
        let none = BTreeMap::new();
        let annotations = meta.annotations.as_ref().unwrap_or(&none);
        let uid = meta.uid.as_deref().unwrap_or_default();
        let get = |key: &str| annotations.get(key).map(String::as_str);
        self.objects.push(Held {
            kind,
            uid: uid.to_owned(),
            group: group(cluster, meta),
            deleting: meta.deletion_timestamp.is_some(),
            bytes,
            stamp: Stamp::read(uid, get),
            woken: get(keys::WOKEN_AT).and_then(format::time),
        });
        let name = meta.name.clone().unwrap_or_default();
        self.names.push(Name { name, version: meta.resource_version.clone() });
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

/// Size of a volume: what it has, or else what was asked for.
fn bytes(volume: &PersistentVolumeClaim) -> u64 {
    let capacity = volume.status.as_ref().and_then(|status| status.capacity.as_ref());
    let requests = || volume.spec.as_ref()?.resources.as_ref()?.requests.as_ref();
    let size = capacity.or_else(requests).and_then(|sizes| sizes.get("storage"));
    size.and_then(|Quantity(text)| parse(text)).unwrap_or_default()
}

/// Bytes of a quantity such as `16Gi`; `None` for what is none.
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
