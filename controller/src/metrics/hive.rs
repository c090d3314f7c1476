//! The metrics that Hive's own hibernation controller emits (docs/reference/hive.md, section 1.5), under their names,
//! for dashboards that exist.

use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use server::metrics::Declare as _;
use shared::hive::api::ClusterDeployment;
use shared::hive::conditions::{HIBERNATING, READY, reason};

use super::Label;

type Seconds<L> = Family<L, Histogram, fn() -> Histogram>;

pub struct HiveMetrics {
    hibernated: Seconds<[Label<String>; 4]>,
    resumed: Seconds<[Label<String>; 4]>,
    reconciles: Seconds<[Label; 2]>,
    aws_calls: Family<[Label; 1], Counter>,
}

impl HiveMetrics {
    /// `registry` has no prefix.
    pub fn new(registry: &mut Registry) -> Self {
        let hibernated: fn() -> Histogram = || Histogram::new([30.0, 60.0, 180.0, 300.0, 600.0]);
        let resumed: fn() -> Histogram = || Histogram::new([60.0, 90.0, 180.0, 300.0, 600.0, 1200.0]);
        let reconciles: fn() -> Histogram = || Histogram::new([0.001, 0.01, 0.1, 1.0, 10.0, 30.0, 60.0, 120.0]);
        Self {
            hibernated: registry.keep(
                "hive_cluster_deployments_hibernation_transition_seconds",
                "Time from the beginning of a sleep to its end",
                Family::new_with_constructor(hibernated),
            ),
            resumed: registry.keep(
                "hive_cluster_deployments_running_transition_seconds",
                "Time from the beginning of a wake to its end",
                Family::new_with_constructor(resumed),
            ),
            reconciles: registry.keep(
                "hive_controller_reconcile_seconds",
                "Duration of a reconcile",
                Family::new_with_constructor(reconciles),
            ),
            aws_calls: registry.add("hive_aws_api_calls", "Calls of the AWS API"),
        }
    }

    /// Hive's outcomes are `no-op`, `requeue` and others; ours are those of `hibernate_reconciles`.
    pub fn reconciled(&self, outcome: &'static str, took: Duration) {
        let reconciles = self.reconciles.get_or_create(&[("controller", "hibernation"), ("outcome", outcome)]);
        reconciles.observe(took.as_secs_f64());
    }

    /// Counts a call of the AWS API by its operation.
    pub fn called(&self, function: &'static str) {
        self.aws_calls.get_or_create(&[("function", function)]).inc();
    }

    /// Observes a transition that a status write has completed. The baselines are Hive's: R's transition for a sleep,
    /// H's for a wake.
    pub fn transition(&self, before: &ClusterDeployment, after: &ClusterDeployment) {
        let since = |type_| {
            let at: Option<Timestamp> = after.condition(type_).and_then(|c| Some(c.last_transition_time.as_ref()?.0));
            at.and_then(|at| Duration::try_from(Timestamp::now().duration_since(at)).ok())
        };
        let (family, baseline) = match after.power_state() {
            reason::HIBERNATING => (&self.hibernated, READY),
            reason::RUNNING if before.condition(READY).is_some() => (&self.resumed, HIBERNATING),
            _ => return,
        };
        if let Some(time) = since(baseline) {
            family.get_or_create(&labels(after)).observe(time.as_secs_f64());
        }
    }
}

/// Labels of the transition histograms.
fn labels(cluster: &ClusterDeployment) -> [Label<String>; 4] {
    let version = cluster.status.as_ref().and_then(|status| status.install_version.clone());
    let pool = cluster.spec.cluster_pool_ref.clone().unwrap_or_default();
    [
        ("cluster_version", version.unwrap_or_default()),
        ("platform", cluster.spec.platform.name().to_owned()),
        ("cluster_pool_namespace", pool.namespace),
        ("cluster_pool_name", pool.pool_name),
    ]
}
