//! What the webhook counts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use server::ConnectionMetrics;

/// Upper bounds in seconds: an answer takes some tens of microseconds, and anything beyond a second has failed.
const BUCKETS: [f64; 14] =
    [25e-6, 50e-6, 75e-6, 100e-6, 150e-6, 250e-6, 500e-6, 1e-3, 2.5e-3, 5e-3, 10e-3, 50e-3, 250e-3, 1.0];

/// Labels of an answered request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Answered {
    /// Resource of the table, or `foreign`.
    pub resource: &'static str,
    /// Operation of the request.
    pub operation: &'static str,
    /// `allow`, `warn`, `patch`, `overlook` or `deny`.
    pub verdict: &'static str,
}

/// Labels of a denial.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Denied {
    /// Row of the table of rules.
    pub rule: &'static str,
}

/// Labels of a body that was not answered on its merits.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Rejected {
    /// HTTP code.
    pub code: u16,
}

/// All metrics of this process.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Answered requests.
    pub requests: Family<Answered, Counter>,
    /// Denials, one for each rule that denied.
    pub denials: Family<Denied, Counter>,
    /// Requests rejected because the body is too large, too slow, of another type or no review, or because a limit is
    /// reached.
    pub rejected: Family<Rejected, Counter>,
    /// Seconds from the last byte of a request to its answer.
    pub duration: Histogram,
    /// Requests that are being read or answered.
    pub in_flight: Gauge,
    /// Connections of the HTTPS port.
    pub connections: ConnectionMetrics,
    /// When the serving certificate expires, in seconds since 1970; 0 while there is none. Set when it is asked for.
    pub certificate_expiry: Gauge,
    /// How often a certificate could not be made, read or published. Set when it is asked for.
    pub certificate_failures: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut metrics = Self {
            registry: Registry::with_prefix("hibernate_webhook"),
            requests: Family::default(),
            denials: Family::default(),
            rejected: Family::default(),
            duration: Histogram::new(BUCKETS),
            in_flight: Gauge::default(),
            connections: ConnectionMetrics::default(),
            certificate_expiry: Gauge::default(),
            certificate_failures: Gauge::default(),
        };
        let registry = &mut metrics.registry;
        registry.register("requests", "Answered requests, by resource and verdict", metrics.requests.clone());
        registry.register("denials", "Denials, one for each rule that denied", metrics.denials.clone());
        registry.register("rejected", "Rejected requests, by HTTP status code", metrics.rejected.clone());
        registry.register("in_flight", "Requests that are being read or answered", metrics.in_flight.clone());
        metrics.connections.register(registry);
        registry.register_with_unit(
            "request_duration",
            "Time from the last byte of a request to its response",
            Unit::Seconds,
            metrics.duration.clone(),
        );
        registry.register_with_unit(
            "certificate_expiry_timestamp",
            "Expiry of the serving certificate in seconds since the epoch; 0 without a certificate",
            Unit::Seconds,
            metrics.certificate_expiry.clone(),
        );
        registry.register(
            "certificate_failures",
            "Failures to issue, read or publish a certificate",
            metrics.certificate_failures.clone(),
        );
        metrics
    }
}

impl Metrics {
    /// All metrics as text of the format that Prometheus scrapes.
    pub fn text(&self) -> String {
        let mut text = String::new();
        match encode(&mut text, &self.registry) {
            Ok(()) => text,
            Err(std::fmt::Error) => String::new(), // writing to a String does not fail
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alerts_ask_for_what_is_served() {
        let served = Metrics::default().text();
        let mut alerts = 0;
        for object in manifests::webhook_monitoring() {
            let groups = object["spec"]["groups"].as_array().into_iter().flatten();
            for rule in groups.flat_map(|group| group["rules"].as_array().into_iter().flatten()) {
                let expr = rule["expr"].as_str().unwrap();
                assert!(promql_parser::parser::parse(expr).is_ok(), "{expr}");
                let names = expr.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
                let metrics: Vec<&str> = names.filter(|name| name.starts_with("hibernate_")).collect();
                assert!(
                    !metrics.is_empty() && metrics.iter().all(|name| served.contains(&format!("{name} "))),
                    "{served}"
                );
                alerts += 1;
            }
        }
        assert!(alerts > 0);
    }
}
