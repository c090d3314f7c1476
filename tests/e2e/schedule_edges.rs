//! Days of schedules in minutes: the wall clock of webhook and controller jumps from edge to edge.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::civil::{Time, Weekday, time};
use jiff::{Timestamp, ToSpan as _, Zoned};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use shared::annotation::{format, keys};
use shared::rollout::api::PowerRollout;
use shared::schedule::api::{ClusterPowerSchedule, PowerSchedule, ScheduleStatus};
use shared::schedule::zone::zone;
use testbed::supervisor::programs::Start;
use testbed::{Options, Program, Timings, World, eventually};

use crate::clock::Clock;
use crate::rollout_common::{Fleet, SOON, controller};

/// Where the targets are.
const BERLIN: &str = "Europe/Berlin";
/// How long nothing must happen.
const QUIET: Duration = Duration::from_secs(4);

/// A world whose webhook and controller have a clock that jumps.
struct Days {
    world: World,
    clock: Clock,
    /// A Friday to come.
    friday: Zoned,
}

impl Days {
    async fn new() -> Result<Self> {
        let world = World::up(Options {
            clusters: 0,
            without: vec![Program::Controller, Program::Webhook],
            timings: Timings { ec2_start: "1s".parse()?, ec2_stop: "1s".parse()?, ..Timings::fast() },
            ..Options::default()
        })
        .await?;
        let clock = Clock::new(&world)?;
        let now = Timestamp::now().to_zoned(zone(BERLIN).context("a zone")?);
        let mut friday = now.tomorrow()?;
        while friday.weekday() != Weekday::Friday {
            friday = friday.tomorrow()?;
        }
        let days = Self { world, clock, friday };
        // Its certificate is of the time of the API server.
        days.world.start(&days.clock.of(Start::new(Program::Webhook))).await?;
        days.go(0, time(12, 0, 0, 0))?;
        Ok(days)
    }

    /// So many days after the Friday, at this time in Berlin.
    fn at(&self, days: i64, time: Time) -> Result<Timestamp> {
        Ok(self
            .friday
            .date()
            .checked_add(days.days())?
            .to_datetime(time)
            .to_zoned(self.friday.time_zone().clone())?
            .timestamp())
    }

    /// Sets the clock.
    fn go(&self, days: i64, time: Time) -> Result<()> {
        self.clock.set(self.at(days, time)?.duration_since(Timestamp::now()))
    }

    async fn start(&self) -> Result<()> {
        self.world.start(&self.clock.of(controller())).await?;
        Ok(())
    }

    /// The rollouts of a schedule, the newest last.
    async fn rollouts(&self, uid: &str) -> Result<Vec<PowerRollout>> {
        let all: Api<PowerRollout> = Api::all(self.world.hub().await?);
        let mut of: Vec<PowerRollout> = all.list(&kube::api::ListParams::default()).await?.items;
        of.retain(|rollout| rollout.spec.scheduled_by.as_ref().is_some_and(|by| by.uid == uid));
        of.sort_by_key(|rollout| rollout.spec.as_of.as_ref().map(|at| at.0));
        Ok(of)
    }
}

async fn status(api: &Api<ClusterPowerSchedule>, name: &str) -> Result<ScheduleStatus> {
    Ok(api.get(name).await?.status.unwrap_or_default())
}

fn resumed(annotations: &Value) -> Value {
    json!({ "spec": { "powerState": "Running" }, "metadata": { "annotations": annotations } })
}

#[tokio::test(flavor = "multi_thread")]
async fn days_with_two_schedules_a_hold_a_wake_at_and_three_edges_missed() -> Result<()> {
    let days = Days::new().await?;
    days.start().await?;
    let fleet = Fleet::of(&days.world, "days", &["own", "held", "woken", "later"]).await?;
    let [own, held, woken, later] = ["own", "held", "woken", "later"].map(|name| fleet.get(name));
    let hub = days.world.hub().await?;
    let (all, name): (Api<ClusterPowerSchedule>, _) = (Api::all(hub.clone()), format!("platform-{}", own.name()));
    let labels = held.get().await?.labels().clone();
    let window = |from: &str, to: &str| json!([{ "days": ["Mon-Fri"], "from": from, "to": to }]);
    let platform: ClusterPowerSchedule = serde_json::from_value(json!({
        "metadata": { "name": name },
        "spec": {
            "timeZone": BERLIN, "awake": window("07:30", "18:00"),
            "targets": { "selector": { "matchLabels": { "fleet": labels["fleet"] } } },
        },
    }))?;
    let platform = all.create(&PostParams::default(), &platform).await?;
    let uid = platform.uid().context("a UID")?;
    let team: PowerSchedule = serde_json::from_value(json!({
        "metadata": { "name": "team", "namespace": own.namespace() },
        "spec": { "timeZone": BERLIN, "awake": window("06:00", "20:00"), "targets": { "names": [{ "name": own.name() }] } },
    }))?;
    let own_schedules: Api<PowerSchedule> = Api::namespaced(hub.clone(), own.namespace());
    own_schedules.create(&PostParams::default(), &team).await?;
    let seen = eventually(SOON, "status", async || {
        let status = status(&all, &name).await?;
        ensure!(status.next.len() == 3, "{status:?}");
        Ok(status)
    })
    .await?;
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
    days.start().await?;
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
    let today = format!("{}", days.friday.date().checked_add(5.days())?);
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
    days.start().await?;
    let fleet = Fleet::of(&days.world, "deaths", &["one"]).await?;
    let one = fleet.get("one");
    let schedules: Api<PowerSchedule> = Api::namespaced(days.world.hub().await?, one.namespace());
    let night: PowerSchedule = serde_json::from_value(json!({
        "metadata": { "name": "night", "namespace": one.namespace() },
        "spec": { "timeZone": BERLIN, "awake": [{ "from": "08:00", "to": "18:00" }], "targets": { "all": true } },
    }))?;
    let uid = schedules.create(&PostParams::default(), &night).await?.uid().context("a UID")?;
    let last = async || -> Result<ScheduleStatus> { schedules.get("night").await?.status.context("a status") };
    let is_seen = async || -> Result<()> {
        ensure!(!last().await?.next.is_empty(), "no edges");
        Ok(())
    };
    eventually(SOON, "status", is_seen).await?;
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
        days.start().await?;
        one.wait_for_power_state(state, SOON).await?;
        let is_last = async || -> Result<()> {
            let found = last().await?.last_edge.context("an edge")?;
            ensure!(found.at.0 == edge && found.outcome.as_deref() == Some("Succeeded"), "{found:?}");
            Ok(())
        };
        eventually(SOON, "the edge in the status", is_last).await?;
        let made = days.rollouts(&uid).await?;
        let of_edge = made.iter().filter(|one| one.spec.as_of.as_ref().is_some_and(|at| at.0 == edge)).count();
        ensure!(of_edge == 1, "{edge}: {of_edge} rollouts");
    }
    Ok(())
}
