//! A sleep with an end and a wake that is held, from the command line to the objects. Nobody acts on them here: the
//! platform is one that our controller leaves alone.

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::hive::api::ClusterDeployment;
use testbed::check::webhook_only;
use testbed::{World, with_temp_ns};

use crate::hive_common::create;

type Clusters = Api<ClusterDeployment>;

fn note<'a>(cluster: &'a ClusterDeployment, key: &str) -> Option<&'a str> {
    cluster.annotations().get(key).map(String::as_str)
}

async fn item(world: &World, ns: &str) -> Result<Value> {
    let list = world.plugin(&["status", "cd/demo", "-n", ns, "-o", "json"]).await?.json()?;
    Ok(list["items"][0].clone())
}

#[tokio::test]
async fn a_sleep_ends_when_it_was_told_to() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, ns| {
        let clusters: Clusters = Api::namespaced(client, &ns);
        create(&clusters, "demo", "gcp", &json!({})).await?;
        let begun = Timestamp::now();
        let ran = world.plugin(&["cd/demo", "-n", &ns, "--for", "14h", "-v"]).await?;
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert_eq!(ran.stderr.lines().filter(|line| line.starts_with("PATCH")).count(), 1, "one patch: {}", ran.stderr);
        assert!(ran.stderr.contains("without the controller, it does not wake at "), "{}", ran.stderr);
        let asleep = clusters.get("demo").await?;
        assert_eq!(asleep.spec.power_state.as_deref(), Some("Hibernating"));
        let at = note(&asleep, keys::WAKE_AT).context("wake-at")?;
        assert_eq!(
            ran.stdout,
            format!("clusterdeployment.hive.openshift.io/demo hibernation requested, wakes at {at}\n")
        );
        let length = at.parse::<Timestamp>()?.duration_since(begun) - SignedDuration::from_hours(14);
        assert!(length.abs() < SignedDuration::from_secs(30), "{length}");
        assert_eq!(item(&world, &ns).await?["wakeAt"], at);
        let table = world.plugin(&["status", "-n", &ns]).await?.ok()?;
        assert!(
            table.contains("SCHEDULE") && (table.contains("wakes in 14h") || table.contains("wakes in 13h")),
            "{table}"
        );

        let later = "2126-12-24T18:00:00Z";
        let moved = world.plugin(&["cd/demo", "-n", &ns, "--until", later]).await?.ok()?;
        assert_eq!(moved, format!("clusterdeployment.hive.openshift.io/demo wakes at {later}\n"));
        let again = world.plugin(&["cd/demo", "-n", &ns]).await?.ok()?;
        let unchanged = format!("clusterdeployment.hive.openshift.io/demo unchanged, wakes at {later}\n");
        assert_eq!(again, unchanged, "the end stays");
        world.plugin(&["resume", "cd/demo", "-n", &ns]).await?.ok()?;
        let awake = clusters.get("demo").await?;
        assert_eq!((note(&awake, keys::WAKE_AT), awake.spec.power_state.as_deref()), (None, Some("Running")));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_wake_can_be_held_and_the_hold_is_the_callers() -> Result<()> {
    let world = World::shared_with(webhook_only()).await?;
    with_temp_ns(&world, async |client, ns| {
        let clusters: Clusters = Api::namespaced(client, &ns);
        create(&clusters, "demo", "gcp", &json!({})).await?;
        let held = ["resume", "cd/demo", "-n", &ns, "--hold-awake", "--for", "4h", "--as", "alice"];
        let ran = world.plugin(&held).await?.ok()?;
        let awake = clusters.get("demo").await?;
        let until = note(&awake, keys::HOLD_AWAKE_UNTIL).context("hold")?;
        assert_eq!(ran, format!("clusterdeployment.hive.openshift.io/demo held awake until {until}\n"));
        assert_eq!(note(&awake, keys::HOLD_AWAKE_BY), Some("alice"), "stamped by the webhook");
        let shown = item(&world, &ns).await?;
        assert_eq!((&shown["holdAwakeUntil"], &shown["holdAwakeBy"]), (&json!(until), &json!("alice")));
        let table = world.plugin(&["status", "-n", &ns]).await?.ok()?;
        let left = ["4h", "3h59m"].map(|left| format!("held awake for {left} by alice"));
        assert!(left.iter().any(|left| table.contains(left)), "{table}");

        let refused = world.plugin(&["cd/demo", "-n", &ns]).await?;
        refused.says(3, &[&format!("held awake until {until} by alice")])?;

        // A hold that has passed cannot be set, but be there: as if time had gone by.
        clusters.delete("demo", &kube::api::DeleteParams::default()).await?;
        let mut old: ClusterDeployment = awake.clone();
        old.metadata = kube::api::ObjectMeta {
            name: Some("demo".to_owned()),
            annotations: Some([(keys::HOLD_AWAKE_UNTIL.to_owned(), "2026-01-01T00:00:00Z".to_owned())].into()),
            ..kube::api::ObjectMeta::default()
        };
        clusters.create(&PostParams::default(), &old).await?;
        world.plugin(&["cd/demo", "-n", &ns]).await?.ok()?;
        let asleep = clusters.get("demo").await?;
        assert_eq!((note(&asleep, keys::HOLD_AWAKE_UNTIL), note(&asleep, keys::HOLD_AWAKE_BY)), (None, None));
        Ok(())
    })
    .await
}
