//! `FoundationDBCluster`: `status` shows its health and its suspended process groups. It has no power state.

use super::{
    kind::Kind,
    row::{ShownKind, View},
};

/// The row.
pub static FOUNDATIONDB_CLUSTER: ShownKind = ShownKind {
    kind: Kind::namespaced("apps.foundationdb.org", &["v1beta2"], "FoundationDBCluster", "foundationdbclusters")
        .with_short(&["fdb"]),
    word: "fdb",
    view: View::FoundationDb,
    many: "FoundationDBClusters",
    refusal: "a FoundationDBCluster is not put to sleep by this program: `kubectl hibernate status {target}` shows it, \
              `kubectl hibernate recover process-groups` brings its process groups back",
    not_watched: Some(
        "--watch does not follow FoundationDBClusters: `kubectl get pvc --watch` shows what happens to their volumes",
    ),
};
