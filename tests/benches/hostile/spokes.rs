//! Twenty healthy clusters sleep and wake while ten others wake, whose spokes are hostile or not.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use futures::{StreamExt as _, TryStreamExt as _, stream};
use testbed::bench::table::Table;
use testbed::proxy::faults::{Effect, Rule};
use testbed::world::handle::Cluster;
use testbed::{ClusterOptions, Options, Timings, World};

use crate::peak;

const HEALTHY: usize = 20;
const HOSTILE: usize = 10;
const ROUNDS: u32 = 3;
const LONG: Duration = Duration::from_mins(3);

pub async fn hostile_spokes(table: &mut Table) -> Result<()> {
    let world = World::up(Options { clusters: 0, timings: Timings::fast(), ..Options::default() }).await?;
    let healthy = clusters(&world, "healthy", HEALTHY).await?;
    let hostile = clusters(&world, "hostile", HOSTILE).await?;
    both(&hostile, "Hibernating").await?;
    round(&healthy).await?; // warms up
    let calm_memory = peak(&world, "controller").await?;
    let (mut calm, mut attacked) = ([0.0; 2], [0.0; 2]);
    let (mut busy, mut requests) = ([0.0; 2], 0.0);
    // The ten others wake in every round, so that the machines that the test world plays for them cost the same.
    for number in 0..2 * ROUNDS {
        let hostile_now = number % 2 == 1;
        for (number, cluster) in hostile.iter().enumerate() {
            if hostile_now {
                attack(cluster, number).await?;
            }
            cluster.wake().await?;
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        let (before, met) = (world.cpu("controller").await?, hits(&world, &hostile).await?);
        let took = round(&healthy).await?;
        let used = world.cpu("controller").await? - before;
        requests += hits(&world, &hostile).await? - met;
        add(if hostile_now { &mut attacked } else { &mut calm }, took);
        busy[usize::from(hostile_now)] += used;
        for cluster in &hostile {
            world.heal(&cluster.info().infra_id, None).await?;
        }
        both(&hostile, "Running").await?;
        both(&hostile, "Hibernating").await?;
    }
    for (at, name) in ["spokes sleep", "spokes wake"].into_iter().enumerate() {
        let rounds = f64::from(ROUNDS);
        table.add(name, "seconds until all, mean, none hostile", None, None, calm[at] / rounds);
        table.add(name, "seconds until all, mean, 10 hostile", None, None, attacked[at] / rounds);
        table.add(name, "ratio", None, Some(1.1), attacked[at] / calm[at]);
    }
    let whole = attacked[0] + attacked[1];
    table.add("spokes", "controller's CPU, cores, none hostile", None, None, busy[0] / (calm[0] + calm[1]));
    table.add("spokes", "controller's CPU, cores, 10 hostile", None, None, busy[1] / whole);
    table.add("spokes", "requests to the hostile, a second", None, None, requests / whole);
    table.add("spokes", "controller's peak MB without", None, None, calm_memory);
    table.add("spokes", "controller's peak MB", None, None, peak(&world, "controller").await?);
    Ok(())
}

/// Requests that the faults of hostile clusters have met.
async fn hits(world: &World, hostile: &[Cluster]) -> Result<f64> {
    let mut sum = 0.0;
    for cluster in hostile {
        sum += world.faults(&cluster.info().infra_id).await?.iter().map(|rule| f64::from(rule.hits)).sum::<f64>();
    }
    Ok(sum)
}

fn add(sums: &mut [f64; 2], round: [f64; 2]) {
    sums[0] += round[0];
    sums[1] += round[1];
}

async fn clusters(world: &World, name: &str, count: usize) -> Result<Vec<Cluster>> {
    let make = |number| async move { world.cluster(&format!("{name}-{number}"), ClusterOptions::of_size(3)).await };
    let all: Vec<Cluster> = stream::iter(0..count).map(make).buffer_unordered(4).try_collect().await?;
    both(&all, "Running").await?;
    Ok(all)
}

/// A list of two million empty objects, a page that never ends, a 403 of a megabyte: each spoke has its own way.
async fn attack(cluster: &Cluster, number: usize) -> Result<()> {
    let list = |unit: &str, times| Effect::Body {
        begin: r#"{"items":["#.into(),
        unit: unit.into(),
        times,
        end: "{}]}".into(),
    };
    let effect = match number % 4 {
        0 => list("{},", 2_000_000),
        1 => list(r#"{"metadata":{"name":"a"},"spec":{},"status":{}},"#, 150_000),
        2 => list("[[[[[[[[", 1_000_000),
        _ => Effect::Status { code: 403, retry_after: None, message: Some("\u{1b}[31mno ".repeat(125_000)) },
    };
    cluster.inject(&Rule::new(effect)).await?;
    Ok(())
}

/// Seconds until all sleep, and until all are awake.
async fn round(clusters: &[Cluster]) -> Result<[f64; 2]> {
    Ok([both(clusters, "Hibernating").await?, both(clusters, "Running").await?])
}

/// Asks all for a power state. Seconds until all have it.
async fn both(clusters: &[Cluster], state: &str) -> Result<f64> {
    let begin = Instant::now();
    try_join_all(clusters.iter().map(|cluster| cluster.request(state))).await.context("ask")?;
    try_join_all(clusters.iter().map(|cluster| cluster.wait_for_power_state(state, LONG))).await?;
    Ok(begin.elapsed().as_secs_f64())
}
