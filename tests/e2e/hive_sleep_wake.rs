//! The main job: a ClusterDeployment's machines stop and start because its powerState says so.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use shared::hive::api::{ClusterDeployment, Condition};
use shared::hive::conditions::{HIBERNATING, PROGRESS};
use shared::hive::data::{Data, Unit};
use testbed::{ClusterOptions, World};

const SOON: Duration = Duration::from_mins(1);

fn word<'a>(cluster: &'a ClusterDeployment, type_: &str) -> (&'a str, &'a str, &'a str) {
    let text = |text: &'a Option<String>| text.as_deref().unwrap_or_default();
    let found: Option<&Condition> = cluster.condition(type_);
    found.map_or(("", "", ""), |c| (c.status.as_str(), text(&c.reason), text(&c.message)))
}

#[tokio::test]
async fn asks_the_cloud_no_more_than_it_must() -> Result<()> {
    let world = World::shared().await?;
    let cluster = world.cluster("frugal", ClusterOptions { own_account: true, ..ClusterOptions::default() }).await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    let key = &cluster.info().access_key_id;
    let begin = world.ec2().calls().await?.len();
    cluster.sleep().await?;
    cluster.wait_for_power_state("Hibernating", SOON).await?;
    tokio::time::sleep(Duration::from_secs(3)).await;
    let calls = world.ec2().calls().await?.split_off(begin);
    let count = |action: &str| calls.iter().filter(|call| call.access_key == *key && call.action == action).count();
    let asleep = cluster.get().await?;
    let progress = asleep.condition(PROGRESS).and_then(|progress| Data::of(&asleep).progress_of(progress));
    let counted = progress.map(|progress| (progress.unit, progress.awaited, progress.total));
    assert_eq!(counted, Some((Unit::Instances, 0, 6)), "what the message says, as data");
    assert_eq!(count("StopInstances"), 2, "workers, then the control plane");
    assert!((2..=5).contains(&count("DescribeInstances")), "{} looks", count("DescribeInstances"));
    cluster.remove().await
}

#[tokio::test]
async fn a_change_of_mind_midway_ends_awake() -> Result<()> {
    let world = World::shared().await?;
    let cluster = world.cluster("fickle", ClusterOptions::of_size(3)).await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    cluster.sleep().await?;
    cluster.wait_for("a sleep that has begun", SOON, |found| found.power_state() != "Running").await?;
    cluster.wake().await?;
    let awake = cluster.wait_for_power_state("Running", SOON).await?;
    assert_eq!(word(&awake, HIBERNATING).1, "ResumingOrRunning", "H and R agree");
    assert!(cluster.instances().await?.iter().all(|instance| instance.state == "running"));
    cluster.remove().await
}

#[tokio::test]
async fn what_is_not_ours_to_move_is_not_moved() -> Result<()> {
    let world = World::shared().await?;
    for (name, patch, detail) in [
        (
            "paused",
            json!({"metadata": {"annotations": {"hive.openshift.io/powerstate-pause": "true"}}}),
            "PowerStatePaused",
        ),
        ("fresh", json!({"spec": {"installed": false}}), "Initialized"),
        (
            "vsphere",
            json!({"spec": {"platform": {"aws": null, "vsphere": {
                "vCenter": "v", "datacenter": "d", "defaultDatastore": "s",
                "certificatesSecretRef": {"name": "c"}, "credentialsSecretRef": {"name": "c"},
            }}}}),
            "Unsupported",
        ),
    ] {
        let cluster = world.cluster(name, ClusterOptions { patch, ..ClusterOptions::of_size(1) }).await?;
        let wanted = |found: &ClusterDeployment| word(found, HIBERNATING).1 == detail;
        cluster.wait_for(detail, SOON, wanted).await?;
        cluster.remove().await?;
    }
    Ok(())
}

#[tokio::test]
async fn somebody_starts_a_machine_of_a_sleeping_cluster() -> Result<()> {
    let world = World::shared().await?;
    let cluster = world.cluster("drift", ClusterOptions::of_size(2)).await?;
    cluster.wait_for_power_state("Running", SOON).await?;
    cluster.sleep().await?;
    cluster.wait_for_power_state("Hibernating", SOON).await?;
    let id = cluster.instances().await?[0].id.clone();
    world.ec2().set_state(&id, "running").await?;
    // Any write of its object triggers a reconcile; otherwise there is one every few minutes.
    cluster.patch(&json!({"metadata": {"annotations": {"example.org/look": "now"}}})).await?;
    testbed::eventually(SOON, "a stop", async || {
        testbed::ensure_that(cluster.states().await?, |states| states.get("stopped") == Some(&2))
    })
    .await?;
    cluster.wait_for_power_state("Hibernating", SOON).await?;
    cluster.remove().await
}
