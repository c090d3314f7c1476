//! What schedules cost, beside a loop of `kubectl patch` in the same run.
//!
//! Run with `make bench-schedules`; names of scenarios as arguments run only those. `cold`: the edges of 10,000 schedules
//! without a hub; `edge`: an edge over a thousand clusters of one schedule, and the same again when all are right already;
//! `singles`: a thousand schedules of one cluster each, with one edge; `quiet`: a thousand schedules over ten thousand
//! clusters between two edges, for five minutes or as many as `BENCH_MINUTES` says. The clusters are fake: they have no
//! machines. Requests are counted from the hub's audit log. Prints a table; asserts nothing.

mod cold;
mod edge;
mod fleet;
mod quiet;
mod singles;

use anyhow::Result;
use testbed::bench::table::{Table, asked};

const SCENARIOS: &[&str] = &["cold", "edge", "singles", "quiet"];

#[tokio::main]
async fn main() -> Result<()> {
    let mut table = Table::against("kubectl");
    for name in asked(SCENARIOS)? {
        eprintln!("bench: scenario {name}");
        let ran = match name {
            "cold" => cold::run(&mut table),
            "edge" => edge::run(&mut table).await,
            "singles" => singles::run(&mut table).await,
            _ => quiet::run(&mut table).await,
        };
        table.print();
        ran?;
    }
    table.save()
}
