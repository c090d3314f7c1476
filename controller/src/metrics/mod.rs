//! The controller's metrics.

mod cgu;
pub mod fdb;
mod hive;
mod queue;
mod rollout;

use std::collections::HashMap;
use std::time::Duration;

use jiff::SignedDuration;
use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use server::metrics::{Declare as _, text};
use shared::hive::api::ClusterDeployment;
use shared::hive::conditions::POWER_STATES;
use tokio::time::Instant;

use self::cgu::CguMetrics;
use self::fdb::FdbMetrics;
use self::hive::{AwsCall, HiveMetrics, Reconcile};
use self::queue::Queue;
use self::rollout::RolloutMetrics;
use crate::runtime::{Key, hash};

/// Everything that is counted.
pub struct Metrics {
    registry: Registry,
    /// 1 while this controller leads.
    pub leader: Gauge,
    /// Reconciles, by system and outcome.
    pub reconciles: Family<Reconciled, Counter>,
    /// How long a reconcile takes, from its first request to its last.
    pub reconcile_seconds: Histogram,
    /// Power states reached, by name.
    pub transitions: Family<Transition, Counter>,
    /// Calls to clouds.
    pub cloud_calls: Family<CloudCall, Counter>,
    /// Events that carry information not in a status, by reason.
    pub notices: Family<Noticed, Counter>,
    /// Verdicts on kubelet certificate requests, by kind, verdict and reason.
    pub requests: Family<Request, Counter>,
    /// Times that an API server was asked whether it can be reached.
    pub probes: Family<Probe, Counter>,
    /// Reconciles that are to come.
    pub queue: Queue,
    panics: Family<Of, Counter>,
    refused: Family<Of, Counter>,
    kinds: Family<Served, Gauge>,
    counted: Mutex<HashMap<u64, Counted>>,
    queue_depth: Family<Of, Gauge>,
    targets: Family<InState, Gauge>,
    asleep: Family<AsleepFor, Gauge>,
    step_seconds: Family<InState, Histogram, fn() -> Histogram>,
    hive: HiveMetrics,
    /// What is held of FoundationDB clusters.
    pub fdb: FdbMetrics,
    /// Rollouts and their targets.
    pub rollouts: RolloutMetrics,
    /// `ClusterGroupUpgrades`.
    pub upgrades: CguMetrics,
}

/// Label of what is counted by system alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    system: &'static str,
}

/// Labels of the kinds that are served, or not.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Served {
    system: &'static str,
    kind: String,
}

/// Labels of [`Metrics::reconciles`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Reconciled {
    /// `hive` or `fdb`.
    pub system: &'static str,
    /// `unchanged`, `changed` or the reason of an error.
    pub outcome: &'static str,
}

/// Labels of [`Metrics::transitions`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Transition {
    /// `hive`.
    pub system: &'static str,
    /// The new power state.
    pub to: &'static str,
}

/// Labels of [`Metrics::cloud_calls`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CloudCall {
    /// Platform.
    pub cloud: &'static str,
    /// `list`, `start`, `stop`, `terminate` or `settle`.
    pub call: &'static str,
    /// `ok` or the kind of the failure.
    pub result: &'static str,
}

/// Labels of [`Metrics::requests`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Request {
    /// `client`, `serving` or `other`.
    pub kind: &'static str,
    /// `approve` or `leave`.
    pub verdict: &'static str,
    /// Why.
    pub reason: &'static str,
}

/// Labels of [`Metrics::probes`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Probe {
    /// `ok` or `failed`.
    pub result: &'static str,
}

/// Labels of the number of targets and of the time per step.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InState {
    system: &'static str,
    state: &'static str,
}

/// Labels of the number of long sleepers.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AsleepFor {
    system: &'static str,
    /// At least so many days.
    days: u16,
}

/// Bucket bounds in days of sleep: the certificates of a kubelet expire after 30, those of its signer after 60.
pub const DAYS: [u16; 6] = [1, 7, 14, 21, 30, 60];

/// How a target is counted.
#[derive(Clone, Copy, Debug)]
struct Counted {
    state: &'static str,
    since: Instant,
    /// How many of [`DAYS`] it has slept for.
    days: usize,
}

