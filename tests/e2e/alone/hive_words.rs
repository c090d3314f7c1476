//! One whole sleep and one whole wake, word by word. In a world of its own, with machines slow enough for every step to
//! show.

use std::time::Duration;

use anyhow::Result;
use shared::hive::api::{ClusterDeployment, Condition};
use shared::hive::conditions::{HIBERNATING, PROGRESS, READY};
use testbed::world::handle::Cluster;
use testbed::{ClusterOptions, Options, Timings, World};

const SOON: Duration = Duration::from_mins(1);

fn word<'a>(cluster: &'a ClusterDeployment, type_: &str) -> (&'a str, &'a str, &'a str) {
    let text = |text: &'a Option<String>| text.as_deref().unwrap_or_default();
    let found: Option<&Condition> = cluster.condition(type_);
    found.map_or(("", "", ""), |c| (c.status.as_str(), text(&c.reason), text(&c.message)))
}

/// The power states that a cluster goes through until it reaches the last of them.
async fn states_until(cluster: &Cluster, last: &str) -> Result<Vec<String>> {
    let mut seen: Vec<String> = Vec::new();
    let deadline = tokio::time::Instant::now() + SOON;
    while seen.last().is_none_or(|state| state != last) {
        let state = cluster.power_state().await?;
        if seen.last() != Some(&state) {
            seen.push(state);
        }
        anyhow::ensure!(tokio::time::Instant::now() < deadline, "no {last}, only {seen:?}");
        tokio::time::sleep(Duration::from_millis(40)).await;
    }
    Ok(seen)
}

#[tokio::test]
async fn goes_to_sleep_and_wakes_with_hives_own_words() -> Result<()> {
    let timings = Timings {
        ec2_stop: "4s".parse()?,
        ec2_start: "4s".parse()?,
        node_ready_delay: "4s".parse()?,
        ..Timings::fast()
    };
    let world = World::up(Options { clusters: 0, timings, ..Options::default() }).await?;
    let cluster = world.cluster("sleeper", ClusterOptions::default()).await?;
    cluster.wait_for_power_state("Running", SOON).await?;

    cluster.sleep().await?;
    assert_eq!(
        states_until(&cluster, "Hibernating").await?[1..],
        ["Stopping", "WaitingForMachinesToStop", "Hibernating"][..]
    );
    let asleep = cluster.get().await?;
    assert_eq!(word(&asleep, HIBERNATING), ("True", "Hibernating", "Cluster is stopped"));
    let see = "Cluster is shutting down or hibernating, see Hibernating condition for details";
    assert_eq!(word(&asleep, READY), ("False", "StoppingOrHibernating", see));
    assert_eq!(word(&asleep, PROGRESS), ("False", "Hibernating", "6 instances stopped"));
    assert_eq!(word(&asleep, "Provisioned").0, "True", "conditions of others stay");
    assert!(cluster.instances().await?.iter().all(|instance| instance.state == "stopped"));

    cluster.wake().await?;
    let seen = states_until(&cluster, "Running").await?;
    // Until its kubelets have spoken, every Node is still Ready=True from before the sleep: WaitingForNodes shows that
    // it is not believed.
    assert_eq!(seen[1..4], ["StartingMachines", "WaitingForMachines", "WaitingForNodes"], "{seen:?}");
    // The operators write their status after the wake, which proves that they are alive: Hive's pause is not needed.
    assert!(seen[4..].iter().all(|state| state == "WaitingForClusterOperators" || state == "Running"), "{seen:?}");
    let awake = cluster.get().await?;
    assert_eq!(word(&awake, READY), ("True", "Running", "Cluster is running"));
    let see = "Cluster is resuming or running, see Ready condition for details";
    assert_eq!(word(&awake, HIBERNATING), ("False", "ResumingOrRunning", see));
    assert!(cluster.instances().await?.iter().all(|instance| instance.state == "running"));
    cluster.remove().await
}
