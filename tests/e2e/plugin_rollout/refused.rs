//! What is refused before anything is written, and with which exit code.

use anyhow::{Result, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use shared::kinds::KINDS;
use shared::rollout::api::definition;
use testbed::check::webhook_only;
use testbed::{World, apply, foreign};

use super::{fleet, lease, name, namespace, rollouts_because};
use crate::plugin_common::{Shell, in_namespace};

pub(crate) fn hive_config(disabled: &[&str]) -> Value {
    json!({
        "apiVersion": "hive.openshift.io/v1", "kind": "HiveConfig", "metadata": { "name": "hive" },
        "spec": { "disabledControllers": disabled },
    })
}

#[tokio::test]
async fn a_hub_that_is_not_ready_is_told_from_one_that_is() -> Result<()> {
    in_namespace(World::up(webhook_only()).await?, async |shell| {
        fleet(&shell).await?;
        let Shell { world, client, ns } = &shell;
        let expect = async |args: &[&str], code: i32, part: &str| world.plugin(args).await?.says(code, &[part]);
        let waves = ["--all", "-n", ns, "--max-concurrency", "2", "--reason", ns];
        let paused = ["--all", "-n", ns, "--paused", "--reason", ns];
        let definition = definition(KINDS);
        if world.kubectl(&["get", "crd", "powerrollouts.hibernate.sh"]).await?.code == 0 {
            world.kubectl(&["delete", "crd", "powerrollouts.hibernate.sh"]).await?.ok()?;
        }
        for args in [waves, [paused[0], paused[1], paused[2], paused[3], paused[4], paused[5], "-v"]] {
            expect(&args, 3, "does not have the type powerrollouts.hibernate.sh; install").await?;
        }
        expect(&["--all", "-n", ns, "--dry-run=client"], 0, "").await?;
        apply::all(client, &[definition, namespace()]).await?;
        // The manifests create the Lease, so that the controller needs no right to create one.
        let unheld = "no controller runs: the Lease hibernate-controller in namespace hibernate-system has no holder";
        expect(&waves, 3, unheld).await?;
        world.kubectl(&["delete", "lease", "hibernate-controller", "-n", "hibernate-system"]).await?.ok()?;
        expect(&waves, 3, "no controller runs: there is no Lease hibernate-controller").await?;
        let now = Timestamp::now();
        for (holder, renewed, part) in
            [("a", now - SignedDuration::from_secs(60), "was last renewed"), ("", now, "has no holder")]
        {
            apply::all(client, &[lease(holder, renewed, 15)]).await?;
            expect(&waves, 3, part).await?;
            expect(&[&waves[..], &["--dry-run=server"]].concat(), 3, part).await?;
            expect(&[&waves[..], &["--dry-run=client"]].concat(), 0, "").await?;
        }
        ensure!(rollouts_because(client, ns).await?.is_empty(), "a rollout was created");
        expect(&paused, 0, "created paused").await?;
        let created = rollouts_because(client, ns).await?.remove(0);
        let resumed = world.plugin(&["rollout", "resume", &name(&created)]).await?;
        resumed.says(0, &["Warning: no controller runs"])?;

        apply::all(client, &[lease("a", now, 86_400), foreign::of_hive_config(), hive_config(&["clusterpool"])])
            .await?;
        expect(&waves, 3, "spec.disabledControllers of the HiveConfig").await?;
        expect(&paused, 0, "created paused").await?;
        apply::all(client, &[hive_config(&["clusterpool", "hibernation"])]).await?;
        expect(&waves, 0, "3 targets").await?;
        ensure!(rollouts_because(client, ns).await?.len() == 3, "two paused, one not");

        // Whoever may create rollouts, but not read Leases, is warned.
        for args in [
            "create clusterrole r --verb=get,list --resource=clusterdeployments.hive.openshift.io",
            "create clusterrole w --verb=create,get --resource=powerrollouts.hibernate.sh",
            "create clusterrolebinding r --clusterrole=r --user=alice",
            "create clusterrolebinding w --clusterrole=w --user=alice",
        ] {
            world.kubectl(&args.split(' ').collect::<Vec<_>>()).await?.ok()?;
        }
        let alice = [&waves[..], &["--as", "alice"]].concat();
        expect(&alice, 0, "Warning: whether hibernate-controller runs is unknown").await?;
        expect(&[&waves[..], &["--as", "bob"]].concat(), 1, "User \"bob\" cannot list").await?;
        Ok(())
    })
    .await
}
