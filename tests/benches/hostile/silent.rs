//! One cluster falls asleep while a thousand others, of one tenant, are to be asked whose API servers never answer.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use shared::annotation::{format, keys};
use shared::hive::api::ClusterDeployment;
use testbed::ec2::NewInstance;
use testbed::proxy::faults::{Effect, Rule};
use testbed::world::handle::Cluster;
use testbed::{ClusterOptions, Options, Timings, World};

use crate::peak;
use crate::table::Table;

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
    fill(&world, &model).await?;
    starts(&victim).await?; // warms up
    let (memory, calm) = (peak(&world, "controller").await?, starts(&victim).await?);
    let attack = tokio::spawn(attack(hostile(&world, &model).await?));
    tokio::time::sleep(Duration::from_secs(10)).await;
    let attacked = starts(&victim).await?;
    attack.abort();
    table.add("silent", "slowest start of a sleep in s, none asked", None, None, calm);
    table.add("silent", "slowest start of a sleep in s, 1,000 silent", None, Some(2.0), attacked);
    table.add("silent", "ratio", None, None, attacked / calm);
    table.add("silent", "controller's peak MB without", None, None, memory);
    table.add("silent", "controller's peak MB", None, None, peak(&world, "controller").await?);
    Ok(())
}

/// Seconds from a request for sleep to the first status that says so: the longest of some rounds.
async fn starts(cluster: &Cluster) -> Result<f64> {
    let mut longest: f64 = 0.0;
    for _ in 0..ROUNDS {
        cluster.sleep().await?;
        let asked = Instant::now();
        cluster.wait_for("the start of a sleep", LONG, |found| found.power_state() != "Running").await?;
        longest = longest.max(asked.elapsed().as_secs_f64());
        cluster.wait_for_power_state("Hibernating", LONG).await?;
        cluster.wake().await?;
        cluster.wait_for_power_state("Running", LONG).await?;
    }
    Ok(longest)
}

async fn hostile(world: &World, model: &Cluster) -> Result<Api<DynamicObject>> {
    let resource = ApiResource::erase::<ClusterDeployment>(&());
    Ok(Api::namespaced_with(world.hub().await?, model.namespace(), &resource))
}

/// Copies of a cluster that is awake, with its kubeconfig and an instance each.
async fn fill(world: &World, model: &Cluster) -> Result<()> {
    let object = serde_json::to_value(model.raw().await?)?;
    let (api, account, region) = (hostile(world, model).await?, &model.info().account, &model.info().region);
    let one = |number: usize| {
        let (api, mut object) = (api.clone(), object.clone());
        let name = format!("silent-{number}");
        object["metadata"] =
            json!({ "name": name, "namespace": model.namespace(), "labels": object["metadata"]["labels"] });
        object["spec"]["clusterName"] = json!(name);
        object["spec"]["clusterMetadata"]["infraID"] = json!(name);
        let status: Value = json!({ "status": object["status"] });
        async move {
            let instance = NewInstance { name: name.clone(), state: Some("running".into()), ..NewInstance::default() };
            world.ec2().create(account, region, &name, &[instance]).await?;
            api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
            api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
            anyhow::Ok(())
        }
    };
    stream::iter(0..SILENT).map(one).buffer_unordered(8).try_collect::<()>().await.context("make silent clusters")
}

/// Asks for a preflight of each, again and again.
async fn attack(api: Api<DynamicObject>) -> Result<()> {
    loop {
        let ask = |number: usize| {
            let api = api.clone();
            async move {
                let annotations = json!({ keys::PREFLIGHT_REQUESTED_AT: format::seconds(Timestamp::now()) });
                let patch = json!({ "metadata": { "annotations": annotations } });
                api.patch(&format!("silent-{number}"), &PatchParams::default(), &Patch::Merge(&patch)).await
            }
        };
        let asked = stream::iter(0..SILENT).map(ask).buffer_unordered(16);
        asked.try_for_each(|_| std::future::ready(Ok(()))).await?;
    }
}
