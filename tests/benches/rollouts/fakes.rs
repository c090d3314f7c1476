//! Ten thousand clusters without machines: what bounds a rollout itself.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use testbed::bench::meter::{Meter, count};
use testbed::bench::table::Table;
use testbed::{ClusterOptions, Options, Timings, World};
use tokio::time::Instant;

const CLUSTERS: usize = 10_000;
const WINDOW: usize = 200;
const LONG: Duration = Duration::from_mins(20);

/// Puts them to sleep.
pub async fn run(table: &mut Table) -> Result<()> {
    let world = World::up(Options { clusters: 0, audit: true, timings: Timings::fast(), ..Options::default() }).await?;
    let model = world.cluster("model", ClusterOptions::of_size(1)).await?;
    model.wait_for_power_state("Running", Duration::from_mins(1)).await?;
    let annotations = json!({ "hive.openshift.io/fake-cluster": "true" });
    model.copies("fake", CLUSTERS, &annotations, None).await?;
    // They have no ClusterSync: the first transition of each waits a minute for it.
    tokio::time::sleep(Duration::from_secs(75)).await;
    let [_, before, _] = world.memory("controller").await?;
    let (meter, began) = (Meter::begin(&world).await?, Instant::now());
    let (status, largest) = crate::rollout(&world, "Hibernate", WINDOW, LONG).await?;
    let took = began.elapsed().as_secs_f64();
    let writes = meter.read().await?.hub_writes / count(CLUSTERS);
    let [peak, after, _] = world.memory("controller").await?;
    eprintln!("bench: {:?}", status.counts);
    table.add("fakes", "seconds until all", None, Some(600.0), took);
    table.add("fakes", "hub writes per cluster", None, None, writes);
    table.add("fakes", "status, largest, KiB", None, Some(64.0), count(largest) / 1024.0);
    table.add("fakes", "RSS before, MB", None, None, before);
    table.add("fakes", "RSS after, MB", None, None, after);
    table.add("fakes", "RSS peak, MB", None, None, peak);
    Ok(())
}
