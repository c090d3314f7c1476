//! Rules of a rollout, end to end: targets that it refuses, defers or leaves alone.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use shared::annotation::mark::{Mark, Outcome};
use shared::annotation::{format, keys};
use shared::hive::api::ClusterDeployment;
use shared::rollout::status::{PowerRolloutStatus, RolloutPhase};
use testbed::ec2::Fault;
use testbed::proxy::faults::{Effect, Rule};
use testbed::{ClusterOptions, World, ensure_that, eventually};

use crate::hive_common::events;
use crate::rollout_common::{Fleet, SOON, word};

fn annotated(annotations: &[(&str, &str)]) -> ClusterOptions {
    let annotations = annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    ClusterOptions { annotations, ..ClusterOptions::of_size(1) }
}

fn patched(patch: Value) -> ClusterOptions {
    ClusterOptions { patch, ..ClusterOptions::of_size(1) }
}

#[tokio::test]
async fn what_a_rule_denies_is_refused_and_what_has_to_wait_is_deferred() -> Result<()> {
    let world = World::shared().await?;
    let held = [(keys::HOLD_AWAKE_UNTIL, "2126-01-01T00:00:00Z"), (keys::HOLD_AWAKE_BY, "ann")];
    let pool = json!({ "spec": { "clusterPoolRef": { "namespace": "pools", "poolName": "big" } } });
    let fleet = Fleet::new(
        &world,
        "rules",
        &[
            ("protected", annotated(&[(keys::PROTECTED, "true")])),
            ("held", annotated(&held)),
            ("paused", annotated(&[("hive.openshift.io/powerstate-pause", "true")])),
            ("fresh", patched(json!({ "spec": { "installed": false } }))),
            ("pool", patched(pool)),
            ("nameless", patched(json!({ "spec": { "clusterMetadata": { "infraID": "" } } }))),
            ("bare", patched(json!({ "spec": { "platform": { "aws": null, "none": {} } } }))),
            ("leaving", ClusterOptions::of_size(1)),
            ("fine", ClusterOptions::of_size(1)),
        ],
    )
    .await?;
    fleet.get("leaving").patch(&json!({ "metadata": { "finalizers": ["test/keeps"] } })).await?;
    let clusters: Api<ClusterDeployment> = Api::namespaced(world.hub().await?, fleet.get("leaving").namespace());
    clusters.delete(fleet.get("leaving").name(), &DeleteParams::default()).await?;
    let sleep = fleet.rollout("Hibernate", json!({})).await?;
    sleep.until_target(fleet.get("fine"), "Succeeded").await?;
    let status = sleep.until("counts", |status| status.counts.get("Deferred") == Some(&4)).await?;
    for (name, state, reason) in [
        ("protected", "Refused", "V6: "),
        ("nameless", "Refused", "V5: "),
        ("bare", "Refused", "V4: spec.platform"),
        ("leaving", "Refused", "V3: metadata.deletionTimestamp"),
        ("held", "Deferred", "held awake until 2126-01-01T00:00:00Z by admin"),
        ("paused", "Deferred", "paused: hive.openshift.io/powerstate-pause is set"),
        ("fresh", "Deferred", "not installed yet"),
        ("pool", "Deferred", "unclaimed cluster of ClusterPool big"),
    ] {
        let (found, why) = word(&status, fleet.get(name)).unwrap_or_default();
        ensure!(found == state && why.starts_with(reason), "{name}: {found} {why}");
        assert_eq!(fleet.mark(name).await?, None, "{name} is not written");
    }
    assert_eq!(status.phase, Some(RolloutPhase::Progressing), "it waits for the deferred until notAfter");
    // What ends the hold lets the target start.
    fleet.get("held").patch(&json!({ "metadata": { "annotations": { keys::HOLD_AWAKE_UNTIL: null } } })).await?;
    sleep.until_target(fleet.get("held"), "Succeeded").await?;
    sleep.set(json!({ "notAfter": jiff::Timestamp::now().to_string() })).await?;
    let status = sleep.until_phase(RolloutPhase::Finished).await?;
    assert_eq!((status.counts["Refused"], status.counts["Deferred"], status.counts["Succeeded"]), (4, 3, 2));
    fleet.get("leaving").patch(&json!({ "metadata": { "finalizers": null } })).await?;
    sleep.delete().await?;
    fleet.remove().await
}

