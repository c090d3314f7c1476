//! The `ClusterVersion` of a spoke: steady, until a test starts an upgrade. All clusters of a spoke share one.

use anyhow::{Context as _, Result};
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::{Value, json};

use super::objects::days_ago;
use crate::apply;

/// The only name that a `ClusterVersion` has.
const NAME: &str = "version";

/// Makes it, as a cluster has it that was installed three days ago.
///
/// # Errors
/// When the spoke refuses it.
pub async fn create(client: &Client) -> Result<()> {
    let object = json!({
        "apiVersion": "config.openshift.io/v1",
        "kind": "ClusterVersion",
        "metadata": {"name": NAME},
        "spec": {"channel": "stable-4.20"},
    });
    apply::all(client, &[object]).await?;
    set_upgrade(client, None).await
}

/// Says that the cluster is being upgraded to a version, or that it is not.
///
/// # Errors
/// When the spoke refuses it.
pub async fn set_upgrade(client: &Client, to: Option<&str>) -> Result<()> {
    let since = days_ago(if to.is_some() { 0 } else { 3 });
    let condition = |type_: &str, value: bool| {
        let status = if value { "True" } else { "False" };
        json!({"type": type_, "status": status, "reason": "AsExpected", "message": "", "lastTransitionTime": since})
    };
    let update = |version: &str, state: &str| json!({"version": version, "state": state});
    let mut history: Vec<Value> = vec![update("4.20.8", "Completed")];
    history.splice(0..0, to.map(|version| update(version, "Partial")));
    let status = json!({"status": {
        "desired": {"version": to.unwrap_or("4.20.8")},
        "history": history,
        "conditions": [condition("Available", true), condition("Progressing", to.is_some()), condition("Failing", false)],
    }});
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("config.openshift.io", "v1", "ClusterVersion"));
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    api.patch_status(NAME, &PatchParams::default(), &Patch::Merge(&status)).await.context("write its status")?;
    Ok(())
}
