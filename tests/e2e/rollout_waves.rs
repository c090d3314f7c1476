//! `PowerRollouts` end to end: waves, canaries, halts and the ways out of them, on the real API server with the real
//! controller.

use std::time::Duration;

use anyhow::{Result, ensure};
use kube::ResourceExt;
use serde_json::json;
use shared::annotation::mark::Outcome;
use shared::annotation::{format, keys};
use shared::power::Power;
use shared::rollout::status::RolloutPhase;
use testbed::ec2::Fault;
use testbed::{ClusterOptions, Platform, World};

use crate::rollout_common::{Fleet, SOON};

/// A rollout asks the rules before it writes: they read every platform's part of the object.
#[tokio::test]
async fn a_fleet_of_every_platform_sleeps_and_wakes() -> Result<()> {
    let world = World::shared().await?;
    let platforms = [Platform::Aws, Platform::Azure, Platform::Gcp, Platform::IbmCloud];
    let options = |platform| ClusterOptions { platform, ..ClusterOptions::of_size(1) };
    let clusters = platforms.map(|platform| (platform.into(), options(platform)));
    let fleet = Fleet::new(&world, "clouds", &clusters).await?;
    for (action, state) in [("Hibernate", "Hibernating"), ("Resume", "Running")] {
        let rollout = fleet.rollout(action, json!({})).await?;
        let status = rollout.until_phase(RolloutPhase::Succeeded).await?;
        assert_eq!((status.total, status.counts["Succeeded"]), (Some(4), 4), "{action}");
        for (name, _) in &clusters {
            assert_eq!(fleet.get(name).get().await?.power_state(), state, "{name}");
        }
        rollout.delete().await?;
    }
    fleet.remove().await
}

#[tokio::test]
async fn a_fleet_sleeps_in_waves_after_its_canary_and_an_undo_wakes_it() -> Result<()> {
    let world = World::shared().await?;
    let names = ["a", "b", "c", "d", "e"];
    let mut clusters: Vec<(&str, ClusterOptions)> = names.map(|name| (name, ClusterOptions::of_size(1))).into();
    clusters.push(("sleeps", ClusterOptions::of_size(1).asleep()));
    let fleet = Fleet::new(&world, "waves", &clusters).await?;
    let untouched = fleet.get("sleeps").get().await?.resource_version();
    let canary = fleet.canary("c");
    let sleep = fleet.rollout("Hibernate", json!({ "groups": canary, "maxConcurrency": 2, "reason": "night" })).await?;
    let status = sleep.until_phase(RolloutPhase::Succeeded).await?;
    assert_eq!((status.total, status.counts["Succeeded"], status.counts["AlreadyInState"]), (Some(6), 5, 1));
    let mut spans = Vec::new();
    for name in names {
        let mark = fleet.mark(name).await?.unwrap();
        let ended = mark.ended.clone().unwrap();
        assert_eq!((mark.wanted, mark.before, ended.result), (Power::Hibernating, Power::Running, Outcome::Succeeded));
        let cluster = fleet.get(name).get().await?;
        assert_eq!((cluster.power_state(), cluster.annotations()[keys::REASON].as_str()), ("Hibernating", "night"));
        let by = &cluster.annotations()[keys::REQUESTED_BY];
        assert_eq!(
            Some(by),
            sleep.get().await?.annotations().get(keys::REQUESTED_BY),
            "the person, not the controller"
        );
        spans.push((name, format::time(&mark.since).unwrap(), format::time(&ended.at).unwrap()));
    }
    let canary = spans.iter().find(|(name, ..)| *name == "c").unwrap();
    for (name, since, _) in spans.iter().filter(|(name, ..)| *name != "c") {
        ensure!(*since >= canary.2, "{name} started before the canary had ended: {spans:?}");
        // Times are whole seconds: what ends in the second in which another starts is not counted.
        let others = spans.iter().filter(|(other, begin, end)| other != name && begin <= since && since < end);
        ensure!(others.count() < 2, "more than two at once: {spans:?}");
    }
    assert_eq!(fleet.get("sleeps").get().await?.resource_version(), untouched, "AlreadyInState is not written");

    let restore = json!({ "restoreOf": { "name": sleep.name, "uid": sleep.get().await?.uid() } });
    sleep.delete().await?;
    let undo = fleet.rollout("Restore", restore).await?;
    let status = undo.until_phase(RolloutPhase::Succeeded).await?;
    assert_eq!(
        (status.total, status.counts["Succeeded"]),
        (Some(5), 5),
        "by the records, after the rollout is deleted"
    );
    for name in names {
        assert_eq!(fleet.get(name).get().await?.power_state(), "Running");
    }
    undo.delete().await?;
    fleet.remove().await
}

