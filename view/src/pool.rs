//! A `ClusterPool` with its clusters and claims.

use hub::error::HubError;
use hub::{HubClient, Resource};
use serde::Serialize;
use serde_json::Value;
use shared::hive::api::ClusterDeployment;
use shared::hive::pool::{ClusterPool, is_member, wanted};
use shared::kinds::{CLUSTER_DEPLOYMENT, Kind, Record};
use shared::object::{name_of, text};

use super::error::ViewError;

/// A request for a cluster of a pool.
static CLUSTER_CLAIM: Kind = Kind::namespaced("hive.openshift.io", &["v1"], "ClusterClaim", "clusterclaims");

/// A pool with its clusters.
#[derive(Debug)]
pub struct PoolSnapshot {
    pub pool: ClusterPool,
    /// Claims without a cluster.
    pub waiting: usize,
    pub members: Vec<ClusterDeployment>,
}

impl PoolSnapshot {
    /// Reads what belongs to a pool, out of all clusters of the hub.
    pub async fn new(hub: &HubClient, object: &Value, clusters: &[ClusterDeployment]) -> Self {
        let (namespace, name) = (text(object, "/metadata/namespace"), name_of(object));
        let pool = serde_json::from_value(object.clone()).unwrap_or_default();
        let members = clusters.iter().filter(|cluster| is_member(cluster, namespace, name)).cloned().collect();
        // Claims only raise the number of clusters that are kept awake; without the right to see them there are none.
        let claims = hub.list(Resource::preferred(&CLUSTER_CLAIM), Some(namespace), "", "").await;
        let waiting = claims.map_or(0, |claims| claims.items.iter().filter(|claim| waits(claim, name)).count());
        Self { pool, waiting, members }
    }
}

/// What is shown of a pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolState {
    pub namespace: String,
    pub name: String,
    pub size: u32,
    pub running_count: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_size: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hibernate_after: Option<String>,
    /// Unclaimed, installed, asleep.
    pub standby: u32,
    /// Unclaimed, installed, running.
    pub ready: u32,
    /// Claims without a cluster.
    pub waiting_claims: usize,
    pub clusters: Vec<PoolMember>,
}

/// One cluster of a pool.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolMember {
    #[serde(flatten)]
    pub record: Record,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub claim: Option<String>,
    /// The state that the pool's controller wants while it is unclaimed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pool_wants: Option<String>,
}

impl PoolState {
    pub(super) async fn read(
        hub: &HubClient,
        object: &Value,
        clusters: &[ClusterDeployment],
    ) -> Result<Self, ViewError> {
        let (namespace, name) = (text(object, "/metadata/namespace"), name_of(object));
        Self::new(namespace, name, &PoolSnapshot::new(hub, object, clusters).await)
    }

    /// # Errors
    /// When one of its clusters does not match its schema.
    pub fn new(namespace: &str, name: &str, snapshot: &PoolSnapshot) -> Result<Self, ViewError> {
        let PoolSnapshot { pool: ClusterPool { spec, status }, waiting, members } = snapshot;
        let wanted = wanted(&snapshot.pool, *waiting, members);
        let member = |cluster: &ClusterDeployment| {
            let object = serde_json::to_value(cluster).map_err(ViewError::unreadable)?;
            let wants = wanted.iter().find(|(other, _)| std::ptr::eq(*other, cluster));
            let claim = cluster.spec.cluster_pool_ref.as_ref().and_then(|pool| pool.claim_name.clone());
            Ok(PoolMember {
                record: CLUSTER_DEPLOYMENT.record(&object)?,
                claim: claim.filter(|claim| !claim.is_empty()),
                pool_wants: wants.map(|(_, desired)| desired.to_string()),
            })
        };
        let mut clusters = members.iter().map(member).collect::<Result<Vec<_>, ViewError>>()?;
        clusters.sort_by_key(|member| member.record.key());
        Ok(Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            size: spec.size,
            running_count: spec.running_count,
            max_size: spec.max_size,
            hibernate_after: spec.hibernate_after.clone(),
            standby: status.standby,
            ready: status.ready,
            waiting_claims: *waiting,
            clusters,
        })
    }
}

fn waits(claim: &Value, pool: &str) -> bool {
    text(claim, "/spec/clusterPoolName") == pool
        && text(claim, "/spec/namespace").is_empty()
        && text(claim, "/metadata/deletionTimestamp").is_empty()
}

/// Every cluster of the hub: those of a pool live in a namespace each.
pub async fn clusters(hub: &HubClient) -> Result<Vec<ClusterDeployment>, HubError> {
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
