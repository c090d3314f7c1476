//! The control plane of a user cluster: Deployments, `StatefulSets` and `CronJobs` of its namespace on the seed.

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::batch::v1::CronJob;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ListParams, ObjectMeta};
use kube::{Api, ResourceExt};
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
        self.workloads.iter().any(|one| one.wanted > 0 && one.workload.name == "apiserver")
    }

    /// What a `MachineDeployment`'s count needs and is not ready: machine-controller, OSM and the webhooks of both.
    pub fn unready(&self) -> Option<String> {
        let needed =
            |name: &str| name.starts_with("machine-controller") || name.starts_with("operating-system-manager");
        let waits = self.workloads.iter().find(|one| needed(&one.workload.name) && (one.wanted == 0 || !one.ready))?;
        Some(format!("waiting for {}", waits.workload.name))
    }
}

/// Lists all of it.
pub async fn list(kkp: &Kkp, cluster: &Cluster) -> Result<Seed, ReconcileError> {
    let (client, namespace) = (kkp.hub().client.clone(), cluster.control_plane_namespace());
    let all = ListParams::default();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &namespace);
    let sets: Api<StatefulSet> = Api::namespaced(client.clone(), &namespace);
    let jobs: Api<CronJob> = Api::namespaced(client, &namespace);
    let (deployments, sets, jobs) = tokio::join!(deployments.list(&all), sets.list(&all), jobs.list(&all));
    let deployments = deployments.map_err(ReconcileError::read("Deployments of the control plane"))?;
    let sets = sets.map_err(ReconcileError::read("StatefulSets of the control plane"))?;
    let jobs = jobs.map_err(ReconcileError::read("CronJobs of the control plane"))?;
    let cron_jobs = jobs.items.iter().map(|job| decide::CronJob {
        name: job.name_any(),
        suspended: job.spec.suspend.unwrap_or_default(),
        ours: job.annotations().contains_key(keys::SUSPENDED),
    });
    let workloads = deployments.items.iter().map(of_deployment).chain(sets.items.iter().map(of_stateful_set));
    Ok(Seed { workloads: workloads.collect(), cron_jobs: cron_jobs.collect() })
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

/// Counts of a workload as its kind reports them.
struct Counts {
    wanted: Option<i32>,
    existing: i32,
    ready: Option<i32>,
    observed: Option<i64>,
    deletes_volumes: bool,
}

fn replicas(kind: WorkloadKind, meta: &ObjectMeta, counts: &Counts) -> Replicas {
    let count = |number: i32| u32::try_from(number).unwrap_or_default();
    let wanted = count(counts.wanted.unwrap_or(1)); // as Kubernetes defaults it
    let is_current = counts.observed.unwrap_or_default() >= meta.generation.unwrap_or_default();
    Replicas {
        workload: Workload { kind, name: meta.name.clone().unwrap_or_default() },
        wanted,
        ready: is_current && count(counts.ready.unwrap_or_default()) >= wanted,
        running: counts.existing > 0 || !is_current,
        copy: copy(meta),
        deletes_volumes: counts.deletes_volumes,
    }
}

/// Our copy of a count.
pub fn copy(meta: &ObjectMeta) -> Option<u32> {
    number(meta.annotations.as_ref()?.get(keys::DEHYDRATED_REPLICAS)?)
}

/// A count as an annotation has it.
pub fn number(count: &str) -> Option<u32> {
    u32::try_from(format::count(count)?).ok()
}

fn of_deployment(one: &Deployment) -> Replicas {
    let status = one.status.as_ref();
    let counts = Counts {
        wanted: one.spec.as_ref().and_then(|spec| spec.replicas),
        existing: status.and_then(|status| status.replicas).unwrap_or_default(),
        ready: status.and_then(|status| status.ready_replicas),
        observed: status.and_then(|status| status.observed_generation),
        deletes_volumes: false,
    };
    replicas(WorkloadKind::Deployment, &one.metadata, &counts)
}

fn of_stateful_set(one: &StatefulSet) -> Replicas {
    let status = one.status.as_ref();
    let retention = one.spec.as_ref().and_then(|spec| spec.persistent_volume_claim_retention_policy.as_ref());
    let when_scaled = retention.and_then(|retention| retention.when_scaled.as_deref());
    let counts = Counts {
        wanted: one.spec.as_ref().and_then(|spec| spec.replicas),
        existing: status.map(|status| status.replicas).unwrap_or_default(),
        ready: status.and_then(|status| status.ready_replicas),
        observed: status.and_then(|status| status.observed_generation),
        deletes_volumes: when_scaled == Some(DELETE),
    };
    replicas(WorkloadKind::StatefulSet, &one.metadata, &counts)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

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
            let object = |mut spec: Value, mut status: Value, set: bool| {
                spec["selector"] = json!({});
                spec["template"] = json!({});
                if set {
                    spec["serviceName"] = json!("etcd");
                    let count = status["replicas"].as_i64().unwrap_or(0);
                    status["replicas"] = json!(count);
                }
                json!({ "metadata": { "name": "etcd", "generation": 3 }, "spec": spec, "status": status })
            };
            let deployment =
                of_deployment(&serde_json::from_value(object(spec.clone(), status.clone(), false)).unwrap());
            let set = of_stateful_set(&serde_json::from_value(object(spec.clone(), status.clone(), true)).unwrap());
            for found in [deployment, set] {
                assert_eq!((found.wanted, found.ready, found.running), (wanted, ready, running), "{spec} {status}");
            }
        }
    }
}
