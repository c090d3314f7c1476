//! An edge over a thousand clusters of one schedule.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use shared::annotation::format;
use shared::rollout::status::RolloutPhase;
use shared::schedule::api::PowerSchedule;
use testbed::bench::meter::count;
use testbed::bench::table::Table;
use testbed::eventually;

use crate::fleet::{FakeFleet, Written, sleep_soon, writes};

/// Clusters of the schedule, the model among them: more are refused by default.
const TARGETS: usize = 1_000;
/// Clusters that the loop of `kubectl patch` wakes: it takes the same time for each.
const SAMPLE: usize = 50;
const LONG: Duration = Duration::from_mins(10);

/// Measures the edge, the same state asked for again, and the loop.
pub async fn run(table: &mut Table) -> Result<()> {
    let fleet = FakeFleet::new(TARGETS - 1).await?;
    let (edge, times) = sleep_soon()?;
    fleet.schedules([("night".to_owned(), json!({ "all": true }), times)]).await?;
    let (before, asleep) = (fleet.requests().await?, Written::follow(&fleet.world, "Hibernating").await?);
    let (first, last) = asleep.until(TARGETS, edge).await?;
    over(&fleet, 1).await?;
    let written = writes(&fleet.requests().await?) - writes(&before);
    let rollouts = fleet.rollouts().await?.len();

    // Asked for again when all are right already.
    let before = fleet.requests().await?;
    let api: Api<PowerSchedule> = Api::namespaced(fleet.world.hub().await?, &fleet.namespace);
    let now = json!({ "spec": { "applyAt": format::seconds(Timestamp::now()) } });
    api.patch("night", &PatchParams::default(), &Patch::Merge(now)).await?;
    over(&fleet, 2).await?;
    let again = writes(&fleet.requests().await?) - writes(&before);

    let began = Instant::now();
    let wake = r#"{"spec":{"powerState":"Running"}}"#;
    for number in 0..SAMPLE {
        let name = format!("fake-{number}");
        let words = ["patch", "clusterdeployment", &name, "-n", &fleet.namespace, "--type=merge", "-p", wake];
        fleet.world.kubectl(&words).await?.ok()?;
    }
    let looped = began.elapsed().as_secs_f64() * count(TARGETS) / count(SAMPLE);
    table.add("edge", "seconds to the first write", None, Some(1.0), first);
    table.add("edge", "seconds to the last of 1,000 writes", Some(looped), Some(15.0), last);
    table.add("edge", "rollouts", None, Some(1.0), count(rollouts));
    table.add("edge", "writes per target, with its status", None, Some(3.0), count(written) / count(TARGETS));
    table.add("edge", "writes of targets when all are right", None, Some(0.0), count(again));
    Ok(())
}

/// Waits until so many rollouts are over.
async fn over(fleet: &FakeFleet, wanted: usize) -> Result<()> {
    eventually(LONG, "rollouts are over", async || {
        let all = fleet.rollouts().await?;
        let is_over =
            |status: &shared::rollout::status::PowerRolloutStatus| status.phase.is_some_and(RolloutPhase::is_over);
        let over = all.iter().filter(|one| one.status.as_ref().is_some_and(is_over)).count();
        ensure!(over >= wanted, "{over} of {wanted}: {:?}", all.iter().map(|one| &one.status).collect::<Vec<_>>());
        Ok(())
    })
    .await
}
