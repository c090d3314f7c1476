//! The controller starts where many clusters sleep, one stopped instance each.

use std::time::{Duration, Instant};

use anyhow::Result;
use http::Method;
use serde_json::json;
use testbed::bench::meter::{Meter, count};
use testbed::bench::table::Table;
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
    let annotations = json!(model.get().await?.metadata.annotations);
    model.copies("sleeper", clusters, &annotations, Some("stopped")).await?;

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
    let [peak, now, own] = world.memory("controller").await?;
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
