//! The controller starts where many clusters sleep, one stopped instance each.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{StreamExt, TryStreamExt, stream};
use http::Method;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use shared::hive::api::ClusterDeployment;
use testbed::bench::meter::{Meter, count, memory};
use testbed::bench::table::Table;
use testbed::ec2::NewInstance;
use testbed::json_http::JsonHttp;
use testbed::supervisor::programs::Start;
use testbed::{ClusterOptions, Options, Program, Timings, World};

const LONG: Duration = Duration::from_mins(5);

/// Starts the controller over `clusters` sleeping clusters.
pub async fn restart(table: &mut Table, scenario: &str, clusters: usize) -> Result<()> {
    let world = World::up(Options {
        clusters: 0,
        audit: true,
        timings: Timings::default(),
        without: vec![Program::Controller, Program::Webhook],
        ..Options::default()
    })
    .await?;
    // One real cluster lends its namespace, its Secrets and its size.
    let model = world.cluster("model", ClusterOptions::of_size(1).asleep()).await?;
    let object = serde_json::to_value(model.raw().await?)?;
    let (account, region) = (&model.info().account, &model.info().region);
    fill(&world, &object, (account, region), clusters).await?;

    let meter = Meter::begin(&world).await?;
    let began = Instant::now();
    let address = world
        .start(&Start { args: vec!["--steady-period".into(), "60s".into()], ..Start::new(Program::Controller) })
        .await?;
    let metrics = JsonHttp::new(&address.metrics);
    let done = loop {
        let text = metrics.text(Method::GET, "", None::<&()>).await?;
        let asleep = text.lines().find_map(|line| {
            line.strip_prefix("hibernate_targets{system=\"hive\",state=\"Hibernating\"} ")?.parse::<usize>().ok()
        });
        if asleep.is_some_and(|asleep| asleep > clusters) {
            break began.elapsed();
        }
        anyhow::ensure!(began.elapsed() < LONG, "only {asleep:?} of {clusters} were looked at");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    let first = meter.read().await?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let [peak, now, own] = memory(&world).await?;
    let large = clusters > 1_000;
    let hive = |value: f64| (!large).then_some(value);
    table.add(scenario, "seconds until all were looked at", hive(11.4), None, done.as_secs_f64());
    table.add(scenario, "Describes", hive(1000.0), Some(if large { 60.0 } else { 10.0 }), first.describes);
    table.add(scenario, "hub writes", hive(0.0), Some(0.0), first.hub_writes);
    table.add(scenario, "RSS peak MB", hive(290.0), Some(if large { 150.0 } else { 60.0 }), peak);
    table.add(scenario, "RSS after MB", hive(261.0), None, now);
    table.add(scenario, "private MB", hive(47.0), (!large).then_some(30.0), own);
    // The next full round is 60 s after the start, by the flag.
    let meter = Meter::begin(&world).await?;
    tokio::time::sleep(Duration::from_secs(62).saturating_sub(began.elapsed())).await;
    tokio::time::sleep(Duration::from_secs(20)).await;
    let round = meter.read().await?;
    table.add(scenario, "Describes of one drift round", None, Some(if large { 60.0 } else { 10.0 }), round.describes);
    table.add(scenario, "requests to hub in that round (writes)", None, Some(0.0), round.hub_writes);
    eprintln!("bench: {} clusters", count(clusters));
    Ok(())
}

async fn fill(world: &World, model: &Value, (account, region): (&str, &str), clusters: usize) -> Result<()> {
    let namespace = model["metadata"]["namespace"].as_str().context("a namespace")?.to_owned();
    let hub = world.hub().await?;
    let resource = kube::api::ApiResource::erase::<ClusterDeployment>(&());
    let api: Api<DynamicObject> = Api::namespaced_with(hub, &namespace, &resource);
    let one = |number: usize| {
        let (api, mut object) = (api.clone(), model.clone());
        let name = format!("sleeper-{number}");
        object["metadata"] = json!({
            "name": name, "namespace": namespace,
            "labels": model["metadata"]["labels"], "annotations": model["metadata"]["annotations"],
        });
        object["spec"]["clusterName"] = json!(name);
        object["spec"]["clusterMetadata"]["infraID"] = json!(name);
        let status = json!({"status": object["status"]});
        async move {
            api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
            api.patch_status(&name, &PatchParams::default(), &Patch::Merge(&status)).await?;
            let instance = NewInstance { name: name.clone(), state: Some("stopped".into()), ..NewInstance::default() };
            world.ec2().create(account, region, &name, &[instance]).await?;
            anyhow::Ok(())
        }
    };
    stream::iter(0..clusters).map(one).buffer_unordered(8).try_collect::<()>().await
}
