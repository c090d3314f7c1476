//! Days with two schedules of one target, and controllers that end around an edge.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::Timestamp;
use jiff::civil::time;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use shared::annotation::{format, keys};
use shared::schedule::api::{ClusterPowerSchedule, PowerSchedule};
use testbed::eventually;

use crate::rollout_common::{Fleet, SOON};
use crate::schedule_common::{BERLIN, Days, QUIET, ended, is_read, night, office, status};

fn resumed(annotations: &Value) -> Value {
    json!({ "spec": { "powerState": "Running" }, "metadata": { "annotations": annotations } })
}

#[tokio::test(flavor = "multi_thread")]
async fn days_with_two_schedules_a_hold_a_wake_at_and_three_edges_missed() -> Result<()> {
    let days = Days::new().await?;
    days.start_controller().await?;
    let fleet = Fleet::of(&days.world, "days", &["own", "held", "woken", "later"]).await?;
    let [own, held, woken, later] = ["own", "held", "woken", "later"].map(|name| fleet.get(name));
    let hub = days.world.hub().await?;
    let (all, name): (Api<ClusterPowerSchedule>, _) = (Api::all(hub.clone()), format!("platform-{}", own.name()));
    let labels = held.get().await?.labels().clone();
    let platform: ClusterPowerSchedule = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "timeZone": BERLIN, "awake": office("07:30", "18:00"),
            "targets": { "selector": { "matchLabels": { "fleet": labels["fleet"] } } },
        },
    }))?;
    let platform = all.create(&PostParams::default(), &platform).await?;
    let uid = platform.uid().context("a UID")?;
    let team: PowerSchedule = serde_json::from_value(json!({
        "metadata": { "name": "team", "namespace": own.namespace() },
        "spec": { "timeZone": BERLIN, "awake": office("06:00", "20:00"), "targets": { "names": [{ "name": own.name() }] } },
    }))?;
    let own_schedules: Api<PowerSchedule> = Api::namespaced(hub.clone(), own.namespace());
    own_schedules.create(&PostParams::default(), &team).await?;
    let seen = is_read(&all, &name).await?;
    assert_eq!(seen.next.len(), 3);
    assert_eq!(seen.next[0].at.0, days.at(0, time(18, 0, 0, 0))?);
    assert_eq!(seen.next[0].source, "awake Mon-Fri 07:30-18:00");

    // Friday evening: each schedule at its own time, and one schedule for each target.
    days.go(0, time(17, 59, 58, 0))?;
    for cluster in [held, woken, later] {
        let asleep = cluster.wait_for_power_state("Hibernating", SOON).await?;
        assert_eq!(asleep.annotations().get(keys::REQUESTED_BY).map(String::as_str), Some("admin"));
    }
    eventually(SOON, "outcome", async || {
        let status = status(&all, &name).await?;
        let edge = status.last_edge.context("an edge")?;
        ensure!(edge.outcome.as_deref() == Some("Succeeded") && status.targets == Some(3), "{edge:?}");
        Ok(())
    })
    .await?;
    assert_eq!(own.power_state().await?, "Running");
    days.go(0, time(19, 59, 58, 0))?;
    own.wait_for_power_state("Hibernating", SOON).await?;

    // Saturday: what is woken with a hold sleeps again by itself, and what is woken without one stays awake.
    days.go(1, time(10, 0, 0, 0))?;
    let until = format::seconds(days.at(1, time(13, 0, 0, 0))?);
    held.patch(&resumed(&json!({ keys::HOLD_AWAKE_UNTIL: until }))).await?;
    woken.patch(&resumed(&json!({}))).await?;
    let tuesday = format::seconds(days.at(4, time(11, 0, 0, 0))?);
    later.patch(&json!({ "metadata": { "annotations": { keys::WAKE_AT: tuesday } } })).await?;
    for cluster in [held, woken] {
        cluster.wait_for_power_state("Running", SOON).await?;
    }
    days.go(1, time(12, 59, 58, 0))?;
    held.wait_for_power_state("Hibernating", SOON).await?;
    assert_eq!(woken.power_state().await?, "Running");

    // Monday: a wake-at that is later beats the wake.
    days.go(3, time(7, 29, 58, 0))?;
    for cluster in [held, own] {
        cluster.wait_for_power_state("Running", SOON).await?;
    }
    tokio::time::sleep(QUIET).await;
    assert_eq!(later.power_state().await?, "Hibernating");

    // A hold defers an evening.
    days.go(3, time(16, 0, 0, 0))?;
    let until = format::seconds(days.at(3, time(18, 30, 0, 0))?);
    held.patch(&json!({ "metadata": { "annotations": { keys::HOLD_AWAKE_UNTIL: until } } })).await?;
    days.go(3, time(17, 59, 58, 0))?;
    woken.wait_for_power_state("Hibernating", SOON).await?;
    assert_eq!(held.power_state().await?, "Running");
    days.go(3, time(18, 30, 1, 0))?;
    held.wait_for_power_state("Hibernating", SOON).await?;

    // Three edges pass without a controller: the last one alone is made up for, once.
    days.world.signal("controller", "stop").await?;
    days.go(5, time(12, 0, 0, 0))?;
    days.start_controller().await?;
    for cluster in [held, woken, later] {
        cluster.wait_for_power_state("Running", 2 * SOON).await?;
    }
    tokio::time::sleep(QUIET).await;
    let monday = days.at(3, time(18, 0, 0, 0))?;
    let edges: Vec<Timestamp> =
        days.rollouts(&uid).await?.iter().filter_map(|one| Some(one.spec.as_of.as_ref()?.0)).collect();
    let since: Vec<Timestamp> = edges.iter().copied().filter(|at| *at > monday).collect();
    assert_eq!(since, [days.at(5, time(7, 30, 0, 0))?], "{edges:?}");

    // What a person asks for now, and a day off.
    days.go(5, time(13, 0, 0, 0))?;
    let today = days.day(5)?.to_string();
    let exceptions = json!([{ "from": today, "power": "Sleep", "reason": "day off" }]);
    let applied = format::seconds(days.at(5, time(13, 0, 0, 0))?);
    let patch = json!({ "spec": { "exceptions": exceptions, "applyAt": applied } });
    all.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await?;
    for cluster in [held, woken, later] {
        cluster.wait_for_power_state("Hibernating", SOON).await?;
    }
    let status = status(&all, &name).await?;
    assert_eq!(status.next[0].at.0, days.at(6, time(7, 30, 0, 0))?);
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_controller_that_dies_around_an_edge_makes_one_rollout_of_it() -> Result<()> {
    let days = Days::new().await?;
    days.start_controller().await?;
    let fleet = Fleet::of(&days.world, "deaths", &["one"]).await?;
    let one = fleet.get("one");
    let (schedules, uid) = night(&days, one, &json!([{ "from": "08:00", "to": "18:00" }])).await?;
    for (day, hour, state) in [
        (0, 18, "Hibernating"),
        (1, 8, "Running"),
        (1, 18, "Hibernating"),
        (2, 8, "Running"),
        (2, 18, "Hibernating"),
        (3, 8, "Running"),
    ] {
        let edge = days.at(day, time(hour, 0, 0, 0))?;
        days.go(day, time(hour - 1, 59, 59, 0))?;
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..3_000))).await;
        days.world.signal("controller", "kill").await?;
        days.start_controller().await?;
        one.wait_for_power_state(state, SOON).await?;
        ended(&schedules, "night", edge, "Succeeded").await?;
        let of_edge = days.rollouts_of_edge(&uid, edge).await?;
        ensure!(of_edge == 1, "{edge}: {of_edge} rollouts");
    }
    Ok(())
}