/// A power state as a label: one of Hive's, `none` or `other`.
pub fn state(power_state: &str) -> &'static str {
    match POWER_STATES.iter().find(|known| **known == power_state) {
        Some(known) => known,
        None if power_state.is_empty() => "none",
        None => "other",
    }
}

/// Labels of [`Metrics::notices`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Noticed {
    /// `hive` or `fdb`.
    pub system: &'static str,
    /// Why.
    pub reason: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut root = Registry::default();
        let steps: fn() -> Histogram =
            || Histogram::new([1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0]);
        let reconciles = Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0]);
        let hive = HiveMetrics::new(&mut root);
        let registry = root.sub_registry_with_prefix("hibernate");
        Self {
            fdb: FdbMetrics::new(registry),
            rollouts: RolloutMetrics::new(registry),
            upgrades: CguMetrics::new(registry),
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
    /// A reconcile has ended.
    pub fn reconciled(&self, system: &'static str, outcome: &'static str, took: Duration) {
        self.reconciles.get_or_create(&Reconciled { system, outcome }).inc();
        self.reconcile_seconds.observe(took.as_secs_f64());
    }

    /// The same, as Hive counts it.
    pub fn reconciled_as_hive(&self, outcome: &'static str, took: Duration) {
        let reconcile = Reconcile { controller: "hibernation", outcome };
        self.hive.reconciled.get_or_create(&reconcile).observe(took.as_secs_f64());
    }

    /// Work for a system has panicked.
    pub fn panicked(&self, system: &'static str) {
        self.panics.get_or_create(&Of { system }).inc();
    }

    /// The API server has refused what a system writes.
    pub fn refused(&self, system: &'static str) {
        self.refused.get_or_create(&Of { system }).inc();
    }

    /// Whether the hub serves the kind that a system works on.
    pub fn kind_served(&self, system: &'static str, kind: &str, served: bool) {
        self.kinds.get_or_create(&Served { system, kind: kind.to_owned() }).set(served.into());
    }

    /// A call to a cloud has ended; `function` is the API's own name of it, if Hive counts calls to this cloud.
    pub fn called(&self, call: &CloudCall, function: Option<&'static str>) {
        if let Some(function) = function {
            self.hive.aws_calls.get_or_create(&AwsCall { function }).inc();
        }
        self.cloud_calls.get_or_create(call).inc();
    }

    /// Counts a target by its power state, and by how long it has slept.
    pub fn count(&self, target: &Key, power_state: &str, asleep: Option<SignedDuration>) {
        let state = state(power_state);
        let slept = asleep.map_or(0, |asleep| asleep.as_hours() / 24);
        let days = DAYS.iter().filter(|days| i64::from(**days) <= slept).count();
        let mut all = self.counted.lock();
        let before = all.get(&hash(target)).copied();
        let since = match before {
            Some(before) if before.state == state && before.days == days => return,
            Some(before) if before.state == state => before.since,
            Some(before) => {
                let label = InState { system: "hive", state: before.state };
                self.step_seconds.get_or_create(&label).observe(before.since.elapsed().as_secs_f64());
                Instant::now()
            }
            None => Instant::now(),
        };
        self.take_off(before);
        self.targets.get_or_create(&InState { system: "hive", state }).inc();
        for days in &DAYS[..days] {
            self.asleep.get_or_create(&AsleepFor { system: "hive", days: *days }).inc();
        }
        all.insert(hash(target), Counted { state, since, days });
    }

    /// A target is gone.
    pub fn forget(&self, target: &Key) {
        let before = self.counted.lock().remove(&hash(target));
        self.take_off(before);
    }

    fn take_off(&self, counted: Option<Counted>) {
        let Some(Counted { state, days, .. }) = counted else { return };
        self.targets.get_or_create(&InState { system: "hive", state }).dec();
        for days in &DAYS[..days] {
            self.asleep.get_or_create(&AsleepFor { system: "hive", days: *days }).dec();
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
    }

    /// Counts a power state that was reached as Hive counts it.
    pub fn as_hive_counts(&self, before: &ClusterDeployment, after: &ClusterDeployment) {
        self.hive.transition(before, after);
    }

    /// All metrics as Prometheus reads them.
    pub fn text(&self) -> String {
        for (system, waiting) in self.queue.depth(Instant::now()) {
            self.queue_depth.get_or_create(&Of { system }).set(waiting);
        }
        text(&self.registry)
    }
}

#[cfg(test)]
mod tests;
