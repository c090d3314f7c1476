//! One cluster of six instances: a quick wake, a real boot, a cloud that refuses.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use jiff::Timestamp;
use serde_json::json;
use shared::hive::api::ClusterDeployment;
use shared::hive::conditions::PROGRESS;
use testbed::bench::meter::{Meter, count};
use testbed::bench::table::Table;
use testbed::ec2::Fault;
use testbed::world::handle::Cluster;
use testbed::{ClusterOptions, Options, Timings, World};

const RUNS: usize = 3;
const LONG: Duration = Duration::from_mins(6);

async fn world(timings: Timings) -> Result<World> {
    World::up(Options { clusters: 0, audit: true, timings, ..Options::default() }).await
}

/// Follows a transition closely, and answers how long it took and what was said on the way.
async fn follow(cluster: &Cluster, began: Instant, end: &str) -> Result<(f64, Vec<(f64, String)>)> {
    let mut detail: Vec<(f64, String)> = Vec::new();
    loop {
        let found = cluster.get().await?;
        let word = format!("{} {}", found.power_state(), awaited(&found));
        if detail.last().is_none_or(|(_, last)| *last != word) {
            eprintln!("bench: {:>6.2} s  {word}", began.elapsed().as_secs_f64());
            detail.push((began.elapsed().as_secs_f64(), word));
        }
        if found.power_state() == end {
            return Ok((began.elapsed().as_secs_f64(), detail));
        }
        anyhow::ensure!(began.elapsed() < LONG, "no {end} within {LONG:?}: {detail:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn awaited(cluster: &ClusterDeployment) -> String {
    let progress = cluster.condition(PROGRESS).filter(|progress| progress.status == "True");
    progress.and_then(|progress| progress.reason.clone()).unwrap_or_default()
}

/// When the last Node of this wake became ready, in seconds after it began: the newest start of a heartbeat.
async fn last_node(cluster: &Cluster, timings: &Timings, ec2_start: f64) -> Result<f64> {
    let booted = timings.boot_delay.as_secs_f64() + timings.node_ready_delay.as_secs_f64();
    let instances = cluster.instances().await?;
    anyhow::ensure!(instances.iter().all(|instance| instance.state == "running"), "not all instances run");
    let now = f64::from(u32::try_from(Timestamp::now().as_second())?);
    let newest = instances.iter().map(|instance| instance.since).fold(f64::MIN, f64::max);
    anyhow::ensure!(newest <= now + 1.0, "an instance runs since {newest}");
    Ok(ec2_start + booted)
}

/// A: EC2 takes 5 s each way.
pub async fn quick(table: &mut Table) -> Result<()> {
    let timings = Timings {
        boot_delay: "0s".parse()?,
        node_ready_delay: "250ms".parse()?,
        operator_lag: "200ms".parse()?,
        operator_settle: "1s".parse()?,
        ..Timings::default()
    };
    let world = world(timings.clone()).await?;
    let cluster = world.cluster("quick", ClusterOptions::default()).await?;
    cluster.wait_for_power_state("Running", LONG).await?;
    for _ in 0..RUNS {
        let meter = Meter::begin(&world).await?;
        let began = Instant::now();
        cluster.sleep().await?;
        let (took, _) = follow(&cluster, began, "Hibernating").await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let counts = meter.read().await?;
        table.add("A sleep", "seconds (cloud: 5)", Some(60.5), Some(8.0), took);
        table.add("A sleep", "EC2 calls", Some(8.0), Some(6.0), counts.ec2);
        table.add("A sleep", "hub writes", Some(3.0), Some(3.0), counts.hub_writes);

        tokio::time::sleep(Duration::from_secs(2)).await;
        let meter = Meter::begin(&world).await?;
        let began = Instant::now();
        cluster.wake().await?;
        let (took, _) = follow(&cluster, began, "Running").await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let counts = meter.read().await?;
        // The operators settle 1.2 s after the API server answers, which is after 5 s.
        let settled = last_node(&cluster, &timings, 5.0).await?.max(6.2);
        table.add("A wake", "seconds after node and operators", Some(174.8), Some(5.0), took - settled);
        table.add("A wake", "EC2 calls", Some(10.0), Some(8.0), counts.ec2);
        table.add("A wake", "hub writes", Some(4.0), Some(5.0), counts.hub_writes);
        table.add("A wake", "spoke requests", Some(26.0), Some(15.0), counts.spoke);
        tokio::time::sleep(Duration::from_secs(2)).await;
    }
    Ok(())
}

/// A2: EC2 takes 30 s, the API server answers 120 s later, the Nodes 135 s after their instance.
pub async fn real_boot(table: &mut Table) -> Result<()> {
    let timings = Timings {
        ec2_start: "30s".parse()?,
        boot_delay: "120s".parse()?,
        node_ready_delay: "15s".parse()?,
        operator_lag: "1s".parse()?,
        operator_settle: "10s".parse()?,
        ..Timings::default()
    };
    let world =
        world(Timings { boot_delay: "0s".parse()?, node_ready_delay: "0s".parse()?, ..timings.clone() }).await?;
    let cluster = world.cluster("boot", ClusterOptions::default()).await?;
    cluster.wait_for_power_state("Running", LONG).await?;
    cluster.sleep().await?;
    cluster.wait_for_power_state("Hibernating", LONG).await?;
    world.change_timings(&json!({"bootDelay": "120s", "nodeReadyDelay": "15s"})).await?;
    let meter = Meter::begin(&world).await?;
    let began = Instant::now();
    cluster.wake().await?;
    let (took, detail) = follow(&cluster, began, "Running").await?;
    let last = last_node(&cluster, &timings, 30.0).await?;
    let at = |what: &str| detail.iter().find(|(_, word)| word.contains(what)).map(|(at, _)| *at);
    let noticed = |what: &str, happened: f64| at(what).map_or(f64::NAN, |at| at - happened);
    let counts = meter.read().await?;
    table.add("A2 wake", "seconds after the last node", Some(180.6), Some(8.0), took - last);
    table.add("A2 wake", "named: waiting for the API server, s after", None, Some(3.0), noticed(" ApiServer", 30.0));
    table.add("A2 wake", "named: waiting for nodes, s after the API", Some(75.7), Some(3.0), noticed(" Nodes", 150.0));
    table.add("A2 wake", "EC2 calls", Some(25.0), None, counts.ec2);
    table.add("A2 wake", "spoke requests answered", Some(26.0), None, counts.spoke);
    Ok(())
}

/// B: a stop is refused for a minute, each answer taking a second.
pub async fn refused_stop(table: &mut Table) -> Result<()> {
    let fault = Fault { delay: 1.0, ..Fault::error("StopInstances", "IncorrectInstanceState", 400) };
    refused(
        table,
        "B",
        fault,
        Duration::from_mins(1),
        [Some(56.0), Some(117.0), Some(56.0), Some(131.6)],
        [6.0, 13.0, 3.0, 20.0],
    )
    .await
}

/// B3: the same with missing rights.
pub async fn forbidden_stop(table: &mut Table) -> Result<()> {
    let fault = Fault { delay: 1.0, ..Fault::error("StopInstances", "UnauthorizedOperation", 403) };
    refused(
        table,
        "B 403",
        fault,
        Duration::from_mins(1),
        [Some(55.0), Some(112.0), Some(55.0), Some(1000.0)],
        [6.0, 13.0, 3.0, 66.0],
    )
    .await
}

async fn refused(
    table: &mut Table,
    scenario: &str,
    fault: Fault,
    window: Duration,
    hive: [Option<f64>; 4],
    limits: [f64; 4],
) -> Result<()> {
    let world = world(Timings::default()).await?;
    let cluster = world.cluster("refused", ClusterOptions::default()).await?;
    cluster.wait_for_power_state("Running", LONG).await?;
    world.ec2().inject(&fault).await?;
    let meter = Meter::begin(&world).await?;
    cluster.sleep().await?;
    tokio::time::sleep(window).await;
    let counts = meter.read().await?;
    let calls = world.ec2().calls().await?;
    // A try is a call that does not follow another one closely: what is repeated without an instance is the same try.
    let stops: Vec<f64> = calls.iter().filter(|call| call.action == "StopInstances").map(|call| call.start).collect();
    let tries = 1 + stops.windows(2).filter(|pair| pair[1] - pair[0] > 3.0).count();
    table.add(scenario, "tries in 60 s", hive[0], Some(limits[0]), count(tries));
    table.add(scenario, "EC2 calls in 60 s", hive[1], Some(limits[1]), counts.ec2);
    table.add(scenario, "hub writes in 60 s", hive[2], Some(limits[2]), counts.hub_writes);
    world.ec2().heal(None).await?;
    world.ec2().reset_calls().await?;
    let healed = Instant::now();
    cluster.wait_for_power_state("Hibernating", LONG).await.context("after the fault has ended")?;
    let calls = world.ec2().calls().await?;
    let next = calls.iter().find(|call| call.action == "StopInstances").context("no stop")?;
    let last = calls.last().context("no call")?;
    let since = healed.elapsed().as_secs_f64() - (last.end - next.start);
    table.add(scenario, "next try after the cause is gone, s", hive[3], Some(limits[3]), since.max(0.0));
    Ok(())
}