#[tokio::test]
async fn a_spoke_that_never_answers_delays_its_own_target() -> Result<()> {
    let world = World::shared().await?;
    let fleet = Fleet::of(&world, "mute", &["a", "b"]).await?;
    let hang = fleet.get("a").inject(&Rule { effect: Effect::Hang, ..Rule::default() }).await?;
    // The claim of b lasts, however soon it sleeps: no slot is free when the check of a ends.
    let sleep = fleet.rollout("Hibernate", json!({ "maxConcurrency": 1, "minSuccessTime": "1h" })).await?;
    let why = sleep.until_target(fleet.get("a"), "Deferred").await?;
    ensure!(why.contains("API server does not answer"), "{why}");
    let begun = sleep.get().await?.status.and_then(|status| status.started_at).context("a start")?.0;
    let started = fleet.mark("b").await?.and_then(|mark| format::time(&mark.since)).context("a start of b")?;
    // A check waits 8 seconds for its answer.
    let waited = started.duration_since(begun);
    ensure!(waited <= jiff::SignedDuration::from_secs(7), "b waited for {waited}");
    world.heal(&fleet.get("a").info().infra_id, Some(&hang.id)).await?;
    sleep.set(json!({ "minSuccessTime": "0s" })).await?;
    sleep.until_phase(RolloutPhase::Succeeded).await?;
    sleep.delete().await?;
    fleet.remove().await
}

#[tokio::test]
async fn a_target_whose_start_fails_for_a_minute_is_deferred_and_others_go_on() -> Result<()> {
    let world = World::shared().await?;
    let fleet = Fleet::of(&world, "unread", &["a", "b"]).await?;
    let cluster = fleet.get("a");
    let metadata = cluster.get().await?.spec.cluster_metadata.context("clusterMetadata")?;
    let path =
        format!("/api/v1/namespaces/{}/secrets/{}", cluster.namespace(), metadata.admin_kubeconfig_secret_ref.name);
    let refuse = Effect::Status { code: 403, retry_after: None, message: None };
    let refused = world.inject("hub", &Rule::new(refuse).path(&path).user_agent("hibernate-controller")).await?;
    let sleep = fleet.rollout("Hibernate", json!({ "groups": fleet.canary("a") })).await?;
    let why = sleep.until_target(cluster, "Deferred").await?;
    ensure!(why.contains("kubeconfig") && why.contains("cannot be read"), "{why}");
    sleep.until_target(fleet.get("b"), "Succeeded").await?;
    world.heal("hub", Some(&refused.id)).await?;
    sleep.until_phase(RolloutPhase::Succeeded).await?;
    sleep.delete().await?;
    fleet.remove().await
}

#[tokio::test]
async fn a_persons_write_wins_before_and_after_the_claim() -> Result<()> {
    let world = World::shared().await?;
    let fleet = Fleet::of(&world, "person", &["a", "b"]).await?;
    // The claim of a lasts, and b does not start, however soon a sleeps.
    let canary = fleet.canary("a");
    let sleep = fleet.rollout("Hibernate", json!({ "groups": canary, "minSuccessTime": "1h" })).await?;
    sleep.until("start", |status| status.counts.get("Pending") == Some(&1)).await?;
    fleet.get("b").sleep().await?;
    fleet.get("b").wake().await?;
    let a = fleet.get("a");
    let clusters: Api<ClusterDeployment> = Api::namespaced(world.hub().await?, a.namespace());
    let argo = PatchParams { field_manager: Some("argocd-controller".to_owned()), ..PatchParams::default() };
    clusters.patch(a.name(), &argo, &Patch::Merge(json!({ "spec": { "powerState": "Running" } }))).await?;
    let status = sleep.until_phase(RolloutPhase::Finished).await?;
    assert_eq!(status.counts["Overridden"], 2);
    let expected =
        format!("rollout {} requested Hibernating, and field manager argocd-controller has changed", sleep.name);
    eventually(SOON, "an Event that names the client", async || {
        ensure_that(events(&world, a).await?.remove("Overridden").context("no Event")?, |note| {
            note.starts_with(&expected)
        })
    })
    .await?;
    let record = fleet.mark("a").await?.and_then(|mark| mark.ended);
    assert_eq!(record.map(|ended| ended.result), Some(Outcome::Overridden));
    assert_eq!(fleet.mark("b").await?, None);
    fleet.get("a").wait_for_power_state("Running", SOON).await?;
    sleep.delete().await?;
    fleet.remove().await
}

