//! A `ClusterPool` with its clusters and claims, as read from the hub.

use hub::error::HubError;
use hub::{HubClient, Resource, text};
use serde_json::Value;
use shared::hive::api::ClusterDeployment;
use shared::hive::pool::{ClusterPool, is_member};
use shared::kinds::{CLUSTER_DEPLOYMENT, Kind};

/// A request for a cluster of a pool.
pub(crate) static CLUSTER_CLAIM: Kind = Kind::namespaced("hive.openshift.io", &["v1"], "ClusterClaim", "clusterclaims");

/// A pool with its clusters.
#[derive(Debug)]
pub(crate) struct PoolSnapshot {
    pub(crate) pool: ClusterPool,
    /// Claims without a cluster.
    pub(crate) waiting: usize,
    pub(crate) members: Vec<ClusterDeployment>,
}

impl PoolSnapshot {
    /// Reads what belongs to a pool, out of all clusters of the hub.
    pub(crate) async fn new(
        hub: &HubClient,
        namespace: &str,
        name: &str,
        object: &Value,
        clusters: &[ClusterDeployment],
    ) -> Self {
        let pool = serde_json::from_value(object.clone()).unwrap_or_default();
        let members = clusters.iter().filter(|cluster| is_member(cluster, namespace, name)).cloned().collect();
        // Claims only raise the number of clusters that are kept awake; without the right to see them there are none.
        let claims = hub.list(Resource::preferred(&CLUSTER_CLAIM), Some(namespace), "", "").await;
        let waiting = claims.map_or(0, |claims| claims.items.iter().filter(|claim| waits(claim, name)).count());
        Self { pool, waiting, members }
    }
}

pub(crate) fn waits(claim: &Value, pool: &str) -> bool {
    text(claim, "/spec/clusterPoolName") == pool
        && text(claim, "/spec/namespace").is_empty()
        && text(claim, "/metadata/deletionTimestamp").is_empty()
}

/// Every cluster of the hub: those of a pool live in a namespace each.
pub(crate) async fn clusters(hub: &HubClient) -> Result<Vec<ClusterDeployment>, HubError> {
    let list = hub.list(Resource::preferred(&CLUSTER_DEPLOYMENT.kind), None, "", "").await?;
    Ok(list.items.into_iter().filter_map(|object| serde_json::from_value(object).ok()).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_claim_waits_until_it_has_a_namespace() {
        let claim = |change: Value| {
            let mut claim = json!({ "metadata": {}, "spec": { "clusterPoolName": "small" } });
            claim["spec"].as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
            waits(&claim, "small")
        };
        assert!(claim(json!({})) && claim(json!({ "namespace": "" })));
        assert!(!claim(json!({ "namespace": "small-x" })) && !claim(json!({ "clusterPoolName": "big" })));
    }
}
