//! Metrics: counts of a port's connections, and how a metric is declared once.

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry, Unit};

/// The type of what [`text`] writes.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// All metrics of a registry in the format that Prometheus scrapes.
pub fn text(registry: &Registry) -> String {
    let mut text = String::new();
    match encode(&mut text, registry) {
        Ok(()) => text,
        Err(std::fmt::Error) => String::new(), // writing to a String does not fail
    }
}

/// Declares metrics: name, help and value in one place.
pub trait Declare {
    /// A new metric that begins at its default.
    fn add<M: Metric + Clone + Default>(&mut self, name: &str, help: &str) -> M {
        self.keep(name, help, M::default())
    }

    /// A new metric of time, such as a histogram with these buckets. Its name gets the suffix `_seconds`.
    fn seconds<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M;

    /// A metric that has been made already.
    fn keep<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M;
}

impl Declare for Registry {
    fn seconds<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.register_with_unit(name, help, Unit::Seconds, metric.clone());
        metric
    }

    fn keep<M: Metric + Clone>(&mut self, name: &str, help: &str, metric: M) -> M {
        self.register(name, help, metric.clone());
        metric
    }
}

/// Connections of one port.
#[derive(Clone, Debug, Default)]
pub struct ConnectionMetrics {
    /// Open connections.
    pub open: Gauge,
    /// Connections that were closed to admit another one.
    pub evicted: Counter,
    /// Connections that were refused because every other one was in use.
    pub refused: Counter,
}

impl ConnectionMetrics {
    /// Registers the metrics of this port.
    pub fn new(registry: &mut Registry) -> Self {
        Self {
            open: registry.add("connections", "Open connections"),
            evicted: registry.add("connections_evicted", "Connections closed at the limit to admit another one"),
            refused: registry.add("connections_refused", "Connections refused because all others were in use"),
        }
    }
}
