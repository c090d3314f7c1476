//! Whose machines: of several `ClusterDeployments` that name the same ones only the oldest is acted on.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;
use shared::hive::conditions::{HIBERNATING, READY};
use testbed::world::handle::Cluster;
use testbed::{ClusterOptions, World};

use crate::hive_common::{SOON, says};

/// A cluster that names another one's machines, with credentials that reach them.
async fn second(world: &World, name: &str, first: &Cluster, namespace: Option<&str>) -> Result<Cluster> {
    let infra_id = json!({"spec": {"clusterMetadata": {"infraID": first.info().infra_id}}});
    let options = ClusterOptions { control_plane: 0, workers: 0, ..ClusterOptions::default() };
    let namespace = namespace.map(str::to_owned);
    world.cluster(name, ClusterOptions { namespace, patch: infra_id, ..options }).await
}

#[tokio::test]
async fn a_second_object_moves_no_machine_of_the_first_and_takes_over_once_that_is_gone() -> Result<()> {
    let world = World::shared().await?;
    let first = world.cluster("owner", ClusterOptions::of_size(2)).await?;
    first.wait_for_power_state("Running", SOON).await?;
    tokio::time::sleep(Duration::from_secs(1)).await; // times of objects are whole seconds
    let thief = second(&world, "thief", &first, None).await?;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let twin = second(&world, "owner-twin", &first, Some(first.namespace())).await?;

    thief.sleep().await?;
    let elsewhere = "IdentityTaken: an older ClusterDeployment in another namespace names the same machines";
    let found = says(&thief, HIBERNATING, elsewhere).await?;
    assert_eq!(found.power_state(), "FailedToStop");
    assert!(!json!(found.status).to_string().contains("owner "), "its name is another tenant's: {:?}", found.status);
    says(&twin, READY, "IdentityTaken: the older ClusterDeployment owner names the same machines").await?;
    assert_eq!(first.states().await?, [("running".to_owned(), 2)].into());

    first.sleep().await?;
    first.wait_for_power_state("Hibernating", SOON).await?;
    thief.wake().await?;
    assert_eq!(says(&thief, READY, elsewhere).await?.power_state(), "FailedToStartMachines");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(first.states().await?, [("stopped".to_owned(), 2)].into());

    // The machines go with it: those who come after are told so by the cloud, and not by the object that was before
    // them.
    first.remove().await?;
    says(&thief, READY, "nothing matches tag").await?;
    says(&twin, READY, "IdentityTaken: an older ClusterDeployment in another namespace").await?;
    twin.remove().await?;
    thief.remove().await
}
