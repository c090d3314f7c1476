//! A `FoundationDBCluster`: its health, and its process groups that are suspended.

use std::time::Duration;

use hub::exec::POD;
use hub::{HubClient, Resource};
use jiff::Timestamp;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shared::annotation::keys;
use shared::fdb::api::{FoundationDBCluster, Health, ProcessGroup};
use shared::fdb::recover::check::suspended;
use shared::fdb::recover::facts::{Facts, deleted_at, size};
use shared::fdb::recover::presence::is_left_excluded;
use shared::fdb::suspension::{Minimum, Stamp};
use shared::kinds::Kind;
use shared::object::{name_of, text};

use super::error::ViewError;
use super::protection::{self, Protection};

/// Volumes of a cluster.
pub static CLAIM: Kind = Kind::namespaced("", &["v1"], "PersistentVolumeClaim", "persistentvolumeclaims");

/// What is shown of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseState {
    pub namespace: String,
    pub name: String,
    /// `yes`, `no`, `unknown`, or `off` where the cluster switches suspension off.
    pub protected: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unprotected_because: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minimum_suspension: Option<String>,
    /// Whether the operator leaves it alone.
    pub skipped: bool,
    /// IDs of groups that a recovery has begun with.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recovering: Vec<String>,
    /// As the operator has seen the database last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health: Option<Health>,
    /// Volumes that are in use and carry a human's key: nothing guards them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unlocked: Vec<String>,
    /// IDs of groups that are not removed and that the database has excluded: the operator replaces them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub excluded: Vec<String>,
    pub suspended: Vec<SuspendedGroup>,
}

/// One suspended process group.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SuspendedGroup {
    pub group: String,
    pub class: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// When the controller has stamped it; not yet if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// When it is released, at the earliest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires: Option<Timestamp>,
    /// Whether it has been released: the operator deletes it at any moment.
    pub released: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    pub claim: String,
    pub size: String,
}

impl DatabaseState {
    pub(super) async fn read(hub: &HubClient, object: &Value) -> Result<Self, ViewError> {
        let cluster = FoundationDBCluster::deserialize(object).map_err(ViewError::unreadable)?;
        let (namespace, labels) = (text(object, "/metadata/namespace"), cluster.selector());
        let list = |kind| hub.list(Resource::preferred(kind), Some(namespace), "", &labels);
        let (claims, pods) = tokio::try_join!(list(&CLAIM), list(&POD))
            .map_err(|source| ViewError::related(format!("{namespace}/{}", name_of(object)), source))?;
        let protection = protection::of(hub, namespace, &cluster).await;
        Ok(Self::new(&cluster, &claims.items, &pods.items, protection))
    }

    /// What a cluster, its claims and its Pods say.
    pub fn new(cluster: &FoundationDBCluster, claims: &[Value], pods: &[Value], protection: Protection) -> Self {
        let minimum = cluster.annotations().get(keys::MINIMUM_SUSPENSION);
        let is_off = minimum.is_some_and(|text| Minimum::of(Some(text), Duration::ZERO).is_off());
        let (protected, unprotected_because) = match protection {
            // What is stamped already needs its protection.
            _ if is_off && !claims.iter().any(|claim| Stamp::of(claim).present) => ("off", None),
            Protection::Yes => ("yes", None),
            Protection::No(why) => ("no", Some(why)),
            Protection::Unknown(why) => ("unknown", Some(why)),
        };
        let facts = Facts { cluster, claims, services: &[], pods, now: Timestamp::UNIX_EPOCH };
        let of_group = |group: &ProcessGroup| {
            let claim = facts.claim_of(&group.process_group_id, &cluster.pod_name(group)?)?;
            Some(SuspendedGroup::new(group, claim, minimum.map(String::as_str)))
        };
        let suspended: Vec<SuspendedGroup> = suspended(&facts).into_iter().filter_map(of_group).collect();
        let is_unlocked = |claim: &&Value| {
            let is_shown = suspended.iter().any(|group| group.claim == name_of(claim));
            Stamp::of(claim).key && deleted_at(claim).is_none() && !is_shown
        };
        let id = |group: &ProcessGroup| group.process_group_id.clone();
        let recovering = facts.record().into_iter().flat_map(|record| record.groups);
        Self {
            namespace: cluster.namespace().unwrap_or_default(),
            name: cluster.name_any(),
            protected,
            unprotected_because,
            minimum_suspension: minimum.cloned(),
            skipped: cluster.spec.skip == Some(true),
            recovering: recovering.map(|held| held.group).collect(),
            health: cluster.status.as_ref().and_then(|status| status.health.clone()),
            unlocked: claims.iter().filter(is_unlocked).map(|claim| name_of(claim).to_owned()).collect(),
            excluded: cluster.groups().iter().filter(|group| is_left_excluded(&facts, group)).map(id).collect(),
            suspended,
        }
    }
}

impl SuspendedGroup {
    fn new(group: &ProcessGroup, claim: &Value, minimum: Option<&str>) -> Self {
        let stamp = Stamp::of(claim);
        Self {
            group: group.process_group_id.clone(),
            class: group.process_class.clone(),
            zone: group.fault_domain.clone(),
            since: stamp.since,
            expires: stamp.until(&Minimum::of(minimum, Duration::ZERO)),
            released: stamp.key || stamp.is_released_for(group.removal_timestamp.as_deref()),
            why: stamp.record.map(|record| record.why).filter(|why| !why.is_empty()),
            claim: name_of(claim).to_owned(),
            size: size(claim).to_owned(),
        }
    }
}
