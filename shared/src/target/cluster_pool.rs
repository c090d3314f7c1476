//! Hive's `ClusterPool`: `status` shows its numbers and its clusters. Only its clusters can be put to sleep.

use super::{
    kind::Kind,
    row::{ShownKind, View},
};

/// The row.
pub static CLUSTER_POOL: ShownKind = ShownKind {
    kind: Kind::namespaced("hive.openshift.io", &["v1"], "ClusterPool", "clusterpools")
        .with_short(&["cp", "pool"])
        .with_aliases(&["pools"]),
    word: "pool",
    view: View::ClusterPool,
    many: "pools",
    refusal: "a ClusterPool is never put to sleep itself: change its spec.runningCount, or name its clusters (see \
              `kubectl hibernate status {target}`)",
    not_watched: Some("--watch does not follow pools: name their clusters"),
};
