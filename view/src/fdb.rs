//! A `FoundationDBCluster`: its health, and its process groups that are suspended.

use std::time::Duration;

use hub::exec::POD;
use hub::{HubClient, Resource, items, name_of, named, text};
use jiff::Timestamp;
use kube::ResourceExt;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use shared::annotation::keys;
use shared::fdb::api::{FoundationDBCluster, Health, MARKED_AS_EXCLUDED, ProcessGroup};
use shared::fdb::suspension::{Minimum, Stamp};
use shared::kinds::Kind;

use super::error::ViewError;
use super::protection::{self, Protection};

static CLAIM: Kind = Kind::namespaced("", &["v1"], "PersistentVolumeClaim", "persistentvolumeclaims");

/// What is shown of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DatabaseState {
    pub namespace: String,
    pub name: String,
    /// `yes`, `no` or `unknown`.
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
            .map_err(|source| ViewError::beside(format!("{namespace}/{}", name_of(object)), source))?;
        let protection = protection::of(hub, namespace, &cluster).await;
        Ok(Self::new(&cluster, &claims.items, &pods.items, protection))
    }

    /// What a cluster, its claims and its Pods say.
    pub fn new(cluster: &FoundationDBCluster, claims: &[Value], pods: &[Value], protection: Protection) -> Self {
        let (protected, unprotected_because) = match protection {
            Protection::Yes => ("yes", None),
            Protection::No(why) => ("no", Some(why)),
            Protection::Unknown(why) => ("unknown", Some(why)),
        };
        let minimum = cluster.annotations().get(keys::MINIMUM_SUSPENSION);
        let of_group = |group| {
            let claim = suspended_claim(cluster, claims, pods, group)?;
            Some(SuspendedGroup::new(group, claim, minimum.map(String::as_str)))
        };
        let suspended: Vec<SuspendedGroup> = cluster.groups().iter().filter_map(of_group).collect();
        let is_unlocked = |claim: &&Value| {
            Stamp::of(claim).key && !is_deleted(claim) && suspended.iter().all(|group| group.claim != name_of(claim))
        };
        Self {
            namespace: cluster.namespace().unwrap_or_default(),
            name: cluster.name_any(),
            protected,
            unprotected_because,
            minimum_suspension: minimum.cloned(),
            skipped: cluster.spec.skip == Some(true),
            recovering: recovering(cluster),
            health: cluster.status.as_ref().and_then(|status| status.health.clone()),
            unlocked: claims.iter().filter(is_unlocked).map(|claim| name_of(claim).to_owned()).collect(),
            excluded: excluded(cluster),
            suspended,
        }
    }
}

impl SuspendedGroup {
    fn new(group: &ProcessGroup, claim: &Value, minimum: Option<&str>) -> Self {
        let stamp = Stamp::of(claim);
        let capacity = text(claim, "/status/capacity/storage");
        let size = if capacity.is_empty() { text(claim, "/spec/resources/requests/storage") } else { capacity };
        Self {
            group: group.process_group_id.clone(),
            class: group.process_class.clone(),
            zone: group.fault_domain.clone(),
            since: stamp.since,
            expires: stamp.until(&Minimum::of(minimum, Duration::ZERO)),
            released: stamp.key || stamp.is_released_for(group.removal_timestamp.as_deref()),
            why: stamp.record.map(|record| record.why).filter(|why| !why.is_empty()),
            claim: name_of(claim).to_owned(),
            size: size.to_owned(),
        }
    }
}

/// The claim of a group that is suspended: marked, with a volume that stays, and without a Pod that runs.
fn suspended_claim<'a>(
    cluster: &FoundationDBCluster,
    claims: &'a [Value],
    pods: &[Value],
    group: &ProcessGroup,
) -> Option<&'a Value> {
    let pod = cluster.pod_name(group).filter(|_| group.is_marked() && group.is_stateful())?;
    let key = *cluster.group_labels().first()?;
    let has = |claim: &Value, key: &str, value: &str| {
        claim.pointer("/metadata/labels").and_then(|labels| labels.get(key)?.as_str()) == Some(value)
    };
    let is_of_group = |claim: &&Value| {
        let mut labels = cluster.match_labels().into_iter();
        has(claim, key, &group.process_group_id) && labels.all(|(key, value)| has(claim, &key, &value))
    };
    // The one named after the Pod if there are several.
    let is_of_pod = |claim: &&Value| name_of(claim).strip_prefix(&pod) == Some("-data");
    let mut of_group = claims.iter().filter(is_of_group);
    let claim = of_group.clone().find(is_of_pod).or_else(|| of_group.next())?;
    let runs = named(pods, &pod).is_some_and(|pod| !is_deleted(pod));
    (!runs && !is_deleted(claim)).then_some(claim)
}

fn is_deleted(object: &Value) -> bool {
    !text(object, "/metadata/deletionTimestamp").is_empty()
}

/// Groups that stay and are excluded, by the operator's status: a removal excludes for itself.
fn excluded(cluster: &FoundationDBCluster) -> Vec<String> {
    let spec = &cluster.spec;
    let listed = [&spec.process_groups_to_remove, &spec.process_groups_to_remove_without_exclusion];
    let is_left = |group: &&ProcessGroup| {
        let is_listed = listed.iter().any(|ids| ids.contains(&group.process_group_id));
        group.condition(MARKED_AS_EXCLUDED).is_some() && !group.is_marked() && !is_listed
    };
    cluster.groups().iter().filter(is_left).map(|group| group.process_group_id.clone()).collect()
}

/// The groups of the record that the plugin keeps of a recovery.
fn recovering(cluster: &FoundationDBCluster) -> Vec<String> {
    let record = cluster.annotations().get(keys::RECOVERY).and_then(|record| serde_json::from_str(record).ok());
    let record: Value = record.unwrap_or_default();
    items(&record, "/groups").map(|group| text(group, "/group").to_owned()).collect()
}
