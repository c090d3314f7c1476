//! The control plane of a user cluster: Deployments, `StatefulSets` and `CronJobs` of its namespace on the seed.

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::StatefulSetPersistentVolumeClaimRetentionPolicy;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{ApiResource, ListParams};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use serde::Deserialize;
use server::hub;
use shared::annotation::format;
use shared::hub_kinds;
use shared::kkp::api::Cluster;
use shared::kkp::certificates::earliest_expiry;
use shared::kkp::decide;
use shared::kkp::decide::control_plane::Replicas;
use shared::kkp::keys;
use shared::kkp::record::{Workload, WorkloadKind};
use shared::text::sanitize_chain;
use shared::workload::replicas::DELETE;
use tracing::warn;

use super::Kkp;
use crate::runtime::{Guarded, ReconcileError, Reconciled};

/// What runs on the seed for one user cluster.
#[derive(Debug, Default)]
pub struct Seed {
    /// Deployments and `StatefulSets`.
    pub workloads: Vec<Replicas>,
    /// `CronJobs`.
    pub cron_jobs: Vec<decide::CronJob>,
}

impl Seed {
    /// Whether the API server of the user cluster is not scaled down yet.
    pub fn has_apiserver(&self) -> bool {
        self.workloads.iter().any(Replicas::is_apiserver_up)
    }

    /// What a `MachineDeployment`'s count needs and is not ready: machine-controller, OSM and the webhooks of both.
    pub fn unready(&self) -> Option<String> {
        let needed =
            |name: &str| name.starts_with("machine-controller") || name.starts_with("operating-system-manager");
        let waits = self.workloads.iter().find(|one| needed(&one.workload.name) && !one.serves())?;
        Some(format!("waiting for {}", waits.workload.name))
    }
}

/// A kind of the control plane, of version v1.
pub fn kind(group: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
}

/// Lists all of it.
pub async fn list(kkp: &Kkp, cluster: &Cluster) -> Reconciled<Seed> {
    let (client, namespace) = (kkp.handle.hub.client.clone(), cluster.control_plane_namespace());
    let all = ListParams::default();
    let deployments: Api<Guarded<Deployment>> = Api::namespaced(client.clone(), &namespace);
    let sets: Api<Guarded<StatefulSet>> = Api::namespaced(client.clone(), &namespace);
    let cron_jobs: Api<Guarded<CronJob>> = Api::namespaced(client, &namespace);
    let deployment = |one: Guarded<Deployment>| {
        one.read().map(|one| replicas(WorkloadKind::Deployment, &one.metadata, &one.spec, &one.status))
    };
    let set = |one: Guarded<StatefulSet>| {
        one.read().map(|one| replicas(WorkloadKind::StatefulSet, &one.metadata, &one.spec, &one.status))
    };
    let cron_job = |one: Guarded<CronJob>| {
        let ours = |one: &CronJob| one.annotations().contains_key(keys::SUSPENDED);
        one.read().map(|one| decide::CronJob { name: one.name_any(), suspended: one.spec.suspend, ours: ours(&one) })
    };
    let (deployments, sets, cron_jobs) = tokio::join!(
        hub::list(&deployments, &all, deployment),
        hub::list(&sets, &all, set),
        hub::list(&cron_jobs, &all, cron_job)
    );
    let mut workloads = deployments.map_err(ReconcileError::read("Deployments of the control plane"))?;
    workloads.extend(sets.map_err(ReconcileError::read("StatefulSets of the control plane"))?);
    Ok(Seed { workloads, cron_jobs: cron_jobs.map_err(ReconcileError::read("CronJobs of the control plane"))? })
}

/// When the first certificate of the control plane expires. Only a warning depends on it: what cannot be read is logged
/// and left out.
pub async fn certificates_expire(kkp: &Kkp, cluster: &Cluster) -> Option<Timestamp> {
    let secrets: Api<Guarded<Secret>> =
        Api::namespaced(kkp.handle.hub.client.clone(), &cluster.control_plane_namespace());
    let mut values = Vec::new();
    for name in keys::CERTIFICATES {
        match hub::get(&secrets, name).await {
            Ok(secret) => values.extend(secret.and_then(|secret| secret.data).unwrap_or_default().into_values()),
            Err(error) => {
                warn!(cluster = cluster.name_any(), name, error = sanitize_chain(&error), "certificate not read");
            }
        }
    }
    earliest_expiry(values.iter().map(|ByteString(value)| value.as_slice()))
}

