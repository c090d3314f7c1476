//! The index of governance: each object that upgrades read becomes one small entry, and a change triggers the upgrades
//! that it affects.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Api, Resource, ResourceExt};
use parking_lot::Mutex;
use shared::cgu::api::{ClusterGroupUpgrade, ClusterGroupUpgradeStatus, Reference};
use shared::cgu::conditions::{PROGRESSING, SUCCEEDED, VALIDATED};
use shared::cgu::governance::{Governance, Index, Placement};
use shared::cgu::policy::{AMBIGUOUS, Child, Policy, ROOT_POLICY};
use shared::cgu::precache::spec::{OVERRIDDEN, OVERRIDES, PreCachingConfigSpec};
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
use crate::runtime::{Follower, Guarded, Handle, Key, Object};
use crate::spoke::reader::is_not_there;

/// Policies of one page of the first list: some kilobytes each, and 100 for a root over a large fleet.
const PAGE_SIZE: u32 = 100;
/// Longest text of an override, in bytes.
const MAX_TEXT: usize = 64 << 10;
/// Kinds that have to be listed before anything is decided.
const KINDS: usize = 8;
/// Kinds that only some upgrades need.
const OPTIONAL: [&str; 3] = ["PreCachingConfig", "ConfigMap", "ManagedClusterView"];

/// What is known of governance in one term of leadership.
#[derive(Default)]
pub struct GovernanceIndex {
    state: Mutex<State>,
    /// Upgrades that have changed: those that they block are reconciled.
    changed: Mutex<BTreeSet<Key>>,
    changes: Notify,
    /// A cluster may have no first upgrade.
    pub(super) joined: Notify,
}

#[derive(Default)]
struct State {
    governance: Governance,
    /// Kinds whose first list is complete.
    listed: BTreeSet<String>,
}

/// A kind of object, and what is kept of it.
pub(super) struct Source<K, E> {
    /// What is kept of an object.
    pub(super) entry: fn(&Guarded<K>) -> Option<E>,
    /// Drops every entry: a list begins.
    clear: fn(&mut Governance),
    /// Sets or removes an entry. Whom that affects.
    set: fn(&mut Governance, Key, Option<E>) -> Vec<Affected>,
}

/// Upgrades that a change affects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Affected {
    /// Clusters that have no first upgrade yet.
    Joined,
    /// All upgrades.
    All,
    /// Upgrades that list a policy of this name.
    Policy(String),
    /// Upgrades that have not started.
    Waiting,
    /// One upgrade.
    Upgrade(Reference),
    /// Upgrades with this cluster in their current batch, or that pull images on it.
    Batch(String),
    /// Upgrades that pull images and have not started.
    Pull,
}

pub(super) const CLUSTERS: Source<ManagedClusterObject, ManagedCluster> = Source {
    entry: |object| Some(ManagedCluster::read(&content(object))),
    clear: |known| known.clusters = Index::default(),
    set: |known, (_, name), cluster| {
        // A heartbeat changes nothing.
        let Some(old) = known.clusters.set(name.clone(), cluster) else { return Vec::new() };
        let new = known.clusters.get(&name);
        let waiting = (old.as_ref().map(|one| &one.labels) != new.map(|one| &one.labels)).then_some(Affected::Waiting);
        let is_batch = old.map(|one| one.is_available) != new.map(|one| one.is_available);
        let batch = is_batch.then_some(Affected::Batch(name));
        [Some(Affected::Joined), waiting, batch].into_iter().flatten().collect()
    },
};

pub(super) const POLICIES: Source<PolicyObject, PolicyEntry> = Source {
    entry: |object| PolicyEntry::read(&content(object)),
    clear: |known| (known.roots, known.children) = Default::default(),
    set: set_policy,
};

pub(super) const PLACEMENTS: Source<PlacementObject, Placement> = Source {
    entry: |object| Placement::read(&content(object)),
    clear: |known| known.placements = Index::default(),
    set: |known, key, new| {
        let old = known.placements.get(&key);
        // What we have written is newer than what the watch brings.
        if new.as_ref().zip(old).is_some_and(|(new, old)| old.version > new.version) {
            return Vec::new();
        }
        let upgrade = new.as_ref().or(old).map(|one| Affected::Upgrade(one.upgrade.clone()));
        known.placements.set(key, new).and(upgrade).into_iter().collect()
    },
};

