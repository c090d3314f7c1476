//! What `ClusterGroupUpgrades` cost a hub and how fast they react, measured as TALM was (docs/reference/talm.md,
//! section 11): the same scenarios and limits.
//!
//! Run with `make bench-cgu`; names of scenarios as arguments run only those. Requests are counted from the hub's audit
//! log, without watches and Leases. Prints a table; asserts nothing.

mod fleet;
mod waits;

use anyhow::Result;
use testbed::bench::table::{self, Table};

use self::fleet::Scenario;

const SCENARIOS: &[&str] = &["c50", "c100", "c1000", "waits", "memory"];

#[tokio::main]
async fn main() -> Result<()> {
    let mut table = Table::against("TALM");
    for name in table::asked(SCENARIOS)? {
        eprintln!("bench: scenario {name}");
        match name {
            "c50" => fleet::upgrade(&mut table, &Scenario::new("c50", 50, 10, true), [74.0, 150.0]).await?,
            "c100" => fleet::upgrade(&mut table, &Scenario::new("c100", 100, 100, true), [475.0, 660.0]).await?,
            "c1000" => fleet::upgrade(&mut table, &Scenario::new("c1000", 1_000, 100, false), [20.0, 3_700.0]).await?,
            "waits" => waits::waits(&mut table).await?,
            _ => waits::memory(&mut table).await?,
        }
        table.print();
    }
    table.save()
}
