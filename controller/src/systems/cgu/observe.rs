//! What is known of governance on the hub, and which upgrades a change concerns.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::runtime::reflector::Store;
use kube::{Resource, ResourceExt};
use parking_lot::Mutex;
use shared::cgu::api::{ClusterGroupUpgrade, Reference};
use shared::cgu::conditions::{PROGRESSING, SUCCEEDED, VALIDATED};
use shared::cgu::objects::{Names, UPGRADE, UPGRADE_NAMESPACE};
use shared::cgu::policy::{AMBIGUOUS, Child, Policy};
use shared::cgu::precache::spec::PreCachingConfigSpec;
use shared::cgu::select::ManagedCluster;
use shared::cgu::view::{View, Views};
use shared::cgu::wire::{Condition, ManagedClusterObject, PlacementObject, ViewObject};
use shared::cgu::ztp::NAMESPACE;
use tokio::sync::Notify;

use crate::runtime::hub::{key_of, version};
use crate::runtime::{Follower, Guarded, Handle, Key};

/// Kinds that have to be listed before anything is decided.
const KINDS: usize = 8;

/// A Placement of an upgrade.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    /// Its upgrade.
    pub(super) upgrade: Key,
    /// Clusters that it selects.
    pub(super) clusters: Vec<String>,
    /// Why it selects nothing.
    pub(super) unsatisfied: Option<String>,
    pub(super) version: Option<u64>,
}

impl PartialEq for Placed {
    /// The version does not count: a newer one with the same selection is not news.
    fn eq(&self, other: &Self) -> bool {
        (&self.upgrade, &self.clusters, &self.unsatisfied) == (&other.upgrade, &other.clusters, &other.unsatisfied)
    }
}

impl Placed {
    /// Whether a newer one is known.
    pub(super) fn is_older(&self, known: Option<&Self>) -> bool {
        known.is_some_and(|known| known.version > self.version)
    }

    /// `None` for a Placement that is no upgrade's.
    pub(super) fn read(object: &PlacementObject) -> Option<Self> {
        let label = |key: &str| object.labels().get(key).cloned();
        let is_void = |one: &Condition| {
            one.type_ == "PlacementSatisfied" && one.status == "False" && one.reason == "NoManagedClusterSetBindings"
        };
        Some(Self {
            upgrade: (label(UPGRADE_NAMESPACE)?, label(UPGRADE)?),
            clusters: object.spec.clone().into_clusters(),
            unsatisfied: object.status.find(is_void).map(|one| one.message.clone()),
            version: version(object),
        })
    }
}

/// What is known at one moment. Each part is copied only when it changes while a reconcile holds it.
#[derive(Clone, Default)]
pub(super) struct Snapshot {
    /// Clusters by name.
    pub(super) clusters: Arc<BTreeMap<String, ManagedCluster>>,
    /// Root policies.
    pub(super) roots: Arc<BTreeMap<Reference, Arc<Policy>>>,
    /// Child policies by cluster and root.
    pub(super) children: Arc<BTreeMap<String, BTreeMap<Reference, Child>>>,
    /// Placements of upgrades, by namespace and name.
    pub(super) placements: Arc<BTreeMap<Key, Placed>>,
    /// Views of upgrades, by cluster and name.
    pub(super) views: Arc<Views>,
    /// Settings of pulls.
    pub(super) configs: Arc<BTreeMap<Key, PreCachingConfigSpec>>,
    /// The same in `ConfigMaps`.
    pub(super) overrides: Arc<BTreeMap<Key, BTreeMap<String, String>>>,
    /// UIDs of `ImageBasedGroupUpgrades`.
    pub(super) image_based: Arc<BTreeMap<Key, String>>,
    /// The hub does not serve views.
    pub(super) has_no_views: bool,
    /// The definition of upgrades has no `status.placements`.
    pub(super) is_old: bool,
}

impl Snapshot {
    /// Why a Placement of this upgrade selects nothing, in TALM's words.
    pub(super) fn unplaced(&self, upgrade: &ClusterGroupUpgrade) -> Option<String> {
        let own = key_of(upgrade);
        let mut void = self.placements.iter().filter(|(_, placed)| placed.upgrade == own);
        void.find_map(|((namespace, name), placed)| {
            let why = placed.unsatisfied.as_ref()?;
            Some(format!(
                "Placement {name:?} in namespace {namespace:?} cannot select clusters: {why}. Create a \
                 ManagedClusterSetBinding for the \"default\" ManagedClusterSet in the policy namespace."
            ))
        })
    }

    /// The clusters that a Placement selects; `None` if it does not exist.
    pub(super) fn selected(&self, names: &Names) -> Option<&[String]> {
        let placed = self.placements.get(&(names.namespace.clone(), names.actual.clone()))?;
        Some(&placed.clusters)
    }
}

/// What is known, and what has changed.
#[derive(Default)]
pub struct Governed {
    pub(super) known: Mutex<Known>,
    /// Upgrades that have changed: those that they block are reconciled.
    pub(super) changed: Mutex<BTreeSet<Key>>,
    pub(super) changes: Notify,
    /// A cluster may have no first upgrade.
    pub(super) joined: Notify,
}

#[derive(Default)]
pub(super) struct Known {
    pub(super) snapshot: Snapshot,
    /// Kinds whose first list is complete.
    pub(super) listed: BTreeSet<&'static str>,
}

