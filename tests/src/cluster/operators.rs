//! The `ClusterOperators` of a cluster: settled, except for a while after its API server has come back.

use std::time::Duration;

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject, Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::{LABEL, objects::days_ago};
use crate::{
    apply::{self, MANAGER},
    proxy::becomes,
    supervisor::clock::Clock,
};

/// The operators that a cluster has here, out of OpenShift's thirty or so.
pub const OPERATORS: &[&str] =
    &["authentication", "console", "dns", "etcd", "ingress", "kube-apiserver", "machine-config", "network"];

/// The operator's object name: all clusters of a spoke share one name space.
#[must_use]
pub fn name(operator: &str, infra_id: &str) -> String {
    format!("{operator}-{infra_id}")
}

/// Makes the operators of a cluster, settled for days.
///
/// # Errors
/// When the spoke refuses them.
pub async fn create(client: &Client, infra_id: &str) -> Result<()> {
    let objects: Vec<Value> = OPERATORS
        .iter()
        .map(|operator| {
            json!({
                "apiVersion": "config.openshift.io/v1",
                "kind": "ClusterOperator",
                "metadata": {"name": name(operator, infra_id), "labels": {LABEL: infra_id}},
                "spec": {},
            })
        })
        .collect();
    apply::all(client, &objects).await?;
    write(client, infra_id, false, &days_ago(3)).await
}

/// Plays the operators of one cluster: some time after each wake they are busy, then they settle. Runs until it is aborted.
pub async fn play(
    client: Client,
    infra_id: String,
    mut api_up: watch::Receiver<bool>,
    clock: Clock,
    mut settled: bool,
) {
    loop {
        if !becomes(&mut api_up, true).await {
            return;
        }
        if !settled {
            tokio::select! {
                result = settle(&client, &infra_id, &clock) => match result {
                    Ok(()) => settled = true,
                    Err(error) => {
                        tracing::warn!(cluster = infra_id, "{error:#}");
                        tokio::time::sleep(Duration::from_millis(500)).await;
                    }
                },
                _ = becomes(&mut api_up, false) => {}
            }
            continue;
        }
        if !becomes(&mut api_up, false).await {
            return;
        }
        settled = false;
    }
}

async fn settle(client: &Client, infra_id: &str, clock: &Clock) -> Result<()> {
    tokio::time::sleep(clock.timings().operator_lag.0).await;
    write(client, infra_id, true, &now()).await?;
    tokio::time::sleep(clock.timings().operator_settle.0).await;
    write(client, infra_id, false, &now()).await
}

async fn write(client: &Client, infra_id: &str, progressing: bool, since: &str) -> Result<()> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource());
    let status = |value: bool| if value { "True" } else { "False" };
    let condition = |type_: &str, value: bool, reason: &str, since: &str| json!({"type": type_, "status": status(value), "reason": reason, "lastTransitionTime": since});
    let (reason, installed) = (if progressing { "Restarting" } else { "AsExpected" }, days_ago(3));
    let patch = json!({"status": {"conditions": [
        condition("Available", true, "AsExpected", &installed),
        condition("Progressing", progressing, reason, since),
        condition("Degraded", false, "AsExpected", &installed),
        condition("Upgradeable", true, "AsExpected", &installed),
    ]}});
    for operator in OPERATORS {
        let name = name(operator, infra_id);
        let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        api.patch_status(&name, &params, &Patch::Merge(&patch))
            .await
            .with_context(|| format!("write the status of ClusterOperator {name}"))?;
    }
    Ok(())
}

/// `clusteroperators.config.openshift.io`
#[must_use]
pub fn resource() -> ApiResource {
    ApiResource::from_gvk_with_plural(
        &kube::core::GroupVersionKind::gvk("config.openshift.io", "v1", "ClusterOperator"),
        "clusteroperators",
    )
}

fn now() -> String {
    Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}
