//! A hundred clusters of three instances on one spoke, as Hive's own controller was measured with.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures::{StreamExt, TryStreamExt, stream};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, ResourceExt};
use shared::hive::api::ClusterDeployment;

use crate::world::handle::Cluster;
use crate::{ClusterOptions, Options, Timings, World};

/// How many.
pub const CLUSTERS: usize = 100;
const LONG: Duration = Duration::from_mins(5);

/// EC2 takes this many seconds to start and to stop. A hundred clusters share one API server and two cores with
/// everything else: they say no more than real ones do.
///
/// # Errors
/// When a time cannot be read.
pub fn timings(start: u64, stop: u64) -> Result<Timings> {
    Ok(Timings {
        ec2_start: format!("{start}s").parse()?,
        ec2_stop: format!("{stop}s").parse()?,
        boot_delay: "0s".parse()?,
        node_ready_delay: "0s".parse()?,
        lease_period: "10s".parse()?,
        status_period: "10s".parse()?,
        operator_lease_period: "26s".parse()?,
        // The label below skips the operators, as in Hive's run.
        operator_lag: "10m".parse()?,
        ..Timings::default()
    })
}

/// Makes so many of these clusters on one spoke. All of them run.
///
/// # Errors
/// When a part of the world fails.
pub async fn many(clusters: usize, options: ClusterOptions, timings: Timings) -> Result<(World, Vec<Cluster>)> {
    let world = World::up(Options { clusters: 0, audit: true, timings, ..Options::default() }).await?;
    let options = ClusterOptions {
        labels: [("hive.openshift.io/resume-skips-cluster-operators".to_owned(), "true".to_owned())].into(),
        ..options
    };
    let make = |number| {
        let (world, options) = (&world, options.clone());
        async move { world.cluster(&format!("fleet-{number}"), options).await }
    };
    let clusters: Vec<Cluster> = stream::iter(0..clusters).map(make).buffer_unordered(4).try_collect().await?;
    all(&world, "Running").await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    Ok((world, clusters))
}

/// Waits until all clusters are there. By a watch: to list a hundred clusters again and again is work for the hub.
///
/// # Errors
/// When they are not there in minutes, or the watch ends.
pub async fn all(world: &World, power_state: &str) -> Result<Instant> {
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
