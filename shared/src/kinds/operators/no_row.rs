//! Operators that scale again what is scaled by hand, and whose kinds do not sleep: what to do instead.

use crate::text::sanitize_to;

/// Kinds of one group, and why they have no row.
struct NoRow {
    group: &'static str,
    /// All kinds of the group if empty.
    kinds: &'static [&'static str],
    why: &'static str,
}

/// A row.
const fn row(group: &'static str, kinds: &'static [&'static str], why: &'static str) -> NoRow {
    NoRow { group, kinds, why }
}

const NO_FIELD: &str = "its operator has no field that stops it";
const ONLY_PAUSES: &str = "its suspend only stops the operator, and its Pods go on";
const BY_COUNT: &str = "whether its last Pods stop at a count of 0 is unproved";

const NO_ROWS: &[NoRow] = &[
    row("elasticsearch.k8s.elastic.co", &[], NO_FIELD),
    row("kibana.k8s.elastic.co", &[], NO_FIELD),
    row("logstash.k8s.elastic.co", &[], NO_FIELD),
    row("kafka.strimzi.io", &[], "its pause only stops the operator, and 0 brokers are refused"),
    row("core.strimzi.io", &[], "its pause only stops the operator, and 0 brokers are refused"),
    row("mongodbcommunity.mongodb.com", &[], "0 members are refused"),
    row("mongodb.com", &["MongoDB"], "0 members are refused"),
    row("redis.redis.opstreelabs.in", &[], NO_FIELD),
    row("k8s.mariadb.com", &["MariaDB", "MaxScale"], ONLY_PAUSES),
    row("grafana.integreatly.org", &["Grafana"], ONLY_PAUSES),
    row("awx.ansible.com", &["AWX"], "it has a count for each of its parts"),
    row("rabbitmq.com", &["RabbitmqCluster"], BY_COUNT),
    row("acid.zalan.do", &["postgresql"], BY_COUNT),
    row("monitoring.coreos.com", &[], "without it no alert is sent: set its spec.replicas to 0 by hand"),
    row("serving.knative.dev", &[], "Knative scales it to 0 itself where its min-scale is 0"),
];

/// Why an object that this owner controls is not scaled; none if the owner is unknown. The owner's texts are input.
pub fn refusal(api_version: &str, kind: &str, name: &str) -> Option<String> {
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    let found = NO_ROWS.iter().find(|row| row.group == group && (row.kinds.is_empty() || row.kinds.contains(&kind)))?;
    let owner = sanitize_to(&format!("{kind}.{group}/{name}"), 200);
    Some(format!("{owner} scales it again at once, and does not sleep itself: {}", found.why))
}

/// Groups, their kinds and why they have no row, for a list.
pub fn all() -> impl Iterator<Item = (&'static str, &'static [&'static str], &'static str)> {
    NO_ROWS.iter().map(|row| (row.group, row.kinds, row.why))
}