#[tokio::test]
async fn an_undo_of_a_wake_ends_its_hold_and_gives_the_wake_time_back() -> Result<()> {
    let world = World::shared().await?;
    let (morning, noon) = ("2126-01-02T08:00:00Z", "2126-01-02T12:00:00Z");
    let mut asleep = ClusterOptions::of_size(1).asleep();
    asleep.annotations.insert(keys::WAKE_AT.to_owned(), morning.to_owned());
    let fleet = Fleet::new(&world, "held", &[("a", asleep)]).await?;
    let annotation = async |key: &str| anyhow::Ok(fleet.get("a").get().await?.annotations().get(key).cloned());
    let wake = fleet.rollout("Resume", json!({ "holdAwakeUntil": noon })).await?;
    wake.until_phase(RolloutPhase::Succeeded).await?;
    assert_eq!(annotation(keys::HOLD_AWAKE_UNTIL).await?.as_deref(), Some(noon));
    assert_eq!(annotation(keys::WAKE_AT).await?, None);
    let restore = json!({ "restoreOf": { "name": wake.name, "uid": wake.get().await?.uid() } });
    let undo = fleet.rollout("Restore", restore).await?;
    undo.until_phase(RolloutPhase::Succeeded).await?;
    assert_eq!(fleet.get("a").get().await?.power_state(), "Hibernating");
    assert_eq!(annotation(keys::HOLD_AWAKE_UNTIL).await?, None);
    assert_eq!(annotation(keys::WAKE_AT).await?.as_deref(), Some(morning));
    for rollout in [wake, undo] {
        rollout.delete().await?;
    }
    fleet.remove().await
}

#[tokio::test]
async fn a_failing_canary_halts_a_wake_until_it_is_accepted_and_retried() -> Result<()> {
    let world = World::shared().await?;
    let asleep = || ClusterOptions { own_account: true, ..ClusterOptions::of_size(1) }.asleep();
    let fleet = Fleet::new(&world, "halts", &[("canary", asleep()), ("a", asleep()), ("b", asleep())]).await?;
    let key = &fleet.get("canary").info().access_key_id;
    let denied =
        Fault { access_key: Some(key.clone()), ..Fault::error("StartInstances", "UnauthorizedOperation", 403) };
    let denied = world.ec2().inject(&denied).await?;
    let canary = fleet.canary("canary");
    let wake = fleet.rollout("Resume", json!({ "groups": canary, "deadline": "12s" })).await?;
    let status = wake.until_phase(RolloutPhase::Halted).await?;
    ensure!(status.message.as_deref().unwrap_or_default().starts_with("too many failures in group canary"));
    assert_eq!(status.halt.map(|halt| halt.group).as_deref(), Some("canary"));
    let reason = wake.until_target(fleet.get("canary"), "Failed").await?;
    ensure!(reason.contains("UnauthorizedOperation"), "{reason}");
    for name in ["a", "b"] {
        assert_eq!(fleet.mark(name).await?, None, "nothing starts");
    }
    // Once its claim has ended, and the rights are back, a retry takes it again.
    wake.until("end of the claim", |status| status.counts.get("Failed") == Some(&1)).await?;
    fleet.until_ended("canary", Outcome::Failed).await?;
    wake.set(json!({ "acceptFailures": 1, "deadline": "3m" })).await?;
    wake.until_target(fleet.get("a"), "Succeeded").await?;
    let status = wake.until_phase(RolloutPhase::Finished).await?;
    assert_eq!((status.counts["Failed"], status.counts["Succeeded"]), (1, 2));
    world.ec2().heal(Some(&denied.id)).await?;
    // The controller backs off for up to a minute after refused rights.
    wake.set(json!({ "retryFailed": 1 })).await?;
    let status = wake.until_phase(RolloutPhase::Succeeded).await?;
    assert_eq!(status.counts["Succeeded"], 3);
    assert_eq!(fleet.mark("canary").await?.map(|mark| mark.attempt), Some(1));
    wake.delete().await?;
    fleet.remove().await
}

