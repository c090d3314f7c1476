//! What waves cost, against the same clusters asked one by one.
//!
//! Run with `make bench-rollouts`; names of scenarios as arguments run only those. `pairs`: a hundred clusters of three
//! instances sleep and wake, by plain patches and by a rollout with a window of all of them, interleaved; `fakes`: ten
//! thousand fake clusters fall asleep with a window of 200; `reactions`: how soon a slot is filled, and a pause, an
//! abort, a failure and a new leader take effect; `limits`: three hundred clusters of six instances wake in one account
//! under EC2's limits; `decide`: the engine alone, over ten thousand targets. Calls are counted from the hub's audit
//! log. Prints a table; asserts nothing.

mod engine;
mod fakes;
mod limits;
mod pairs;
mod reactions;

use anyhow::{Result, bail};
use kube::Api;
use kube::api::PostParams;
use serde_json::json;
use shared::rollout::api::PowerRollout;
use shared::rollout::status::PowerRolloutStatus;
use testbed::bench::hundred::{CLUSTERS, many, timings};
use testbed::bench::table::{Table, asked};
use testbed::world::handle::Cluster;
use testbed::{ClusterOptions, World};
use tokio::time::{Duration, Instant};

const SCENARIOS: &[&str] = &["decide", "pairs", "reactions", "limits", "fakes"];

#[tokio::main]
async fn main() -> Result<()> {
    let mut table = Table::default();
    for name in asked(SCENARIOS)? {
        eprintln!("bench: scenario {name}");
        let ran = match name {
            "decide" => {
                engine::run(&mut table);
                Ok(())
            }
            "pairs" => pairs::run(&mut table).await,
            "reactions" => reactions::run(&mut table).await,
            "limits" => limits::run(&mut table).await,
            _ => fakes::run(&mut table).await,
        };
        table.print();
        ran?;
    }
    table.save()
}

/// A hundred clusters, each in an account of its own: they change state again and again, and one account's limits would
/// be measured.
async fn accounts(start: u64, stop: u64) -> Result<(World, Vec<Cluster>)> {
    let options = ClusterOptions { own_account: true, ..ClusterOptions::of_size(3) };
    many(CLUSTERS, options, timings(start, stop)?).await
}

/// Creates a rollout over every cluster of the hub. Its name.
async fn create(world: &World, action: &str, window: usize) -> Result<String> {
    let api: Api<PowerRollout> = Api::all(world.hub().await?);
    let name = format!("bench-{:08x}", rand::random::<u32>());
    let object = json!({
        "apiVersion": "hibernate.sh/v1alpha1", "kind": "PowerRollout", "metadata": { "name": name },
        "spec": {
            "action": action, "targets": { "all": true }, "maxTargets": 20_000, "maxConcurrency": window,
            "startsPerMinute": 100_000, "minSuccessTime": "0s", "maxFailures": 0, "notAfter": "2126-01-01T00:00:00Z",
        },
    });
    api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    Ok(name)
}

/// A rollout over every cluster of the hub, until it is over. Its status, and its largest size in bytes.
async fn rollout(world: &World, action: &str, window: usize, limit: Duration) -> Result<(PowerRolloutStatus, usize)> {
    let api: Api<PowerRollout> = Api::all(world.hub().await?);
    let name = create(world, action, window).await?;
    let (deadline, mut largest) = (Instant::now() + limit, 0);
    loop {
        let status = api.get(&name).await?.status.unwrap_or_default();
        largest = largest.max(json!(status).to_string().len());
        if status.phase.is_some_and(shared::rollout::status::RolloutPhase::is_over) {
            return Ok((status, largest));
        }
        if Instant::now() > deadline {
            bail!("not over within {limit:?}: {:?}", status.counts);
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}