pub(super) const VIEWS: Source<ViewObject, View> = Source {
    entry: |object| View::read(&content(object)),
    clear: |known| known.views = Index::default(),
    set: |known, key, view| {
        let cluster = key.0.clone();
        known.views.set(key, view).map(|_| Affected::Batch(cluster)).into_iter().collect()
    },
};

/// Settings of pulls. One that cannot be read is as none.
pub(super) const CONFIGS: Source<PreCachingConfigObject, PreCachingConfigSpec> = Source {
    entry: |object| object.0.as_ref().ok().map(|one| one.spec.clone()),
    clear: |known| known.configs = Index::default(),
    set: |known, key, config| known.configs.set(key, config).map(|_| Affected::Pull).into_iter().collect(),
};

pub(super) const MAPS: Source<ConfigMap, BTreeMap<String, String>> = Source {
    entry: |object| {
        let mut data = object.0.as_ref().ok()?.data.clone().unwrap_or_default();
        data.retain(|key, text| OVERRIDDEN.contains(&key.as_str()) && text.len() <= MAX_TEXT);
        Some(data)
    },
    clear: |known| known.overrides = Index::default(),
    set: |known, key, data| known.overrides.set(key, data).map(|_| Affected::Pull).into_iter().collect(),
};

pub(super) const IMAGE_BASED: Source<ImageBasedGroupUpgrade, String> = Source {
    entry: |object| object.meta().uid.clone(),
    clear: |known| known.image_based = Index::default(),
    set: |known, key, uid| known.image_based.set(key, uid).map(|_| Affected::Joined).into_iter().collect(),
};

/// Before TALM 5.0 the definition had no `status.placements`: the hub would drop what is written there.
pub(super) const DEFINITION: Source<Definition, bool> = Source {
    entry: |object| Some(content(object).spec.has_placements),
    clear: |known| known.is_old = false,
    set: |known, _, has_placements| {
        let is_old = has_placements.map_or(known.is_old, |has_placements| !has_placements);
        let was_old = std::mem::replace(&mut known.is_old, is_old);
        if is_old == was_old { Vec::new() } else { vec![Affected::Joined, Affected::All] }
    },
};

/// An object. One that cannot be read is as one with nothing but its name.
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

/// What is kept of a policy.
pub(super) enum PolicyEntry {
    Root(Policy),
    Child(Child),
}

impl PolicyEntry {
    /// `None` for a child whose name says no root.
    fn read(object: &PolicyObject) -> Option<Self> {
        let root = || (!object.labels().contains_key(ROOT_POLICY)).then(|| Self::Root(Policy::read(object)));
        Child::read(object).map(Self::Child).or_else(root)
    }
}

fn set_policy(known: &mut Governance, (namespace, name): Key, policy: Option<PolicyEntry>) -> Vec<Affected> {
    let (root, child) = match policy {
        Some(PolicyEntry::Root(policy)) => (Some(policy.into()), None),
        Some(PolicyEntry::Child(child)) => (None, Some(child)),
        None => (None, None),
    };
    let reference = Reference { name: name.clone(), namespace: namespace.clone() };
    let mut affected = known.roots.set(reference, root).map(|_| name.clone());
    if let Some(root) = Child::root(&name)
        && known.children.get(&namespace).and_then(|all| all.get(&root)) != child.as_ref()
    {
        affected = Some(root.name.clone());
        let all = known.children.entry(namespace).or_default();
        match child {
            Some(child) => drop(all.insert(root, child)),
            None => drop(all.remove(&root)),
        }
    }
    affected.map(Affected::Policy).into_iter().collect()
}

impl GovernanceIndex {
    /// What is known; `None` until every kind is listed.
    pub(super) fn snapshot(&self) -> Option<Governance> {
        let state = self.state.lock();
        (state.listed.len() == KINDS).then(|| state.governance.clone())
    }

    /// Keeps what a write has returned, or that an object is deleted: no decision is made on an older one.
    pub(super) fn record<K, E>(&self, source: &Source<K, E>, key: Key, object: Option<&Guarded<K>>) {
        (source.set)(&mut self.state.lock().governance, key, object.and_then(source.entry));
    }

