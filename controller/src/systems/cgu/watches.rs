//! Watches of what an upgrade reads: each object becomes one small entry, and a change triggers the upgrades that it
//! concerns.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use shared::cgu::api::{ClusterGroupUpgrade, Reference};
use shared::cgu::objects::UPGRADE;
use shared::cgu::policy::{Child, Policy};
use shared::cgu::precache::spec::{OVERRIDDEN, OVERRIDES};
use shared::cgu::select::ManagedCluster;
use shared::cgu::view::View;
use shared::cgu::wire::{Definition, ImageBasedGroupUpgrade, PolicyObject, PreCachingConfigObject};
use shared::text::sanitize_chain;
use tracing::warn;

use super::api::{CONFIG, DEFINITION, IMAGE_BASED, MANAGED_CLUSTER, MAP, PLACEMENT, POLICY, VIEW};
use super::observe::{self, Concern, Governed, Known, Placed, Snapshot, concerned, of, replace, trigger};
use crate::runtime::index::{self, Change};
use crate::runtime::watch_backoff::WatchBackoff;
use crate::runtime::{Guarded, Handle, Key};
use crate::spoke::reader::is_not_there;

/// Policies of one page of the first list: some kilobytes each, and 100 for a root over a large fleet.
const PAGE_SIZE: u32 = 100;

/// Longest text of an override, in bytes.
const MAX_TEXT: usize = 64 << 10;
/// Kinds that only some upgrades need.
const OPTIONAL: [[&str; 4]; 3] = [CONFIG, MAP, VIEW];
/// A policy as it is kept.
pub(super) enum Kept {
    Root(Policy),
    Child(Child),
    Other,
}

impl Governed {
    /// Watches everything until it is dropped.
    pub(super) async fn follow(&self, handle: &Handle<ClusterGroupUpgrade>) {
        let (client, memory) = (&handle.hub.watches, &handle.hub.memory);
        let config = || watcher::Config::default().page_size(PAGE_SIZE);
        let backoff = WatchBackoff::of_optional_kind;
        let cluster = of(|object| Some(observe::cluster(object)));
        let clusters = index::follow((Api::all(client.clone()), memory), config(), backoff(), cluster, |change| {
            self.clusters(handle, change);
        });
        let policies = index::follow((Api::all(client.clone()), memory), config(), backoff(), of(kept), |change| {
            self.policies(handle, change);
        });
        let ours = || config().labels(UPGRADE);
        let placed = of(Placed::read);
        let placements = index::follow((Api::all(client.clone()), memory), ours(), backoff(), placed, |change| {
            self.placements(handle, change);
        });
        let config_of = |object: &Guarded<PreCachingConfigObject>| object.0.as_ref().ok().map(|one| one.spec.clone());
        let configs = index::follow((Api::all(client.clone()), memory), config(), backoff(), config_of, |change| {
            self.settings(handle, CONFIG, change, |snapshot| &mut snapshot.configs);
        });
        let named = config().fields(&format!("metadata.name={OVERRIDES}"));
        let data = |map: &Guarded<ConfigMap>| {
            let mut data = map.0.as_ref().ok()?.data.clone().unwrap_or_default();
            data.retain(|key, text| OVERRIDDEN.contains(&key.as_str()) && text.len() <= MAX_TEXT);
            Some(data)
        };
        let overrides = index::follow((Api::all(client.clone()), memory), named, backoff(), data, |change| {
            self.settings(handle, MAP, change, |snapshot| &mut snapshot.overrides);
        });
        let view = of(View::read);
        let views = index::follow((Api::all(client.clone()), memory), ours(), backoff(), view, |change| {
            self.views(handle, change);
        });
        let uid = of(ImageBasedGroupUpgrade::uid);
        let image_based = index::follow((Api::all(client.clone()), memory), config(), backoff(), uid, |change| {
            self.image_based(handle, change);
        });
        let blocked = async {
            loop {
                self.changes.notified().await;
                let changed = std::mem::take(&mut *self.changed.lock());
                let has_changed =
                    |blocker: &Reference| changed.contains(&(blocker.namespace.clone(), blocker.name.clone()));
                trigger(handle, |upgrade| upgrade.spec.blocking_crs.iter().any(has_changed));
            }
        };
        let own = config().fields("metadata.name=clustergroupupgrades.ran.openshift.io");
        let newest = of(|one: &Definition| one.spec.has_placements);
        let definition = index::follow((Api::all(client.clone()), memory), own, backoff(), newest, |change| {
            self.definition(handle, change);
        });
        tokio::join!(clusters, policies, placements, views, configs, overrides, definition, image_based, blocked);
    }

