//! What dehydration costs a seed, and whether it holds against KKP's own reconciles.
//!
//! Run with `make bench-kkp`; names of scenarios as arguments run only those. `fleet`: ten user clusters fall asleep,
//! sleep for two minutes and wake; requests to the seed are counted from its audit log. `races`: rounds of one cluster
//! whose counts are raised again by reconciles in flight after the pause. Prints a table; asserts nothing. KKP is the
//! double of doubles.md of the docs, twenty times as fast.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use futures::future::try_join_all;
use serde_json::json;
use testbed::bench::table;
use testbed::supervisor::programs::Start;
use testbed::{KkpCluster, KkpOptions, Options, Program, Timings, World, apply};

const LONG: Duration = Duration::from_mins(5);
const CLUSTERS: usize = 10;
const ROUNDS: usize = 6;

#[tokio::main]
async fn main() -> Result<()> {
    for name in table::asked(&["fleet", "races"])? {
        if name == "fleet" { fleet().await? } else { races().await? }
    }
    Ok(())
}

async fn up(clusters: usize) -> Result<Vec<KkpCluster>> {
    let options =
        Options { spokes: clusters, clusters: 0, audit: true, timings: Timings::fast(), ..Options::without_programs() };
    let world = World::up(options).await?;
    apply::all(&world.hub().await?, &manifests::kkp()).await?;
    let made = (0..clusters).map(|number| {
        let (world, id) = (&world, format!("c{number}"));
        async move { world.kkp(&id, KkpOptions::small()).await }
    });
    let made = try_join_all(made).await?;
    world.start(&Start { args: vec!["--kkp".to_owned()], ..Start::new(Program::Controller) }).await?;
    Ok(made)
}

async fn fleet() -> Result<()> {
    let clusters = up(CLUSTERS).await?;
    let world = clusters[0].world();
    for asleep in [true, false] {
        let (before, begun) = (requests(world).await?, Instant::now());
        try_join_all(
            clusters
                .iter()
                .map(|cluster| async move { if asleep { cluster.sleep().await } else { cluster.wake().await } }),
        )
        .await?;
        let phase = asleep.then_some("Dehydrated");
        try_join_all(clusters.iter().map(|cluster| cluster.wait_for_phase(phase, LONG))).await?;
        row(if asleep { "sleep" } else { "wake" }, world, &before, begun).await?;
        if asleep {
            let (before, begun) = (requests(world).await?, Instant::now());
            tokio::time::sleep(Duration::from_mins(2)).await;
            row("two minutes asleep", world, &before, begun).await?;
        }
    }
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
async fn row(what: &str, world: &World, before: &BTreeMap<String, usize>, begun: Instant) -> Result<()> {
    let seconds = begun.elapsed().as_secs_f64();
    let after = requests(world).await?;
    let of = |verb: &String| after[verb] - before.get(verb).copied().unwrap_or_default();
    let verbs: Vec<String> =
        after.keys().map(|verb| format!("{verb} {:.1}", of(verb) as f64 / CLUSTERS as f64)).collect();
    println!("{CLUSTERS} clusters, {what}: {seconds:.1} s; requests to the seed per cluster: {}", verbs.join(", "));
    Ok(())
}

/// The controller's requests to the seed so far, by verb. Those of its Lease are left out.
async fn requests(world: &World) -> Result<BTreeMap<String, usize>> {
    let mut found = BTreeMap::new();
    for event in world.audited("hub").await? {
        if event["stage"] == "ResponseComplete" && event["objectRef"]["resource"] != "leases" {
            *found.entry(event["verb"].as_str().unwrap_or_default().to_owned()).or_default() += 1;
        }
    }
    Ok(found)
}

async fn races() -> Result<()> {
    let clusters = up(1).await?;
    let cluster = &clusters[0];
    let mut clean = 0;
    for round in 0..ROUNDS {
        let (rounds, delay) = (1 + round % 4, format!("{}ms", 400 + 700 * round));
        cluster.turn(&json!({ "inFlight": { "rounds": rounds, "deployments": 11, "delay": delay } })).await?;
        cluster.clear_log().await?;
        cluster.sleep().await?;
        cluster.wait_for_phase(Some("Dehydrated"), LONG).await?;
        let (counts, log) = (cluster.replicas().await?, cluster.log().await?);
        let raised = log.calls.iter().filter(|call| call.text.starts_with("in flight")).count();
        let is_clean = counts.values().all(|count| *count == 0) && log.violations.is_empty();
        clean += usize::from(is_clean);
        println!("round {round}: {raised} writes of reconciles in flight, every {delay}: clean {is_clean}");
        cluster.wake().await?;
        cluster.wait_for_phase(None, LONG).await?;
    }
    println!("{clean} of {ROUNDS} rounds clean: every count at 0, and etcd only ever at all of its members or none");
    Ok(())
}
