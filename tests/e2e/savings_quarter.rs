//! A quarter of weekends in minutes: what the ledger counts, against the log of the EC2 simulator.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use jiff::civil::time;
use jiff::{Timestamp, ToSpan as _};
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use shared::spoke::kinds::MACHINE_NAMESPACE;
use testbed::cluster::machine::Machine;
use testbed::cluster::machines;
use testbed::ec2::{Instance, NewInstance, Settings};
use testbed::{Cluster, ClusterOptions, ensure_that, eventually};

use crate::rollout_common::SOON;
use crate::schedule_common::{Days, clock_changes};

const WEEKS: i64 = 13;
/// Seconds from a stop to a stopped machine.
const STOP: f64 = 1.0;
/// What all machines but the spot machine are.
const TYPE: &str = "m6i.xlarge";

/// How the name ends of the machine that replaces the spot machine.
const AGAIN: &str = "-worker-again";

/// What a weekend has besides a sleep and a wake.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Weekend {
    Plain,
    /// Another party starts a machine on Saturday, and the controller stops it.
    Drift,
    /// The controller does not run, and nothing happens.
    Down,
    /// The controller does not run, and a machine does for an hour.
    StartUnseen,
    /// A wake in the middle of the first stop; then a sleep.
    WakeInStop,
}

/// When a machine was stopped, in seconds since 1970.
type Spans = Vec<(f64, f64)>;

/// Seconds asleep, unknown, and asleep of machines.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counted {
    asleep: f64,
    unknown: f64,
    machines: f64,
}

struct Quarter {
    days: Days,
    cluster: Cluster,
    /// What another party did: when, to which machine, and whether it ran from then on.
    others: Vec<(f64, String, bool)>,
}

