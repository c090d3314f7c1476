//! The API server refuses a status with 422 although the object did not change, as a schema or a policy does.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use shared::hive::api::ClusterDeployment;
use testbed::json_http::JsonHttp;
use testbed::proxy::faults::Rule;
use testbed::{ClusterOptions, World, apply, ensure_that, eventually};

const SOON: Duration = Duration::from_mins(1);
const POLICY: &str = "refuse-status";

#[tokio::test]
async fn a_refused_status_is_reported_and_retried_with_backoff() -> Result<()> {
    let world = World::shared().await?;
    let hub = world.hub().await?;
    let cluster = world.cluster("refused", ClusterOptions::of_size(1)).await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    let group = "admissionregistration.k8s.io/v1";
    apply::all(
        &hub,
        &[
            json!({"apiVersion": group, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": POLICY}, "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [{
                    "apiGroups": ["hive.openshift.io"], "apiVersions": ["*"], "operations": ["UPDATE"],
                    "resources": ["clusterdeployments/status"],
                }]},
                "validations": [{"expression": "false", "message": "no status today", "reason": "Invalid"}],
            }}),
            json!({"apiVersion": group, "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": POLICY}, "spec": {
                "policyName": POLICY, "validationActions": ["Deny"],
                "matchResources": {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": cluster.namespace()}}},
            }}),
        ],
    )
    .await?;
    let clusters: Api<ClusterDeployment> = Api::namespaced(hub.clone(), cluster.namespace());
    let patch = Patch::Merge(json!({"status": {"installedTimestamp": "2026-11-20T00:00:00Z"}}));
    eventually(SOON, "effect of the policy", async || {
        ensure_that(clusters.patch_status(cluster.name(), &PatchParams::default(), &patch).await, Result::is_err)
    })
    .await?;

    let path = format!("/apis/hive.openshift.io/v1/namespaces/{}/", cluster.namespace());
    let writes =
        world.inject("hub", &Rule::default().method("PATCH").path(&path).user_agent("hibernate-controller/")).await?;
    cluster.sleep().await?;
    let events: Api<Event> = Api::namespaced(hub.clone(), cluster.namespace());
    eventually(SOON, "Event WriteRefused", async || {
        let found = events.list(&ListParams::default()).await?.items;
        let note = found
            .into_iter()
            .find(|event| event.reason.as_deref() == Some("WriteRefused"))
            .and_then(|event| event.note);
        ensure!(note.as_deref().is_some_and(|note| note.contains("no status today")), "{note:?}");
        Ok(())
    })
    .await?;
    let page = world.now().await?.controller.map(|controller| controller.metrics).unwrap_or_default();
    let metrics = JsonHttp::page(&page).await?;
    let counted =
        metrics.lines().any(|line| line.starts_with("hibernate_refused_writes_total{") && !line.ends_with(" 0"));
    ensure!(counted, "{metrics}");
    // 2 s, doubled, with jitter: at most four more attempts in 20 s, and two spare ones.
    let before = world.hits("hub", &writes.id).await?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let attempts = world.hits("hub", &writes.id).await? - before;
    ensure!(attempts <= 6, "{attempts} writes in 20 s");

    for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
        world.kubectl(&["delete", kind, POLICY]).await?.ok()?;
    }
    cluster.wait_for_power_state("Hibernating", Duration::from_secs(90)).await?;
    world.heal("hub", Some(&writes.id)).await?;
    cluster.remove().await
}
