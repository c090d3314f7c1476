//! ClusterPools from the command line: what is in them, and what they undo. Hive's pool controller is not there; what
//! it wants follows from the objects.

use anyhow::Result;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client};
use serde_json::json;
use shared::hive::api::ClusterDeployment;
use testbed::check::webhook_only;
use testbed::world::run::Ran;
use testbed::{World, apply, with_temp_ns};

use crate::hive_common::create;

/// A pool that keeps one of its clusters awake.
async fn pool(client: &Client, ns: &str) -> Result<()> {
    let object = json!({
        "apiVersion": "hive.openshift.io/v1",
        "kind": "ClusterPool",
        "metadata": { "name": "small", "namespace": ns },
        "spec": {
            "baseDomain": "example.com", "imageSetRef": { "name": "openshift-v4.20.8" },
            "platform": { "gcp": { "region": "europe-west1" } }, "size": 2, "runningCount": 1, "hibernateAfter": "8h",
        },
    });
    apply::all(client, &[object]).await?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("hive.openshift.io", "v1", "ClusterPool"));
    let pools: Api<DynamicObject> = Api::namespaced_with(client.clone(), ns, &resource);
    let status = json!({ "status": { "size": 2, "standby": 1, "ready": 1 } });
    pools.patch_status("small", &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

/// A cluster of it, on a platform that our controller leaves alone.
async fn member(client: &Client, ns: &str, name: &str, state: &str, claim: Option<&str>) -> Result<()> {
    let mut reference = json!({ "namespace": ns, "poolName": "small" });
    if let Some(claim) = claim {
        reference["claimName"] = claim.into();
        reference["claimedTimestamp"] = "2026-01-02T00:00:00Z".into();
    }
    let clusters: Api<ClusterDeployment> = Api::namespaced(client.clone(), ns);
    let spec = json!({ "hibernateAfter": "8h", "powerState": state, "clusterPoolRef": reference });
    create(&clusters, name, "gcp", &json!({ "spec": spec })).await?;
    let status = json!({ "status": { "powerState": state } });
    clusters.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

fn warnings(ran: &Ran) -> Vec<&str> {
    ran.stderr.lines().filter(|line| line.starts_with("Warning: ")).collect()
}

#[tokio::test]
async fn a_pool_is_shown_with_its_clusters_and_what_it_wants_of_them() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, ns| {
        pool(&client, &ns).await?;
        // The API server's times have seconds: names settle who is the older one within the same.
        member(&client, &ns, "a", "Running", None).await?;
        member(&client, &ns, "b", "Hibernating", None).await?;
        member(&client, &ns, "mine", "Running", Some("claim")).await?;
        let table = world.plugin(&["status", "pool/small", "-n", &ns]).await?.ok()?;
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["small", "2", "1", "1", "1", "0", "8h"], "{table}");
        assert_eq!(lines[4][2..], ["a", "Running", "Running", "-", "Running", "-"], "{table}");
        assert_eq!(lines[5][2..], ["b", "Hibernating", "Hibernating", "-", "Hibernating", "-"], "{table}");
        assert_eq!(lines[6][2..], ["mine", "Running", "Running", "-", "-", "claim"], "{table}");

        let list = world.plugin(&["status", "cp", "-n", &ns, "-o", "json"]).await?.json()?;
        let item = &list["items"][0];
        assert_eq!(
            (&item["runningCount"], &item["ready"], &item["hibernateAfter"]),
            (&json!(1), &json!(1), &json!("8h"))
        );
        assert_eq!(item["clusters"][1]["poolWants"], "Hibernating");
        assert_eq!(item["clusters"][2]["claim"], "claim");

        let missing = world.plugin(&["status", "pool/large", "-n", &ns]).await?;
        missing.says(1, &["clusterpool.hive.openshift.io/large not found"])?;
        for args in [&["pool/small"][..], &["status", "pool/small", "demo"], &["status", "pool/small", "-w"]] {
            let ran = world.plugin(&[args, &["-n", &ns]].concat()).await?;
            ran.refuses(2, &[])?;
        }
        Ok(())
    })
    .await
}

#[tokio::test]
async fn what_the_pool_or_a_deadline_undoes_is_warned_of_once() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, ns| {
        pool(&client, &ns).await?;
        member(&client, &ns, "a", "Running", None).await?;
        member(&client, &ns, "b", "Hibernating", None).await?;
        member(&client, &ns, "mine", "Hibernating", Some("claim")).await?;
        for (args, warning) in [
            (&["cd/a"][..], Some(format!("ClusterPool {ns}/small will wake it again"))),
            (&["resume", "cd/b"], Some("raise spec.runningCount of the pool (now 1)".to_owned())),
            (&["cd/b"], None),
            (&["resume", "cd/a"], None),
            (&["resume", "cd/mine"], Some("spec.hibernateAfter puts it to sleep again 8h after".to_owned())),
            (&["resume", "cd/mine"], None),
        ] {
            let ran = world.plugin(&[args, &["-n", &ns]].concat()).await?;
            assert_eq!(ran.code, 0, "{args:?}: {}", ran.stderr);
            let detail = warnings(&ran);
            assert_eq!(detail.len(), usize::from(warning.is_some()), "{args:?}: {detail:?}");
            assert!(warning.is_none_or(|warning| detail[0].contains(&warning)), "{args:?}: {detail:?}");
        }
        Ok(())
    })
    .await
}
