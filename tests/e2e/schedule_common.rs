//! Days of schedules in minutes: a wall clock that jumps from edge to edge, for some of the programs of a world.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use jiff::civil::{Date, Time, Weekday, time};
use jiff::{SignedDuration, Timestamp, ToSpan as _};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt as _};
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::rollout::api::PowerRollout;
use shared::schedule::api::{PowerSchedule, Schedule, ScheduleStatus};
use shared::schedule::zone::{instant, zone};
use testbed::supervisor::programs::Start;
use testbed::{Cluster, Options, Program, Ran, Timings, World, eventually, paths};

use crate::clock::Clock;
use crate::rollout_common::{SOON, controller};

/// Where the targets are.
pub(crate) const BERLIN: &str = "Europe/Berlin";
/// How long nothing must happen.
pub(crate) const QUIET: Duration = Duration::from_secs(4);

/// A world whose controller has a clock that jumps.
pub(crate) struct Days {
    pub(crate) world: World,
    clock: Clock,
    /// From which days are counted.
    first: Date,
}

impl Days {
    /// Days after the next Friday. The webhook has that clock, too.
    pub(crate) async fn new() -> Result<Self> {
        let mut friday = Timestamp::now().to_zoned(zone(BERLIN).context("a zone")?).tomorrow()?.date();
        while friday.weekday() != Weekday::Friday {
            friday = friday.tomorrow()?;
        }
        let days = Self::of(friday).await?;
        // Its certificate is of the time of the API server.
        days.world.start(&days.clock.of(Start::new(Program::Webhook))).await?;
        days.go(0, time(12, 0, 0, 0))?;
        Ok(days)
    }

    /// Days after this one, without a webhook.
    pub(crate) async fn of(first: Date) -> Result<Self> {
        let world = World::up(Options {
            clusters: 0,
            without: vec![Program::Controller, Program::Webhook],
            timings: Timings { ec2_start: "1s".parse()?, ec2_stop: "1s".parse()?, ..Timings::fast() },
            ..Options::default()
        })
        .await?;
        let clock = Clock::new(&world)?;
        Ok(Self { world, clock, first })
    }

    /// So many days after the first one.
    pub(crate) fn day(&self, days: i64) -> Result<Date> {
        Ok(self.first.checked_add(days.days())?)
    }

    /// A time on that day in Berlin.
    pub(crate) fn at(&self, days: i64, time: Time) -> Result<Timestamp> {
        Ok(instant(&zone(BERLIN).context("a zone")?, self.day(days)?.to_datetime(time)))
    }

    /// Sets the clock, and answers how far it is ahead.
    pub(crate) fn go(&self, days: i64, time: Time) -> Result<SignedDuration> {
        self.go_to(self.at(days, time)?)
    }

    pub(crate) fn go_to(&self, at: Timestamp) -> Result<SignedDuration> {
        let shift = SignedDuration::from_secs(at.duration_since(Timestamp::now()).as_secs());
        self.clock.set(shift).map(|()| shift)
    }

    /// Starts a program with this clock.
    pub(crate) async fn start(&self, program: Start) -> Result<()> {
        self.world.start(&self.clock.of(program)).await?;
        Ok(())
    }

    pub(crate) async fn start_controller(&self) -> Result<()> {
        self.start(controller()).await
    }

    /// Runs the plugin with this clock.
    pub(crate) async fn plugin(&self, words: &[&str]) -> Result<Ran> {
        let mut command = self.world.command(paths::program(keys::PLUGIN)?);
        command.args(words).envs(self.clock.of(Start::new(Program::Controller)).environment);
        self.world.run(command).await
    }

    /// The rollouts of a schedule, the newest last.
    pub(crate) async fn rollouts(&self, uid: &str) -> Result<Vec<PowerRollout>> {
        let all: Api<PowerRollout> = Api::all(self.world.hub().await?);
        let mut of: Vec<PowerRollout> = all.list(&ListParams::default()).await?.items;
        of.retain(|rollout| rollout.spec.scheduled_by.as_ref().is_some_and(|by| by.uid == uid));
        of.sort_by_key(|rollout| rollout.spec.as_of.as_ref().map(|at| at.0));
        Ok(of)
    }

    /// How many rollouts a schedule has created for an edge.
    pub(crate) async fn rollouts_of_edge(&self, uid: &str, edge: Timestamp) -> Result<usize> {
        let made = self.rollouts(uid).await?;
        Ok(made.iter().filter(|one| one.spec.as_of.as_ref().is_some_and(|at| at.0 == edge)).count())
    }
}

/// The days on which clocks go forward and back, after today.
pub(crate) fn clock_changes() -> Result<[Date; 2]> {
    let zone = zone(BERLIN).context("a zone")?;
    let mut next = zone.following(Timestamp::now());
    let mut days = [(); 2].map(|()| next.next().map(|change| change.timestamp().to_zoned(zone.clone()).date()));
    days.sort_by_key(|day| day.map(|day| day.month() > 6));
    Ok([days[0].context("a change")?, days[1].context("a change")?])
}

/// Awake from Monday to Friday.
pub(crate) fn office(from: &str, to: &str) -> Value {
    json!([{ "days": ["Mon-Fri"], "from": from, "to": to }])
}

/// What the controller observed of a schedule.
pub(crate) async fn status<S>(api: &Api<S>, name: &str) -> Result<ScheduleStatus>
where
    S: Schedule + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    Ok(api.get(name).await?.status().cloned().unwrap_or_default())
}

/// Waits until the controller has read a schedule.
pub(crate) async fn is_read<S>(api: &Api<S>, name: &str) -> Result<ScheduleStatus>
where
    S: Schedule + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    eventually(SOON, "next edges", async || {
        let status = status(api, name).await?;
        ensure!(!status.next.is_empty(), "{status:?}");
        Ok(status)
    })
    .await
}

/// Waits until an edge is the last one, with this outcome.
pub(crate) async fn ended<S>(api: &Api<S>, name: &str, edge: Timestamp, outcome: &str) -> Result<ScheduleStatus>
where
    S: Schedule + Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    eventually(2 * SOON, "the edge in the status", async || {
        let status = status(api, name).await?;
        let found = status.last_edge.clone().context("an edge")?;
        let is_so = found.outcome.as_deref().is_some_and(|text| text.starts_with(outcome));
        ensure!(found.at.0 == edge && is_so && found.pending.is_none(), "{found:?}");
        Ok(status)
    })
    .await
}

/// A schedule for all clusters of the namespace of this one. Its API and its UID.
pub(crate) async fn night(days: &Days, of: &Cluster, awake: &Value) -> Result<(Api<PowerSchedule>, String)> {
    let api: Api<PowerSchedule> = Api::namespaced(days.world.hub().await?, of.namespace());
    let object = json!({
        "metadata": { "name": "night", "namespace": of.namespace() },
        "spec": { "timeZone": BERLIN, "awake": awake, "targets": { "all": true } },
    });
    let uid = api.create(&PostParams::default(), &serde_json::from_value(object)?).await?.uid();
    is_read(&api, "night").await?;
    Ok((api, uid.context("a UID")?))
}
