//! The index of governance: each object that upgrades read becomes one small entry, and a change triggers the upgrades
//! that it affects.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Api, Resource, ResourceExt};
use parking_lot::Mutex;
use shared::cgu::api::{ClusterGroupUpgrade, ClusterGroupUpgradeStatus, Reference};
use shared::cgu::conditions::{PROGRESSING, SUCCEEDED, VALIDATED};
use shared::cgu::decide::is_final;
use shared::cgu::governance::{Governance, Index, Placement};
use shared::cgu::policy::{AMBIGUOUS, Child, Policy, ROOT_POLICY};
use shared::cgu::precache::spec::{OVERRIDE_KEYS, OVERRIDES, PreCachingConfigSpec};
use shared::cgu::select::ManagedCluster;
use shared::cgu::view::View;
use shared::cgu::wire::{
    Definition, ImageBasedGroupUpgrade, ManagedClusterObject, PlacementObject, PolicyObject, PreCachingConfigObject,
    UPGRADE, ViewObject,
};
use shared::cgu::ztp::NAMESPACE;
use shared::text::sanitize_chain;
use tokio::sync::Notify;
use tracing::warn;

use crate::runtime::hub::key_of;
use crate::runtime::index::{self, Change};
use crate::runtime::watch_backoff::WatchBackoff;
use crate::runtime::{Follower, Guarded, Handle, Key, Object, clock};
use crate::spoke::reader::is_not_there;

/// Policies of one page of the first list: some kilobytes each, and 100 for a root over a large fleet.
const PAGE_SIZE: u32 = 100;
/// Longest value of an override, in bytes.
const MAX_OVERRIDE: usize = 64 << 10;
/// All of them have to be listed before anything is decided.
const SOURCES: usize = 9;

/// Governance in one term of leadership.
#[derive(Default)]
pub struct GovernanceIndex {
    state: Mutex<State>,
    /// Upgrades that have changed: those that wait for them are reconciled.
    changed: Mutex<BTreeSet<Key>>,
    changes: Notify,
    /// A cluster may need its first upgrade.
    pub(super) new_clusters: Notify,
}

#[derive(Default)]
struct State {
    governance: Governance,
    /// Sources whose first list is complete, and whether the hub serves their kind.
    listed: BTreeMap<&'static str, bool>,
}

/// A kind that upgrades read. Each object becomes one entry of an index of [`Governance`].
pub(super) struct Source<K, I, E> {
    pub(super) name: &'static str,
    pub(super) entry: fn(&Guarded<K>) -> Option<E>,
    key: fn(Key) -> Option<I>,
    index: fn(&mut Governance) -> &mut Index<I, E>,
    /// The upgrades that a change affects, by the entry before and after it.
    affected: fn(&I, Option<&E>, Option<&E>) -> Vec<Affected>,
    /// Whether an entry is older than the one that is known.
    is_stale: fn(&E, &E) -> bool,
}

/// The upgrades that a change affects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Affected {
    /// Clusters that may need their first upgrade.
    NewClusters,
    All,
    /// Upgrades that list a policy of this name.
    Policy(String),
    NotStarted,
    Upgrade(Reference),
    /// Upgrades with this cluster in their current batch, or that pull images on it.
    Batch(String),
    /// Upgrades that pull images and have not started.
    Pull,
}

