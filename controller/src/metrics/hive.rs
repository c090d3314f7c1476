//! The metrics that Hive's own hibernation controller emits (docs/reference/hive.md, section 1.5), under their names,
//! for dashboards that exist.

use jiff::Timestamp;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use server::metrics::Declare as _;
use shared::hive::api::ClusterDeployment;
use shared::hive::conditions::{HIBERNATING, READY, reason};

type Seconds<L> = Family<L, Histogram, fn() -> Histogram>;

/// What Hive counts.
pub struct HiveMetrics {
    hibernated: Seconds<Labels>,
    resumed: Seconds<Labels>,
    /// Reconciles, as Hive's `hive_controller_reconcile_seconds`.
    pub reconciled: Seconds<Reconcile>,
    /// Calls of the AWS API, by function.
    pub aws_calls: Family<AwsCall, Counter>,
}

/// Labels of the transition histograms.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Labels {
    cluster_version: String,
    platform: String,
    cluster_pool_namespace: String,
    cluster_pool_name: String,
}

/// Labels of `hive_controller_reconcile_seconds`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Reconcile {
    /// Always `hibernation`.
    pub controller: &'static str,
    /// Hive knows `no-op`, `requeue` and others; ours are those of `hibernate_reconciles`.
    pub outcome: &'static str,
}

/// Labels of `hive_aws_api_calls_total`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct AwsCall {
    /// Name of the API's operation.
    pub function: &'static str,
}

impl HiveMetrics {
    /// Registers them in a registry without prefix.
    pub fn new(registry: &mut Registry) -> Self {
        let hibernated: fn() -> Histogram = || Histogram::new([30.0, 60.0, 180.0, 300.0, 600.0]);
        let resumed: fn() -> Histogram = || Histogram::new([60.0, 90.0, 180.0, 300.0, 600.0, 1200.0]);
        let reconciled: fn() -> Histogram = || Histogram::new([0.001, 0.01, 0.1, 1.0, 10.0, 30.0, 60.0, 120.0]);
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
            reconciled: registry.keep(
                "hive_controller_reconcile_seconds",
                "Duration of a reconcile",
                Family::new_with_constructor(reconciled),
            ),
            aws_calls: registry.add("hive_aws_api_calls", "Calls of the AWS API"),
        }
    }

    /// Observes a transition that a status write has completed. The baselines are Hive's: R's transition for a sleep,
    /// H's for a wake.
    pub fn transition(&self, before: &ClusterDeployment, after: &ClusterDeployment) {
        let since = |type_| {
            let at: Option<Timestamp> = after.condition(type_).and_then(|c| Some(c.last_transition_time.as_ref()?.0));
            at.and_then(|at| std::time::Duration::try_from(Timestamp::now().duration_since(at)).ok())
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

fn labels(cluster: &ClusterDeployment) -> Labels {
    let status = cluster.status.as_ref();
    let pool = cluster.spec.cluster_pool_ref.clone().unwrap_or_default();
    Labels {
        cluster_version: status.and_then(|status| status.install_version.clone()).unwrap_or_default(),
        platform: cluster.spec.platform.name().to_owned(),
        cluster_pool_namespace: pool.namespace,
        cluster_pool_name: pool.pool_name,
    }
}
