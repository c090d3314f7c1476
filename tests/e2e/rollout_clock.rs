//! A rollout outlives jumps of its controller's wall clock: no deadline takes a jump for time that has passed. Minutes
//! need not be waited for.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use shared::annotation::format;
use shared::rollout::status::RolloutPhase;

use crate::clock::Clock;
use crate::rollout_common::{Fleet, controller, restarted};

/// Longer than the deadline and the Lease, and shorter than the time after which a sleep is overdue.
const JUMP: SignedDuration = SignedDuration::from_mins(10);

#[tokio::test]
async fn a_jump_of_the_clock_is_no_time_that_a_deadline_counts() -> Result<()> {
    let world = restarted().await?;
    let clock = Clock::new(&world)?;
    world.start(&clock.of(controller())).await?;
    let fleet = Fleet::of(&world, "jumps", &["a", "b"]).await?;
    world.change_timings(&json!({ "ec2Stop": "15s", "ec2Start": "15s" })).await?;
    for (action, call, shift) in
        [("Hibernate", "StopInstances", JUMP), ("Resume", "StartInstances", SignedDuration::ZERO)]
    {
        world.ec2().reset_calls().await?;
        let rollout = fleet.rollout(action, json!({ "deadline": "5m", "maxFailures": 0 })).await?;
        rollout.until_target(fleet.get("b"), "Progressing").await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        clock.set(shift)?;
        let status = rollout.until_phase(RolloutPhase::Succeeded).await?;
        assert_eq!(status.counts["Succeeded"], 2, "{action}: {status:#?}");
        fleet.each_was_started_once(call).await?;
        let ended = fleet.mark("a").await?.and_then(|mark| mark.ended).context("a record")?;
        let off = format::time(&ended.at).context("a time")?.duration_since(Timestamp::now() + shift).abs();
        ensure!(off < SignedDuration::from_mins(2), "{action}: the controller does not read the clock: {off}");
    }
    Ok(())
}
