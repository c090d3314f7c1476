//! Operators that scale up again what is scaled to 0, and whose kinds cannot sleep.

/// Kinds of one group, and why they have no row.
struct NoRow {
    group: &'static str,
    /// All kinds of the group if empty.
    kinds: &'static [&'static str],
    why: &'static str,
}

const fn row(group: &'static str, kinds: &'static [&'static str], why: &'static str) -> NoRow {
    NoRow { group, kinds, why }
}

const NO_FIELD: &str = "its operator has no field that stops it";
const ONLY_PAUSES: &str = "its suspend pauses only the operator; its Pods keep running";
const BY_COUNT: &str = "it is not verified that its last Pods stop at a count of 0";

const NO_ROWS: &[NoRow] = &[
    row("elasticsearch.k8s.elastic.co", &[], NO_FIELD),
    row("kibana.k8s.elastic.co", &[], NO_FIELD),
    row("logstash.k8s.elastic.co", &[], NO_FIELD),
    row("kafka.strimzi.io", &[], "its pause pauses only the operator, and 0 brokers are refused"),
    row("core.strimzi.io", &[], "its pause pauses only the operator, and 0 brokers are refused"),
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

/// Why a kind has no row; none if it is unknown.
pub(in crate::kinds) fn why(group: &str, kind: &str) -> Option<&'static str> {
    let is_of = |row: &&NoRow| row.group == group && (row.kinds.is_empty() || row.kinds.contains(&kind));
    NO_ROWS.iter().find(is_of).map(|row| row.why)
}
