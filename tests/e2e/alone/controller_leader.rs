//! Of two controllers one acts, whatever happens to the other. Proved from the identities in EC2's call log. In a world
//! of its own.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use serde_json::json;
use shared::annotation::keys;
use testbed::ec2::Call;
use testbed::supervisor::programs::Start;
use testbed::world::handle::Cluster;
use testbed::{ClusterOptions, Options, Program, Timings, World};

const LEASE: Duration = Duration::from_secs(6);
/// The standby looks every second; the rest is for a busy machine.
const MARGIN: Duration = Duration::from_secs(4);
const SOON: Duration = Duration::from_mins(1);

fn start(identity: &str) -> Start {
    Start { identity: Some(identity.to_owned()), ..Start::new(Program::Controller).leased(["6s", "4s", "1s"]) }
}

pub(crate) async fn leader(world: &World) -> Result<String> {
    let leases: Api<Lease> = Api::namespaced(world.hub().await?, keys::NAMESPACE);
    let lease = leases.get(keys::CONTROLLER).await?;
    lease.spec.and_then(|spec| spec.holder_identity).context("a holder")
}

/// Waits until another replica than `old` leads, and returns how long it took.
async fn takeover(world: &World, old: &str) -> Result<(String, Duration)> {
    let begun = Instant::now();
    let new = testbed::eventually(SOON, "another leader", async || {
        let leader = leader(world).await?;
        anyhow::ensure!(leader != old && !leader.is_empty(), "still {leader}");
        Ok(leader)
    })
    .await?;
    Ok((new, begun.elapsed()))
}

/// Which controller made a call: the application name in its user agent.
fn identity(call: &Call) -> &str {
    let agent = call.user_agent.split_whitespace().find_map(|part| part.strip_prefix("app/"));
    agent.unwrap_or("nobody")
}

async fn sleep_and_wake(cluster: &Cluster) -> Result<()> {
    cluster.sleep().await?;
    cluster.wait_for_power_state("Hibernating", SOON).await?;
    cluster.wake().await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    Ok(())
}

#[tokio::test]
async fn killed_or_frozen_the_leader_is_replaced_and_never_do_two_act() -> Result<()> {
    let world = World::up(Options {
        clusters: 0,
        without: vec![Program::Controller, Program::Webhook],
        timings: Timings::fast(),
        ..Options::default()
    })
    .await?;
    world.start(&start("a")).await?;
    world.start(&start("b")).await?;
    let cluster = world.cluster("contested", ClusterOptions::of_size(2)).await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    sleep_and_wake(&cluster).await?;
    let first = leader(&world).await?;

    // Killed in the middle of a sleep.
    cluster.sleep().await?;
    world.signal(&format!("controller-{first}"), "kill").await?;
    let (second, took) = takeover(&world, &first).await?;
    assert!(took <= LEASE + MARGIN, "took {took:?}");
    cluster.wait_for_power_state("Hibernating", SOON).await?;
    world.start(&start(&first)).await?;

    // Frozen in the middle of a wake, thawed when the other acts.
    cluster.wake().await?;
    world.signal(&format!("controller-{second}"), "freeze").await?;
    let (third, took) = takeover(&world, &second).await?;
    assert!(took <= LEASE + MARGIN, "took {took:?}");
    let taken = now();
    world.signal(&format!("controller-{second}"), "thaw").await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    cluster.patch(&json!({"metadata": {"annotations": {"example.org/look": "now"}}})).await?;
    sleep_and_wake(&cluster).await?;

    let calls = world.ec2().calls().await?;
    let late: Vec<_> = calls.iter().filter(|call| call.start > taken && identity(call) != third).collect();
    assert!(late.is_empty(), "calls of a controller that no longer leads: {late:?}");
    let mut leaders: Vec<&str> = calls.iter().map(identity).collect();
    leaders.dedup();
    assert_eq!(leaders, [first.as_str(), &second, &third], "each acts in its own time, nobody in between");
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "seconds since 1970 fit")]
fn now() -> f64 {
    jiff::Timestamp::now().as_millisecond() as f64 / 1000.0
}
