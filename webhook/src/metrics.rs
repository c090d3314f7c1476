//! What the webhook counts.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use server::ConnectionMetrics;
use server::metrics::{self, Declare as _};

use crate::certs::CertificateMetrics;

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
    /// `allow`, `warn`, `patch`, `exempt` or `deny`.
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
    /// The serving certificate.
    pub certificate: CertificateMetrics,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("hibernate_webhook");
        let expiry = "Expiry of the serving certificate in seconds since the epoch; 0 without a certificate";
        Self {
            requests: registry.add("requests", "Answered requests, by resource and verdict"),
            denials: registry.add("denials", "Denials, one for each rule that denied"),
            rejected: registry.add("rejected", "Rejected requests, by HTTP status code"),
            in_flight: registry.add("in_flight", "Requests that are being read or answered"),
            connections: ConnectionMetrics::new(&mut registry),
            duration: registry.seconds(
                "request_duration",
                "Time from the last byte of a request to its response",
                Histogram::new(BUCKETS),
            ),
            certificate: CertificateMetrics {
                expiry: registry.seconds("certificate_expiry_timestamp", expiry, Gauge::default()),
                failures: registry.add("certificate_failures", "Failures to issue, read or publish a certificate"),
            },
            registry,
        }
    }
}

impl Metrics {
    /// All metrics as text of the format that Prometheus scrapes.
    pub fn text(&self) -> String {
        metrics::text(&self.registry)
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
