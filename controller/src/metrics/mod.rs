//! The controller's metrics.

mod cgu;
mod fdb;
mod hive;
mod queue;
mod rollout;
mod savings;

use std::collections::HashMap;
use std::time::Duration;

use jiff::SignedDuration;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use server::metrics::{Declare as _, text};
use shared::hive::api::ClusterDeployment;
use shared::hive::conditions::POWER_STATES;
use shared::schedule::zone::RELEASE;
use tokio::time::Instant;

use self::cgu::CguMetrics;
use self::fdb::FdbMetrics;
use self::hive::HiveMetrics;
use self::queue::Queue;
use self::rollout::RolloutMetrics;
use self::savings::SavingsMetrics;
use crate::runtime::{Key, hash};

/// One label of a metric: its name and value.
type Label<V = &'static str> = (&'static str, V);

pub struct Metrics {
    registry: Registry,
    /// 1 while this controller leads.
    pub leader: Gauge,
    reconciles: Family<[Label; 2], Counter>,
    reconcile_seconds: Histogram,
    transitions: Family<[Label; 2], Counter>,
    cloud_calls: Family<[Label; 3], Counter>,
    notices: Family<[Label; 2], Counter>,
    requests: Family<[Label; 3], Counter>,
    probes: Family<[Label; 1], Counter>,
    pub queue: Queue,
    panics: Family<[Label; 1], Counter>,
    refused: Family<[Label; 1], Counter>,
    kinds: Family<[Label<String>; 2], Gauge>,
    counted: Mutex<HashMap<u64, CountedTarget>>,
    queue_depth: Family<[Label; 1], Gauge>,
    targets: Family<[Label; 2], Gauge>,
    asleep: Family<[Label; 2], Gauge>,
    step_seconds: Family<[Label; 2], Histogram, fn() -> Histogram>,
    hive: HiveMetrics,
    pub fdb: FdbMetrics,
    pub rollouts: RolloutMetrics,
    pub upgrades: CguMetrics,
    pub savings: SavingsMetrics,
}

/// Bucket bounds in days of sleep, and their labels: the certificates of a kubelet expire after 30, those of its signer
/// after 60.
const DAYS: [(i64, &str); 6] = [(1, "1"), (7, "7"), (14, "14"), (21, "21"), (30, "30"), (60, "60")];

/// How a target is counted.
#[derive(Clone, Copy, Debug)]
struct CountedTarget {
    state: &'static str,
    since: Instant,
    /// How many of [`DAYS`] it has slept for.
    days: usize,
}

/// The labels of targets of Hive in a power state.
fn in_state(state: &'static str) -> [Label; 2] {
    [("system", "hive"), ("state", state)]
}

/// A power state as a label: one of Hive's, `none` or `other`.
fn state(power_state: &str) -> &'static str {
    match POWER_STATES.iter().find(|known| **known == power_state) {
        Some(known) => known,
        None if power_state.is_empty() => "none",
        None => "other",
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let mut root = Registry::default();
        let steps: fn() -> Histogram =
            || Histogram::new([1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0]);
        let reconciles = Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0]);
        let hive = HiveMetrics::new(&mut root);
        let registry = root.sub_registry_with_prefix("hibernate");
        let zones: Family<[Label; 1], Gauge> =
            registry.add("tzdb_info", "1 for the release of the time zone database in this program");
        zones.get_or_create(&[("release", RELEASE.unwrap_or("unknown"))]).set(1);
        Self {
            fdb: FdbMetrics::new(registry),
            rollouts: RolloutMetrics::new(registry),
            upgrades: CguMetrics::new(registry),
            savings: SavingsMetrics::new(registry),
            leader: registry.add("leader", "1 while this controller leads"),
            reconciles: registry.add("reconciles", "Reconciles, by system and outcome"),
            reconcile_seconds: registry.seconds("reconcile", "Duration of a reconcile", reconciles),
            transitions: registry.add("transitions", "Power states reached"),
            cloud_calls: registry.add("cloud_calls", "Calls to clouds"),
            notices: registry.add("notices", "Events that carry information not in a status, by system and reason"),
            requests: registry.add("csrs", "Verdicts on kubelet certificate requests, by kind, verdict and reason"),
            probes: registry.add("probes", "Probes of API servers, by result"),
            queue_depth: registry.add("queue_depth", "Targets whose reconcile is due and has not started"),
            targets: registry.add("targets", "Targets in each power state"),
            asleep: registry.add("asleep", "Targets asleep for at least this many days"),
            step_seconds: registry.seconds(
                "step",
                "Time that targets spent in a power state before they left it",
                Family::new_with_constructor(steps),
            ),
            panics: registry.add("panics", "Panics that were contained"),
            refused: registry.add("refused_writes", "Writes that the API server refuses"),
            kinds: registry.add("kind_served", "1 if the hub serves the kind that a system works on"),
            queue: Queue::default(),
            counted: Mutex::default(),
            hive,
            registry: root,
        }
    }
}

