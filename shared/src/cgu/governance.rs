//! What is known of governance on the hub: an entry for each object that upgrades read.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use kube::ResourceExt;

use super::api::{ClusterGroupUpgrade, Reference};
use super::objects::Names;
use super::policy::{Child, Policy};
use super::precache::spec::PreCachingConfigSpec;
use super::select::ManagedCluster;
use super::view::View;
use super::wire::{Condition, PlacementObject, UPGRADE, UPGRADE_NAMESPACE};

/// Namespace and name of an object.
type Key = (String, String);

/// Entries by key. A copy shares them until one of the two changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Index<K, E>(Arc<BTreeMap<K, E>>);

impl<K, E> Default for Index<K, E> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K, E> Deref for Index<K, E> {
    type Target = BTreeMap<K, E>;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl<K: Clone + Ord, E: Clone> DerefMut for Index<K, E> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        Arc::make_mut(&mut self.0)
    }
}

impl<K: Clone + Ord, E: Clone + PartialEq> Index<K, E> {
    /// Sets or removes an entry. What was there before, if that changes it.
    pub fn set(&mut self, key: K, entry: Option<E>) -> Option<Option<E>> {
        if self.get(&key) == entry.as_ref() {
            return None;
        }
        Some(match entry {
            Some(entry) => self.insert(key, entry),
            None => self.remove(&key),
        })
    }
}

/// What is known at one moment.
#[derive(Clone, Debug, Default)]
pub struct Governance {
    /// Clusters by name.
    pub clusters: Index<String, ManagedCluster>,
    /// Root policies.
    pub roots: Index<Reference, Arc<Policy>>,
    /// Child policies by cluster and root.
    pub children: Index<String, BTreeMap<Reference, Child>>,
    /// Placements of upgrades.
    pub placements: Index<Key, Placement>,
    /// Views of upgrades, by cluster and name.
    pub views: Index<Key, View>,
    /// Settings of pulls: `PreCachingConfigs`.
    pub configs: Index<Key, PreCachingConfigSpec>,
    /// The same in `ConfigMaps` of overrides: their data.
    pub overrides: Index<Key, BTreeMap<String, String>>,
    /// UIDs of `ImageBasedGroupUpgrades`.
    pub image_based: Index<Key, String>,
    /// The hub does not serve views.
    pub has_no_views: bool,
    /// The definition of upgrades has no `status.placements`: it is of a TALM before 5.0.
    pub is_old: bool,
}

impl Governance {
    /// Why a Placement of this upgrade selects nothing, in TALM's words.
    pub fn unsatisfied_placement(&self, upgrade: &ClusterGroupUpgrade) -> Option<String> {
        let upgrade = Reference::to(upgrade);
        let mut own = self.placements.iter().filter(|(_, placement)| placement.upgrade == upgrade);
        own.find_map(|((namespace, name), placement)| {
            let why = placement.unsatisfied.as_ref()?;
            Some(format!(
                "Placement {name:?} in namespace {namespace:?} cannot select clusters: {why}. Create a \
                 ManagedClusterSetBinding for the \"default\" ManagedClusterSet in the policy namespace."
            ))
        })
    }

    /// The clusters that a Placement selects; `None` if it does not exist.
    pub fn selected(&self, names: &Names) -> Option<&[String]> {
        let placement = self.placements.get(&(names.namespace.clone(), names.actual.clone()))?;
        Some(&placement.clusters)
    }
}

/// What is kept of a Placement of an upgrade.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Its upgrade.
    pub upgrade: Reference,
    /// Clusters that it selects.
    pub clusters: Vec<String>,
    /// Why it selects nothing.
    pub unsatisfied: Option<String>,
    /// Its version: etcd's revision.
    pub version: Option<u64>,
}

impl PartialEq for Placement {
    /// The version does not count: a newer one with the same selection is not news.
    fn eq(&self, other: &Self) -> bool {
        (&self.upgrade, &self.clusters, &self.unsatisfied) == (&other.upgrade, &other.clusters, &other.unsatisfied)
    }
}

impl Placement {
    /// Reads a Placement; `None` for one that is no upgrade's.
    pub fn read(object: &PlacementObject) -> Option<Self> {
        let label = |key: &str| object.labels().get(key).cloned();
        let is_void = |one: &Condition| {
            one.type_ == "PlacementSatisfied" && one.status == "False" && one.reason == "NoManagedClusterSetBindings"
        };
        Some(Self {
            upgrade: Reference { name: label(UPGRADE)?, namespace: label(UPGRADE_NAMESPACE)? },
            clusters: object.spec.clone().into_clusters(),
            unsatisfied: object.status.find(is_void).map(|one| one.message.clone()),
            version: object.resource_version().and_then(|version| version.parse().ok()),
        })
    }
}
