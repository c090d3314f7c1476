//! Counts of a port's connections.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

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
    pub fn register(&self, registry: &mut Registry) {
        registry.register("connections", "Open connections", self.open.clone());
        registry.register(
            "connections_evicted",
            "Connections closed at the limit to admit another one",
            self.evicted.clone(),
        );
        registry.register(
            "connections_refused",
            "Connections refused because all others were in use",
            self.refused.clone(),
        );
    }
}