#[tokio::test]
async fn a_pause_an_approval_and_an_abort_take_effect_within_a_second() -> Result<()> {
    let world = World::shared().await?;
    let fleet = Fleet::of(&world, "stops", &["a", "b", "c", "d"]).await?;
    let group =
        |name: &str, pauses: bool| json!({ "name": name, "names": [fleet.reference(name)], "pauseAfter": pauses });
    let groups = json!([group("a", true), group("b", false), group("c", false)]);
    let sleep = fleet.rollout("Hibernate", json!({ "paused": true, "groups": groups })).await?;
    let status = sleep.until_phase(RolloutPhase::Planned).await?;
    assert_eq!((status.counts["Pending"], status.started_at), (4, None));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(fleet.mark("a").await?, None);
    sleep.set(json!({ "paused": false })).await?;
    let status = sleep.until("approval", |status| status.awaits_approval.is_some()).await?;
    assert_eq!((status.phase, status.counts["Succeeded"]), (Some(RolloutPhase::Paused), 1));
    let approved = json!([group("a", false), group("b", false), group("c", false)]);
    sleep.set(json!({ "groups": approved })).await?;
    sleep.until_target(fleet.get("b"), "Progressing").await?;
    sleep.set(json!({ "paused": true })).await?;
    sleep.until_target(fleet.get("b"), "Succeeded").await?;
    sleep.until_phase(RolloutPhase::Paused).await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(fleet.mark("c").await?, None, "paused: c does not start when b has ended");
    sleep.set(json!({ "paused": false })).await?;
    sleep.until_target(fleet.get("c"), "Progressing").await?;
    sleep.set(json!({ "abort": true })).await?;
    let status = sleep.until_phase(RolloutPhase::Aborted).await?;
    assert_eq!((status.counts["Succeeded"], status.counts["Pending"]), (3, 1), "c goes on, d never starts");
    assert_eq!(fleet.get("d").get().await?.power_state(), "Running");
    sleep.delete().await?;
    fleet.remove().await
}

#[tokio::test]
async fn a_resume_takes_over_the_targets_of_a_hibernate_and_a_deleted_rollout_leaves_records() -> Result<()> {
    let world = World::shared().await?;
    let fleet = Fleet::of(&world, "opposite", &["a", "b", "c"]).await?;
    // Its claims last, however soon the clusters sleep.
    let sleep = fleet.rollout("Hibernate", json!({ "minSuccessTime": "1h" })).await?;
    sleep.until("start of all", |status| status.started_at.is_some() && !status.counts.contains_key("Pending")).await?;
    // Times of claims are whole seconds: the other one is newer.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let wake = fleet.rollout("Resume", json!({ "startsPerMinute": 100 })).await?;
    wake.until_phase(RolloutPhase::Succeeded).await?;
    let status = sleep.until_phase(RolloutPhase::Finished).await?;
    assert_eq!(status.counts["Overridden"], 3, "never fought");
    for name in ["a", "b", "c"] {
        assert_eq!(fleet.get(name).get().await?.power_state(), "Running");
    }
    sleep.delete().await?;
    wake.delete().await?;

    let canary = fleet.canary("a");
    let sleep = fleet.rollout("Hibernate", json!({ "groups": canary })).await?;
    sleep.until_target(fleet.get("a"), "Progressing").await?;
    sleep.delete().await?;
    fleet.until_ended("a", Outcome::Abandoned).await?;
    fleet.get("a").wait_for_power_state("Hibernating", SOON).await?;
    let later = fleet.mark("b").await?;
    ensure!(later.is_none_or(|mark| mark.wanted == Power::Running), "nothing starts any more, nothing is reversed");
    fleet.remove().await
}
