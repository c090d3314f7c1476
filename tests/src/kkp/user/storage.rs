//! Volumes and load balancers: attached, detached and removed only while a Pod of the CSI driver's controller runs (row
//! 60).

use std::collections::BTreeMap;

use anyhow::Result;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Service};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::json;

use super::sets::digest;
use crate::kkp::is_pod_ready;
use crate::kkp::registry::UserCluster;
use crate::kkp::seed::unless_gone;
use crate::kkp::workloads::CSI;
use crate::supervisor::clock::Clock;

/// One round over volumes and Services.
pub(super) async fn tick(cluster: &UserCluster) -> Result<()> {
    if !cluster.answers() {
        return Ok(());
    }
    attach(cluster).await?;
    // Services and volumes change seldom: they are listed once a second.
    if Clock::now().fract() < 0.15 {
        balance(cluster).await?;
        reclaim(cluster).await?;
    }
    Ok(())
}

/// Whether the CSI driver's controller runs on a Node whose instance is there.
fn csi_runs(cluster: &UserCluster) -> bool {
    let state = cluster.state();
    cluster.of_user.pods.all().iter().any(|pod| {
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        let of_driver =
            pod.namespace().as_deref() == Some("kube-system") && pod.labels().get("app").is_some_and(|app| app == CSI);
        of_driver && is_pod_ready(pod) && state.cloud.of_node(node).is_some()
    })
}

/// Volumes and Nodes of the Pods that use them, by the name of their attachment.
fn used(cluster: &UserCluster) -> BTreeMap<String, (String, String)> {
    let mut used = BTreeMap::new();
    for pod in cluster.of_user.pods.all() {
        let Some(spec) = &pod.spec else { continue };
        let Some(node) = &spec.node_name else { continue };
        for claim in spec.volumes.iter().flatten().filter_map(|volume| volume.persistent_volume_claim.as_ref()) {
            let name = format!("csi-{}", digest(&format!("{}/{node}", claim.claim_name)));
            used.insert(name, (claim.claim_name.clone(), node.clone()));
        }
    }
    used
}

async fn attach(cluster: &UserCluster) -> Result<()> {
    let used = used(cluster);
    let found = cluster.of_user.attachments.all();
    let api: Api<VolumeAttachment> = Api::all(cluster.user.clone());
    let new = used.iter().filter(|(name, _)| !found.iter().any(|one| one.name_any() == **name));
    let old: Vec<_> = found.iter().filter(|one| !used.contains_key(&one.name_any())).collect();
    if !csi_runs(cluster) {
        return Ok(());
    }
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(cluster.user.clone(), crate::kkp::workloads::NAMESPACE);
    for (name, (claim, node)) in new {
        let claim = claims.get_opt(claim).await?;
        let Some(volume) = claim.and_then(|claim| claim.spec?.volume_name) else { continue };
        let attachment = json!({
            "metadata": { "name": name },
            "spec": { "attacher": "csi.example.com", "nodeName": node, "source": { "persistentVolumeName": volume } },
        });
        api.create(&PostParams::default(), &serde_json::from_value(attachment)?).await?;
        let attached = Patch::Merge(json!({ "status": { "attached": true } }));
        unless_gone(api.patch_status(name, &PatchParams::default(), &attached).await)?;
    }
    for one in old {
        unless_gone(api.delete(&one.name_any(), &DeleteParams::default()).await)?;
        cluster.call(
            "csi",
            format!(
                "detached {} from {}",
                one.spec.source.persistent_volume_name.as_deref().unwrap_or_default(),
                one.spec.node_name
            ),
        );
    }
    Ok(())
}

/// The cloud controller's part: an address for each Service of type `LoadBalancer`.
async fn balance(cluster: &UserCluster) -> Result<()> {
    let all: Api<Service> = Api::all(cluster.user.clone());
    let services = all.list(&ListParams::default().match_any()).await?.items.into_iter();
    let services: Vec<Service> = services
        .filter(|one| one.spec.as_ref().and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer"))
        .collect();
    let name = |one: &Service| format!("{}/{}", one.namespace().unwrap_or_default(), one.name_any());
    cluster.state().cloud.load_balancers.retain(|known, _| services.iter().any(|one| &name(one) == known));
    for service in services {
        let known = cluster.state().cloud.load_balancers.contains_key(&name(&service));
        if !known {
            let address = format!("203.0.113.{}", rand::random::<u8>());
            let api: Api<Service> = Api::namespaced(cluster.user.clone(), &service.namespace().unwrap_or_default());
            let status = Patch::Merge(json!({ "status": { "loadBalancer": { "ingress": [{ "ip": address }] } } }));
            unless_gone(api.patch_status(&service.name_any(), &PatchParams::default(), &status).await)?;
            cluster.state().cloud.load_balancers.insert(name(&service), address);
        }
    }
    Ok(())
}

/// Volumes whose claim is gone are removed, with what is on them.
async fn reclaim(cluster: &UserCluster) -> Result<()> {
    let volumes: Api<PersistentVolume> = Api::all(cluster.user.clone());
    for volume in volumes.list(&ListParams::default().match_any()).await? {
        let Some(spec) = &volume.spec else { continue };
        let Some(claim) = &spec.claim_ref else { continue };
        let claims: Api<PersistentVolumeClaim> =
            Api::namespaced(cluster.user.clone(), claim.namespace.as_deref().unwrap_or_default());
        let bound = claims.get_opt(claim.name.as_deref().unwrap_or_default()).await?.is_some();
        if bound || !csi_runs(cluster) {
            continue;
        }
        let released = Patch::Merge(json!({ "status": { "phase": "Released" } }));
        unless_gone(volumes.patch_status(&volume.name_any(), &PatchParams::default(), &released).await)?;
        unless_gone(volumes.delete(&volume.name_any(), &DeleteParams::default()).await)?;
        let handle = spec.csi.as_ref().map(|csi| csi.volume_handle.clone()).unwrap_or_default();
        if cluster.state().cloud.volumes.remove(&handle).is_some() {
            cluster.call("cloud", format!("removed volume {handle}"));
        }
    }
    Ok(())
}
