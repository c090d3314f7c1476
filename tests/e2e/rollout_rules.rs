//! What a rollout leaves alone, waits for, or refuses: the rows of its rules, end to end.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use shared::annotation::mark::{Mark, Outcome};
use shared::annotation::{format, keys};
use shared::hive::api::ClusterDeployment;
use shared::rollout::status::{PowerRolloutStatus, RolloutPhase};
use testbed::ec2::Fault;
use testbed::proxy::faults::{Effect, Rule};
use testbed::{ClusterOptions, World};

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
async fn a_silent_spoke_defers_a_sleep() -> Result<()> {
    let world = World::shared().await?;
    let fleet = Fleet::of(&world, "busy", &["silent", "fine"]).await?;
    let mute = fleet
        .get("silent")
        .inject(&Rule { effect: Effect::Status { code: 503, retry_after: None, message: None }, ..Rule::default() })
        .await?;
    let sleep = fleet.rollout("Hibernate", json!({})).await?;
    sleep.until_target(fleet.get("fine"), "Succeeded").await?;
    let why = sleep.until_target(fleet.get("silent"), "Deferred").await?;
    ensure!(why.contains("API server"), "{why}");
    assert_eq!(fleet.mark("silent").await?, None);
    let gate = &fleet.get("silent").info().infra_id;
    world.heal(gate, Some(&mute.id)).await?;
    sleep.until_phase(RolloutPhase::Succeeded).await?;
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
    ensure!(waited <= jiff::SignedDuration::from_secs(5), "b waited for {waited}");
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
    fleet.get("a").wake().await?;
    let status = sleep.until_phase(RolloutPhase::Finished).await?;
    assert_eq!(status.counts["Overridden"], 2);
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

/// Three targets that wait for one cause keep the others of their account from starting, although slots are free. Not
/// so those with accounts of their own.
async fn a_closed_domain(world: &World, word: &str, code: &str, status: u16, own_account: bool) -> Result<()> {
    // A region of their own: no other test shares the limits of the account there.
    let region = if word == "limited" { "ca-central-1" } else { "sa-east-1" }.to_owned();
    let asleep = || ClusterOptions { own_account, region: region.clone(), ..ClusterOptions::of_size(1) }.asleep();
    let fleet = Fleet::new(world, word, &["a", "b", "c", "d"].map(|name| (name, asleep()))).await?;
    let mut faults = Vec::new();
    // Whichever three start first: the order depends on how many domains the controller knows by then.
    for name in if own_account { &["a", "b", "c"][..] } else { &["a", "b", "c", "d"] } {
        let instance = Some(fleet.get(name).instances().await?[0].id.clone());
        faults.push(world.ec2().inject(&Fault { instance, ..Fault::error("StartInstances", code, status) }).await?);
    }
    // The minute in which three may start is over long before the cloud has room.
    let wake = fleet.rollout("Resume", json!({ "startsPerMinute": 3, "maxFailures": 0 })).await?;
    if own_account {
        wake.until_target(fleet.get("d"), "Succeeded").await?;
    } else {
        let said = "the cloud lacks capacity or limits the rate";
        let closed = |status: &PowerRolloutStatus| status.message.as_deref().unwrap_or_default().ends_with(said);
        wake.until("closed domain", closed).await?;
        tokio::time::sleep(Duration::from_mins(1) + Duration::from_secs(5)).await;
        let status = wake.get().await?.status.unwrap_or_default();
        let pending = status.counts.get("Pending");
        ensure!(closed(&status) && pending == Some(&1), "{code}: {status:#?}");
    }
    for fault in &faults {
        world.ec2().heal(Some(&fault.id)).await?;
    }
    wake.until_phase(RolloutPhase::Succeeded).await?;
    wake.delete().await?;
    fleet.remove().await
}

#[tokio::test]
async fn a_cloud_without_capacity_or_with_a_rate_limit_closes_its_domain_until_one_succeeds() -> Result<()> {
    let world = &World::shared().await?;
    tokio::try_join!(
        a_closed_domain(world, "crowded", "InsufficientInstanceCapacity", 500, false),
        a_closed_domain(world, "limited", "RequestLimitExceeded", 503, false),
        a_closed_domain(world, "apart", "InsufficientInstanceCapacity", 500, true),
    )
    .map(drop)
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
    // A claim alone makes no member, and a label with it neither.
    let labels = [("fleet".to_owned(), label.clone())].into();
    // As a backup that is restored brings it along.
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
    // Nor does a label, put on or taken off, change who is a member.
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
async fn canaries_that_sleep_already_are_replaced() -> Result<()> {
    let world = World::shared().await?;
    let fleet = Fleet::new(
        &world,
        "replaced",
        &[
            ("x", ClusterOptions::of_size(1).asleep()),
            ("a", ClusterOptions::of_size(1)),
            ("b", ClusterOptions::of_size(1)),
        ],
    )
    .await?;
    let canary = fleet.canary("x");
    let sleep = fleet.rollout("Hibernate", json!({ "groups": canary })).await?;
    sleep.until_phase(RolloutPhase::Succeeded).await?;
    let (a, b) = (fleet.mark("a").await?.unwrap(), fleet.mark("b").await?.unwrap());
    assert_eq!((a.group, b.group), (0, 1));
    ensure!(b.since >= a.ended.unwrap().at, "b waits for a");
    sleep.delete().await?;
    fleet.remove().await
}

#[tokio::test]
async fn a_rollout_that_selects_nothing_or_an_empty_group_says_so() -> Result<()> {
    let world = World::shared().await?;
    let fleet = Fleet::of(&world, "empty", &["a"]).await?;
    let canary = json!([{ "name": "canary", "selector": { "matchLabels": { "role": "none" } } }]);
    let sleep = fleet.rollout("Hibernate", json!({ "groups": canary })).await?;
    let status = sleep.until_phase(RolloutPhase::Halted).await?;
    ensure!(status.message.as_deref().unwrap_or_default().starts_with("group canary selects none"));
    sleep.delete().await?;
    let namespaces =
        json!({ "targets": { "selector": null, "namespaceSelector": { "matchLabels": { "team": "none" } } } });
    let nothing = fleet.rollout("Hibernate", namespaces).await?;
    let status = nothing.until_phase(RolloutPhase::Waiting).await?;
    ensure!(status.message.as_deref().unwrap_or_default().starts_with("selects no targets"));
    nothing.delete().await?;
    let names: Vec<Value> = (0..4).map(|n| json!({ "namespace": "fleet", "name": format!("x{n}") })).collect();
    let invented = fleet.rollout("Hibernate", json!({ "targets": { "selector": null, "names": names } })).await?;
    let status = invented.until_phase(RolloutPhase::Finished).await?;
    let message = status.message.unwrap_or_default();
    ensure!(message.ends_with("not found: fleet/x0, fleet/x1, fleet/x2 and 1 more"), "{message}");
    assert_eq!(status.not_found.map(|found| found.count), Some(4));
    invented.delete().await?;
    let restore = json!({ "restoreOf": { "name": "unknown", "uid": "0-0" } });
    let unknown = fleet.rollout("Restore", restore).await?;
    let status = unknown.until_phase(RolloutPhase::Waiting).await?;
    let message = status.message.unwrap_or_default();
    ensure!(message.contains("has a record of rollout unknown with UID 0-0"), "{message}");
    unknown.delete().await?;
    let expired = fleet.rollout("Resume", json!({ "ttlAfterFinished": "1s" })).await?;
    testbed::eventually(SOON, "the end of ttlAfterFinished", async || {
        ensure!(expired.api.get_opt(&expired.name).await?.is_none());
        Ok(())
    })
    .await?;
    assert_eq!(fleet.mark("a").await?, None);
    fleet.remove().await
}