#[tokio::test]
async fn a_claimed_target_is_deferred_naming_the_claim_and_one_that_is_gone_is_removed() -> Result<()> {
    let world = World::shared().await?;
    let own = || ClusterOptions { own_account: true, ..ClusterOptions::of_size(1) };
    let mut fleet = Fleet::new(&world, "claimed", &[("a", own()), ("b", own())]).await?;
    let instance = Some(fleet.get("a").instances().await?[0].id.clone());
    let fault = Fault { instance, ..Fault::error("StopInstances", "UnauthorizedOperation", 403) };
    let fault = world.ec2().inject(&fault).await?;
    let canary = fleet.canary("a");
    let first = fleet.rollout("Hibernate", json!({ "groups": canary })).await?;
    first.until_target(fleet.get("a"), "Failed").await?;
    let second = fleet.rollout("Hibernate", json!({ "groups": canary })).await?;
    let reason = second.until_target(fleet.get("a"), "Deferred").await?;
    assert_eq!(reason, format!("in progress in rollout {}", first.name));
    // A deferred target holds up no group.
    second.until_target(fleet.get("b"), "Succeeded").await?;
    fleet.remove_one("b").await?;
    second.until("Removed", |status| status.counts.get("Removed") == Some(&1)).await?;
    world.ec2().heal(Some(&fault.id)).await?;
    for rollout in [first, second] {
        rollout.delete().await?;
    }
    fleet.remove().await
}

/// Three targets that wait for capacity keep the fourth of their account from starting, although slots are free.
#[tokio::test]
async fn a_cloud_without_capacity_closes_its_domain_until_one_succeeds() -> Result<()> {
    let world = World::shared().await?;
    // A region of their own: no other test shares the limits of the account there.
    let asleep = || ClusterOptions { region: "sa-east-1".to_owned(), ..ClusterOptions::of_size(1) }.asleep();
    let fleet = Fleet::new(&world, "crowded", &["a", "b", "c", "d"].map(|name| (name, asleep()))).await?;
    let mut faults = Vec::new();
    // Whichever three start first: the order depends on how many domains the controller knows by then.
    for name in ["a", "b", "c", "d"] {
        let instance = Some(fleet.get(name).instances().await?[0].id.clone());
        let fault = Fault { instance, ..Fault::error("StartInstances", "InsufficientInstanceCapacity", 500) };
        faults.push(world.ec2().inject(&fault).await?);
    }
    // The minute in which three may start is over long before capacity returns.
    let wake = fleet.rollout("Resume", json!({ "startsPerMinute": 3, "maxFailures": 0 })).await?;
    let words = "the cloud lacks capacity or rate-limits requests";
    let closed = |status: &PowerRolloutStatus| status.message.as_deref().unwrap_or_default().ends_with(words);
    wake.until("closed domain", closed).await?;
    tokio::time::sleep(Duration::from_mins(1) + Duration::from_secs(5)).await;
    let status = wake.get().await?.status.unwrap_or_default();
    ensure!(closed(&status) && status.counts.get("Pending") == Some(&1), "{status:#?}");
    for fault in &faults {
        world.ec2().heal(Some(&fault.id)).await?;
    }
    wake.until_phase(RolloutPhase::Succeeded).await?;
    wake.delete().await?;
    fleet.remove().await
}

