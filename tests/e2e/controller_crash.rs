//! The controller dies at any moment, and the next one finishes what it began. In a world of its own.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use testbed::ec2::check::moved_once;
use testbed::supervisor::programs::Start;
use testbed::{ClusterOptions, Options, Program, Timings, World};

const KILLS: u32 = 10;

/// Milliseconds to the next kill: spread over a sleep or a wake, different each time, the same in every run.
fn moment(round: u32) -> u64 {
    u64::from(round.wrapping_mul(2_654_435_761) >> 8) % 2_500
}

fn start() -> Start {
    // A short lease: the next controller must wait for the dead one's to run out.
    Start::new(Program::Controller).leased(["3s", "2s", "500ms"])
}

#[tokio::test]
async fn killed_ten_times_in_a_sleep_and_a_wake_it_converges_and_never_calls_for_nothing() -> Result<()> {
    let world = World::up(Options {
        clusters: 0,
        without: vec![Program::Controller, Program::Webhook],
        timings: Timings { ec2_start: "3s".parse()?, ec2_stop: "3s".parse()?, ..Timings::fast() },
        ..Options::default()
    })
    .await?;
    let cluster = world.cluster("phoenix", ClusterOptions::default()).await?;
    world.start(&start()).await?;
    cluster.wait_for_power_state("Running", Duration::from_mins(1)).await?;

    for (asleep, end) in [(true, "Hibernating"), (false, "Running")] {
        world.ec2().reset_calls().await?;
        if asleep {
            cluster.sleep().await?
        } else {
            cluster.wake().await?
        };
        for round in 0..KILLS / 2 {
            tokio::time::sleep(Duration::from_millis(moment(round + 10 * u32::from(asleep)))).await;
            world.signal("controller", "kill").await?;
            world.start(&start()).await?;
        }
        cluster.wait_for_power_state(end, Duration::from_secs(90)).await?;
        let wanted = if asleep { "stopped" } else { "running" };
        assert_eq!(cluster.states().await?, BTreeMap::from([(wanted.to_owned(), 6)]));
        moved_once(&world.ec2().calls().await?, asleep, 6)?;
    }
    Ok(())
}
