//! A hundred clusters, by plain patches and by a rollout, in turn.

use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use testbed::World;
use testbed::world::handle::Cluster;
use tokio::time::Instant;

use crate::hundred::{CLUSTERS, all, hundred};
use crate::meter::{Meter, count};
use crate::table::Table;

const PAIRS: usize = 5;
const LONG: Duration = Duration::from_mins(5);

/// Runs the pairs, and prints each.
pub async fn run(table: &mut Table) -> Result<()> {
    let (world, clusters) = hundred(5, 5).await?;
    for (way, action, end) in [("sleep", "Hibernate", "Hibernating"), ("wake", "Resume", "Running")] {
        for _ in 0..PAIRS {
            for by in ["plain", "rollout"] {
                // Every measurement of a way begins in the other state.
                plain(&world, &clusters, if end == "Running" { "Hibernating" } else { "Running" }).await?;
                tokio::time::sleep(Duration::from_secs(2)).await;
                let (meter, began) = (Meter::begin(&world).await?, Instant::now());
                if by == "plain" {
                    plain(&world, &clusters, end).await?;
                } else {
                    crate::rollout(&world, action, CLUSTERS, LONG).await?;
                }
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

async fn plain(world: &World, clusters: &[Cluster], end: &str) -> Result<()> {
    let ask = clusters
        .iter()
        .map(|cluster| async move { if end == "Running" { cluster.wake().await } else { cluster.sleep().await } });
    try_join_all(ask).await.context("ask")?;
    all(world, end).await.map(drop)
}
