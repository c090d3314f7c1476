//! Our ports and the controller under attack: what others notice of it, and what it costs.
//!
//! Run with `make bench-hostile`; names of scenarios as arguments run only those. Prints one table with the limits
//! beside the figures. Asserts nothing.

mod answers;
mod bodies;
mod clouds;
mod connections;
mod invented;
mod objects;
mod ports;
mod reviews;
mod silent;
mod spokes;
mod together;
mod unfinished;

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result};
use testbed::bench::table::{Table, asked};
use testbed::world::handle::Cluster;
use testbed::{ClusterOptions, World};
use tokio::time::sleep;

use self::answers::prlimit;

const SCENARIOS: &[&str] = &[
    "ports",
    "connections",
    "unfinished",
    "bodies",
    "answers",
    "spokes",
    "silent",
    "invented",
    "objects",
    "governance",
    "clouds",
    "together",
];

#[tokio::main]
async fn main() -> Result<()> {
    let mut table = Table::default();
    for name in asked(SCENARIOS)? {
        eprintln!("bench: scenario {name}");
        match name {
            "ports" => ports::idle_connections(&mut table).await?,
            "connections" => connections::idle_clients(&mut table).await?,
            "unfinished" => unfinished::unfinished_bodies(&mut table).await?,
            "bodies" => {
                bodies::large_bodies(&mut table).await?;
                bodies::wrong_bodies(&mut table).await?;
            }
            "answers" => answers::hostile_answers(&mut table).await?,
            "clouds" => clouds::hostile_clouds(&mut table).await?,
            "silent" => silent::silent_spokes(&mut table).await?,
            "objects" => objects::large_clusters(&mut table).await?,
            "governance" => objects::large_governance(&mut table).await?,
            "together" => together::all_at_once(&mut table).await?,
            "invented" => invented::invented_names(&mut table).await?,
            _ => spokes::hostile_spokes(&mut table).await?,
        }
        table.print();
    }
    table.save()
}

/// Peak of a program's memory in MB.
async fn peak(world: &World, program: &str) -> Result<f64> {
    Ok(world.memory(program).await?[0])
}

/// Another tenant's cluster, which runs.
async fn honest(world: &World) -> Result<Cluster> {
    let options = ClusterOptions { own_account: true, ..ClusterOptions::of_size(3) };
    let cluster = world.cluster("honest", options).await?;
    cluster.wait_for_power_state("Running", Duration::from_mins(3)).await?;
    Ok(cluster)
}

/// Limits a program's data segment.
async fn limit(world: &World, program: &str) -> Result<i32> {
    let pid = world.pid(program).await?;
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

/// The value that 99 of 100 are not above.
fn p99(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() * 99 / 100).copied().unwrap_or_default()
}
