//! Three hundred clusters of six instances in one account, under EC2's limits: what bounds the wake is the cloud.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use testbed::bench::hundred::{many, timings};
use testbed::bench::meter::count;
use testbed::bench::table::Table;
use testbed::{ClusterOptions, Timings};
use tokio::time::Instant;

const CLUSTERS: usize = 300;
const SIZE: usize = 6;
/// Instances that `StartInstances` takes at once, and in a second.
const BURST: f64 = 1_000.0;
const RATE: f64 = 2.0;
const LONG: Duration = Duration::from_mins(20);

/// Puts them to sleep, and measures the wake.
pub async fn run(table: &mut Table) -> Result<()> {
    // 1,800 kubelets on one API server.
    let minute = || "60s".parse();
    let slow = Timings {
        lease_period: minute()?,
        status_period: minute()?,
        operator_lease_period: minute()?,
        ..timings(5, 5)?
    };
    let (world, _clusters) = many(CLUSTERS, ClusterOptions::of_size(SIZE), slow).await?;
    let (status, _) = crate::rollout(&world, "Hibernate", CLUSTERS, LONG).await?;
    eprintln!("bench: asleep: {:?}", status.counts);
    // The buckets are full again: no instance has been started yet.
    world.ec2().reset_calls().await?;
    let began = Instant::now();
    let (status, _) = crate::rollout(&world, "Resume", CLUSTERS, LONG).await?;
    let took = began.elapsed().as_secs_f64();
    let calls = world.ec2().calls().await?;
    let mut by_call = BTreeMap::<(&str, &str), usize>::new();
    for call in &calls {
        *by_call.entry((&call.action, call.error.as_deref().unwrap_or(""))).or_default() += 1;
    }
    eprintln!("bench: {by_call:?}");
    let throttled = calls.iter().filter(|call| call.error.as_deref() == Some("RequestLimitExceeded")).count();
    eprintln!("bench: awake: {:?}", status.counts);
    let bound = (count(CLUSTERS * SIZE) - BURST) / RATE;
    table.add("limits", "seconds until all", None, Some(bound * 1.1), took);
    table.add("limits", "over what EC2's limits allow", None, Some(1.1), took / bound);
    table.add("limits", "throttled answers", None, Some(3.0), count(throttled));
    table.add("limits", "EC2 calls", None, None, count(calls.len()));
    Ok(())
}