/// Upgrades that a change concerns.
pub(super) enum Concern {
    /// Upgrades that list a policy of this name.
    Policy(String),
    /// Upgrades that have not started.
    Cluster,
    /// One upgrade.
    Upgrade(Key),
    /// Upgrades with this cluster in their current batch, or that pull images on it.
    Batch(String),
    /// Upgrades that pull images and have not started.
    Pull,
}

impl Governed {
    /// What is known; `None` until every kind is listed.
    pub(super) fn snapshot(&self) -> Option<Snapshot> {
        let known = self.known.lock();
        (known.listed.len() == KINDS).then(|| known.snapshot.clone())
    }

    /// Keeps what a write has returned: no decision is made on an older Placement.
    pub(super) fn placed(&self, object: &Guarded<PlacementObject>) {
        if let Some(placed) = object.0.as_ref().ok().and_then(Placed::read) {
            let (key, placements) = (key_of(object), &mut self.known.lock().snapshot.placements);
            if !placed.is_older(placements.get(&key)) {
                replace(placements, key, Some(placed));
            }
        }
    }

    /// A view was deleted.
    pub(super) fn forgot(&self, key: &Key) {
        replace(&mut self.known.lock().snapshot.views, key.clone(), None);
    }

    /// Keeps a view that a write has returned.
    pub(super) fn viewed(&self, object: &Guarded<ViewObject>) {
        replace(&mut self.known.lock().snapshot.views, key_of(object), of(View::read)(object));
    }
}

pub(super) fn concerned(handle: &Handle<ClusterGroupUpgrade>, concern: &Concern) {
    match concern {
        Concern::Upgrade(key) => handle.trigger(key.clone()),
        Concern::Batch(cluster) => trigger(handle, |upgrade| {
            upgrade.status.as_ref().is_some_and(|status| {
                status.status.current_batch_remediation_progress.contains_key(cluster)
                    || status.precaching.as_ref().is_some_and(|known| known.status.contains_key(cluster))
            })
        }),
        Concern::Pull => trigger(handle, |upgrade| upgrade.spec.pre_caching && !has_started(upgrade)),
        Concern::Policy(name) => trigger(handle, |upgrade| {
            // Any policy may be ambiguous, also one that the upgrade does not list.
            let validated = upgrade.status.as_ref().and_then(|status| status.condition(VALIDATED));
            let is_ambiguous = validated.is_some_and(|found| found.reason == AMBIGUOUS);
            is_ambiguous || upgrade.spec.managed_policies.contains(name)
        }),
        Concern::Cluster => trigger(handle, |upgrade| !has_started(upgrade)),
    }
}

pub(super) fn has_started(upgrade: &ClusterGroupUpgrade) -> bool {
    let condition = |type_| upgrade.status.as_ref().and_then(|status| status.condition(type_));
    condition(SUCCEEDED).is_some() || condition(PROGRESSING).is_some_and(|found| found.status == "True")
}

/// Triggers the upgrades that are not over for good.
pub(super) fn trigger(handle: &Handle<ClusterGroupUpgrade>, concerns: impl Fn(&ClusterGroupUpgrade) -> bool) {
    for object in handle.objects() {
        let Ok(upgrade) = &object.0 else { continue };
        let has_succeeded = upgrade
            .status
            .as_ref()
            .and_then(|status| status.condition(SUCCEEDED).filter(|_| status.status.completed_at.is_some()))
            .is_some_and(|end| end.status == "True");
        if !has_succeeded && concerns(upgrade) {
            handle.trigger(key_of(upgrade));
        }
    }
}

impl Follower<ClusterGroupUpgrade> for Governed {
    /// One of namespace `ztp-install` may be gone.
    fn listed(&self, _: &Store<Guarded<ClusterGroupUpgrade>>) {
        self.joined.notify_one();
    }

    fn changed(&self, key: &Key) {
        self.changed.lock().insert(key.clone());
        self.changes.notify_one();
        if key.0 == NAMESPACE {
            self.joined.notify_one();
        }
    }
}

/// What is kept of a cluster.
pub(super) fn cluster(object: &ManagedClusterObject) -> ManagedCluster {
    let is_available = |one: &Condition| one.type_ == "ManagedClusterConditionAvailable" && one.status == "True";
    ManagedCluster {
        labels: object.labels().clone(),
        uid: object.uid().unwrap_or_default(),
        is_available: object.status.find(is_available).is_some() && object.metadata.deletion_timestamp.is_none(),
    }
}

/// An entry of an object. One that cannot be read is as one with nothing but its name.
pub(super) fn of<K: Resource + Default, E>(entry: impl Fn(&K) -> E) -> impl Fn(&Guarded<K>) -> E {
    move |object| match &object.0 {
        Ok(object) => entry(object),
        Err(unreadable) => {
            let mut empty = K::default();
            *empty.meta_mut() = unreadable.metadata.clone();
            entry(&empty)
        }
    }
}

/// Sets or removes an entry. If that changes it: its key, and what was there before.
pub(super) fn replace<K: Clone + Ord, E: Clone + PartialEq>(
    all: &mut Arc<BTreeMap<K, E>>,
    key: K,
    entry: Option<E>,
) -> Option<(K, Option<E>)> {
    if all.get(&key) == entry.as_ref() {
        return None;
    }
    let all = Arc::make_mut(all);
    let before = match entry {
        Some(entry) => all.insert(key.clone(), entry),
        None => all.remove(&key),
    };
    Some((key, before))
}
