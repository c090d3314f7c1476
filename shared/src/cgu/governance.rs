//! Governance on the hub: one small entry for each object that upgrades read.

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
    /// Sets or removes an entry. Returns the entry before, if that is a change.
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

/// All entries, at one moment.
#[derive(Clone, Debug, Default)]
pub struct Governance {
    pub clusters: Index<String, ManagedCluster>,
    pub roots: Index<Reference, Arc<Policy>>,
    /// Child policies by cluster and root.
    pub children: Index<(String, Reference), Child>,
    /// Placements that belong to upgrades.
    pub placements: Index<Key, Placement>,
    /// Views that belong to upgrades, by cluster and name.
    pub views: Index<Key, View>,
    pub configs: Index<Key, PreCachingConfigSpec>,
    /// Data of the `ConfigMaps` of overrides.
    pub overrides: Index<Key, BTreeMap<String, String>>,
    /// UIDs of `ImageBasedGroupUpgrades`.
    pub image_based: Index<Key, String>,
    /// Whether the definition of upgrades, by its name, has `status.placements`.
    pub definitions: Index<String, bool>,
    /// The hub does not serve views.
    pub has_no_views: bool,
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

    /// Child policies of a cluster.
    pub fn children_of(&self, cluster: &str) -> impl Iterator<Item = &Child> {
        let all = self.children.range((cluster.to_owned(), Reference::default())..);
        all.take_while(move |((of, _), _)| of == cluster).map(|(_, child)| child)
    }

    /// Whether a TALM before 5.0 has defined upgrades: the hub would drop `status.placements`.
    pub fn is_old(&self) -> bool {
        self.definitions.values().any(|has_placements| !has_placements)
    }

    /// The clusters that a Placement selects; `None` if it does not exist.
    pub fn selected(&self, names: &Names) -> Option<&[String]> {
        let placement = self.placements.get(&(names.namespace.clone(), names.actual.clone()))?;
        Some(&placement.clusters)
    }
}

/// The entry of a Placement that belongs to an upgrade.
#[derive(Clone, Debug)]
pub struct Placement {
    pub upgrade: Reference,
    /// The clusters that it selects.
    pub clusters: Vec<String>,
    /// Why it selects nothing.
    pub unsatisfied: Option<String>,
    /// Its resourceVersion, as etcd counts.
    pub version: Option<u64>,
}

impl PartialEq for Placement {
    /// Without the version: a newer one with the same selection is no change.
    fn eq(&self, other: &Self) -> bool {
        (&self.upgrade, &self.clusters, &self.unsatisfied) == (&other.upgrade, &other.clusters, &other.unsatisfied)
    }
}

impl Placement {
    /// `None` if it does not belong to an upgrade.
    pub fn read(object: &PlacementObject) -> Option<Self> {
        let label = |key: &str| object.labels().get(key).cloned();
        let is_void = |one: &&Condition| {
            one.type_ == "PlacementSatisfied" && one.status == "False" && one.reason == "NoManagedClusterSetBindings"
        };
        Some(Self {
            upgrade: Reference { name: label(UPGRADE)?, namespace: label(UPGRADE_NAMESPACE)? },
            clusters: object.spec.clone().into_clusters(),
            unsatisfied: object.status.conditions.iter().flatten().find(is_void).map(|one| one.message.clone()),
            version: object.resource_version().and_then(|version| version.parse().ok()),
        })
    }
}
