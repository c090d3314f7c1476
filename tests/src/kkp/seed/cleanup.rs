//! A Cluster that is being deleted: rows 19 to 23. Finalizer after finalizer, and nothing is ensured any more.

use anyhow::{Result, bail};
use k8s_openapi::api::core::v1::{Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, Service};
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::unless_gone;
use crate::kkp::options::SPEED;
use crate::kkp::registry::UserCluster;
use crate::kkp::workloads::NAMESPACE;
use crate::kkp::{SKIP_EVICTION, machinery};
use crate::supervisor::clock::Clock;

const PREFIX: &str = "kubermatic.k8c.io/";

/// Finalizers that KKP sets on every Cluster, in the order in which they go.
const OWN: [&str; 5] = [
    "cleanup-kubermatic-constraints",
    "delete-nodes",
    "cleanup-credentials-secrets",
    "cleanup-etcdbackupconfigs",
    "cleanup-namespace",
];

/// Those that the dashboard's API sets at a deletion (row 23). They go after the constraints.
const BY_DASHBOARD: [&str; 2] = ["cleanup-in-cluster-lb", "cleanup-in-cluster-pv"];

/// Finalizers of a new Cluster.
pub(crate) fn finalizers(by_dashboard: bool) -> Vec<String> {
    let extra = BY_DASHBOARD.iter().filter(|_| by_dashboard);
    OWN.iter().chain(extra).map(|name| format!("{PREFIX}{name}")).collect()
}

/// The pace of retries.
#[derive(Default)]
pub(super) struct Memory {
    failures: i32,
    next: f64,
}

/// One pass of the clean-up.
pub(super) async fn tick(cluster: &UserCluster, object: &DynamicObject, memory: &mut Memory) -> Result<()> {
    if Clock::now() < memory.next {
        return Ok(());
    }
    let order = [OWN[0], BY_DASHBOARD[0], BY_DASHBOARD[1], OWN[1], OWN[2], OWN[3], OWN[4]];
    let left = object.finalizers();
    let Some(next) = order.iter().find(|name| left.iter().any(|one| one == &format!("{PREFIX}{name}"))) else {
        return Ok(());
    };
    match step(cluster, next).await {
        Ok(true) => {
            memory.failures = 0;
            let rest: Vec<&String> = left.iter().filter(|one| *one != &format!("{PREFIX}{next}")).collect();
            cluster.call("kkp", format!("finalizer {next} done"));
            cluster.patch_cluster(&json!({ "metadata": { "finalizers": rest } })).await
        }
        Ok(false) => Ok(()),
        Err(error) => {
            // Row 20: endless, with a backoff; status.errorMessage stays empty.
            memory.failures += 1;
            memory.next = Clock::now() + (0.2 * 2f64.powi(memory.failures.min(8))).min(30.0) / SPEED.sqrt();
            cluster.call("kkp", format!("ReconcilingError: {error:#}"));
            Ok(())
        }
    }
}

/// Whether it is done.
async fn step(cluster: &UserCluster, finalizer: &str) -> Result<bool> {
    let needs_api = BY_DASHBOARD.contains(&finalizer) || finalizer == OWN[1];
    if needs_api && !cluster.answers() {
        let what = if finalizer == BY_DASHBOARD[0] { "LBs" } else { "objects of the user cluster" };
        bail!("failed to cleanup {what}: dial tcp: connect: connection refused");
    }
    match finalizer {
        "cleanup-in-cluster-lb" => load_balancers(cluster).await,
        "cleanup-in-cluster-pv" => volumes(cluster).await,
        "delete-nodes" => machines(cluster).await,
        "cleanup-namespace" => namespace(cluster).await,
        _ => Ok(true),
    }
}

async fn load_balancers(cluster: &UserCluster) -> Result<bool> {
    let all: Api<Service> = Api::all(cluster.user.clone());
    let balancers = all.list(&ListParams::default()).await?.items.into_iter();
    let balancers: Vec<Service> = balancers
        .filter(|service| service.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer"))
        .collect();
    for service in &balancers {
        let api: Api<Service> = Api::namespaced(cluster.user.clone(), &service.namespace().unwrap_or_default());
        unless_gone(api.delete(&service.name_any(), &DeleteParams::default()).await)?;
    }
    Ok(balancers.is_empty() && cluster.state().cloud.load_balancers.is_empty())
}

/// Claims and the Pods that use them go; the volumes go while a node runs the CSI driver's controller.
async fn volumes(cluster: &UserCluster) -> Result<bool> {
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(cluster.user.clone(), NAMESPACE);
    claims.delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    let pods: Api<Pod> = Api::namespaced(cluster.user.clone(), NAMESPACE);
    pods.delete_collection(&DeleteParams::default(), &ListParams::default().labels("app=db")).await?;
    let volumes: Api<PersistentVolume> = Api::all(cluster.user.clone());
    Ok(volumes.list(&ListParams::default()).await?.items.is_empty())
}

/// As KKP: every Node skips eviction, every `MachineDeployment` goes in the foreground (row 22).
async fn machines(cluster: &UserCluster) -> Result<bool> {
    let nodes: Api<Node> = Api::all(cluster.user.clone());
    for node in cluster.of_user.nodes.all() {
        if !node.annotations().contains_key(SKIP_EVICTION) {
            let patch = Patch::Merge(json!({ "metadata": { "annotations": { SKIP_EVICTION: "true" } } }));
            unless_gone(nodes.patch(&node.name_any(), &PatchParams::default(), &patch).await)?;
        }
    }
    let kind = machinery("MachineDeployment");
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.user.clone(), "kube-system", &kind);
    let left = api.list(&ListParams::default()).await?.items;
    for one in left.iter().filter(|one| one.metadata.deletion_timestamp.is_none()) {
        unless_gone(api.delete(&one.name_any(), &DeleteParams::foreground()).await)?;
    }
    Ok(left.is_empty() && cluster.of_user.machines.all().is_empty())
}

async fn namespace(cluster: &UserCluster) -> Result<bool> {
    let api: Api<Namespace> = Api::all(cluster.seed.clone());
    Ok(unless_gone(api.delete(&cluster.info.namespace, &DeleteParams::default()).await)?.is_none())
}