    /// Watches everything until it is dropped.
    pub(super) async fn follow(&self, handle: &Handle<ClusterGroupUpgrade>) {
        let all = || watcher::Config::default().page_size(PAGE_SIZE);
        let ours = || all().labels(UPGRADE);
        let named = |name: &str| all().fields(&format!("metadata.name={name}"));
        tokio::join!(
            self.watch(handle, &CLUSTERS, all()),
            self.watch(handle, &POLICIES, all()),
            self.watch(handle, &PLACEMENTS, ours()),
            self.watch(handle, &VIEWS, ours()),
            self.watch(handle, &CONFIGS, all()),
            self.watch(handle, &MAPS, named(OVERRIDES)),
            self.watch(handle, &DEFINITION, named("clustergroupupgrades.ran.openshift.io")),
            self.watch(handle, &IMAGE_BASED, all()),
            self.trigger_blocked(handle),
        );
    }

    async fn watch<K: Object, E>(
        &self,
        handle: &Handle<ClusterGroupUpgrade>,
        source: &Source<K, E>,
        config: watcher::Config,
    ) {
        let api: Api<Guarded<K>> = Api::all(handle.hub.watches.clone());
        let change = |change| self.apply(handle, source, change);
        let backoff = WatchBackoff::of_optional_kind();
        index::follow((api, &handle.hub.memory), config, backoff, source.entry, change).await;
    }

    /// Keeps what a watch has brought, and triggers whom it affects.
    pub(super) fn apply<K: Resource<DynamicType = ()>, E>(
        &self,
        handle: &Handle<ClusterGroupUpgrade>,
        source: &Source<K, E>,
        change: Change<Option<E>>,
    ) {
        let mut state = self.state.lock();
        // Once a list is complete, each upgrade is decided again.
        let mut affected =
            if state.completes_list::<K, _>(&change) { vec![Affected::Joined, Affected::All] } else { Vec::new() };
        let known = &mut state.governance;
        match change {
            Change::Listed(all) => {
                (source.clear)(known);
                for (key, entry) in all {
                    (source.set)(known, key, entry);
                }
            }
            Change::Set(key, entry) => affected.extend((source.set)(known, key, entry)),
            Change::Gone(key) => affected.extend((source.set)(known, key, None)),
            Change::Failed(_) => {}
        }
        drop(state);
        for one in affected {
            self.trigger_affected(handle, one);
        }
    }

    fn trigger_affected(&self, handle: &Handle<ClusterGroupUpgrade>, affected: Affected) {
        match affected {
            Affected::Joined => self.joined.notify_one(),
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
            Affected::Waiting => trigger(handle, |upgrade| !has_started(upgrade)),
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
    /// Whether a change completes a list of a kind. A missing optional kind counts as an empty list: an upgrade that
    /// needs it says so. None needs the kind that is only warned of.
    fn completes_list<K: Resource<DynamicType = ()>, E>(&mut self, change: &Change<E>) -> bool {
        let kind = K::kind(&());
        let is_view = kind == ViewObject::kind(&());
        match change {
            Change::Listed(_) => {
                self.governance.has_no_views &= !is_view;
                self.listed.insert(kind.into_owned());
                true
            }
            Change::Failed(watcher::Error::InitialListFailed(error))
                if kind == ImageBasedGroupUpgrade::kind(&()) || is_not_there(error) && OPTIONAL.contains(&&*kind) =>
            {
                self.governance.has_no_views |= is_view;
                self.listed.insert(kind.into_owned())
            }
            Change::Failed(watcher::Error::InitialListFailed(error)) if !self.listed.contains(&*kind) => {
                let error = sanitize_chain(error);
                warn!(error, kind = &*kind, "cannot list what upgrades need: none of them is reconciled");
                false
            }
            _ => false,
        }
    }
}

impl Follower<ClusterGroupUpgrade> for GovernanceIndex {
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

/// Triggers the upgrades that are not over for good.
pub(super) fn trigger(handle: &Handle<ClusterGroupUpgrade>, is_affected: impl Fn(&ClusterGroupUpgrade) -> bool) {
    for object in handle.objects() {
        let Ok(upgrade) = &object.0 else { continue };
        let is_final =
            |status: &ClusterGroupUpgradeStatus| status.is(SUCCEEDED, "True") && status.status.completed_at.is_some();
        let has_succeeded = upgrade.status.as_ref().is_some_and(is_final);
        if !has_succeeded && is_affected(upgrade) {
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
