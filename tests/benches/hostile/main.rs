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

use anyhow::Result;
use testbed::World;
use testbed::bench::table::{Table, asked};

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

/// The value that 99 of 100 are not above.
fn p99(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() * 99 / 100).copied().unwrap_or_default()
}
