//! KKP's `EtcdRestore` controller, which ignores a pause and ends it (rows 13, 16, 18).

use anyhow::Result;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};

use super::unless_gone;
use crate::kkp::control_plane::ETCD;
use crate::kkp::options::{KUBERMATIC_VERSION, wait};
use crate::kkp::registry::{Kkp, UserCluster};
use crate::kkp::{ACTIVE_RESTORE, kubermatic, machinery, text};
use crate::supervisor::clock::Clock;

/// From the end of its deletions to the new etcd, and from there to its end (row 18).
const STEP: f64 = 30.0;

/// When the current step began.
#[derive(Default)]
pub(super) struct Memory {
    step: Option<f64>,
}

/// One round over all `EtcdRestores`.
pub(super) async fn tick(cluster: &UserCluster, kkp: &Kkp, memory: &mut Memory) -> Result<()> {
    if kkp.settings().controllers_down {
        return Ok(());
    }
    let restores = cluster.of_seed.restores.all();
    let Some(restore) = restores.iter().find(|one| text(one, "/status/phase") != "Completed") else { return Ok(()) };
    let due = |since: f64| Clock::now() - since >= wait(STEP);
    match text(restore, "/status/phase") {
        "" => {
            begin(cluster, restore).await?;
            memory.step = Some(Clock::now());
        }
        "Started" if due(*memory.step.get_or_insert_with(Clock::now)) => {
            rebuild(cluster, restore).await?;
            memory.step = Some(Clock::now());
        }
        "StsRebuilding" if due(*memory.step.get_or_insert_with(Clock::now)) && cluster.state().etcd.serves() => {
            finish(cluster, restore).await?;
            memory.step = None;
        }
        _ => {}
    }
    Ok(())
}

async fn set_phase(cluster: &UserCluster, restore: &DynamicObject, phase: &str) -> Result<()> {
    let kind = kubermatic("EtcdRestore");
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.seed.clone(), &cluster.info.namespace, &kind);
    let patch = Patch::Merge(json!({ "status": { "phase": phase } }));
    api.patch_status(&restore.name_any(), &PatchParams::default(), &patch).await?;
    cluster.call("restore", phase);
    Ok(())
}

/// The annotation and the pause first: where that write is refused, nothing is deleted. Then the `StatefulSet` and the
/// volumes.
async fn begin(cluster: &UserCluster, restore: &DynamicObject) -> Result<()> {
    let annotations = json!({ ACTIVE_RESTORE: restore.name_any() });
    cluster.patch_cluster(&json!({ "metadata": { "annotations": annotations }, "spec": { "pause": true } })).await?;
    let sets: Api<StatefulSet> = Api::namespaced(cluster.seed.clone(), &cluster.info.namespace);
    unless_gone(sets.delete(ETCD, &DeleteParams::background()).await)?;
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(cluster.seed.clone(), &cluster.info.namespace);
    for claim in cluster.of_seed.claims.all() {
        if claim.name_any().starts_with("data-etcd-") {
            unless_gone(claims.delete(&claim.name_any(), &DeleteParams::default()).await)?;
        }
    }
    cluster.call("restore", "deleted StatefulSet etcd and its volumes");
    set_phase(cluster, restore, "Started").await
}

/// The cluster is to be made anew, and KKP goes on with it: the pause ends, `pauseReason` stays (row 13).
async fn rebuild(cluster: &UserCluster, restore: &DynamicObject) -> Result<()> {
    if cluster.of_seed.claims.all().iter().any(|claim| claim.name_any().starts_with("data-etcd-")) {
        return Ok(());
    }
    let condition =
        json!({ "status": "False", "kubermaticVersion": KUBERMATIC_VERSION, "lastHeartbeatTime": Clock::text() });
    cluster.patch_status(&json!({ "conditions": { "EtcdClusterInitialized": condition } })).await?;
    restore_machines(cluster).await?;
    cluster.patch_cluster(&json!({ "spec": { "pause": false } })).await?;
    set_phase(cluster, restore, "StsRebuilding").await
}

async fn finish(cluster: &UserCluster, restore: &DynamicObject) -> Result<()> {
    cluster.patch_cluster(&json!({ "metadata": { "annotations": { ACTIVE_RESTORE: Value::Null } } })).await?;
    set_phase(cluster, restore, "Completed").await
}

/// The data is that of the backup: `MachineDeployments` have the counts of that day.
async fn restore_machines(cluster: &UserCluster) -> Result<()> {
    let backup = cluster.state().backup.clone();
    let kind = machinery("MachineDeployment");
    let api: Api<DynamicObject> = Api::namespaced_with(cluster.user.clone(), "kube-system", &kind);
    for (name, replicas) in backup {
        // Past the webhooks, as a backup is.
        let scaled = Patch::Merge(json!({ "spec": { "replicas": replicas } }));
        unless_gone(api.patch_subresource("scale", &name, &PatchParams::default(), &scaled).await)?;
    }
    Ok(())
}
