//! The controller measured as Hive's own was (docs/reference/hive.md, section 8): the same scenarios, counts and
//! simulator timings.
//!
//! Run with `make bench-hive`; names of scenarios as arguments run only those. Calls are counted from the audit logs of
//! hub and spoke and from the EC2 simulator's log. Prints one table, with Hive's figures and the limits beside ours,
//! and the same as JSON to `$HIBERNATE_BENCH_JSON` if that is set. Asserts nothing.

mod fleet;
mod restart;
mod single;

use anyhow::Result;
use testbed::Platform;
use testbed::bench::table::{Table, asked};

const SCENARIOS: &[&str] = &["a", "a2", "b", "b403", "c", "c3", "gcp", "azure", "ibmcloud", "d", "d10k"];

#[tokio::main]
async fn main() -> Result<()> {
    let mut table = Table::default();
    for name in asked(SCENARIOS)? {
        eprintln!("bench: scenario {name}");
        match name {
            "a" => single::quick(&mut table).await?,
            "a2" => single::real_boot(&mut table).await?,
            "b" => single::refused_stop(&mut table).await?,
            "b403" => single::forbidden_stop(&mut table).await?,
            "c" => fleet::fleet(&mut table, "C", 5, 5).await?,
            "c3" => fleet::fleet(&mut table, "C3", 20, 30).await?,
            "gcp" => fleet::simulated(&mut table, Platform::Gcp).await?,
            "azure" => fleet::simulated(&mut table, Platform::Azure).await?,
            "ibmcloud" => fleet::simulated(&mut table, Platform::IbmCloud).await?,
            "d" => restart::restart(&mut table, "D", 1_000).await?,
            _ => restart::restart(&mut table, "D 10k", 10_000).await?,
        }
        table.print();
    }
    table.save()
}