impl Metrics {
    /// Counts a reconcile that has ended: `unchanged`, `changed` or the reason of an error.
    pub fn reconciled(&self, system: &'static str, outcome: &'static str, took: Duration) {
        self.reconciles.get_or_create(&[("system", system), ("outcome", outcome)]).inc();
        self.reconcile_seconds.observe(took.as_secs_f64());
    }

    /// Counts it once more, under Hive's name.
    pub fn reconciled_as_hive(&self, outcome: &'static str, took: Duration) {
        self.hive.reconciled(outcome, took);
    }

    pub fn panicked(&self, system: &'static str) {
        self.panics.get_or_create(&[("system", system)]).inc();
    }

    /// Counts a write that the API server refuses.
    pub fn refused(&self, system: &'static str) {
        self.refused.get_or_create(&[("system", system)]).inc();
    }

    /// Whether the hub serves the kind that a system works on.
    pub fn kind_served(&self, system: &'static str, kind: &str, served: bool) {
        self.kinds.get_or_create(&[("system", system.to_owned()), ("kind", kind.to_owned())]).set(served.into());
    }

    /// Counts a call to a cloud; `function` is the API's own name of it, if Hive counts calls to this cloud.
    pub fn called(
        &self,
        cloud: &'static str,
        call: &'static str,
        result: &'static str,
        function: Option<&'static str>,
    ) {
        if let Some(function) = function {
            self.hive.called(function);
        }
        self.cloud_calls.get_or_create(&[("cloud", cloud), ("call", call), ("result", result)]).inc();
    }

    /// Counts an Event that says what is in no status.
    pub fn noticed(&self, system: &'static str, reason: &'static str) {
        self.notices.get_or_create(&[("system", system), ("reason", reason)]).inc();
    }

    /// Counts verdicts on kubelet certificate requests.
    pub fn judged(&self, kind: &'static str, verdict: &'static str, reason: &'static str, count: u64) {
        self.requests.get_or_create(&[("kind", kind), ("verdict", verdict), ("reason", reason)]).inc_by(count);
    }

    /// Counts a probe of an API server.
    pub fn probed(&self, is_reachable: bool) {
        self.probes.get_or_create(&[("result", if is_reachable { "ok" } else { "failed" })]).inc();
    }

    /// Counts a ClusterDeployment that has changed its power state, for Hive's metrics, too.
    pub fn transitioned(&self, before: &ClusterDeployment, after: &ClusterDeployment) {
        self.transitions.get_or_create(&[("system", "hive"), ("to", state(after.power_state()))]).inc();
        self.hive.transition(before, after);
    }

    /// Counts a target by its power state, and by how long it has slept.
    pub fn count(&self, target: &Key, power_state: &str, asleep: Option<SignedDuration>) {
        let state = state(power_state);
        let slept = asleep.map_or(0, |asleep| asleep.as_hours() / 24);
        let days = DAYS.iter().filter(|(days, _)| *days <= slept).count();
        let id = hash(target);
        let mut all = self.counted.lock();
        let before = all.get(&id).copied();
        let since = match before {
            Some(before) if before.state == state && before.days == days => return,
            Some(before) if before.state == state => before.since,
            Some(before) => {
                let step = self.step_seconds.get_or_create(&in_state(before.state));
                step.observe(before.since.elapsed().as_secs_f64());
                Instant::now()
            }
            None => Instant::now(),
        };
        self.add(before, -1);
        let counted = CountedTarget { state, since, days };
        self.add(Some(counted), 1);
        all.insert(id, counted);
    }

    /// Stops counting a target that is gone.
    pub fn forget(&self, target: &Key) {
        let before = self.counted.lock().remove(&hash(target));
        self.add(before, -1);
        self.savings.forget(target);
    }

    fn add(&self, counted: Option<CountedTarget>, sign: i64) {
        let Some(CountedTarget { state, days, .. }) = counted else { return };
        self.targets.get_or_create(&in_state(state)).inc_by(sign);
        for (_, label) in &DAYS[..days] {
            self.asleep.get_or_create(&[("system", "hive"), ("days", *label)]).inc_by(sign);
        }
    }

    /// Leadership was lost: clears what is known about every target.
    pub fn forget_all(&self) {
        self.counted.lock().clear();
        self.targets.clear();
        self.asleep.clear();
        self.queue.clear();
        self.fdb.forget_all();
        self.rollouts.forget_all();
        self.upgrades.forget_all();
        self.savings.forget_all();
    }

    /// All metrics in the format that Prometheus scrapes.
    pub fn text(&self) -> String {
        for (system, waiting) in self.queue.depth(Instant::now()) {
            self.queue_depth.get_or_create(&[("system", system)]).set(waiting);
        }
        text(&self.registry)
    }
}

#[cfg(test)]
mod tests;
