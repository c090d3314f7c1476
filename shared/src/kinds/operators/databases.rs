//! Databases. Their volumes stay, and their backups pause with them or fail.

use super::target;
use crate::kinds::kind::Kind;
use crate::kinds::row::TargetKind;
use crate::kinds::sleep_row::At::{Condition, Field};
use crate::kinds::sleep_row::Phase::{Asleep, Awake, Failed, FallingAsleep, Waits, Waking};
use crate::kinds::sleep_row::Test::{Absent, AllAtLeast, AllZero, Asked, AtLeast, Begins, Is, Zero};
use crate::kinds::sleep_row::{At, Scalar, Seen, SleepRow, State, Switch};

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

macro_rules! cloud_native_pg {
    ($name:ident, $annotation:literal, $condition:literal) => {
        static $name: SleepRow = SleepRow {
            switches: &[Switch::word(concat!("/metadata/annotations/", $annotation), "on", &["off"])],
            states: &[
                Asleep.when(&[Is(Condition($condition, "status"), &["True"])]),
                FallingAsleep
                    .when(&[Is(Condition($condition, "reason"), &["DeletingPods", "WaitingPodsDeletion"])])
                    .says(Condition($condition, "message")),
                Waits
                    .when(&[Is(Condition($condition, "reason"), &["WaitingForHealthy"])])
                    .says(Condition($condition, "message")),
                Failed.when(&[Begins(Field("/status/phase"), "Cluster is unrecoverable")]).says(Field("/status/phase")),
                Awake.when(&[
                    Absent(Condition($condition, "status")),
                    Is(Field("/status/phase"), &["Cluster in healthy state"]),
                    AtLeast(Field("/status/readyInstances"), Field("/spec/instances")),
                ]),
                Waking.when(&[Asked(false)]).says(Field("/status/phase")),
            ],
            may_wait: "it stops a cluster only while that is healthy, and waits as long as it is not",
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
            Asleep.when(&[Asked(true), Zero(Field("/status/instances"))]),
            FallingAsleep.when(&[Asked(true)]),
            Awake.when(&[AtLeast(Field("/status/instances"), Field("/spec/instances"))]),
            Waking.when(&[]),
        ],
        may_wait: "its Deployment is scaled by the operator",
        ..SleepRow::PLAIN
    },
);

const STATE: At = Field("/status/state");

const PERCONA: SleepRow = SleepRow {
    switches: &[Switch::flag("/spec/pause")],
    states: &percona_states(None),
    may_wait: "it pauses nothing while a backup or a restore of the cluster runs",
    stays: VOLUMES,
    ..SleepRow::PLAIN
};

/// `text`: where it says why it failed.
const fn percona_states(text: Option<At>) -> [State; 5] {
    [
        Asleep.when(&[Is(STATE, &["paused"])]),
        FallingAsleep.when(&[Is(STATE, &["stopping"])]),
        State { text, ..Failed.when(&[Is(STATE, &["error"])]) },
        Awake.when(&[Is(STATE, &["ready"])]),
        Waking.when(&[Asked(false), Is(STATE, &["initializing", "sharding", "unknown"])]),
    ]
}

/// `PerconaXtraDBCluster`.
pub static PERCONA_XTRADB: TargetKind = target(
    Kind::namespaced("pxc.percona.com", &["v1"], "PerconaXtraDBCluster", "perconaxtradbclusters")
        .with_short(&["pxc", "pxcs"]),
    4,
    &SleepRow { since: "1.0", ..PERCONA },
);
/// `PerconaServerMongoDB`.
pub static PERCONA_MONGODB: TargetKind = target(
    Kind::namespaced("psmdb.percona.com", &["v1"], "PerconaServerMongoDB", "perconaservermongodbs")
        .with_short(&["psmdb"]),
    4,
    &SleepRow { states: &percona_states(Some(Field("/status/message"))), since: "0.3", ..PERCONA },
);
/// `PerconaPGCluster`.
pub static PERCONA_POSTGRES: TargetKind = target(
    Kind::namespaced("pgv2.percona.com", &["v2"], "PerconaPGCluster", "perconapgclusters").with_short(&["pg"]),
    4,
    // Since 3.0 in a group of its own.
    &SleepRow { makes: Some(("upstream.pgv2.percona.com", "PostgresCluster")), since: "2.1", ..PERCONA },
);

/// `PostgresCluster` of Crunchy Data. The operator suspends the `CronJobs` of its backups itself.
pub static CRUNCHY: TargetKind = target(
    Kind::namespaced("postgres-operator.crunchydata.com", &["v1", "v1beta1"], "PostgresCluster", "postgresclusters"),
    4,
    &SleepRow {
        switches: &[Switch::flag("/spec/shutdown")],
        states: &[
            Asleep.when(&[Asked(true), AllZero("/status/instances", "replicas")]),
            FallingAsleep.when(&[Asked(true)]),
            Awake.when(&[AllAtLeast(("/status/instances", "readyReplicas"), ("/spec/instances", "replicas"))]),
            Waking.when(&[]),
        ],
        seen: Seen::Generation("/status/observedGeneration"),
        stays: VOLUMES,
        since: "5.0",
        ..SleepRow::PLAIN
    },
);

const CASSANDRA_PROGRESS: At = Field("/status/cassandraOperatorProgress");

/// `CassandraDatacenter` of `K8ssandra`'s cass-operator.
pub static CASSANDRA: TargetKind = target(
    Kind::namespaced("cassandra.datastax.com", &["v1beta1"], "CassandraDatacenter", "cassandradatacenters")
        .with_short(&["cassdc"]),
    4,
    &SleepRow {
        switches: &[Switch::flag("/spec/stopped")],
        states: &[
            Asleep.when(&[Is(Condition("Stopped", "status"), &["True"]), Is(CASSANDRA_PROGRESS, &["Ready"])]),
            FallingAsleep.when(&[Is(Condition("Stopped", "status"), &["True"])]),
            Awake.when(&[Is(Condition("Ready", "status"), &["True"]), Is(CASSANDRA_PROGRESS, &["Ready"])]),
            Waking.when(&[Asked(false)]).says(Condition("Ready", "message")),
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
            absent: Scalar::Text("no"),
            ..Switch::word(
                "/spec/stop",
                "yes",
                &["", "no", "No", "false", "False", "off", "Off", "0", "disable", "Disable", "disabled", "Disabled"],
            )
        }],
        states: &[
            Asleep.when(&[Asked(true), Is(Field("/status/status"), &["Completed"])]),
            Failed.when(&[Is(Field("/status/status"), &["Aborted"])]).says(Field("/status/error")),
            FallingAsleep.when(&[Asked(true)]).says(Field("/status/action")),
            Awake.when(&[Is(Field("/status/status"), &["Completed"])]),
            Waking.when(&[]).says(Field("/status/action")),
        ],
        seen: Seen::ByTime,
        may_wait: "it reconciles one change after the other",
        loses: Some("its Services until the wake: addresses of load balancers may change"),
        stays: VOLUMES,
        ..SleepRow::PLAIN
    },
);
