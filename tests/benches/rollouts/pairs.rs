//! A hundred clusters, by plain patches and by a rollout, in turn.

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use testbed::world::handle::Cluster;
use testbed::{ClusterOptions, Options, Timings, World};
use tokio::time::Instant;

use crate::meter::{Meter, count};
use crate::table::Table;

const CLUSTERS: usize = 100;
const PAIRS: usize = 5;
const LONG: Duration = Duration::from_mins(5);

/// Runs the pairs, and prints the median of each and their ratio.
pub async fn run(table: &mut Table) -> Result<()> {
    let timings = Timings {
        ec2_start: "5s".parse()?,
        ec2_stop: "5s".parse()?,
        boot_delay: "0s".parse()?,
        node_ready_delay: "0s".parse()?,
        lease_period: "10s".parse()?,
        status_period: "10s".parse()?,
        operator_lease_period: "26s".parse()?,
        operator_lag: "10m".parse()?,
        ..Timings::default()
    };
    let world = World::up(Options { clusters: 0, audit: true, timings, ..Options::default() }).await?;
    let labels = [("hive.openshift.io/resume-skips-cluster-operators".to_owned(), "true".to_owned())].into();
    let options = ClusterOptions { labels, ..ClusterOptions::of_size(3) };
    let make = |number| {
        let (world, options) = (&world, options.clone());
        async move { world.cluster(&format!("fleet-{number}"), options).await }
    };
    let clusters: Vec<Cluster> = stream::iter(0..CLUSTERS).map(make).buffer_unordered(4).try_collect().await?;
    all(&clusters, "Running").await?;
    for (way, action, end) in [("sleep", "Hibernate", "Hibernating"), ("wake", "Resume", "Running")] {
        for _ in 0..PAIRS {
            for by in ["plain", "rollout"] {
                // Every measurement of a way begins in the other state.
                plain(&clusters, if end == "Running" { "Hibernating" } else { "Running" }).await?;
                tokio::time::sleep(Duration::from_secs(2)).await;
                let (meter, began) = (Meter::begin(&world).await?, Instant::now());
                if by == "plain" {
                    plain(&clusters, end).await?;
                } else {
                    crate::rollout(&world, action, CLUSTERS, LONG).await?;
                }
                all(&clusters, end).await?;
                let took = began.elapsed().as_secs_f64();
                let writes = meter.read().await?.hub_writes / count(CLUSTERS);
                eprintln!("bench: {way} {by}: {took:.1} s, {writes:.2} writes per cluster");
                table.add(&format!("{way} {by}"), "seconds until all", None, None, took);
                table.add(&format!("{way} {by}"), "hub writes per cluster", None, None, writes);
            }
        }
    }
    Ok(())
}

async fn plain(clusters: &[Cluster], end: &str) -> Result<()> {
    let ask = clusters
        .iter()
        .map(|cluster| async move { if end == "Running" { cluster.wake().await } else { cluster.sleep().await } });
    try_join_all(ask).await.context("ask")?;
    all(clusters, end).await
}

async fn all(clusters: &[Cluster], end: &str) -> Result<()> {
    // One after the other: a hundred that poll at once are work for the hub.
    for cluster in clusters {
        cluster.wait_for_power_state(end, LONG).await?;
    }
    Ok(())
}
