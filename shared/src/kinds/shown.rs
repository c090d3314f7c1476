//! Kinds that have no power state: `status` shows them, and every other command refuses them.

use super::kind::Kind;
use super::row::{ShownKind, Shows};
use crate::annotation::keys::GROUP;

/// A schedule for targets of its own namespace.
pub const POWER_SCHEDULE: Kind = Kind::namespaced(GROUP, &["v1alpha1"], "PowerSchedule", "powerschedules")
    .with_short(&["psch"])
    .with_aliases(&["schedule", "schedules"]);
/// A schedule for targets of any namespace.
pub const CLUSTER_POWER_SCHEDULE: Kind =
    Kind::cluster_scoped(GROUP, &["v1alpha1"], "ClusterPowerSchedule", "clusterpowerschedules").with_short(&["cpsch"]);

/// Hive's `ClusterPool`: `status` shows its numbers and its clusters. Only its clusters can be put to sleep.
pub static CLUSTER_POOL: ShownKind = ShownKind {
    kind: Kind::namespaced("hive.openshift.io", &["v1"], "ClusterPool", "clusterpools")
        .with_short(&["cp", "pool"])
        .with_aliases(&["pools"]),
    word: "pool",
    shows: Shows::ClusterPool,
    many: "pools",
    refusal: "a ClusterPool is never put to sleep itself: change its spec.runningCount, or name its clusters (see \
              `kubectl hibernate status {target}`)",
    not_watched: Some("--watch does not follow pools: name their clusters"),
};

/// TALM's `ClusterGroupUpgrade`: `status` shows how far it is, under either controller.
pub static CLUSTER_GROUP_UPGRADE: ShownKind = ShownKind {
    kind: Kind::namespaced("ran.openshift.io", &["v1alpha1"], "ClusterGroupUpgrade", "clustergroupupgrades")
        .with_short(&["cgu"])
        .with_aliases(&["cgus"]),
    word: "cgu",
    shows: Shows::Upgrade,
    many: "ClusterGroupUpgrades",
    refusal: "a ClusterGroupUpgrade is not put to sleep: `kubectl hibernate status {target}` shows it",
    not_watched: None,
};

/// `FoundationDBCluster`: `status` shows its health and its suspended process groups.
pub static FOUNDATIONDB_CLUSTER: ShownKind = ShownKind {
    kind: Kind::namespaced("apps.foundationdb.org", &["v1beta2"], "FoundationDBCluster", "foundationdbclusters")
        .with_short(&["fdb"]),
    word: "fdb",
    shows: Shows::FoundationDb,
    many: "FoundationDBClusters",
    refusal: "a FoundationDBCluster is not put to sleep by this program: `kubectl hibernate status {target}` shows it, \
              `kubectl hibernate recover process-groups` brings its process groups back",
    not_watched: Some(
        "--watch does not follow FoundationDBClusters: `kubectl get pvc --watch` shows what happens to their volumes",
    ),
};

/// `PowerRollout`: `status` shows its progress. It changes the power state of others.
pub static POWER_ROLLOUT: ShownKind = ShownKind {
    kind: Kind::cluster_scoped("hibernate.sh", &["v1alpha1"], "PowerRollout", "powerrollouts")
        .with_short(&["pr"])
        .with_aliases(&["rollout", "rollouts"]),
    word: "rollout",
    shows: Shows::Rollout,
    many: "rollouts",
    refusal: "a PowerRollout is not put to sleep, it puts others to sleep or wakes them: `kubectl hibernate status \
              {target}` shows it, `kubectl hibernate rollout pause|resume|accept|retry|abort|undo` controls it",
    not_watched: None,
};

/// `PowerSchedule`: `status` shows what comes next. It changes the power state of others.
pub static SCHEDULE: ShownKind = ShownKind {
    kind: POWER_SCHEDULE,
    word: "schedule",
    shows: Shows::Schedule,
    many: "schedules",
    refusal: "a PowerSchedule is not put to sleep, it puts others to sleep and wakes them: `kubectl hibernate status \
              {target}` shows it, `kubectl hibernate schedule apply NAME` applies the state that it asks for now",
    not_watched: None,
};

/// `ClusterPowerSchedule`: the same for targets of any namespace.
pub static CLUSTER_SCHEDULE: ShownKind = ShownKind {
    kind: CLUSTER_POWER_SCHEDULE,
    word: "cpsch",
    many: "cluster-wide schedules",
    refusal: "a ClusterPowerSchedule is not put to sleep, it puts others to sleep and wakes them: `kubectl hibernate \
              status {target}` shows it, `kubectl hibernate schedule apply cpsch/NAME` applies the state that it asks \
              for now",
    shows: Shows::Schedule,
    not_watched: None,
};
