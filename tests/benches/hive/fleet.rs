//! A hundred clusters of three instances, all asked at once, on one spoke.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use shared::hive::api::ClusterDeployment;
use testbed::world::handle::Cluster;
use testbed::{ClusterOptions, Options, Timings, World};

use crate::meter::{Counts, Meter, memory};
use crate::table::Table;

const CLUSTERS: usize = 100;
const LONG: Duration = Duration::from_mins(5);

/// Sleep and wake, with EC2 taking this many seconds to start and to stop.
pub async fn fleet(table: &mut Table, scenario: &str, start: u64, stop: u64) -> Result<()> {
    let timings = Timings {
        ec2_start: format!("{start}s").parse()?,
        ec2_stop: format!("{stop}s").parse()?,
        boot_delay: "0s".parse()?,
        node_ready_delay: "0s".parse()?,
        // A hundred clusters share one API server and two cores with everything else: they say no more than real ones do.
        lease_period: "10s".parse()?,
        status_period: "10s".parse()?,
        operator_lease_period: "26s".parse()?,
        // The label below skips the operators, as in Hive's run.
        operator_lag: "10m".parse()?,
        ..Timings::default()
    };
    let world = World::up(Options { clusters: 0, audit: true, timings, ..Options::default() }).await?;
    let options = ClusterOptions {
        labels: [("hive.openshift.io/resume-skips-cluster-operators".to_owned(), "true".to_owned())].into(),
        ..ClusterOptions::of_size(3)
    };
    let make = |number| {
        let (world, options) = (&world, options.clone());
        async move { world.cluster(&format!("fleet-{number}"), options).await }
    };
    let clusters: Vec<Cluster> = stream::iter(0..CLUSTERS).map(make).buffer_unordered(4).try_collect().await?;
    all(&world, "Running").await?;
    tokio::time::sleep(Duration::from_secs(5)).await;

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
        try_join_all(
            clusters.iter().map(|cluster| async move {
                if end == "Running" { cluster.wake().await } else { cluster.sleep().await }
            }),
        )
        .await
        .context("ask")?;
        let took = all(&world, end).await?.duration_since(began).as_secs_f64();
        let Counts { hub_writes, spoke, ec2, .. } = meter.read().await?;
        let cloud = f64::from(u32::try_from(cloud)?);
        let [limit, calls] = if slow { [cloud + 8.0, 160.0] } else { [12.0, 140.0] };
        let name = format!("{scenario} {way}");
        table.add(&name, "seconds until all", hive[0], Some(limit), took);
        table.add(&name, "EC2 calls", hive[1], Some(calls), ec2);
        table.add(&name, "hub writes", hive[2], Some(writes), hub_writes);
        table.add(&name, "spoke requests", hive[3], Some(600.0), spoke);
        table.add(&name, "RSS peak MB", Some(263.0), None, memory(&world).await?[0]);
    }
    Ok(())
}

/// Waits until all clusters are there. By a watch: to list a hundred clusters again and again is work for the hub.
async fn all(world: &World, power_state: &str) -> Result<Instant> {
    let clusters: Api<ClusterDeployment> = Api::all(world.hub().await?);
    let mut events = watcher(clusters, watcher::Config::default()).boxed();
    let (mut left, mut listed) = (HashSet::new(), false);
    let follow = async {
        while !listed || !left.is_empty() {
            match events.try_next().await?.context("the watch has ended")? {
                Event::Init => left.clear(),
                Event::InitDone => listed = true,
                Event::InitApply(cluster) | Event::Apply(cluster) if cluster.power_state() != power_state => {
                    left.insert(cluster.name_any());
                }
                Event::InitApply(cluster) | Event::Apply(cluster) | Event::Delete(cluster) => {
                    left.remove(&cluster.name_any());
                }
            }
        }
        anyhow::Ok(Instant::now())
    };
    let found = tokio::time::timeout(LONG, follow).await;
    found.map_err(|_| anyhow::anyhow!("not all are {power_state} within {LONG:?}: {left:?} are left"))?
}
