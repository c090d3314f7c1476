//! A `FoundationDBCluster` with its claims, Services and Pods, as read from the hub.

use hub::error::HubError;
use hub::exec::POD;
use hub::{HubClient, Resource};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use shared::fdb::admission;
use shared::fdb::api::FoundationDBCluster;
use shared::fdb::recover::facts::Facts;
use shared::kinds::{FOUNDATIONDB_CLUSTER, Kind};
use view::fdb::CLAIM;

use crate::error::Problem;

pub(crate) static SERVICE: Kind = Kind::namespaced("", &["v1"], "Service", "services");

/// The kind of an object that a recovery holds.
pub(crate) fn kind_of(kind: admission::Kind) -> &'static Kind {
    match kind {
        admission::Kind::Pvc => &CLAIM,
        admission::Kind::Service => &SERVICE,
    }
}

/// A cluster and what belongs to it, read at one time.
pub(crate) struct DatabaseSnapshot {
    /// As the hub sent it.
    pub(crate) object: Value,
    pub(crate) cluster: FoundationDBCluster,
    pub(crate) claims: Vec<Value>,
    pub(crate) services: Vec<Value>,
    pub(crate) pods: Vec<Value>,
    /// resourceVersion of the list of Pods.
    pub(crate) pods_version: String,
}

impl DatabaseSnapshot {
    /// Reads a cluster and what belongs to it. The cluster is read first: later writes are tested against that version.
    pub(crate) async fn new(hub: &HubClient, namespace: &str, name: &str) -> Result<Self, Problem> {
        let object = hub.get(Resource::preferred(&FOUNDATIONDB_CLUSTER.kind), namespace, name).await?;
        Self::around(hub, namespace, object).await
    }

    /// Reads what belongs to a cluster.
    pub(crate) async fn around(hub: &HubClient, namespace: &str, object: Value) -> Result<Self, Problem> {
        let cluster = read(&object)?;
        let labels = cluster.selector();
        let list = |kind| hub.list(Resource::preferred(kind), Some(namespace), "", &labels);
        let (claims, services, pods) = tokio::try_join!(list(&CLAIM), list(&SERVICE), list(&POD))?;
        Ok(Self {
            object,
            cluster,
            claims: claims.items,
            services: services.items,
            pods: pods.items,
            pods_version: pods.version,
        })
    }

    pub(crate) fn facts(&self) -> Facts<'_> {
        Facts {
            cluster: &self.cluster,
            claims: &self.claims,
            services: &self.services,
            pods: &self.pods,
            now: Timestamp::now(),
        }
    }
}

pub(crate) fn read(object: &Value) -> Result<FoundationDBCluster, Problem> {
    FoundationDBCluster::deserialize(object).map_err(Problem::unreadable)
}

/// The clusters of a namespace or of all.
pub(crate) async fn clusters(hub: &HubClient, namespace: Option<&str>) -> Result<Vec<Value>, HubError> {
    Ok(hub.list(Resource::preferred(&FOUNDATIONDB_CLUSTER.kind), namespace, "", "").await?.items)
}

/// The cluster as messages name it.
pub(crate) fn called(name: &str) -> String {
    FOUNDATIONDB_CLUSTER.kind.full_name(name)
}