pub(super) const CLUSTERS: Source<ManagedClusterObject, String, ManagedCluster> = Source::new(
    "ManagedCluster",
    |object| Some(ManagedCluster::read(&content(object))),
    |(_, name)| Some(name),
    |known| &mut known.clusters,
    |name, old, new| {
        let mut affected = vec![Affected::NewClusters];
        if old.map(|one| &one.labels) != new.map(|one| &one.labels) {
            affected.push(Affected::NotStarted);
        }
        if old.map(|one| one.is_available) != new.map(|one| one.is_available) {
            affected.push(Affected::Batch(name.clone()));
        }
        affected
    },
);
pub(super) const ROOTS: Source<PolicyObject, Reference, Arc<Policy>> = Source::new(
    "Policy",
    |object| (!object.labels().contains_key(ROOT_POLICY)).then(|| Arc::new(Policy::read(&content(object)))),
    |(namespace, name)| Some(Reference { name, namespace }),
    |known| &mut known.roots,
    |root, _, _| vec![Affected::Policy(root.name.clone())],
);
pub(super) const CHILDREN: Source<PolicyObject, (String, Reference), Child> = Source::new(
    "child Policy",
    |object| Child::read(&content(object)),
    |(cluster, name)| Some((cluster, Child::root(&name)?)),
    |known| &mut known.children,
    |(_, root), _, _| vec![Affected::Policy(root.name.clone())],
);
pub(super) const PLACEMENTS: Source<PlacementObject, Key, Placement> = Source {
    // The answer to our write is newer than what the watch still brings.
    is_stale: |new, known| known.version > new.version,
    ..Source::new(
        "Placement",
        |object| Placement::read(&content(object)),
        Some,
        |known| &mut known.placements,
        |_, old, new| new.or(old).map(|one| Affected::Upgrade(one.upgrade.clone())).into_iter().collect(),
    )
};
pub(super) const VIEWS: Source<ViewObject, Key, View> = Source::new(
    "ManagedClusterView",
    |object| View::read(&content(object)),
    Some,
    |known| &mut known.views,
    |(cluster, _), _, _| vec![Affected::Batch(cluster.clone())],
);
/// One that cannot be read counts as missing.
pub(super) const CONFIGS: Source<PreCachingConfigObject, Key, PreCachingConfigSpec> = Source::new(
    "PreCachingConfig",
    |object| object.0.as_ref().ok().map(|one| one.spec.clone()),
    Some,
    |known| &mut known.configs,
    |_, _, _| vec![Affected::Pull],
);
pub(super) const OVERRIDE_MAPS: Source<ConfigMap, Key, BTreeMap<String, String>> = Source::new(
    "ConfigMap",
    |object| {
        let mut data = object.0.as_ref().ok()?.data.clone().unwrap_or_default();
        data.retain(|key, text| OVERRIDE_KEYS.contains(&key.as_str()) && text.len() <= MAX_OVERRIDE);
        Some(data)
    },
    Some,
    |known| &mut known.overrides,
    |_, _, _| vec![Affected::Pull],
);
pub(super) const IMAGE_BASED: Source<ImageBasedGroupUpgrade, Key, String> = Source::new(
    "ImageBasedGroupUpgrade",
    |object| object.meta().uid.clone(),
    Some,
    |known| &mut known.image_based,
    |_, _, _| vec![Affected::NewClusters],
);
pub(super) const DEFINITION: Source<Definition, String, bool> = Source::new(
    "CustomResourceDefinition",
    |object| Some(content(object).spec.has_placements),
    |(_, name)| Some(name),
    |known| &mut known.definitions,
    |_, _, _| vec![Affected::NewClusters, Affected::All],
);

impl<K, I: Clone + Ord, E: Clone + PartialEq> Source<K, I, E> {
    const fn new(
        name: &'static str,
        entry: fn(&Guarded<K>) -> Option<E>,
        key: fn(Key) -> Option<I>,
        index: fn(&mut Governance) -> &mut Index<I, E>,
        affected: fn(&I, Option<&E>, Option<&E>) -> Vec<Affected>,
    ) -> Self {
        Self { name, entry, key, index, affected, is_stale: |_, _| false }
    }

    /// Sets or removes an entry, and returns what that affects.
    fn set(&self, governance: &mut Governance, key: Key, entry: Option<E>) -> Vec<Affected> {
        let Some(key) = (self.key)(key) else { return Vec::new() };
        let index = (self.index)(governance);
        if entry.as_ref().zip(index.get(&key)).is_some_and(|(new, known)| (self.is_stale)(new, known)) {
            return Vec::new();
        }
        let Some(old) = index.set(key.clone(), entry) else { return Vec::new() };
        (self.affected)(&key, old.as_ref(), index.get(&key))
    }
}