#[tokio::test]
async fn members_are_those_that_existed_when_it_started() -> Result<()> {
    let world = World::shared().await?;
    let fleet = Fleet::of(&world, "members", &["a", "b", "c"]).await?;
    let label = fleet.get("a").get().await?.labels()["fleet"].clone();
    fleet.get("c").patch(&json!({ "metadata": { "labels": { "fleet": "none" } } })).await?;
    // The claim of a lasts until the members have changed, however soon a sleeps.
    let canary = fleet.canary("a");
    let spec = json!({ "groups": canary, "maxTargets": 2, "minSuccessTime": "1h" });
    let sleep = fleet.rollout("Hibernate", spec).await?;
    sleep.until_target(fleet.get("a"), "Progressing").await?;
    // Times of objects are whole seconds.
    tokio::time::sleep(Duration::from_secs(1)).await;
    // A claim, even with a matching label, makes no member.
    let labels = [("fleet".to_owned(), label.clone())].into();
    // As a restored backup contains it.
    let claim = fleet.mark("a").await?.context("a claim")?.text();
    let annotations = [(keys::ROLLOUT.to_owned(), claim)].into();
    let late = ClusterOptions { labels, annotations, ..ClusterOptions::of_size(1) };
    let late = world.cluster(&format!("{label}-late"), late).await?;
    late.wait_for_power_state("Running", SOON).await?;
    testbed::eventually(SOON, "the end of the claim on it", async || {
        let found = late.get().await?;
        let mark = found.annotations().get(keys::ROLLOUT).and_then(|text| Mark::parse(text)).context("a mark")?;
        let ended = mark.ended.context("an end")?;
        ensure!(ended.result == Outcome::Abandoned, "{ended:?}");
        Ok(())
    })
    .await?;
    // Label changes do not change membership.
    fleet.get("c").patch(&json!({ "metadata": { "labels": { "fleet": label } } })).await?;
    fleet.get("b").patch(&json!({ "metadata": { "labels": { "fleet": "none" } } })).await?;
    sleep.set(json!({ "minSuccessTime": "0s" })).await?;
    let status = sleep.until_phase(RolloutPhase::Succeeded).await?;
    assert_eq!((status.total, status.counts), (Some(2), [("Succeeded".to_owned(), 2)].into()));
    assert_eq!((fleet.mark("c").await?, fleet.get("c").get().await?.power_state()), (None, "Running"));
    assert_eq!(late.get().await?.power_state(), "Running");
    late.remove().await?;
    sleep.delete().await?;
    fleet.remove().await
}

#[tokio::test]
async fn names_and_records_that_do_not_exist_are_named_and_a_rollout_goes_after_its_ttl() -> Result<()> {
    let world = World::shared().await?;
    let fleet = Fleet::of(&world, "empty", &["a"]).await?;
    let names: Vec<Value> = (0..4).map(|n| json!({ "namespace": "fleet", "name": format!("x{n}") })).collect();
    let invented = fleet.rollout("Hibernate", json!({ "targets": { "selector": null, "names": names } })).await?;
    let message = invented.until_phase(RolloutPhase::Finished).await?.message.unwrap_or_default();
    ensure!(message.ends_with("not found: fleet/x0, fleet/x1, fleet/x2 and 1 more"), "{message}");
    let unknown = fleet.rollout("Restore", json!({ "restoreOf": { "name": "unknown", "uid": "0-0" } })).await?;
    let message = unknown.until_phase(RolloutPhase::Waiting).await?.message.unwrap_or_default();
    ensure!(message.contains("has a record of rollout unknown with UID 0-0"), "{message}");
    for rollout in [invented, unknown] {
        rollout.delete().await?;
    }
    let expired = fleet.rollout("Resume", json!({ "ttlAfterFinished": "1s" })).await?;
    testbed::eventually(SOON, "the end of ttlAfterFinished", async || {
        testbed::ensure_that(expired.api.get_opt(&expired.name).await?, Option::is_none)
    })
    .await?;
    assert_eq!(fleet.mark("a").await?, None);
    fleet.remove().await
}