hub_kinds! {
    /// A Deployment, as far as it is read.
    Deployment: NamespaceResourceScope = "apps", "v1", "Deployment", "deployments"; OBJECT {
        /// What it is to be.
        spec: Spec,
        /// What it is.
        status: Status,
    }

    /// A `StatefulSet`, as far as it is read.
    StatefulSet: NamespaceResourceScope = "apps", "v1", "StatefulSet", "statefulsets"; OBJECT {
        /// What it is to be.
        spec: Spec,
        /// What it is.
        status: Status,
    }

    /// A `CronJob`, as far as it is read.
    CronJob: NamespaceResourceScope = "batch", "v1", "CronJob", "cronjobs"; OBJECT {
        /// What it is to be.
        spec: CronJobSpec,
    }
}

/// What a workload is to be.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    replicas: Option<i32>,
    persistent_volume_claim_retention_policy: Option<StatefulSetPersistentVolumeClaimRetentionPolicy>,
}

/// What a workload is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    replicas: i32,
    ready_replicas: i32,
    observed_generation: i64,
}

/// What a `CronJob` is to be.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct CronJobSpec {
    suspend: bool,
}

fn replicas(kind: WorkloadKind, metadata: &ObjectMeta, spec: &Spec, status: &Status) -> Replicas {
    let count = |number: i32| u32::try_from(number).unwrap_or_default();
    let wanted = count(spec.replicas.unwrap_or(1)); // as Kubernetes defaults it
    let is_current = status.observed_generation >= metadata.generation.unwrap_or_default();
    let retention = spec.persistent_volume_claim_retention_policy.as_ref();
    Replicas {
        workload: Workload { kind, name: metadata.name.clone().unwrap_or_default() },
        wanted,
        ready: if is_current { count(status.ready_replicas) } else { 0 },
        running: status.replicas > 0 || !is_current,
        copy: metadata.annotations.as_ref().and_then(|all| number(all.get(keys::DEHYDRATED_REPLICAS)?)),
        deletes_volumes: retention.and_then(|retention| retention.when_scaled.as_deref()) == Some(DELETE),
    }
}

/// A count as an annotation has it.
pub fn number(count: &str) -> Option<u32> {
    u32::try_from(format::count(count)?).ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::read::{self, Foreign};

    use super::*;

    /// Row 7: replicas, readyReplicas and observedGeneration are the only freshness.
    #[test]
    fn readiness_is_that_of_the_newest_spec() {
        let two = |ready: u32, seen: u32| json!({ "replicas": 2, "readyReplicas": ready, "observedGeneration": seen });
        for (spec, status, wanted, ready, running) in [
            (json!({ "replicas": 2 }), two(2, 3), 2, 2, true),
            (json!({ "replicas": 2 }), two(2, 2), 2, 0, true),
            (json!({ "replicas": 2 }), two(1, 3), 2, 1, true),
            (json!({ "replicas": 0 }), json!({ "observedGeneration": 3 }), 0, 0, false),
            (json!({ "replicas": 0 }), json!({ "replicas": 1, "observedGeneration": 3 }), 0, 0, true),
            (json!({ "replicas": 0 }), json!({}), 0, 0, true), // its controller has not seen the 0
            (json!({}), json!({ "replicas": 1, "readyReplicas": 1, "observedGeneration": 3 }), 1, 1, true),
            (json!({ "replicas": -1 }), json!({ "observedGeneration": 3 }), 0, 0, false),
        ] {
            let object = json!({ "metadata": { "name": "etcd", "generation": 3 }, "spec": spec, "status": status });
            let StatefulSet { metadata, spec: read, status: observed } = serde_json::from_value(object).unwrap();
            for kind in [WorkloadKind::Deployment, WorkloadKind::StatefulSet] {
                let found = replicas(kind, &metadata, &read, &observed);
                assert_eq!((found.wanted, found.ready, found.running), (wanted, ready, running), "{spec} {status}");
            }
        }
    }

    /// What runs for a tenant on the seed, in the largest form that can come.
    #[test]
    fn readers_of_the_seed() {
        fn attack<K: Foreign>(spec: &serde_json::Value) {
            let sample = json!({ "metadata": fuzz::hostile::metadata(), "spec": spec, "status": { "replicas": 1 } });
            let most = K::LIMITS.kept;
            fuzz::hostile::run(std::any::type_name::<K>(), &sample, (24 << 10, most), |text| {
                read::json::<K>(text, &K::LIMITS).ok().map(|read| read.kept)
            });
        }
        let retention = json!({ "replicas": 1, "persistentVolumeClaimRetentionPolicy": { "whenScaled": "Retain" } });
        attack::<Deployment>(&retention);
        attack::<StatefulSet>(&retention);
        attack::<CronJob>(&json!({ "suspend": true, "jobTemplate": { "spec": {} } }));
    }
}
