//! Kinds that operators run, as rows of data: what each field means is in docs/kinds.md. And operators that scale up again
//! what is scaled to 0, and whose kinds cannot sleep.

mod argo;
mod compute;
mod databases;
mod machines;
pub mod objects;

use super::kind::Kind;
use super::row::{Reader, TargetKind};
use super::sleep_row::SleepRow;

pub use self::argo::{ROLLOUT, SCALED_OBJECT};
pub use self::compute::{NOTEBOOK, RAY_CLUSTER, RAY_SERVICE};
pub use self::databases::{
    CASSANDRA, CLICK_HOUSE, CNPG, CNPG_POOLER, CNPG_SCHEDULED_BACKUP, CRUNCHY, EDB, PERCONA_MONGODB, PERCONA_POSTGRES,
    PERCONA_XTRADB,
};
pub use self::machines::{NODE_POOL, SHOOT, VIRTUAL_MACHINE};

/// A kind that sleeps as this row says.
pub(super) const fn target(kind: Kind, stage: u8, row: &'static SleepRow) -> TargetKind {
    TargetKind {
        // Only those that sleep are of interest.
        is_listed: |record| record.desired == "Hibernating" || record.more.contains_key("recordedBefore"),
        in_namespace: true,
        stage,
        ..TargetKind::plain(kind, Reader::Row(row))
    }
}

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
pub(super) fn why_no_row(group: &str, kind: &str) -> Option<&'static str> {
    let is_of = |row: &&NoRow| row.group == group && (row.kinds.is_empty() || row.kinds.contains(&kind));
    NO_ROWS.iter().find(is_of).map(|row| row.why)
}

#[cfg(test)]
mod tests;
