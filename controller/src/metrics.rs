//! The controller's metrics.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

/// Everything that is counted.
pub struct Metrics {
    registry: Registry,
    /// 1 while this controller leads.
    pub leader: Gauge,
    /// Looks at a target, by what came of them.
    pub looks: Family<Look, Counter>,
    /// How long a look takes, from its first request to its last.
    pub look_seconds: Histogram,
    /// Power states reached, by name.
    pub transitions: Family<Transition, Counter>,
    /// Calls to clouds.
    pub cloud_calls: Family<CloudCall, Counter>,
    /// Targets that are left alone, by reason.
    pub left_alone: Family<LeftAlone, Counter>,
}

/// Labels of [`Metrics::looks`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Look {
    /// `hive`.
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
    /// `list`, `start`, `stop` or `terminate`.
    pub call: &'static str,
    /// `ok` or the kind of the failure.
    pub result: &'static str,
}

/// Labels of [`Metrics::left_alone`].
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct LeftAlone {
    /// `hive`.
    pub system: &'static str,
    /// Why.
    pub reason: &'static str,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("hibernate"),
            leader: Gauge::default(),
            looks: Family::default(),
            look_seconds: Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0]),
            transitions: Family::default(),
            cloud_calls: Family::default(),
            left_alone: Family::default(),
        };
        let registry = &mut metrics.registry;
        registry.register("leader", "1 while this controller leads", metrics.leader.clone());
        registry.register("looks", "Looks at a target, by what came of them", metrics.looks.clone());
        registry.register_with_unit("look", "Duration of a look", Unit::Seconds, metrics.look_seconds.clone());
        registry.register("transitions", "Power states reached", metrics.transitions.clone());
        registry.register("cloud_calls", "Calls to clouds", metrics.cloud_calls.clone());
        registry.register("left_alone", "Times a target was left alone", metrics.left_alone.clone());
        metrics
    }
}

impl Metrics {
    /// All metrics as Prometheus reads them.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }
}
