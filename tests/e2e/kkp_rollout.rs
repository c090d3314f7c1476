//! A `PowerRollout` over ten Clusters of KKP, each with a user cluster of its own: waves by datacenter, a canary whose
//! drain fails, and the way back.

use anyhow::{Context as _, Result, ensure};
use futures::future::try_join_all;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use shared::annotation::keys as common;
use shared::annotation::mark::{Mark, Outcome};
use shared::kkp::keys;
use shared::rollout::api::PowerRollout;
use shared::rollout::status::RolloutPhase;
use testbed::{KkpCluster, KkpOptions, Options, Program, Timings, World, apply};

use crate::kkp_common::{SOON, start_with};
use crate::rollout_common::Rollout;

const CLUSTERS: usize = 10;
const FINALIZER: &str = "example.com/keeps";

async fn mark(cluster: &KkpCluster) -> Result<Option<Mark>> {
    let found = cluster.get().await?;
    Ok(found.annotations().get(common::ROLLOUT).and_then(|text| Mark::parse(text)))
}

/// Gives every Pod of the user cluster these finalizers: with one it stays, whoever deletes it.
async fn finalize_pods(cluster: &KkpCluster, finalizers: Value) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(cluster.user(), "shop");
    for pod in pods.list(&ListParams::default()).await? {
        let patch = Patch::Merge(json!({ "metadata": { "finalizers": finalizers } }));
        pods.patch(&pod.name_any(), &PatchParams::default(), &patch).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_clusters_sleep_behind_a_canary_that_failed_its_drain_and_an_undo_wakes_them() -> Result<()> {
    let world = World::up(Options {
        clusters: 0,
        spokes: CLUSTERS,
        without: vec![Program::Controller],
        timings: Timings::fast(),
        ..Options::default()
    })
    .await?;
    let hub = world.hub().await?;
    apply::all(&hub, &manifests::kkp()).await?;
    let options = |at: usize| {
        let datacenter = if at.is_multiple_of(2) { "eu" } else { "us" };
        let small = KkpOptions { datacenter: datacenter.to_owned(), ..KkpOptions::small() };
        // Something that a drain has to wait for.
        if at == 0 { KkpOptions { load_balancers: 1, ..small } } else { small }
    };
    let ids: Vec<String> = (0..CLUSTERS).map(|at| format!("c{at}")).collect();
    let made = ids.iter().enumerate().map(|(at, id)| world.kkp(id, options(at)));
    let clusters = try_join_all(made).await?;
    let canary = &clusters[0];
    finalize_pods(canary, json!([FINALIZER])).await?;
    // Long enough for the others on a machine that many tests share.
    world.start(&start_with(&["--kkp-settle", "3s", "--kkp-limit", "drain=60s"])).await?;

    // What the plugin would create.
    let line =
        ["--all", "cluster", "--max-concurrency", "5", "--canary", "c0", "--yes", "--not-after", "tomorrow 08:00"];
    let draft = world.plugin(&[&line[..], &["--dry-run=client", "-o", "json"]].concat()).await?.ok()?;
    let mut draft: PowerRollout = serde_json::from_str(&draft)?;
    draft.spec.min_success_time = Some("1s".to_owned()); // a canary soaks for two minutes by default
    let api: Api<PowerRollout> = Api::all(hub.clone());
    let sleep = Rollout { name: api.create(&PostParams::default(), &draft).await?.name_any(), api };
    let spec = sleep.get().await?.spec;
    ensure!(spec.targets.kind == "Cluster" && spec.targets.all && spec.max_targets == 10, "{spec:?}");
    let status = sleep.until_phase(RolloutPhase::Halted).await?;
    ensure!(status.halt.as_ref().is_some_and(|halt| halt.group == "canary"), "{status:?}");
    let failed = status.targets.iter().find(|target| target.name == "c0").context("the canary")?;
    ensure!(failed.state == "Failed" && failed.reason.starts_with("DrainTimedOut"), "{failed:?}");
    for cluster in &clusters[1..] {
        ensure!(mark(cluster).await?.is_none(), "nothing starts behind a canary that failed");
    }

    finalize_pods(canary, json!(null)).await?;
    sleep.set(json!({ "retryFailed": 1 })).await?;
    let status = sleep.until_phase(RolloutPhase::Succeeded).await?;
    ensure!((status.total, status.counts.get("Succeeded")) == (Some(10), Some(&10)), "{status:?}");
    for cluster in &clusters {
        let mark = mark(cluster).await?.context("a record")?;
        ensure!(mark.ended.is_some_and(|ended| ended.result == Outcome::Succeeded));
        let found = cluster.get().await?;
        ensure!(found.annotations()[keys::POWER_STATE] == "Hibernating" && found.data["spec"]["pause"] == true);
        let by = found.annotations().get(common::REQUESTED_BY);
        ensure!(by == sleep.get().await?.annotations().get(common::REQUESTED_BY), "the person, not the controller");
    }

    let undo = world.plugin(&["rollout", "undo", &sleep.name, "--yes", "-o", "name"]).await?.ok()?;
    let name = undo.trim().split_once('/').context("a name")?.1.to_owned();
    let undo = Rollout { api: Api::all(hub.clone()), name };
    let status = undo.until_phase(RolloutPhase::Succeeded).await?;
    ensure!(status.counts.get("Succeeded") == Some(&10), "{status:?}");
    for cluster in &clusters {
        cluster.wait_for_phase(None, SOON).await?;
        let found = cluster.get().await?;
        ensure!(found.data["spec"]["pause"] != true, "KKP reconciles it again");
        let awake = &found.data["status"]["conditions"][keys::AWAKE];
        ensure!(awake["status"] == "True" && awake["lastTransitionTime"].is_string(), "{awake}");
    }
    Ok(())
}
