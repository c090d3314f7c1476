//! Databases. Their volumes stay, and their backups pause with them or fail.

use super::target;
use crate::kinds::kind::Kind;
use crate::kinds::row::TargetKind;
use crate::kinds::sleep_row::At::{Condition, Field};
use crate::kinds::sleep_row::Test::{Absent, AllAtLeast, AllZero, Asked, AtLeast, Begins, Is, Zero};
use crate::kinds::sleep_row::{Phase, Range, Scalar, Seen, SleepRow, State, Switch};

const VOLUMES: &str = "its volumes, snapshots and backups";

/// `Cluster` of `CloudNativePG`.
pub static CNPG: TargetKind = target(
    Kind::namespaced("postgresql.cnpg.io", &["v1"], "Cluster", "clusters").with_aliases(&["cnpg"]).as_homonym(),
    4,
    &CLOUD_NATIVE_PG,
);
/// `Cluster` of EDB Postgres for Kubernetes, which is the same under another group.
pub static EDB: TargetKind = target(
    Kind::namespaced("postgresql.k8s.enterprisedb.io", &["v1"], "Cluster", "clusters").as_homonym(),
    4,
    &EDB_POSTGRES,
);

const HEALTHY: &str = "it stops a cluster only while that is healthy, and waits as long as it is not";

macro_rules! cloud_native_pg {
    ($name:ident, $annotation:literal, $condition:literal) => {
        static $name: SleepRow = SleepRow {
            switches: &[Switch::word(concat!("/metadata/annotations/", $annotation), "on", &["off"])],
            states: &[
                State { when: &[Is(Condition($condition, "status"), &["True"])], is: Phase::Asleep, text: None },
                State {
                    when: &[Is(Condition($condition, "reason"), &["DeletingPods", "WaitingPodsDeletion"])],
                    is: Phase::FallingAsleep,
                    text: Some(Condition($condition, "message")),
                },
                State {
                    when: &[Is(Condition($condition, "reason"), &["WaitingForHealthy"])],
                    is: Phase::Waits,
                    text: Some(Condition($condition, "message")),
                },
                State {
                    when: &[Begins(Field("/status/phase"), "Cluster is unrecoverable")],
                    is: Phase::Failed,
                    text: Some(Field("/status/phase")),
                },
                State {
                    when: &[
                        Absent(Condition($condition, "status")),
                        Is(Field("/status/phase"), &["Cluster in healthy state"]),
                        AtLeast(Field("/status/readyInstances"), Field("/spec/instances")),
                    ],
                    is: Phase::Awake,
                    text: None,
                },
                State { when: &[Asked(false)], is: Phase::Waking, text: Some(Field("/status/phase")) },
            ],
            may_wait: HEALTHY,
            stays: VOLUMES,
            ..SleepRow::PLAIN
        };
    };
}

cloud_native_pg!(CLOUD_NATIVE_PG, "cnpg.io~1hibernation", "cnpg.io/hibernation");
cloud_native_pg!(EDB_POSTGRES, "k8s.enterprisedb.io~1hibernation", "k8s.enterprisedb.io/hibernation");

/// `ScheduledBackup` of `CloudNativePG`: while its cluster sleeps, its backups would fail.
pub static CNPG_SCHEDULED_BACKUP: TargetKind = target(
    Kind::namespaced("postgresql.cnpg.io", &["v1"], "ScheduledBackup", "scheduledbackups"),
    1,
    &SleepRow {
        switches: &[Switch::flag("/spec/suspend")],
        may_wait: "",
        stays: "the backups that it has made",
        ..SleepRow::PLAIN
    },
);

/// `Pooler` of `CloudNativePG`.
pub static CNPG_POOLER: TargetKind = target(
    Kind::namespaced("postgresql.cnpg.io", &["v1"], "Pooler", "poolers"),
    2,
    &SleepRow {
        switches: &[Switch::count("/spec/instances")],
        states: &[
            State { when: &[Asked(true), Zero(Field("/status/instances"))], is: Phase::Asleep, text: None },
            State { when: &[Asked(true)], is: Phase::FallingAsleep, text: None },
            State {
                when: &[AtLeast(Field("/status/instances"), Field("/spec/instances"))],
                is: Phase::Awake,
                text: None,
            },
            State { when: &[], is: Phase::Waking, text: None },
        ],
        may_wait: "its Deployment is scaled by the operator",
        ..SleepRow::PLAIN
    },
);

const BACKUP: &str = "it pauses nothing while a backup or a restore of the cluster runs";

macro_rules! percona {
    ($name:ident, $text:expr, $makes:expr, $since:literal) => {
        static $name: SleepRow = SleepRow {
            makes: $makes,
            since: $since,
            switches: &[Switch::flag("/spec/pause")],
            states: &[
                State { when: &[Is(Field("/status/state"), &["paused"])], is: Phase::Asleep, text: None },
                State { when: &[Is(Field("/status/state"), &["stopping"])], is: Phase::FallingAsleep, text: None },
                State { when: &[Is(Field("/status/state"), &["error"])], is: Phase::Failed, text: $text },
                State { when: &[Is(Field("/status/state"), &["ready"])], is: Phase::Awake, text: None },
                State {
                    when: &[Asked(false), Is(Field("/status/state"), &["initializing", "sharding", "unknown"])],
                    is: Phase::Waking,
                    text: None,
                },
            ],
            may_wait: BACKUP,
            stays: VOLUMES,
            ..SleepRow::PLAIN
        };
    };
}

