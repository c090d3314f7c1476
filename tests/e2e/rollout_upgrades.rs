//! What is being upgraded sleeps once that is over: on the definitions of Hive and TALM as they publish them, where
//! they are at hand. In a world of its own, because all clusters of a world share a `ClusterVersion`.

use std::time::Duration;

use anyhow::{Result, ensure};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use shared::rollout::status::RolloutPhase;
use testbed::cluster::version;
use testbed::{Options, World, apply, eventually};

use crate::kkp_common::upstream_folder;
use crate::rollout_common::{Fleet, SOON, word};

async fn upgrades(world: &World) -> Result<Api<DynamicObject>> {
    let hub = world.hub().await?;
    if let Some(talm) = upstream_folder("talm") {
        let definition = talm.join("ran.openshift.io_clustergroupupgrades.yaml").display().to_string();
        world.kubectl(&["apply", "--server-side", "-f", &definition]).await?.ok()?;
    } else {
        apply::all(&hub, &manifests::cgu_definitions()).await?;
    }
    let kind = GroupVersionKind::gvk("ran.openshift.io", "v1alpha1", "ClusterGroupUpgrade");
    Ok(Api::namespaced_with(hub, "default", &ApiResource::from_gvk(&kind)))
}

/// An upgrade that is under way, or completed.
fn condition(status: &str, reason: &str) -> Value {
    json!({
        "type": "Progressing", "status": status, "reason": reason, "message": "Remediating non-compliant policies",
        "lastTransitionTime": "2026-11-24T12:00:00Z",
    })
}

async fn begin(upgrades: &Api<DynamicObject>, name: &str, cluster: &str) -> Result<()> {
    let upgrade = json!({
        "apiVersion": "ran.openshift.io/v1alpha1", "kind": "ClusterGroupUpgrade", "metadata": { "name": name },
        "spec": { "clusters": [cluster], "remediationStrategy": { "maxConcurrency": 1 } },
    });
    eventually(SOON, "TALM's definition", async || {
        Ok(upgrades.create(&PostParams::default(), &serde_json::from_value(upgrade.clone())?).await.map(drop)?)
    })
    .await?;
    let status = json!({ "conditions": [condition("True", "InProgress")], "remediationPlan": [[cluster]] });
    let status = Patch::Merge(json!({ "status": status }));
    upgrades.patch_status(name, &PatchParams::default(), &status).await?;
    Ok(())
}

#[tokio::test]
async fn an_upgrade_defers_a_sleep_until_it_is_over() -> Result<()> {
    let world = World::up(Options { upstream_crds: upstream_folder("hive"), ..Options::shared() }).await?;
    let upgrades = upgrades(&world).await?;
    let fleet = Fleet::of(&world, "upgrades", &["a", "b", "completed", "deleted"]).await?;
    for name in ["completed", "deleted"] {
        begin(&upgrades, name, fleet.get(name).name()).await?;
    }
    let spoke = world.spoke(fleet.get("a").info().spoke).await?;
    version::set_upgrade(&spoke, Some("4.20.9")).await?;
    // What the controller has read of upgrades is up to ten seconds old.
    tokio::time::sleep(Duration::from_secs(10)).await;
    let sleep = fleet.rollout("Hibernate", json!({ "maxConcurrency": 1 })).await?;
    let why = sleep.until_target(fleet.get("a"), "Deferred").await?;
    ensure!(why.starts_with("it is being upgraded"), "{why}");
    assert_eq!((fleet.mark("a").await?, fleet.get("a").get().await?.power_state()), (None, "Running"));

    version::set_upgrade(&spoke, None).await?;
    for name in ["a", "b"] {
        sleep.until_target(fleet.get(name), "Succeeded").await?;
    }
    for name in ["completed", "deleted"] {
        let wanted = format!("ClusterGroupUpgrade default/{name} is upgrading it");
        let is_deferred = |found: Option<(&str, &str)>| found == Some(("Deferred", wanted.as_str()));
        sleep.until(&wanted, |status| is_deferred(word(status, fleet.get(name)))).await?;
        assert_eq!(fleet.mark(name).await?, None, "{name}");
    }
    // As `plan` does, which also shows what is over.
    let of_deleted = fleet.get("deleted");
    let plan = world.plugin(&["plan", of_deleted.name(), "-n", of_deleted.namespace()]).await?;
    plan.says(0, &[])?;
    ensure!(
        plan.stdout.contains("ClusterGroupUpgrade default/deleted is upgrading it: a sleep interrupts"),
        "{}",
        plan.stdout
    );
    let over = Patch::Merge(json!({ "status": { "conditions": [condition("False", "Completed")] } }));
    upgrades.patch_status("completed", &PatchParams::default(), &over).await?;
    upgrades.delete("deleted", &DeleteParams::default()).await?;
    let status = sleep.until_phase(RolloutPhase::Succeeded).await?;
    assert_eq!(status.counts["Succeeded"], 4);
    Ok(())
}
