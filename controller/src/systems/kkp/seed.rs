//! The control plane of a user cluster: Deployments, `StatefulSets` and `CronJobs` of its namespace on the seed.

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::StatefulSetPersistentVolumeClaimRetentionPolicy;
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ApiResource, ListParams, Object};
use kube::core::GroupVersionKind;
use kube::{Api, ResourceExt};
use serde::Deserialize;
use shared::annotation::format;
use shared::kkp::api::Cluster;
use shared::kkp::certificates::earliest_expiry;
use shared::kkp::keys;
use shared::kkp::record::{Workload, WorkloadKind};
use shared::text::sanitize_chain;
use shared::workload::replicas::DELETE;
use tracing::warn;

use super::decide::control_plane::Replicas;
use super::{Kkp, decide};
use crate::runtime::{ReconcileError, System};

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
        let waits = self.workloads.iter().find(|one| needed(&one.workload.name) && (one.wanted == 0 || !one.ready))?;
        Some(format!("waiting for {}", waits.workload.name))
    }
}

/// A kind of the control plane, of version v1.
pub fn kind(group: &str, kind: &str) -> ApiResource {
    ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind))
}

/// Lists all of it.
pub async fn list(kkp: &Kkp, cluster: &Cluster) -> Result<Seed, ReconcileError> {
    let (client, namespace) = (kkp.hub().client.clone(), cluster.control_plane_namespace());
    let all = ListParams::default();
    let scaled = |of: &str| Api::<Scaled>::namespaced_with(client.clone(), &namespace, &kind("apps", of));
    let (deployments, sets) = (scaled("Deployment"), scaled("StatefulSet"));
    let jobs: Api<CronJob> = Api::namespaced(client.clone(), &namespace);
    let (deployments, sets, jobs) = tokio::join!(deployments.list(&all), sets.list(&all), jobs.list(&all));
    let deployments = deployments.map_err(ReconcileError::read("Deployments of the control plane"))?;
    let sets = sets.map_err(ReconcileError::read("StatefulSets of the control plane"))?;
    let jobs = jobs.map_err(ReconcileError::read("CronJobs of the control plane"))?;
    let cron_jobs = jobs.items.iter().map(|job| decide::CronJob {
        name: job.name_any(),
        suspended: job.spec.suspend.unwrap_or_default(),
        ours: job.annotations().contains_key(keys::SUSPENDED),
    });
    let deployments = deployments.items.iter().map(|one| replicas(WorkloadKind::Deployment, one));
    let sets = sets.items.iter().map(|one| replicas(WorkloadKind::StatefulSet, one));
    Ok(Seed { workloads: deployments.chain(sets).collect(), cron_jobs: cron_jobs.collect() })
}

/// When the first certificate of the control plane expires. Only a warning depends on it: what cannot be read is logged
/// and left out.
pub async fn certificates_expire(kkp: &Kkp, cluster: &Cluster) -> Option<Timestamp> {
    let secrets: Api<Secret> = Api::namespaced(kkp.hub().client.clone(), &cluster.control_plane_namespace());
    let mut values = Vec::new();
    for name in keys::CERTIFICATES {
        match secrets.get_opt(name).await {
            Ok(secret) => values.extend(secret.and_then(|secret| secret.data).unwrap_or_default().into_values()),
            Err(error) => {
                warn!(cluster = cluster.name_any(), name, error = sanitize_chain(&error), "certificate not read");
            }
        }
    }
    earliest_expiry(values.iter().map(|ByteString(value)| value.as_slice()))
}

/// A Deployment or `StatefulSet`, as far as it is read.
type Scaled = Object<Spec, Status>;

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    replicas: Option<i32>,
    persistent_volume_claim_retention_policy: Option<StatefulSetPersistentVolumeClaimRetentionPolicy>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    replicas: i32,
    ready_replicas: i32,
    observed_generation: i64,
}

fn replicas(kind: WorkloadKind, Scaled { metadata, spec, status, .. }: &Scaled) -> Replicas {
    let count = |number: i32| u32::try_from(number).unwrap_or_default();
    let wanted = count(spec.replicas.unwrap_or(1)); // as Kubernetes defaults it
    let status = status.clone().unwrap_or_default();
    let is_current = status.observed_generation >= metadata.generation.unwrap_or_default();
    let retention = spec.persistent_volume_claim_retention_policy.as_ref();
    Replicas {
        workload: Workload { kind, name: metadata.name.clone().unwrap_or_default() },
        wanted,
        ready: is_current && count(status.ready_replicas) >= wanted,
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

    use super::*;

    /// Row 7: replicas, readyReplicas and observedGeneration are the only freshness.
    #[test]
    fn readiness_is_that_of_the_newest_spec() {
        for (spec, status, wanted, ready, running) in [
            (
                json!({ "replicas": 2 }),
                json!({ "replicas": 2, "readyReplicas": 2, "observedGeneration": 3 }),
                2,
                true,
                true,
            ),
            (
                json!({ "replicas": 2 }),
                json!({ "replicas": 2, "readyReplicas": 2, "observedGeneration": 2 }),
                2,
                false,
                true,
            ),
            (
                json!({ "replicas": 2 }),
                json!({ "replicas": 2, "readyReplicas": 1, "observedGeneration": 3 }),
                2,
                false,
                true,
            ),
            (json!({ "replicas": 0 }), json!({ "observedGeneration": 3 }), 0, true, false),
            (json!({ "replicas": 0 }), json!({ "replicas": 1, "observedGeneration": 3 }), 0, true, true),
            (json!({ "replicas": 0 }), json!({}), 0, false, true), // its controller has not seen the 0
            (json!({}), json!({ "replicas": 1, "readyReplicas": 1, "observedGeneration": 3 }), 1, true, true),
            (json!({ "replicas": -1 }), json!({ "observedGeneration": 3 }), 0, true, false),
        ] {
            let object = json!({ "metadata": { "name": "etcd", "generation": 3 }, "spec": spec, "status": status });
            let object: Scaled = serde_json::from_value(object).unwrap();
            for kind in [WorkloadKind::Deployment, WorkloadKind::StatefulSet] {
                let found = replicas(kind, &object);
                assert_eq!((found.wanted, found.ready, found.running), (wanted, ready, running), "{spec} {status}");
            }
        }
    }
}