/// An object. One that cannot be read has nothing but its metadata.
fn content<K: Resource + Clone + Default>(object: &Guarded<K>) -> Cow<'_, K> {
    match &object.0 {
        Ok(object) => Cow::Borrowed(object),
        Err(unreadable) => {
            let mut empty = K::default();
            *empty.meta_mut() = unreadable.metadata.clone();
            Cow::Owned(empty)
        }
    }
}

impl GovernanceIndex {
    /// `None` until everything is listed.
    pub(super) fn snapshot(&self) -> Option<Governance> {
        let state = self.state.lock();
        let has_no_views = state.listed.get(VIEWS.name) == Some(&false);
        (state.listed.len() == SOURCES).then(|| Governance { has_no_views, ..state.governance.clone() })
    }

    /// Keeps the answer to a write, or that an object is deleted: the next decision may come before the watch.
    pub(super) fn record<K, I: Clone + Ord, E: Clone + PartialEq>(
        &self,
        source: &Source<K, I, E>,
        key: Key,
        object: Option<&Guarded<K>>,
    ) {
        source.set(&mut self.state.lock().governance, key, object.and_then(source.entry));
    }

    /// Watches everything until it is dropped.
    pub(super) async fn follow(&self, handle: &Handle<ClusterGroupUpgrade>) {
        let all = || watcher::Config::default().page_size(PAGE_SIZE);
        let of_upgrades = || all().labels(UPGRADE);
        let by_name = |name: &str| all().fields(&format!("metadata.name={name}"));
        tokio::join!(
            self.watch(handle, &CLUSTERS, all()),
            self.watch(handle, &ROOTS, all().labels(&format!("!{ROOT_POLICY}"))),
            self.watch(handle, &CHILDREN, all().labels(ROOT_POLICY)),
            self.watch(handle, &PLACEMENTS, of_upgrades()),
            self.watch(handle, &VIEWS, of_upgrades()),
            self.watch(handle, &CONFIGS, all()),
            self.watch(handle, &OVERRIDE_MAPS, by_name(OVERRIDES)),
            self.watch(handle, &DEFINITION, by_name("clustergroupupgrades.ran.openshift.io")),
            self.watch(handle, &IMAGE_BASED, all()),
            self.trigger_blocked(handle),
        );
    }

    async fn watch<K: Object, I: Clone + Ord, E: Clone + PartialEq>(
        &self,
        handle: &Handle<ClusterGroupUpgrade>,
        source: &Source<K, I, E>,
        config: watcher::Config,
    ) {
        let api: Api<Guarded<K>> = Api::all(handle.hub.watches.clone());
        let change = |change| self.apply(handle, source, change);
        let backoff = WatchBackoff::of_optional_kind();
        index::follow((api, &handle.hub.memory), config, backoff, source.entry, change).await;
    }

    /// Takes over what a watch brings, and triggers the upgrades that it affects.
    pub(super) fn apply<K, I: Clone + Ord, E: Clone + PartialEq>(
        &self,
        handle: &Handle<ClusterGroupUpgrade>,
        source: &Source<K, I, E>,
        change: Change<Option<E>>,
    ) {
        let mut state = self.state.lock();
        let completes_list = state.completes_list(source.name, &change);
        // Whatever happened between two lists is unknown: everything is decided again.
        let mut affected = if completes_list { vec![Affected::NewClusters, Affected::All] } else { Vec::new() };
        let governance = &mut state.governance;
        match change {
            Change::Listed(all) => {
                *(source.index)(governance) = Index::default();
                for (key, entry) in all {
                    source.set(governance, key, entry);
                }
            }
            Change::Set(key, entry) => affected.extend(source.set(governance, key, entry)),
            Change::Gone(key) => affected.extend(source.set(governance, key, None)),
            Change::Failed(_) => {}
        }
        drop(state);
        for one in affected {
            self.trigger_affected(handle, one);
        }
    }

