//! What the webhook caches of each `FoundationDBCluster`. An entry is small, even with thousands of process groups.

use std::collections::HashMap;
use std::time::Duration;

use kube::ResourceExt;

use super::object::Deleted;
use crate::annotation::keys;
use crate::fdb::api::{FoundationDBCluster, is_stateful};
use crate::fdb::suspension::Minimum;

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
        let owned = |names: Vec<&str>| names.into_iter().map(str::to_owned).collect();
        let boxed = |text: &String| text.clone().into_boxed_str();
        let removals = cluster.groups().iter();
        Self {
            namespace: cluster.namespace().unwrap_or_default(),
            name: cluster.name_any(),
            version: cluster.resource_version().unwrap_or_default(),
            deleting: cluster.metadata.deletion_timestamp.is_some(),
            minimum: Minimum::of(annotation, default),
            has_services: cluster.has_services(),
            group_labels: owned(cluster.group_labels()),
            class_labels: owned(cluster.class_labels()),
            removals: removals
                .map(|group| (boxed(&group.process_group_id), group.removal_timestamp.as_ref().map(boxed)))
                .collect(),
        }
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
