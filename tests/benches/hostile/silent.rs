//! One cluster falls asleep while a thousand others, of one tenant, are to be asked whose API servers never answer.

use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams};
use kube::runtime::watcher::{Config, Event, watcher};
use serde_json::json;
use shared::annotation::{format, keys};
use shared::hive::api::ClusterDeployment;
use testbed::bench::table::Table;
use testbed::proxy::faults::{Effect, Rule};
use testbed::world::handle::Cluster;
use testbed::{ClusterOptions, Options, Timings, World};

use crate::peak;

const SILENT: usize = 1_000;
const ROUNDS: usize = 3;
const LONG: Duration = Duration::from_mins(3);

pub async fn silent_spokes(table: &mut Table) -> Result<()> {
    let world = World::up(Options { clusters: 0, timings: Timings::fast(), ..Options::default() }).await?;
    // The two tenants have accounts of their own: EC2 limits each account for itself.
    let options = ClusterOptions { own_account: true, ..ClusterOptions::of_size(3) };
    let victim = world.cluster("victim", options).await?;
    let model = world.cluster("hostile", ClusterOptions::of_size(1)).await?;
    for cluster in [&victim, &model] {
        cluster.wait_for_power_state("Running", LONG).await?;
    }
    model.inject(&Rule::new(Effect::Hang)).await?;
    model.copies("silent", SILENT, &json!({}), Some("running")).await.context("make silent clusters")?;
    starts(&world, &victim).await?; // warms up
    let (memory, calm) = (peak(&world, "controller").await?, starts(&world, &victim).await?.start);
    // The same writes, that ask for nothing: what the API server takes for them.
    let written = attacked(&world, &victim, &model, "example.com/written-at").await?;
    let asked = attacked(&world, &victim, &model, keys::PREFLIGHT_REQUESTED_AT).await?;
    table.add("silent", "slowest start of a sleep in s, none asked", None, None, calm);
    table.add("silent", "the same, 1,000 written", None, None, written.start);
    table.add("silent", "of it until a bystander's watch has it, written", None, None, written.watch);
    table.add("silent", "the same, 1,000 silent ones asked", None, Some(2.0), asked.start);
    table.add("silent", "of it until a bystander's watch has it, asked", None, None, asked.watch);
    table.add("silent", "ratio to none asked", None, None, asked.start / calm);
    table.add("silent", "ratio to written", None, None, asked.start / written.start);
    table.add("silent", "controller's peak MB without", None, None, memory);
    table.add("silent", "controller's peak MB", None, None, peak(&world, "controller").await?);
    Ok(())
}

/// The slowest of some rounds, in seconds after the request for sleep.
#[derive(Default)]
struct Slowest {
    /// The first status that says so.
    start: f64,
    /// Of that round: the request in the watch of a client that does nothing else. What the API server needs is no
    /// delay of ours.
    watch: f64,
}

async fn starts(world: &World, cluster: &Cluster) -> Result<Slowest> {
    let mut slowest = Slowest::default();
    for _ in 0..ROUNDS {
        let api = deployments(world, cluster).await?;
        let watch = watcher(api, Config::default()).try_filter_map(async |event| {
            let Event::Apply(object) = event else { return Ok(None) };
            Ok((object.data["spec"]["powerState"] == "Hibernating").then(Instant::now))
        });
        let watch = tokio::spawn(async move { pin!(watch).try_next().await });
        cluster.sleep().await?;
        let asked = Instant::now();
        cluster.wait_for("the start of a sleep", LONG, |found| found.power_state() != "Running").await?;
        let start = asked.elapsed().as_secs_f64();
        cluster.wait_for_power_state("Hibernating", LONG).await?;
        let seen = watch.await??.context("the watch has ended")?;
        if start > slowest.start {
            slowest = Slowest { start, watch: seen.saturating_duration_since(asked).as_secs_f64() };
        }
        cluster.wake().await?;
        cluster.wait_for_power_state("Running", LONG).await?;
    }
    Ok(slowest)
}

async fn deployments(world: &World, of: &Cluster) -> Result<Api<DynamicObject>> {
    let resource = ApiResource::erase::<ClusterDeployment>(&());
    Ok(Api::namespaced_with(world.hub().await?, of.namespace(), &resource))
}

/// The slowest start while each of the clusters is written again and again, with the time in this annotation.
async fn attacked(world: &World, victim: &Cluster, model: &Cluster, annotation: &'static str) -> Result<Slowest> {
    let attack = tokio::spawn(write(deployments(world, model).await?, annotation));
    tokio::time::sleep(Duration::from_secs(10)).await;
    let slowest = starts(world, victim).await;
    attack.abort();
    slowest
}

async fn write(api: Api<DynamicObject>, annotation: &str) -> Result<()> {
    loop {
        let write = |number: usize| {
            let api = api.clone();
            async move {
                let annotations = json!({ annotation: format::seconds(Timestamp::now()) });
                let patch = json!({ "metadata": { "annotations": annotations } });
                api.patch(&format!("silent-{number}"), &PatchParams::default(), &Patch::Merge(&patch)).await
            }
        };
        let written = stream::iter(0..SILENT).map(write).buffer_unordered(16);
        written.try_for_each(|_| std::future::ready(Ok(()))).await?;
    }
}
