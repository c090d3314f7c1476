//! A hundred clusters, by plain patches and by a rollout, in turn.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use testbed::World;
use testbed::bench::hundred::{CLUSTERS, all};
use testbed::bench::meter::{Meter, count};
use testbed::bench::table::Table;
use testbed::world::handle::Cluster;
use tokio::time::Instant;

const PAIRS: usize = 5;
const LONG: Duration = Duration::from_mins(5);

/// Runs the pairs, and prints each.
pub async fn run(table: &mut Table) -> Result<()> {
    let (world, clusters) = crate::accounts(5, 5).await?;
    let mut took = BTreeMap::<&str, Vec<f64>>::new();
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
                let seconds = began.elapsed().as_secs_f64();
                // The plain patches are this program's own, and not counted.
                let asked = if by == "plain" { 1.0 } else { 0.0 };
                let writes = asked + meter.read().await?.hub_writes / count(CLUSTERS);
                eprintln!("bench: {way} {by}: {seconds:.1} s, {writes:.2} writes per cluster");
                took.entry(by).or_default().push(seconds);
                table.add(&format!("{way} {by}"), "seconds until all", None, None, seconds);
                table.add(&format!("{way} {by}"), "hub writes per cluster", None, None, writes);
            }
        }
        let ratio = median(&mut took, "rollout") / median(&mut took, "plain");
        table.add(way, "rollout over plain, medians", None, Some(1.2), ratio);
    }
    Ok(())
}

/// The median of what was measured one way, which is forgotten.
fn median(took: &mut BTreeMap<&str, Vec<f64>>, by: &str) -> f64 {
    let mut all = took.remove(by).unwrap_or_default();
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or_default()
}

/// Asks every cluster by a patch of its own, and waits until all are there.
pub async fn plain(world: &World, clusters: &[Cluster], end: &str) -> Result<()> {
    try_join_all(clusters.iter().map(|cluster| cluster.request(end))).await.context("ask")?;
    all(world, end).await.map(drop)
}