    /// A list may be complete: each upgrade is decided again.
    fn listed(&self, handle: &Handle<ClusterGroupUpgrade>) {
        self.joined.notify_one();
        trigger(handle, |_| true);
    }

    /// Keeps what a watch has brought. The key of an entry that has changed, and what was there before.
    fn take<K: Clone + Ord, E: Clone + PartialEq>(
        &self,
        handle: &Handle<ClusterGroupUpgrade>,
        (kind, key): ([&'static str; 4], fn(Key) -> K),
        change: Change<Option<E>>,
        of: impl FnOnce(&mut Snapshot) -> &mut Arc<BTreeMap<K, E>>,
    ) -> Option<(K, Option<E>)> {
        let mut known = self.known.lock();
        let is_listed = known.lists(kind, &change);
        let all = of(&mut known.snapshot);
        let changed = match change {
            Change::Listed(list) => {
                *all = Arc::new(list.into_iter().filter_map(|(found, one)| Some((key(found), one?))).collect());
                None
            }
            Change::Set(found, one) => replace(all, key(found), one),
            Change::Gone(found) => replace(all, key(found), None),
            Change::Failed(_) => None,
        };
        drop(known);
        if is_listed {
            self.listed(handle);
        }
        changed
    }

    /// Before TALM 5.0 the definition had no `status.placements`: the hub would drop what is written there.
    pub(super) fn definition(&self, handle: &Handle<ClusterGroupUpgrade>, change: Change<bool>) {
        let mut known = self.known.lock();
        let (was_old, is_listed) = (known.snapshot.is_old, known.lists(DEFINITION, &change));
        match change {
            Change::Listed(all) => known.snapshot.is_old = all.into_values().any(|has_placements| !has_placements),
            Change::Set(_, has_placements) => known.snapshot.is_old = !has_placements,
            Change::Gone(_) | Change::Failed(_) => {}
        }
        let is_news = known.snapshot.is_old != was_old;
        drop(known);
        if is_listed || is_news {
            self.listed(handle);
        }
    }

    /// Settings of pulls.
    pub(super) fn settings<E: Clone + PartialEq>(
        &self,
        handle: &Handle<ClusterGroupUpgrade>,
        kind: [&'static str; 4],
        change: Change<Option<E>>,
        of: impl FnOnce(&mut Snapshot) -> &mut Arc<BTreeMap<Key, E>>,
    ) {
        if self.take(handle, (kind, |key| key), change, of).is_some() {
            concerned(handle, &Concern::Pull);
        }
    }

    pub(super) fn clusters(&self, handle: &Handle<ClusterGroupUpgrade>, change: Change<Option<ManagedCluster>>) {
        let changed = self.take(handle, (MANAGED_CLUSTER, |(_, name)| name), change, |known| &mut known.clusters);
        // A heartbeat changes nothing.
        let Some((name, old)) = changed else { return };
        self.joined.notify_one();
        let new = self.known.lock().snapshot.clusters.get(&name).cloned();
        if old.as_ref().map(|one| &one.labels) != new.as_ref().map(|one| &one.labels) {
            concerned(handle, &Concern::Cluster);
        }
        if old.map(|one| one.is_available) != new.map(|one| one.is_available) {
            concerned(handle, &Concern::Batch(name));
        }
    }

    pub(super) fn policies(&self, handle: &Handle<ClusterGroupUpgrade>, change: Change<Kept>) {
        let mut known = self.known.lock();
        let is_listed = known.lists(POLICY, &change);
        let snapshot = &mut known.snapshot;
        let concern = match change {
            Change::Listed(all) => {
                (snapshot.roots, snapshot.children) = Default::default();
                for (key, one) in all {
                    set_policy(snapshot, &key, Some(one));
                }
                None
            }
            Change::Set(key, one) => set_policy(snapshot, &key, Some(one)),
            Change::Gone(key) => set_policy(snapshot, &key, None),
            Change::Failed(_) => None,
        };
        drop(known);
        if is_listed {
            self.listed(handle);
        }
        if let Some(name) = concern {
            concerned(handle, &Concern::Policy(name));
        }
    }

    pub(super) fn placements(&self, handle: &Handle<ClusterGroupUpgrade>, change: Change<Option<Placed>>) {
        let new = match &change {
            Change::Set(key, Some(placed)) => {
                if placed.is_older(self.known.lock().snapshot.placements.get(key)) {
                    return;
                }
                Some(placed.upgrade.clone())
            }
            _ => None,
        };
        let changed = self.take(handle, (PLACEMENT, |key| key), change, |known| &mut known.placements);
        if let Some(upgrade) = changed.and_then(|(_, old)| new.or(old.map(|old| old.upgrade))) {
            concerned(handle, &Concern::Upgrade(upgrade));
        }
    }

    pub(super) fn image_based(&self, handle: &Handle<ClusterGroupUpgrade>, change: Change<Option<String>>) {
        if self.take(handle, (IMAGE_BASED, |key| key), change, |known| &mut known.image_based).is_some() {
            self.joined.notify_one();
        }
    }

    pub(super) fn views(&self, handle: &Handle<ClusterGroupUpgrade>, change: Change<Option<View>>) {
        let changed = self.take(handle, (VIEW, |key| key), change, |known| &mut known.views);
        if let Some(((cluster, _), _)) = changed {
            concerned(handle, &Concern::Batch(cluster));
        }
    }
}

impl Known {
    /// Whether a change completes a list of a kind. A missing optional kind counts as an empty list: an upgrade that
    /// needs it says so. None needs the kind that is only warned of.
    fn lists<E>(&mut self, kind: [&'static str; 4], change: &Change<E>) -> bool {
        match change {
            Change::Listed(_) => {
                self.snapshot.has_no_views &= kind != VIEW;
                self.listed.insert(kind[3]);
                true
            }
            Change::Failed(watcher::Error::InitialListFailed(error))
                if kind == IMAGE_BASED || is_not_there(error) && OPTIONAL.contains(&kind) =>
            {
                self.snapshot.has_no_views |= kind == VIEW;
                self.listed.insert(kind[3])
            }
            Change::Failed(watcher::Error::InitialListFailed(error)) if !self.listed.contains(kind[3]) => {
                warn!(
                    error = sanitize_chain(error),
                    kind = kind[2],
                    "cannot list what upgrades need: none of them is reconciled"
                );
                false
            }
            _ => false,
        }
    }
}

/// Sets or removes a policy. The name of the root whose upgrades that concerns, if anything has changed.
fn set_policy(snapshot: &mut Snapshot, (namespace, name): &Key, one: Option<Kept>) -> Option<String> {
    let reference = Reference { name: name.clone(), namespace: namespace.clone() };
    let (root, child) = match one {
        Some(Kept::Root(policy)) => (Some(policy), None),
        Some(Kept::Child(child)) => (None, Some(child)),
        Some(Kept::Other) | None => (None, None),
    };
    let mut concern = None;
    if snapshot.roots.get(&reference).map(|known| &**known) != root.as_ref() {
        let roots = Arc::make_mut(&mut snapshot.roots);
        match root {
            Some(policy) => drop(roots.insert(reference, Arc::new(policy))),
            None => drop(roots.remove(&reference)),
        }
        concern = Some(name.clone());
    }
    let Some(root) = Child::root(name) else { return concern };
    if snapshot.children.get(namespace).and_then(|all| all.get(&root)) != child.as_ref() {
        concern = Some(root.name.clone());
        let all = Arc::make_mut(&mut snapshot.children).entry(namespace.clone()).or_default();
        match child {
            Some(child) => drop(all.insert(root, child)),
            None => drop(all.remove(&root)),
        }
    }
    concern
}

pub(super) fn kept(object: &PolicyObject) -> Kept {
    match Child::read(object) {
        Some(child) => Kept::Child(child),
        None if object.labels().contains_key(shared::cgu::policy::ROOT_POLICY) => Kept::Other,
        None => Kept::Root(Policy::read(object)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shared::cgu::objects::{self, UPGRADE_NAMESPACE};
    use shared::cgu::precache::spec::PreCachingConfigSpec;
    use shared::cgu::wire::PlacementObject;
    use shared::read::Foreign;

    use super::*;

    fn object<K: Foreign>(namespace: &str, name: &str, labels: &Value, body: Value) -> Guarded<K> {
        let mut object = body;
        object["metadata"] = json!({ "namespace": namespace, "name": name, "labels": labels, "resourceVersion": "7" });
        serde_json::from_value(object).unwrap()
    }

    fn policy(namespace: &str, name: &str, compliant: &str) -> PolicyObject {
        let is_child = name.contains('.');
        let labels = if is_child { json!({ shared::cgu::policy::ROOT_POLICY: name }) } else { json!({}) };
        let status = json!([{ "clustername": "a", "compliant": compliant }]);
        object(namespace, name, &labels, json!({ "spec": {}, "status": { "status": status, "compliant": compliant } }))
            .ok()
            .unwrap()
    }

    #[test]
    fn what_a_policy_says_concerns_the_upgrades_that_list_it() {
        let mut snapshot = Snapshot::default();
        let mut set = |namespace: &str, name: &str, compliant: Option<&str>| {
            let one = compliant.map(|compliant| kept(&policy(namespace, name, compliant)));
            let key = (namespace.to_owned(), name.to_owned());
            let concern = set_policy(&mut snapshot, &key, one);
            let counts = (snapshot.roots.len(), snapshot.children.values().map(BTreeMap::len).sum::<usize>());
            (concern, counts)
        };
        let p = || Some("p".to_owned());
        assert_eq!(set("ns", "p", Some("NonCompliant")), (p(), (1, 0)));
        assert_eq!(set("ns", "p", Some("NonCompliant")), (None, (1, 0)), "nothing new");
        assert_eq!(set("ns", "p", Some("Compliant")), (p(), (1, 0)));
        assert_eq!(set("a", "ns.p", Some("NonCompliant")), (p(), (1, 1)));
        assert_eq!(set("a", "ns.p", Some("Compliant")), (None, (1, 1)), "the root says so");
        assert_eq!(set("a", "ns.p", None), (p(), (1, 0)));
        assert_eq!(set("ns", "p", None), (p(), (0, 0)));
        // Whoever may create policies in a namespace decides how many there are.
        for number in 0..20_000 {
            let name = format!("ns.{number}");
            let child = policy("a", &name, "Compliant");
            set_policy(&mut snapshot, &("a".to_owned(), name), Some(kept(&child)));
        }
        assert_eq!(snapshot.children["a"].len(), 20_000);
    }

    #[test]
    fn a_kind_that_no_upgrade_needs_holds_up_none() {
        let failed = |code: u16| {
            let status = kube::core::Status { code, ..kube::core::Status::default() };
            Change::<()>::Failed(watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status))))
        };
        let lists = |kind, code| Known::default().lists(kind, &failed(code));
        assert!(lists(IMAGE_BASED, 503) && lists(IMAGE_BASED, 404) && lists(VIEW, 404));
        assert!(!lists(VIEW, 503) && !lists(POLICY, 404) && !lists(POLICY, 503));
    }

    #[test]
    fn an_object_that_cannot_be_read_has_no_content() {
        let policy: Guarded<PolicyObject> = object("ns", "p", &json!({}), json!({ "spec": [[[1]]] }));
        let Kept::Root(policy) = of(kept)(&policy) else { panic!("a root") };
        assert_eq!((policy.templates, policy.compliance), (None, None));
        let config = |body: Value| {
            let read: Guarded<PreCachingConfigObject> = object("ns", "images", &json!({}), body);
            read.ok().map(|config| config.spec)
        };
        assert_eq!(config(json!({})), Some(PreCachingConfigSpec::default()), "TALM reads it, too");
        assert_eq!(config(json!({ "spec": { "spaceRequired": 7 } })), None);
    }

    #[test]
    fn an_older_placement_is_not_believed() {
        let placement = |version: u64, clusters: &[&str]| {
            let labels = json!({ UPGRADE: "u", UPGRADE_NAMESPACE: "ns" });
            let clusters: Vec<String> = clusters.iter().map(ToString::to_string).collect();
            let selector = json!({ "labelSelector": { "matchExpressions": [objects::selected(&clusters)] } });
            let spec = json!({ "predicates": [{ "requiredClusterSelector": selector }] });
            let mut object = object::<PlacementObject>("ns", "x", &labels, json!({ "spec": spec })).ok().unwrap();
            object.metadata.resource_version = Some(version.to_string());
            Placed::read(&object).unwrap()
        };
        let known = placement(9, &["a"]);
        assert!(placement(8, &[]).is_older(Some(&known)), "what we have written is newer");
        assert!(!placement(10, &["a", "b"]).is_older(Some(&known)) && !known.is_older(None));
        let mut all = Arc::default();
        let mut set = |one| replace(&mut all, ("ns".to_owned(), "x".to_owned()), one).map(|(_, before)| before);
        assert_eq!(set(Some(placement(9, &["a"]))), Some(None));
        assert_eq!(set(Some(placement(10, &["a"]))), None, "the same");
        assert_eq!(set(Some(placement(11, &["a", "b"]))), Some(Some(placement(9, &["a"]))));
        assert_eq!(set(None), Some(Some(placement(11, &["a", "b"]))));
        let others = object("ns", "y", &json!({}), json!({ "spec": {} })).ok().unwrap();
        assert_eq!(Placed::read(&others), None, "another client's");
    }
}
