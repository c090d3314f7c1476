//! The same on the definitions of Hive and TALM as they publish them, where the checkout has them.

use std::time::Duration;

use anyhow::{Result, ensure};
use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use serde_json::json;
use shared::rollout::status::RolloutPhase;
use testbed::{Options, World};

use crate::kkp_common::upstream_folder;
use crate::rollout_common::{Fleet, SOON};

#[tokio::test]
async fn a_fleet_sleeps_and_an_upgrade_defers_on_the_definitions_of_upstream() -> Result<()> {
    let (Some(hive), Some(talm)) = (upstream_folder("hive"), upstream_folder("talm")) else { return Ok(()) };
    let world = World::up(Options { upstream_crds: Some(hive), ..Options::shared() }).await?;
    let definition = talm.join("ran.openshift.io_clustergroupupgrades.yaml");
    let definition = definition.to_str().unwrap_or_default();
    world.kubectl(&["apply", "--server-side", "-f", definition]).await?.ok()?;
    let fleet = Fleet::of(&world, "upstream", &["a", "b", "upgraded"]).await?;
    let kind = kube::core::GroupVersionKind::gvk("ran.openshift.io", "v1alpha1", "ClusterGroupUpgrade");
    let kind = kube::api::ApiResource::from_gvk(&kind);
    let upgrades: Api<DynamicObject> = Api::namespaced_with(world.hub().await?, "default", &kind);
    let name = fleet.get("upgraded").name().to_owned();
    let upgrade = json!({
        "apiVersion": "ran.openshift.io/v1alpha1", "kind": "ClusterGroupUpgrade", "metadata": { "name": "ztp" },
        "spec": { "clusters": [name], "remediationStrategy": { "maxConcurrency": 1 } },
    });
    testbed::eventually(SOON, "TALM's definition", async || {
        Ok(upgrades.create(&PostParams::default(), &serde_json::from_value(upgrade.clone())?).await.map(drop)?)
    })
    .await?;
    let condition = json!({
        "type": "Progressing", "status": "True", "reason": "InProgress", "message": "Remediating non-compliant policies",
        "lastTransitionTime": "2026-11-24T12:00:00Z",
    });
    let status = json!({ "status": { "conditions": [condition], "remediationPlan": [[name]] } });
    upgrades.patch_status("ztp", &PatchParams::default(), &Patch::Merge(&status)).await?;
    // What the controller has read of upgrades is up to ten seconds old.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let sleep = fleet.rollout("Hibernate", json!({ "maxConcurrency": 1 })).await?;
    let why = sleep.until_target(fleet.get("upgraded"), "Deferred").await?;
    ensure!(why == "ClusterGroupUpgrade default/ztp is upgrading it", "{why}");
    let over = json!({ "status": { "conditions": [{
        "type": "Progressing", "status": "False", "reason": "Completed", "message": "", "lastTransitionTime": "2026-11-24T12:10:00Z",
    }] } });
    upgrades.patch_status("ztp", &PatchParams::default(), &Patch::Merge(&over)).await?;
    let status = sleep.until_phase(RolloutPhase::Succeeded).await?;
    assert_eq!(status.counts["Succeeded"], 3);
    Ok(())
}
