//! The ledger of a cluster: written by what sleeps and wakes it, in the same writes, and believed only where it is its own.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::{Value, json};
use shared::hive::api::ClusterDeployment;
use shared::savings::ledger::LEDGER;
use testbed::{Cluster, ClusterOptions, Options, Program, Timings, World};

use crate::alone::controller_leader::leader;
use crate::hive_common::{SOON, message, running};
use crate::schedule_leader::replica;

/// Longer than a sleep that is counted in whole seconds can miss.
const SLEEP: Duration = Duration::from_secs(4);

async fn sleep_and_wake(world: &World, cluster: &Cluster) -> Result<()> {
    let run = async |verb: &[&str]| {
        let target = [cluster.name(), "-n", cluster.namespace(), "--wait"];
        world.plugin(&[verb, &target].concat()).await?.ok()
    };
    run(&[]).await?;
    tokio::time::sleep(SLEEP).await;
    run(&["resume"]).await?;
    Ok(())
}

async fn savings(world: &World, cluster: &Cluster, more: &[&str]) -> Result<Value> {
    let args = ["savings", cluster.name(), "-n", cluster.namespace(), "-o", "json"];
    world.plugin(&[&args, more].concat()).await?.json()
}

/// Replaces the message of the ledger.
async fn forge(world: &World, cluster: &Cluster, forged: &str) -> Result<()> {
    let clusters: Api<ClusterDeployment> = Api::namespaced(world.hub().await?, cluster.namespace());
    let found = cluster.get().await?;
    let conditions = &found.status.context("a status")?.conditions;
    let at = conditions.iter().position(|condition| condition.type_ == LEDGER).context("a ledger")?;
    let patch = json!([{ "op": "replace", "path": format!("/status/conditions/{at}/message"), "value": forged }]);
    let patch: json_patch::Patch = serde_json::from_value(patch)?;
    clusters.patch_status(cluster.name(), &PatchParams::default(), &Patch::Json::<()>(patch)).await?;
    Ok(())
}

#[tokio::test]
async fn sleeps_are_counted_and_a_forged_ledger_is_dropped_by_name() -> Result<()> {
    let world = World::shared().await?;
    let cluster = running(&world, "saving", ClusterOptions::of_size(6)).await?;
    let before = savings(&world, &cluster, &[]).await?;
    ensure!(before["items"][0]["notes"] == json!(["no sleep in period", "no schedule"]), "{before}");

    sleep_and_wake(&world, &cluster).await?;
    let once = savings(&world, &cluster, &[]).await?;
    let (asleep, machines) = (&once["total"]["asleepSeconds"], &once["total"]["machineSeconds"]["m6i.xlarge"]);
    let (asleep, machines) = (asleep.as_u64().context("seconds")?, machines.as_u64().context("of machines")?);
    ensure!(asleep >= SLEEP.as_secs() - 1 && machines == 6 * asleep && once["total"]["unknownSeconds"] == 0, "{once}");
    let by_type = savings(&world, &cluster, &["--by", "type"]).await?;
    ensure!(by_type["items"][0]["name"] == "m6i.xlarge", "{by_type}");
    let wide = world.plugin(&["status", cluster.name(), "-n", cluster.namespace(), "-o", "wide"]).await?.ok()?;
    ensure!(wide.contains("ASLEEP-30D"), "{wide}");

    let own = message(&cluster.get().await?, LEDGER).to_owned();
    let written: Api<Event> = Api::namespaced(world.hub().await?, cluster.namespace());
    let uid = cluster.get().await?.metadata.uid.context("a UID")?;
    for (forged, why) in [
        (own.replace(&uid, "0b6f2c1e-3f53-4a51-8d6b-0d3f7a1c9e55"), "it belongs to another object"),
        (own.replace("\"v\":1", "\"v\":1,\"x\":") + "}", "it is malformed"),
    ] {
        forge(&world, &cluster, &forged).await?;
        let shown = savings(&world, &cluster, &[]).await?;
        let note = format!("its ledger does not count: {why}");
        let notes = shown["items"][0]["notes"].as_array().context("notes")?;
        ensure!(notes.contains(&json!(note)) && shown["total"]["asleepSeconds"] == 0, "{shown}");
        sleep_and_wake(&world, &cluster).await?;
        let text =
            format!("condition {LEDGER} does not count: {why}; a new one was started, and its earlier months are lost");
        let is_it = |event: &Event| event.message.as_deref() == Some(text.as_str());
        testbed::eventually(SOON, "the Event", async || {
            testbed::ensure_that(written.list(&ListParams::default()).await?.items, |found| found.iter().any(is_it))
        })
        .await?;
        let anew = savings(&world, &cluster, &[]).await?;
        let asleep = anew["total"]["asleepSeconds"].as_u64().unwrap_or_default();
        ensure!(asleep >= SLEEP.as_secs() - 1 && message(&cluster.get().await?, LEDGER).contains(&uid), "{anew}");
    }
    cluster.remove().await
}

#[tokio::test]
async fn a_leader_that_is_frozen_over_a_wake_counts_no_sleep_again() -> Result<()> {
    let world = World::up(Options {
        clusters: 0,
        without: vec![Program::Controller],
        timings: Timings::fast(),
        ..Options::default()
    })
    .await?;
    for identity in ["a", "b"] {
        world.start(&replica(identity)).await?;
    }
    let cluster = running(&world, "twice", ClusterOptions::of_size(2)).await?;
    let mut before = 0;
    for _ in 0..3 {
        cluster.sleep().await?;
        cluster.wait_for_power_state("Hibernating", SOON).await?;
        tokio::time::sleep(SLEEP).await;
        let first = format!("controller-{}", leader(&world).await?);
        // It is frozen at a moment of its wake, which the other one ends.
        cluster.wake().await?;
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..600))).await;
        world.signal(&first, "freeze").await?;
        cluster.wait_for_power_state("Running", SOON).await?;
        let once = savings(&world, &cluster, &[]).await?;
        let seconds = |field: &str| once["total"][field].as_u64().unwrap_or_default();
        // Of a leader that has started machines and not written so, nothing proves how long they slept.
        let (asleep, counted) = (seconds("asleepSeconds"), seconds("asleepSeconds") + seconds("unknownSeconds"));
        let most = before + 3 * SLEEP.as_secs();
        ensure!(
            counted >= before + SLEEP.as_secs() - 1 && counted <= most,
            "more than {before}, at most {most}: {once}"
        );
        let machines = once["total"]["machineSeconds"]["m6i.xlarge"].as_u64().unwrap_or_default();
        ensure!(2 * asleep <= machines && machines <= 2 * counted, "one machine may not be started yet: {once}");
        world.signal(&first, "thaw").await?;
        tokio::time::sleep(SLEEP).await;
        let after = savings(&world, &cluster, &[]).await?;
        ensure!(
            after["total"]["asleepSeconds"] == asleep && after["total"]["unknownSeconds"] == counted - asleep,
            "{after}"
        );
        before = counted;
    }
    cluster.remove().await
}