percona!(XTRADB, None, None, "1.0");
percona!(MONGODB, Some(Field("/status/message")), None, "0.3");
// Since 3.0 in a group of its own.
percona!(POSTGRES, None, Some(("upstream.pgv2.percona.com", "PostgresCluster")), "2.1");

/// `PerconaXtraDBCluster`.
pub static PERCONA_XTRADB: TargetKind = target(
    Kind::namespaced("pxc.percona.com", &["v1"], "PerconaXtraDBCluster", "perconaxtradbclusters")
        .with_short(&["pxc", "pxcs"]),
    4,
    &XTRADB,
);
/// `PerconaServerMongoDB`.
pub static PERCONA_MONGODB: TargetKind = target(
    Kind::namespaced("psmdb.percona.com", &["v1"], "PerconaServerMongoDB", "perconaservermongodbs")
        .with_short(&["psmdb"]),
    4,
    &MONGODB,
);
/// `PerconaPGCluster`.
pub static PERCONA_POSTGRES: TargetKind = target(
    Kind::namespaced("pgv2.percona.com", &["v2"], "PerconaPGCluster", "perconapgclusters").with_short(&["pg"]),
    4,
    &POSTGRES,
);

/// `PostgresCluster` of Crunchy Data. The operator suspends the `CronJobs` of its backups itself.
pub static CRUNCHY: TargetKind = target(
    Kind::namespaced("postgres-operator.crunchydata.com", &["v1", "v1beta1"], "PostgresCluster", "postgresclusters"),
    4,
    &SleepRow {
        switches: &[Switch::flag("/spec/shutdown")],
        states: &[
            State { when: &[Asked(true), AllZero("/status/instances", "replicas")], is: Phase::Asleep, text: None },
            State { when: &[Asked(true)], is: Phase::FallingAsleep, text: None },
            State {
                when: &[AllAtLeast(("/status/instances", "readyReplicas"), ("/spec/instances", "replicas"))],
                is: Phase::Awake,
                text: None,
            },
            State { when: &[], is: Phase::Waking, text: None },
        ],
        seen: Seen::Generation("/status/observedGeneration"),
        stays: VOLUMES,
        since: "5.0",
        ..SleepRow::PLAIN
    },
);

/// `CassandraDatacenter` of `K8ssandra`'s cass-operator.
pub static CASSANDRA: TargetKind = target(
    Kind::namespaced("cassandra.datastax.com", &["v1beta1"], "CassandraDatacenter", "cassandradatacenters")
        .with_short(&["cassdc"]),
    4,
    &SleepRow {
        switches: &[Switch::flag("/spec/stopped")],
        states: &[
            State {
                when: &[
                    Is(Condition("Stopped", "status"), &["True"]),
                    Is(Field("/status/cassandraOperatorProgress"), &["Ready"]),
                ],
                is: Phase::Asleep,
                text: None,
            },
            State { when: &[Is(Condition("Stopped", "status"), &["True"])], is: Phase::FallingAsleep, text: None },
            State {
                when: &[
                    Is(Condition("Ready", "status"), &["True"]),
                    Is(Field("/status/cassandraOperatorProgress"), &["Ready"]),
                ],
                is: Phase::Awake,
                text: None,
            },
            State { when: &[Asked(false)], is: Phase::Waking, text: Some(Condition("Ready", "message")) },
        ],
        seen: Seen::Generation("/status/observedGeneration"),
        may_wait: "it drains each node first",
        stays: VOLUMES,
        ..SleepRow::PLAIN
    },
);

/// `ClickHouseInstallation` of Altinity's operator.
pub static CLICK_HOUSE: TargetKind = target(
    Kind::namespaced("clickhouse.altinity.com", &["v1"], "ClickHouseInstallation", "clickhouseinstallations")
        .with_short(&["chi"]),
    4,
    &SleepRow {
        switches: &[Switch {
            at: "/spec/stop",
            only_present: false,
            asleep: Scalar::Text("yes"),
            absent: Scalar::Text("no"),
            range: Range::Words(&[
                "", "no", "No", "false", "False", "off", "Off", "0", "disable", "Disable", "disabled", "Disabled",
            ]),
        }],
        states: &[
            State { when: &[Asked(true), Is(Field("/status/status"), &["Completed"])], is: Phase::Asleep, text: None },
            State {
                when: &[Is(Field("/status/status"), &["Aborted"])],
                is: Phase::Failed,
                text: Some(Field("/status/error")),
            },
            State { when: &[Asked(true)], is: Phase::FallingAsleep, text: Some(Field("/status/action")) },
            State { when: &[Is(Field("/status/status"), &["Completed"])], is: Phase::Awake, text: None },
            State { when: &[], is: Phase::Waking, text: Some(Field("/status/action")) },
        ],
        seen: Seen::ByTime,
        may_wait: "it reconciles one change after the other",
        loses: Some("its Services until the wake: addresses of load balancers may change"),
        stays: VOLUMES,
        ..SleepRow::PLAIN
    },
);
