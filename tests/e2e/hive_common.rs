//! What the tests of Hive's clusters share.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Secret};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use shared::hive::api::ClusterDeployment;
use testbed::check::installed;
use testbed::{Cluster, ClusterOptions, World};

/// Long enough for anything that happens at all.
pub(crate) const SOON: Duration = Duration::from_mins(1);

/// What the Events about the cluster say, by reason.
pub(crate) async fn events(world: &World, cluster: &Cluster) -> Result<BTreeMap<String, String>> {
    let events: Api<Event> = Api::namespaced(world.hub().await?, cluster.namespace());
    let found = events.list(&ListParams::default()).await?.items;
    let text = |text: Option<String>| text.unwrap_or_default();
    Ok(found.into_iter().map(|event| (text(event.reason), text(event.message))).collect())
}

/// Creates an installed cluster, which is nowhere, with changes merged into it.
pub(crate) async fn create(
    clusters: &Api<ClusterDeployment>,
    name: &str,
    platform: &str,
    change: &Value,
) -> Result<ClusterDeployment> {
    let object = serde_json::from_value(installed(name, platform))?;
    clusters.create(&PostParams::default(), &object).await.with_context(|| format!("create {name}"))?;
    let status = json!({ "status": { "installedTimestamp": "2026-01-01T00:00:00Z" } });
    clusters.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(clusters.patch(name, &PatchParams::default(), &Patch::Merge(change)).await?)
}

/// A cluster with an account of its own, once it runs.
pub(crate) async fn running(world: &World, name: &str, options: ClusterOptions) -> Result<Cluster> {
    let cluster = world.cluster(name, ClusterOptions { own_account: true, ..options }).await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    Ok(cluster)
}

/// The message of a condition.
pub(crate) fn message<'a>(cluster: &'a ClusterDeployment, type_: &str) -> &'a str {
    cluster.condition(type_).and_then(|condition| condition.message.as_deref()).unwrap_or_default()
}

/// Waits until a condition has these words.
pub(crate) async fn says(cluster: &Cluster, type_: &str, words: &str) -> Result<ClusterDeployment> {
    cluster.wait_for(words, SOON, |found| message(found, type_).contains(words)).await
}

/// The Secrets of a cluster's namespace, and the name of the one with its credentials.
pub(crate) async fn credentials(world: &World, cluster: &Cluster) -> Result<(Api<Secret>, String)> {
    let aws = cluster.get().await?.spec.platform.aws.context("an AWS cluster")?;
    let name = aws.credentials_secret_ref.context("a Secret")?.name;
    Ok((Api::namespaced(world.hub().await?, cluster.namespace()), name))
}

/// Its ledger counts what it has slept for so many machines of this type, and nothing else. Seconds asleep.
pub(crate) async fn ledger_counts(world: &World, cluster: &Cluster, machines: u64, type_: &str) -> Result<u64> {
    let args = ["savings", cluster.name(), "-n", cluster.namespace(), "-o", "json"];
    let saved = world.plugin(&args).await?.json()?;
    let total = &saved["total"];
    let asleep = total["asleepSeconds"].as_u64().context("seconds")?;
    ensure!(asleep > 0 && total["machineSeconds"] == json!({ type_: machines * asleep }), "{saved}");
    Ok(asleep)
}