impl Quarter {
    /// A quarter with a clock change in its middle.
    async fn new() -> Result<Self> {
        let today = Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC).date();
        let fridays = clock_changes()?.map(|sunday| sunday.saturating_sub(44.days()));
        let first = fridays.into_iter().filter(|friday| *friday > today).min().context("a quarter to come")?;
        let days = Days::of(first).await?;
        days.go(0, time(12, 0, 0, 0))?;
        days.start_controller().await?;
        let options =
            ClusterOptions { control_plane: 1, workers: 2, spot_workers: 1, own_account: true, ..Default::default() };
        let cluster = days.world.cluster("quarter", options).await?;
        machines::create(&cluster.spoke().await?, &cluster.info().infra_id, &cluster.instances().await?).await?;
        cluster.wait_for_power_state("Running", SOON).await?;
        Ok(Self { days, cluster, others: Vec::new() })
    }

    /// Sets the clocks of the controller and of the simulator.
    async fn go(&self, day: i64, hour: i8) -> Result<f64> {
        let shift = self.days.go(day, time(hour, 0, 0, 0))?.as_secs_f64();
        self.days.world.ec2().settings(&Settings { shift: Some(shift), ..Settings::default() }).await?;
        Ok(Timestamp::now().as_duration().as_secs_f64() + shift)
    }

    /// What another party does to a machine.
    async fn meddle(&mut self, at: f64, runs: bool) -> Result<String> {
        let machine = self.cluster.instances().await?.into_iter().find(Instance::is_master).context("a master")?;
        self.days.world.ec2().set_state(&machine.id, if runs { "running" } else { "stopped" }).await?;
        self.others.push((at, machine.id.clone(), runs));
        Ok(machine.id)
    }

    async fn sleep(&self) -> Result<()> {
        self.cluster.sleep().await?;
        self.cluster.wait_for_power_state("Hibernating", SOON).await.map(drop)
    }

    async fn wake(&self) -> Result<()> {
        self.cluster.wake().await?;
        self.cluster.wait_for_power_state("Running", SOON).await.map(drop)
    }

    /// The first wake needs a machine for the spot machine that the sleep has terminated: an ordinary one.
    async fn wake_without_spot(&self) -> Result<()> {
        let info = self.cluster.info();
        let spoke = self.cluster.spoke().await?;
        let lost = self.cluster.instances().await?.into_iter().find(|one| one.lifecycle.is_some());
        let lost = lost.context("a spot machine")?;
        ensure!(lost.state == "terminated", "{lost:?}");
        self.cluster.wake().await?;
        let api: Api<Machine> = Api::namespaced(spoke.clone(), MACHINE_NAMESPACE);
        let name = lost.tags.get("Name").context("a name")?;
        eventually(SOON, "the Machine that lost its instance deleted", async || {
            ensure_that(api.get_opt(name).await?, Option::is_none)
        })
        .await?;
        Api::<Node>::all(spoke.clone()).delete(&lost.private_dns, &DeleteParams::default()).await?;
        let again = NewInstance { name: format!("{}{AGAIN}", info.infra_id), ..NewInstance::default() };
        let made = self.days.world.ec2().create(&info.account, &info.region, &info.infra_id, &[again]).await?;
        machines::create(&spoke, &info.infra_id, &made).await?;
        self.cluster.wait_for_power_state("Running", SOON).await.map(drop)
    }

    async fn weekend(&mut self, week: i64, what: Weekend) -> Result<()> {
        let (friday, world) = (7 * week, self.days.world.clone());
        self.go(friday, 20).await?;
        match what {
            Weekend::WakeInStop => {
                world.change_timings(&json!({ "ec2Stop": "4s" })).await?;
                self.cluster.sleep().await?;
                eventually(SOON, "a stop that is under way", async || {
                    ensure_that(self.cluster.states().await?, |states| states.contains_key("stopping"))
                })
                .await?;
                self.wake().await?;
                world.change_timings(&json!({ "ec2Stop": "1s" })).await?;
                self.go(friday, 22).await?;
                self.sleep().await?;
            }
            Weekend::Plain => self.sleep().await?,
            Weekend::Drift => {
                self.sleep().await?;
                let at = self.go(friday + 1, 12).await?;
                self.meddle(at, true).await?;
                self.cluster.patch(&json!({"metadata": {"annotations": {"example.org/look": "now"}}})).await?;
                eventually(SOON, "a stop", async || {
                    ensure_that(self.cluster.states().await?, |states| {
                        !states.contains_key("running") && !states.contains_key("stopping")
                    })
                })
                .await?;
                self.cluster.wait_for_power_state("Hibernating", SOON).await?;
            }
            Weekend::Down | Weekend::StartUnseen => {
                self.sleep().await?;
                world.signal("controller", "kill").await?;
                if what == Weekend::StartUnseen {
                    let at = self.go(friday + 1, 12).await?;
                    self.meddle(at, true).await?;
                    let at = self.go(friday + 1, 13).await?;
                    self.meddle(at, false).await?;
                }
                self.go(friday + 2, 12).await?;
                self.days.start_controller().await?;
            }
        }
        self.go(friday + 3, 8).await?;
        if week == 0 { self.wake_without_spot().await } else { self.wake().await }
    }

    /// What the log proves: seconds in which each machine was stopped, and those in which all were.
    async fn proven(&self) -> Result<Counted> {
        let mut changes: BTreeMap<String, Vec<(f64, bool)>> = BTreeMap::new();
        for (at, id, runs) in &self.others {
            changes.entry(id.clone()).or_default().push((*at, *runs));
        }
        for call in self.days.world.ec2().calls().await? {
            let runs = match call.action.as_str() {
                "StartInstances" => true,
                "StopInstances" => false,
                _ => continue,
            };
            let at = if runs { call.start } else { call.end + STOP };
            for id in call.moved {
                changes.entry(id).or_default().push((at, runs));
            }
        }
        let (mut old, mut new): (Vec<Spans>, Vec<Spans>) = (Vec::new(), Vec::new());
        for machine in self.cluster.instances().await?.iter().filter(|one| one.lifecycle.is_none()) {
            let mut changes = changes.remove(&machine.id).unwrap_or_default();
            changes.sort_by(|one, other| one.0.total_cmp(&other.0));
            let (mut since, mut spans) = (None, Vec::new());
            for (at, runs) in changes {
                match since {
                    None if !runs => since = Some(at),
                    Some(from) if runs => {
                        spans.push((from, at));
                        since = None;
                    }
                    _ => {}
                }
            }
            let machines =
                if machine.tags.get("Name").is_some_and(|name| name.ends_with(AGAIN)) { &mut new } else { &mut old };
            machines.push(spans);
        }
        let seconds = |spans: &[(f64, f64)]| spans.iter().map(|(from, to)| (to - from).max(0.0)).sum::<f64>();
        let machines = old.iter().chain(&new).map(|spans| seconds(spans)).sum();
        // The machine that replaced the spot machine was not there on the first weekend, and is no other than the rest since.
        let all = old.into_iter().reduce(|one, other| {
            let both = |a: &(f64, f64)| other.iter().map(move |b| (a.0.max(b.0), a.1.min(b.1))).collect::<Vec<_>>();
            one.iter().flat_map(both).filter(|(from, to)| from < to).collect()
        });
        Ok(Counted { asleep: seconds(&all.unwrap_or_default()), machines, unknown: 0.0 })
    }

    /// What `savings` reports, over all months of the quarter.
    async fn counted(&self) -> Result<Counted> {
        let mut sum = Counted::default();
        let mut month = self.days.day(0)?.first_of_month();
        let (end, name, namespace) = (self.days.day(7 * WEEKS)?, self.cluster.name(), self.cluster.namespace());
        while month <= end {
            let text = month.strftime("%Y-%m").to_string();
            let ran = self.days.plugin(&["savings", name, "-n", namespace, "-o", "json", "--month", &text]).await?;
            let total = ran.json()?["total"].take();
            let seconds = |field: &Value| field.as_f64().unwrap_or_default();
            sum.asleep += seconds(&total["asleepSeconds"]);
            sum.unknown += seconds(&total["unknownSeconds"]);
            sum.machines += seconds(&total["machineSeconds"][TYPE]);
            month = month.checked_add(1.month())?;
        }
        Ok(sum)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quarter_is_counted_almost_whole_and_never_more_than_the_cloud_has_logged() -> Result<()> {
    let mut quarter = Quarter::new().await?;
    let (mut before, mut proven_before) = (Counted::default(), Counted::default());
    for week in 0..WEEKS {
        let what = match week {
            2 => Weekend::Drift,
            4 => Weekend::Down,
            7 => Weekend::StartUnseen,
            10 => Weekend::WakeInStop,
            _ => Weekend::Plain,
        };
        quarter.weekend(week, what).await.with_context(|| format!("week {week}, {what:?}"))?;
        let (now, proven_now) = (quarter.counted().await?, quarter.proven().await?);
        let (counted, proven) = (now.less(before), proven_now.less(proven_before));
        let shown = format!("week {week}, {what:?}: {counted:?} of {proven:?}");
        println!("{shown}");
        ensure!(counted.asleep <= proven.asleep && counted.machines <= proven.machines, "{shown}");
        let is_whole = counted.asleep >= 0.98 * proven.asleep && counted.machines >= 0.98 * proven.machines;
        // The clock jumps, so that no list before the start of a machine shows until when all were stopped.
        if matches!(what, Weekend::Drift | Weekend::StartUnseen) {
            ensure!(counted.unknown > 12.0 * 3_600.0, "what was not observed is unknown: {shown}");
            ensure!(counted.asleep + counted.unknown >= 0.98 * proven.asleep, "{shown}");
        } else {
            ensure!(is_whole && counted.unknown < 0.02 * proven.asleep, "{shown}");
        }
        (before, proven_before) = (now, proven_now);
    }
    let spoke = quarter.cluster.spoke().await?;
    machines::remove(&spoke, &quarter.cluster.info().infra_id).await?;
    quarter.cluster.remove().await
}

impl Counted {
    fn less(self, other: Self) -> Self {
        Self {
            asleep: self.asleep - other.asleep,
            unknown: self.unknown - other.unknown,
            machines: self.machines - other.machines,
        }
    }
}
