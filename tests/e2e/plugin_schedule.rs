//! A sleep with an end and a wake that is held, from the command line to the objects. Nobody acts on them here: the
//! platform is one that our controller leaves alone.

use anyhow::{Context as _, Result};
use jiff::{SignedDuration, Timestamp};
use kube::api::PostParams;
use kube::{Api, ResourceExt as _};
use serde_json::json;
use shared::annotation::keys;
use shared::hive::api::ClusterDeployment;
use testbed::World;
use testbed::check::webhook_only;

use crate::hive_common::create;
use crate::plugin_common::{Shell, in_namespace};

type Clusters = Api<ClusterDeployment>;

fn note<'a>(cluster: &'a ClusterDeployment, key: &str) -> Option<&'a str> {
    cluster.annotations().get(key).map(String::as_str)
}

/// Begins what is printed about the cluster.
const DEMO: &str = "clusterdeployment.hive.openshift.io/demo";

/// Runs a test beside a cluster that runs.
async fn with_cluster(test: impl AsyncFnOnce(Shell, Clusters) -> Result<()>) -> Result<()> {
    in_namespace(World::shared_with(webhook_only()).await?, async |shell| {
        let clusters: Clusters = Api::namespaced(shell.client.clone(), &shell.ns);
        create(&clusters, "demo", "gcp", &json!({})).await?;
        test(shell, clusters).await
    })
    .await
}

#[tokio::test]
async fn a_sleep_ends_when_it_was_told_to() -> Result<()> {
    with_cluster(async |shell, clusters| {
        let begun = Timestamp::now();
        let ran = shell.run("cd/demo --for 14h -v").await?;
        let ended = Timestamp::now();
        assert_eq!(ran.code, 0, "{}", ran.stderr);
        assert_eq!(ran.stderr.lines().filter(|line| line.starts_with("PATCH")).count(), 1, "one patch: {}", ran.stderr);
        assert!(ran.stderr.contains("without the controller, it does not wake at "), "{}", ran.stderr);
        let asleep = clusters.get("demo").await?;
        assert_eq!(asleep.spec.power_state.as_deref(), Some("Hibernating"));
        let at = note(&asleep, keys::WAKE_AT).context("wake-at")?;
        assert_eq!(ran.stdout, format!("{DEMO} hibernation requested, wakes at {at}\n"));
        let requested = at.parse::<Timestamp>()? - SignedDuration::from_hours(14);
        let earliest = begun - SignedDuration::from_secs(1); // it is written in whole seconds
        assert!((earliest..=ended).contains(&requested), "{requested} is not between {begun} and {ended}");
        assert_eq!(shell.status("cd/demo").await?["wakeAt"], at);
        let table = shell.ok("status").await?;
        let is_soon = ["wakes in 14h", "wakes in 13h"].iter().any(|left| table.contains(left));
        assert!(table.contains("UNTIL") && is_soon, "{table}");

        let later = "2126-12-24T18:00:00Z";
        shell.prints(&format!("cd/demo --until {later}"), &format!("{DEMO} wakes at {later}\n")).await?;
        // The end stays.
        shell.prints("cd/demo", &format!("{DEMO} unchanged, wakes at {later}\n")).await?;
        shell.ok("resume cd/demo").await?;
        let awake = clusters.get("demo").await?;
        assert_eq!((note(&awake, keys::WAKE_AT), awake.spec.power_state.as_deref()), (None, Some("Running")));
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_wake_can_be_held_and_the_hold_is_the_callers() -> Result<()> {
    with_cluster(async |shell, clusters| {
        let ran = shell.ok("resume cd/demo --hold-awake --for 4h --as alice").await?;
        let awake = clusters.get("demo").await?;
        let until = note(&awake, keys::HOLD_AWAKE_UNTIL).context("hold")?;
        assert_eq!(ran, format!("{DEMO} held awake until {until}\n"));
        assert_eq!(note(&awake, keys::HOLD_AWAKE_BY), Some("alice"), "stamped by the webhook");
        let shown = shell.status("cd/demo").await?;
        assert_eq!((&shown["holdAwakeUntil"], &shown["holdAwakeBy"]), (&json!(until), &json!("alice")));
        let table = shell.ok("status").await?;
        let left = ["4h", "3h59m"].map(|left| format!("held awake for {left} by alice"));
        assert!(left.iter().any(|left| table.contains(left)), "{table}");
        shell.each(&[("cd/demo", 3, &[&format!("held awake until {until} by alice")])]).await?;

        // A hold that has passed cannot be set, but be there: as if time had gone by.
        clusters.delete("demo", &kube::api::DeleteParams::default()).await?;
        let mut old: ClusterDeployment = awake.clone();
        old.metadata = kube::api::ObjectMeta {
            name: Some("demo".to_owned()),
            annotations: Some([(keys::HOLD_AWAKE_UNTIL.to_owned(), "2026-01-01T00:00:00Z".to_owned())].into()),
            ..kube::api::ObjectMeta::default()
        };
        clusters.create(&PostParams::default(), &old).await?;
        shell.ok("cd/demo").await?;
        let asleep = clusters.get("demo").await?;
        assert_eq!((note(&asleep, keys::HOLD_AWAKE_UNTIL), note(&asleep, keys::HOLD_AWAKE_BY)), (None, None));
        Ok(())
    })
    .await
}
