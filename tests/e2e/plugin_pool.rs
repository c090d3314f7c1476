//! ClusterPools from the command line: what is in them, and what they undo. Hive's pool controller is not there; what
//! it wants follows from the objects.

use anyhow::Result;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::json;
use shared::hive::api::ClusterDeployment;
use testbed::check::webhook_only;
use testbed::{World, apply};

use crate::hive_common::create;
use crate::plugin_common::{Shell, in_namespace};

/// A hub with a pool that keeps one of its clusters awake.
async fn with_pool(test: impl AsyncFnOnce(Shell) -> Result<()>) -> Result<()> {
    in_namespace(World::shared_with(webhook_only()).await?, async |shell| {
        let object = json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterPool", "metadata": { "name": "small", "namespace": shell.ns },
            "spec": {
                "baseDomain": "example.com", "imageSetRef": { "name": "openshift-v4.20.8" },
                "platform": { "gcp": { "region": "europe-west1" } }, "size": 2, "runningCount": 1, "hibernateAfter": "8h",
            },
        });
        apply::all(&shell.client, &[object]).await?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("hive.openshift.io", "v1", "ClusterPool"));
        let pools: Api<DynamicObject> = Api::namespaced_with(shell.client.clone(), &shell.ns, &resource);
        let status = json!({ "status": { "size": 2, "standby": 1, "ready": 1 } });
        pools.patch_status("small", &PatchParams::default(), &Patch::Merge(status)).await?;
        test(shell).await
    })
    .await
}

/// A cluster of it, on a platform that our controller leaves alone.
async fn member(shell: &Shell, name: &str, state: &str, claim: Option<&str>) -> Result<()> {
    let mut reference = json!({ "namespace": shell.ns, "poolName": "small" });
    if let Some(claim) = claim {
        reference["claimName"] = claim.into();
        reference["claimedTimestamp"] = "2026-01-02T00:00:00Z".into();
    }
    let clusters: Api<ClusterDeployment> = Api::namespaced(shell.client.clone(), &shell.ns);
    let spec = json!({ "hibernateAfter": "8h", "powerState": state, "clusterPoolRef": reference });
    create(&clusters, name, "gcp", &json!({ "spec": spec })).await?;
    let status = json!({ "status": { "powerState": state } });
    clusters.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

#[tokio::test]
async fn a_pool_is_shown_with_its_clusters_and_what_it_wants_of_them() -> Result<()> {
    with_pool(async |shell| {
        // The API server's times have seconds: names settle who is the older one within the same.
        member(&shell, "a", "Running", None).await?;
        member(&shell, "b", "Hibernating", None).await?;
        member(&shell, "mine", "Running", Some("claim")).await?;
        let table = shell.ok("status pool/small").await?;
        let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[1], ["small", "2", "1", "1", "1", "0", "8h"], "{table}");
        assert_eq!(lines[4][2..], ["a", "Running", "Running", "-", "Running", "-"], "{table}");
        assert_eq!(lines[5][2..], ["b", "Hibernating", "Hibernating", "-", "Hibernating", "-"], "{table}");
        assert_eq!(lines[6][2..], ["mine", "Running", "Running", "-", "-", "claim"], "{table}");

        let item = shell.status("cp").await?;
        let counts = (&item["runningCount"], &item["ready"], &item["hibernateAfter"]);
        assert_eq!(counts, (&json!(1), &json!(1), &json!("8h")));
        assert_eq!(item["clusters"][1]["poolWants"], "Hibernating");
        assert_eq!(item["clusters"][2]["claim"], "claim");

        shell.each(&[("status pool/large", 1, &["clusterpool.hive.openshift.io/large not found"])]).await?;
        shell
            .refused(&[("pool/small", 2, &[]), ("status pool/small demo", 2, &[]), ("status pool/small -w", 2, &[])])
            .await
    })
    .await
}

#[tokio::test]
async fn what_the_pool_or_a_deadline_undoes_is_warned_of_once() -> Result<()> {
    with_pool(async |shell| {
        member(&shell, "a", "Running", None).await?;
        member(&shell, "b", "Hibernating", None).await?;
        member(&shell, "mine", "Hibernating", Some("claim")).await?;
        for (line, warning) in [
            ("cd/a", Some(format!("ClusterPool {}/small will wake it again", shell.ns))),
            ("resume cd/b", Some("raise spec.runningCount of the pool (now 1)".to_owned())),
            ("cd/b", None),
            ("resume cd/a", None),
            ("resume cd/mine", Some("spec.hibernateAfter puts it to sleep again 8h after".to_owned())),
            ("resume cd/mine", None),
        ] {
            let ran = shell.run(line).await?;
            assert_eq!(ran.code, 0, "{line}: {}", ran.stderr);
            let warnings: Vec<_> = ran.stderr.lines().filter(|line| line.starts_with("Warning: ")).collect();
            assert_eq!(warnings.len(), usize::from(warning.is_some()), "{line}: {warnings:?}");
            assert!(warning.is_none_or(|warning| warnings[0].contains(&warning)), "{line}: {warnings:?}");
        }
        Ok(())
    })
    .await
}
