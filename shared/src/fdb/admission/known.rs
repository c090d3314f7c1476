//! What the webhook caches of each `FoundationDBCluster`. An entry is small, even with thousands of process groups.

use std::collections::HashMap;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt;

use super::object::Deleted;
use crate::annotation::keys;
use crate::fdb::api::{FoundationDBCluster, is_stateful};
use crate::fdb::suspension::Minimum;
use crate::text::sanitize_to;

/// Longest name of a label, and longest value.
const MAX_LABEL_NAME: usize = 253 + 1 + 63;
const MAX_LABEL: usize = 63;

/// State of the webhook's cache when a rule asks.
#[derive(Clone, Copy, Debug)]
pub enum CacheState<'a> {
    /// Every cluster, by uid, as of a moment ago. A cluster that is not in the map does not exist.
    Fresh(&'a HashMap<String, Cluster>),
    /// The cache proves nothing, for this reason.
    Stale(&'a str),
}

/// A cached cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Version of the object that this was read from.
    pub version: String,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Why nothing but its identity can be read, if that is so.
    pub unreadable: Option<Box<str>>,
    /// How long its removed process groups are kept.
    pub minimum: Minimum,
    /// Whether every Pod has its own Service.
    pub has_services: bool,
    group_labels: Vec<String>,
    class_labels: Vec<String>,
    /// ID and mark of each group of the status.
    removals: HashMap<Box<str>, Option<Box<str>>>,
}

impl Cluster {
    /// Caches a cluster. `default` applies if the cluster has no minimum suspension of its own.
    pub fn of(cluster: &FoundationDBCluster, default: Duration) -> Self {
        let annotation = cluster.annotations().get(keys::MINIMUM_SUSPENSION).map(String::as_str);
        // No object has a label with a longer name or value.
        let owned = |names: Vec<&str>| {
            names.into_iter().filter(|name| name.len() <= MAX_LABEL_NAME).map(str::to_owned).collect()
        };
        let mark = |text: &String| sanitize_to(text, MAX_LABEL).into_boxed_str();
        let removals = cluster.groups().iter().filter(|group| group.process_group_id.len() <= MAX_LABEL);
        Self {
            namespace: cluster.namespace().unwrap_or_default(),
            name: cluster.name_any(),
            version: cluster.resource_version().unwrap_or_default(),
            deleting: cluster.metadata.deletion_timestamp.is_some(),
            unreadable: None,
            minimum: Minimum::of(annotation, default),
            has_services: cluster.has_services(),
            group_labels: owned(cluster.group_labels()),
            class_labels: owned(cluster.class_labels()),
            removals: removals
                .map(|group| (group.process_group_id.as_str().into(), group.removal_timestamp.as_ref().map(mark)))
                .collect(),
        }
    }

    /// Caches a cluster of which only the identity can be read, and why.
    pub fn unreadable(identity: &ObjectMeta, why: &str) -> Self {
        let cluster = FoundationDBCluster { metadata: identity.clone(), ..FoundationDBCluster::default() };
        Self { unreadable: Some(why.into()), ..Self::of(&cluster, Duration::ZERO) }
    }

    /// Bytes that are kept of a cluster, at most.
    pub fn weight(cluster: &FoundationDBCluster) -> usize {
        let names = cluster.group_labels().len() + cluster.class_labels().len();
        size_of::<Self>() + names * 2 * MAX_LABEL_NAME + cluster.groups().len() * 4 * MAX_LABEL
    }

    /// ID of the process group that an object belongs to, by the cluster's own label names.
    pub fn group_of<'a>(&self, object: &'a Deleted) -> Option<&'a str> {
        object.label(&self.group_labels)
    }

    /// Whether the object's process class has a volume. One that does not say is taken for one that has.
    pub fn holds_class_of(&self, object: &Deleted) -> bool {
        object.label(&self.class_labels).is_none_or(is_stateful)
    }

    /// The mark of a group: `None` if the status does not know the group, `Some(None)` if it is not marked.
    pub fn removal_of(&self, group: &str) -> Option<Option<&str>> {
        self.removals.get(group).map(Option::as_deref)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_small_whatever_the_cluster_holds() {
        let long = "x".repeat(1 << 10);
        let text = serde_json::json!({
            "metadata": { "name": "prod", "namespace": "db", "uid": "u" },
            "spec": { "labels": { "processGroupIDLabels": [long, "id"] } },
            "status": { "processGroups": [
                { "processGroupID": "storage-1", "removalTimestamp": long }, { "processGroupID": long },
            ] },
        });
        let cluster: FoundationDBCluster = serde_json::from_value(text).unwrap();
        let known = Cluster::of(&cluster, Duration::ZERO);
        assert_eq!((known.group_labels.as_slice(), known.removals.len()), (["id".to_owned()].as_slice(), 1));
        assert_eq!(known.removal_of("storage-1").flatten().map(str::len), Some(MAX_LABEL));
        assert!(Cluster::weight(&cluster) < 4 << 10);
    }
}
