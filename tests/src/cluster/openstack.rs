//! What runs on a cluster on OpenStack and looks at its servers: the machine API and the cloud controller manager.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use shared::spoke::kinds::MACHINE_NAMESPACE;
use tokio::sync::watch;

use super::LABEL;
use super::machine::Machine;
use super::nodes::is_ready;
use crate::ec2::client::Snapshot;
use crate::supervisor::clock::Clock;

/// Plays both while the API server answers. Runs until it is aborted.
///
/// A Machine whose providerID names no server is `Failed`, and stays so whatever comes: only a write of its status brings
/// it back. A Node that is not ready and whose server is gone is deleted.
pub async fn play(
    client: Client,
    infra_id: String,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    api_up: watch::Receiver<bool>,
    clock: Clock,
) {
    loop {
        clock.tick().await;
        let snapshot = snapshots.borrow().clone();
        if !*api_up.borrow() || snapshot.of(&infra_id).is_empty() {
            continue;
        }
        let exists = |provider_id: &str| {
            let id = provider_id.rsplit('/').next().unwrap_or_default();
            snapshot.instances.iter().any(|instance| instance.id == id)
        };
        if let Err(error) = look(&client, &infra_id, exists).await {
            tracing::warn!(cluster = infra_id, "{error:#}");
        }
    }
}

async fn look(client: &Client, infra_id: &str, exists: impl Fn(&str) -> bool) -> Result<()> {
    let ours = ListParams::default().labels(&format!("{LABEL}={infra_id}"));
    let machines: Api<Machine> = Api::namespaced(client.clone(), MACHINE_NAMESPACE);
    for machine in machines.list(&ours).await.context("list Machines")? {
        let name = machine.name_any();
        let object = serde_json::to_value(&machine).context("read a Machine")?;
        let phase = object["status"]["phase"].as_str().unwrap_or_default();
        let status = match object["spec"]["providerID"].as_str() {
            _ if phase == "Failed" => continue,
            Some(id) if !exists(id) => json!({"phase": "Failed", "errorMessage": "Can't find created instance."}),
            Some(_) if phase == "Provisioned" => json!({"phase": "Running"}),
            _ => continue,
        };
        let patch: Patch<Value> = Patch::Merge(json!({ "status": status }));
        let written = machines.patch_status(&name, &PatchParams::default(), &patch).await;
        written.with_context(|| format!("write the status of Machine {name}"))?;
    }
    let nodes: Api<Node> = Api::all(client.clone());
    for node in nodes.list(&ours).await.context("list Nodes")? {
        let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref()).unwrap_or_default();
        if !is_ready(&node) && !exists(provider_id) {
            let name = node.name_any();
            nodes.delete(&name, &DeleteParams::default()).await.with_context(|| format!("delete Node {name}"))?;
        }
    }
    Ok(())
}
