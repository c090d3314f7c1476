//! The record of a sleep in other hands: whoever may write the `ConfigMaps` of `cluster-ID` can forge one, or restore
//! one, and no more than that.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use shared::annotation::keys as common;
use shared::kkp::keys;
use testbed::KkpCluster;

use crate::kkp_common::{SOON, is_as_before, state};

/// A request on the record: the Cluster itself cannot be written (row 27). With a name, as the webhook stamps it.
pub(super) async fn request_on_record(cluster: &KkpCluster, state: &str, by: Option<&str>) -> Result<()> {
    let at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let patch = json!({ "metadata": { "annotations": {
        keys::POWER_STATE: state, keys::POWER_STATE_AT: at, common::REQUESTED_BY: by, common::REQUESTED_AT: by.map(|_| &at),
    } } });
    records(cluster).patch(keys::RECORD.0, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

/// A request and a phase, on the record of a protected cluster, while its own request waits for the end of the
/// protection.
pub(super) async fn forged(cluster: &KkpCluster) -> Result<()> {
    let before = state(cluster).await?;
    cluster.patch(&json!({ "metadata": { "annotations": { common::PROTECTED: "true" } } })).await?;
    let uid = cluster.get().await?.uid().context("a UID")?;
    create_record(cluster, &uid, "Draining").await?;
    request_on_record(cluster, "Hibernating", None).await?;
    observation(cluster).await?;
    detail(cluster, "RecordUnconfirmed", "no condition ClusterDehydrated of this Cluster confirms it").await?;
    cluster.sleep().await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    detail(cluster, "RecordUnconfirmed", "then delete it").await?;
    ensure!(state(cluster).await? == before);
    delete_record(cluster).await?;
    observation(cluster).await?;
    detail(cluster, "Preflight", "refused: annotation hibernate.sh/protected").await?;
    ensure!(state(cluster).await? == before && cluster.record().await?.is_none());
    Ok(())
}

/// As after a restore of the seed: the sleeping cluster has another UID than its record. The advice is followed, or the
/// cluster wakes by the copies.
pub(super) async fn of_another_cluster(cluster: &KkpCluster) -> Result<()> {
    let before = state(cluster).await?;
    cluster.sleep().await?;
    cluster.wait_for_phase(Some("Dehydrated"), SOON).await?;
    let uid = cluster.get().await?.uid().context("a UID")?;
    name_in_record(cluster, "11111111-1111-1111-1111-111111111111").await?;
    observation(cluster).await?;
    let advice = format!("set its field uid to {uid:?}");
    let condition = detail(cluster, "RecordForeign", &advice).await?;
    ensure!(condition["status"] == "True", "{condition}");
    tokio::time::sleep(Duration::from_secs(5)).await;
    ensure!(cluster.replicas().await?.values().all(|count| *count == 0));
    name_in_record(cluster, &uid).await?;
    observation(cluster).await?;
    cluster.wait_for_phase(Some("Dehydrated"), SOON).await?;
    name_in_record(cluster, "11111111-1111-1111-1111-111111111111").await?;
    cluster.wake().await?;
    cluster.wait_for_phase(None, SOON).await?;
    is_as_before(cluster, &before).await
}

/// A write to the Cluster has the controller look at once; it looks at a cluster of which nothing is wanted when a
/// preflight is.
async fn observation(cluster: &KkpCluster) -> Result<()> {
    let at = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    cluster.patch(&json!({ "metadata": { "annotations": { common::PREFLIGHT_REQUESTED_AT: at } } })).await?;
    Ok(())
}

fn records(cluster: &KkpCluster) -> Api<ConfigMap> {
    Api::namespaced(cluster.seed(), &cluster.info().namespace)
}

async fn create_record(cluster: &KkpCluster, uid: &str, phase: &str) -> Result<()> {
    let now = jiff::Timestamp::now().to_string();
    let text = json!({
        "v": 1, "uid": uid, "at": now, "entered": now, "phase": phase,
        "controlPlane": { "Deployment/apiserver": 7, "Deployment/scheduler": 7 },
        "machineDeployments": { "kube-system/a": { "replicas": 7 } },
    });
    let record = json!({ "metadata": { "name": keys::RECORD.0 }, "data": { keys::RECORD.1: text.to_string() } });
    records(cluster).create(&PostParams::default(), &serde_json::from_value(record)?).await?;
    Ok(())
}

async fn delete_record(cluster: &KkpCluster) -> Result<()> {
    records(cluster).delete(keys::RECORD.0, &DeleteParams::default()).await?;
    Ok(())
}

async fn name_in_record(cluster: &KkpCluster, uid: &str) -> Result<()> {
    let mut record = cluster.record().await?.context("a record")?;
    record["uid"] = json!(uid);
    let patch = json!({ "data": { keys::RECORD.1: record.to_string() } });
    records(cluster).patch(keys::RECORD.0, &PatchParams::default(), &Patch::Merge(patch)).await?;
    Ok(())
}

pub(super) async fn detail(cluster: &KkpCluster, reason: &str, text: &str) -> Result<Value> {
    let condition = |object: &DynamicObject| object.data["status"]["conditions"][keys::DEHYDRATED].clone();
    let says = |object: &DynamicObject| {
        let condition = condition(object);
        condition["reason"] == reason && condition["message"].as_str().is_some_and(|message| message.contains(text))
    };
    Ok(condition(&cluster.wait_for(text, SOON, says).await?))
}