    fn trigger_affected(&self, handle: &Handle<ClusterGroupUpgrade>, affected: Affected) {
        match affected {
            Affected::NewClusters => self.new_clusters.notify_one(),
            Affected::All => trigger(handle, |_| true),
            Affected::Upgrade(Reference { name, namespace }) => handle.trigger((namespace, name)),
            Affected::Batch(cluster) => trigger(handle, |upgrade| {
                upgrade.status.as_ref().is_some_and(|status| {
                    status.status.current_batch_remediation_progress.contains_key(&cluster)
                        || status.precaching.as_ref().is_some_and(|known| known.status.contains_key(&cluster))
                })
            }),
            Affected::Pull => trigger(handle, |upgrade| upgrade.spec.pre_caching && !has_started(upgrade)),
            Affected::Policy(name) => trigger(handle, |upgrade| {
                // Any policy may be ambiguous, also one that the upgrade does not list.
                let validated = upgrade.status.as_ref().and_then(|status| status.condition(VALIDATED));
                let is_ambiguous = validated.is_some_and(|found| found.reason == AMBIGUOUS);
                is_ambiguous || upgrade.spec.managed_policies.contains(&name)
            }),
            Affected::NotStarted => trigger(handle, |upgrade| !has_started(upgrade)),
        }
    }

    /// Triggers the upgrades that wait for one that has changed.
    async fn trigger_blocked(&self, handle: &Handle<ClusterGroupUpgrade>) {
        loop {
            self.changes.notified().await;
            let changed = std::mem::take(&mut *self.changed.lock());
            let has_changed =
                |blocker: &Reference| changed.contains(&(blocker.namespace.clone(), blocker.name.clone()));
            trigger(handle, |upgrade| upgrade.spec.blocking_crs.iter().any(has_changed));
        }
    }
}

impl State {
    /// Whether a change completes a list. A kind that the hub does not serve counts as an empty list: an upgrade that needs
    /// one says so, and can be deleted. So does one that only an Event is about, whatever the error.
    fn completes_list<E>(&mut self, source: &'static str, change: &Change<E>) -> bool {
        match change {
            Change::Listed(_) => {
                self.listed.insert(source, true);
                true
            }
            Change::Failed(watcher::Error::InitialListFailed(error))
                if source == IMAGE_BASED.name || is_not_there(error) =>
            {
                self.listed.insert(source, false).is_none()
            }
            Change::Failed(watcher::Error::InitialListFailed(error)) if !self.listed.contains_key(source) => {
                let error = sanitize_chain(error);
                warn!(error, kind = source, "cannot list what upgrades need: none of them is reconciled");
                false
            }
            _ => false,
        }
    }
}

impl Follower<ClusterGroupUpgrade> for GovernanceIndex {
    /// A first upgrade may have been deleted meanwhile.
    fn listed(&self, _: &Store<Guarded<ClusterGroupUpgrade>>) {
        self.new_clusters.notify_one();
    }

    fn changed(&self, key: &Key) {
        self.changed.lock().insert(key.clone());
        self.changes.notify_one();
        if key.0 == NAMESPACE {
            self.new_clusters.notify_one();
        }
    }
}

/// Triggers upgrades, but for those that are final.
pub(super) fn trigger(handle: &Handle<ClusterGroupUpgrade>, is_affected: impl Fn(&ClusterGroupUpgrade) -> bool) {
    let now = clock::now();
    for object in handle.objects() {
        let Ok(upgrade) = &object.0 else { continue };
        if !is_final(upgrade, now) && is_affected(upgrade) {
            handle.trigger(key_of(upgrade));
        }
    }
}

/// Whether an upgrade is under way or has ended.
pub(super) fn has_started(upgrade: &ClusterGroupUpgrade) -> bool {
    let has_started =
        |status: &ClusterGroupUpgradeStatus| status.condition(SUCCEEDED).is_some() || status.is(PROGRESSING, "True");
    upgrade.status.as_ref().is_some_and(has_started)
}

#[cfg(test)]
mod tests;
