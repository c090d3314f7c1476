//! `objects`, `governance`, `clouds` and `bodies` of one tenant at once, against one webhook and one controller whose data
//! segment is limited.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use testbed::bench::table::Table;
use testbed::{ClusterOptions, Options, Program, Timings, World};
use tokio::time::sleep;

use crate::answers::prlimit;
use crate::clouds::{asked, begins, namespace, write_hostile};
use crate::objects::{define_governance, start, write_clusters, write_governance};
use crate::reviews::Webhook;
use crate::{bodies, peak};

/// Fewer than alone, for the API server.
const CLUSTERS: usize = 15;
const GOVERNED: usize = 8;
const LONG: Duration = Duration::from_mins(3);
/// A wake waits for a minute for its ClusterSync first.
const ATTACK: Duration = Duration::from_secs(80);

pub async fn all_at_once(table: &mut Table) -> Result<()> {
    let options =
        Options { clusters: 0, without: vec![Program::Controller], timings: Timings::fast(), ..Options::default() };
    let world = World::up(options).await?;
    define_governance(&world).await?;
    namespace(&world).await?;
    start(&world).await?;
    let honest = ClusterOptions { own_account: true, ..ClusterOptions::of_size(3) };
    let honest = world.cluster("honest", honest).await?;
    honest.wait_for_power_state("Running", LONG).await?;
    let (calm_start, model) = begins(&world, &honest).await?;
    let idle = [measured(&world, "controller").await?, measured(&world, "webhook").await?];
    write_governance(&world, GOVERNED).await?;
    write_clusters(&world, model.clone(), CLUSTERS).await?;
    write_hostile(&world, &model).await?;
    let flood = bodies::attack(&Webhook::of(&world).await?)?;
    sleep(ATTACK).await;
    let (attacked, _) = begins(&world, &honest).await?;
    let before = peak(&world, "controller").await?;
    // A new leader lists them all.
    world.signal("controller", "restart").await?;
    let limited = limit(&world, "controller").await?;
    sleep(ATTACK).await;
    let (restarted, _) = begins(&world, &honest).await?;
    ensure!(pid(&world, "controller").await? == limited, "the controller was ended and started again");
    ensure!(asked() > 0, "no hostile cloud was asked");
    drop(flood);
    table.add("together", "s until another tenant's sleep reaches EC2, none hostile", None, None, calm_start);
    table.add("together", "the same, all hostile", None, Some(2.0), attacked);
    table.add("together", "the same 80 s after a restart", None, Some(2.0), restarted);
    let names = [
        ("controller", "controller's peak MB, none hostile", "controller's MB over the same without"),
        ("webhook", "webhook's peak MB, none hostile", "webhook's MB over the same without"),
    ];
    for ((program, calm, over), idle) in names.into_iter().zip(idle) {
        table.add("together", calm, None, None, idle);
        let attacked = peak(&world, program).await?;
        let attacked = if program == "controller" { attacked.max(before) } else { attacked };
        table.add("together", over, None, Some(96.0), attacked - idle);
    }
    Ok(())
}

async fn pid(world: &World, program: &str) -> Result<i32> {
    world.now().await?.pids.get(program).copied().with_context(|| format!("no {program} runs"))
}

/// Limits a program's data segment.
async fn limit(world: &World, program: &str) -> Result<i32> {
    let pid = pid(world, program).await?;
    prlimit(pid)?;
    Ok(pid)
}

/// Its peak in ten quiet seconds, in MB. It is limited from now on.
async fn measured(world: &World, program: &str) -> Result<f64> {
    let pid = limit(world, program).await?;
    fs::write(format!("/proc/{pid}/clear_refs"), "5").context("reset the peak")?;
    sleep(Duration::from_secs(10)).await;
    peak(world, program).await
}
