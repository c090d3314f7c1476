//! Wakes in the middle of sleeps, and sleeps in the middle of wakes.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::openstack::{SOON, clean, cluster, likeness, world};

/// A wake in the middle of each step of a sleep, and a sleep in the middle of the wake: in the end it is the same
/// cluster, with all that ran while minds changed.
#[tokio::test]
async fn a_mind_may_change_at_any_step() -> Result<()> {
    let world = world().await?;
    let (cluster, openstack) = cluster(&world, "mind", 2).await?;
    let infra_id = cluster.info().infra_id.clone();
    let before = likeness(&openstack, &infra_id).await?;
    for step in ["PAUSED", "image", "deleted"] {
        cluster.sleep().await?;
        testbed::eventually(SOON, step, async || {
            let servers = openstack.servers(&infra_id).await?;
            let is_there = match step {
                "image" => !openstack.images(&infra_id).await?.is_empty(),
                "deleted" => servers.len() < 2,
                status => servers.iter().any(|server| server["status"] == status),
            };
            ensure!(is_there, "{servers:?}");
            Ok(())
        })
        .await?;
        cluster.wake().await?;
        if step == "deleted" {
            testbed::eventually(SOON, "a server", async || {
                ensure!(!openstack.servers(&infra_id).await?.is_empty());
                Ok(())
            })
            .await?;
            cluster.sleep().await?;
            cluster.wait_for_power_state("Hibernating", Duration::from_mins(5)).await?;
            testbed::eventually(SOON, "one image of each server", async || {
                let images = openstack.images(&infra_id).await?;
                ensure!(images.len() == 2, "{images:?}");
                Ok(())
            })
            .await?;
            cluster.wake().await?;
        }
        cluster.wait_for_power_state("Running", Duration::from_mins(5)).await?;
    }
    clean(&world, &cluster, &openstack).await?;
    let after = likeness(&openstack, &infra_id).await?;
    ensure!(before == after, "before:\n{:#}\nafter:\n{:#}", json!(before), json!(after));
    Ok(())
}
