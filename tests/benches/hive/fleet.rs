//! A hundred clusters of three instances, all asked at once, on one spoke.

use std::time::Instant;

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use testbed::bench::hundred::{CLUSTERS, all, many, timings};
use testbed::bench::meter::{Counts, Meter, count};
use testbed::bench::table::Table;
use testbed::{ClusterOptions, Platform};

/// Sleep and wake, with EC2 taking this many seconds to start and to stop.
pub async fn fleet(table: &mut Table, scenario: &str, start: u64, stop: u64) -> Result<()> {
    let (world, clusters) = many(CLUSTERS, ClusterOptions::of_size(3), timings(start, stop)?).await?;

    let slow = start > 5;
    let hive: [[Option<f64>; 4]; 2] = if slow {
        [[Some(80.8), Some(602.0), Some(300.0), Some(0.0)], [Some(58.2), Some(598.0), Some(299.0), Some(1200.0)]]
    } else {
        [[Some(38.7), Some(400.0), Some(200.0), Some(0.0)], [Some(38.6), Some(402.0), Some(201.0), Some(1200.0)]]
    };
    for (way, end, hive, cloud, writes) in
        [("sleep", "Hibernating", hive[0], stop, 300.0), ("wake", "Running", hive[1], start, 400.0)]
    {
        let meter = Meter::begin(&world).await?;
        let began = Instant::now();
        try_join_all(clusters.iter().map(|cluster| cluster.request(end))).await.context("ask")?;
        let took = all(&world, end).await?.duration_since(began).as_secs_f64();
        let Counts { hub_writes, spoke, ec2, .. } = meter.read().await?;
        let cloud = f64::from(u32::try_from(cloud)?);
        let [limit, calls] = if slow { [cloud + 8.0, 160.0] } else { [12.0, 140.0] };
        let name = format!("{scenario} {way}");
        table.add(&name, "seconds until all", hive[0], Some(limit), took);
        table.add(&name, "EC2 calls", hive[1], Some(calls), ec2);
        table.add(&name, "hub writes", hive[2], Some(writes), hub_writes);
        table.add(&name, "spoke requests", hive[3], Some(600.0), spoke);
        table.add(&name, "RSS peak MB", Some(263.0), None, world.memory("controller").await?[0]);
    }
    Ok(())
}

/// The same in one project, subscription or account of a cloud that is simulated. Hive's calls are derived from its code
/// (docs/reference/hive.md, section 2): about five looks of each cluster, with a list and a token each.
pub async fn simulated(table: &mut Table, platform: Platform) -> Result<()> {
    let name: &str = platform.into();
    let options = ClusterOptions { platform, ..ClusterOptions::of_size(3) };
    let (world, clusters) = many(CLUSTERS, options, timings(5, 5)?).await?;
    let cloud = world.simulated(platform)?;
    for (way, end) in [("sleep", "Hibernating"), ("wake", "Running")] {
        let (before, began) = (cloud.calls().await?.len(), Instant::now());
        try_join_all(clusters.iter().map(|cluster| cluster.request(end))).await.context("ask")?;
        let took = all(&world, end).await?.duration_since(began).as_secs_f64();
        let calls = cloud.calls().await?.split_off(before);
        let of = |name: &str| count(calls.iter().filter(|call| call.call == name).count());
        let (scenario, is_sleep) = (format!("{name} {way}"), way == "sleep");
        table.add(&scenario, "seconds until all", None, is_sleep.then_some(15.0), took);
        table.add(&scenario, "lists", Some(500.0), is_sleep.then_some(60.0), of("list"));
        table.add(&scenario, "tokens", Some(500.0), is_sleep.then_some(5.0), of("token"));
        table.add(&scenario, "starts and stops", None, Some(300.0), of("start") + of("stop"));
        table.add(&scenario, "refused calls", None, Some(0.0), count(calls.iter().filter(|c| c.status >= 400).count()));
        table.add(&scenario, "RSS peak MB", None, None, world.memory("controller").await?[0]);
    }
    Ok(())
}
