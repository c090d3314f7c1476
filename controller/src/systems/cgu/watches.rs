//! Watches of what an upgrade reads: each object becomes one small entry, and a change triggers the upgrades that it
//! concerns.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::DynamicObject;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use serde::Deserialize as _;
use shared::cgu::api::{ClusterGroupUpgrade, Reference};
use shared::cgu::objects::UPGRADE;
use shared::cgu::policy::{Child, Policy};
use shared::cgu::precache::spec::{OVERRIDDEN, OVERRIDES, PreCachingConfigSpec};
use shared::cgu::view::View;
use shared::text::sanitize_chain;
use tracing::{debug, warn};

use super::observe::{
    Concern, Governed, Known, MANAGED_CLUSTER, PLACEMENT, Placed, Snapshot, concerned, count, resource, trigger,
};
use super::views::{self, VIEW};
use super::ztp::{self, Joined};
use crate::runtime::hub::key_of;
use crate::runtime::index::{self, Change};
use crate::runtime::watch_backoff::WatchBackoff;
use crate::runtime::{Handle, Key};
use crate::spoke::reader::is_not_there;

/// Policies of one page of the first list: some kilobytes each, and 100 for a root over a large fleet.
const PAGE_SIZE: u32 = 100;

const DEFINITION: [&str; 4] = ["apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"];
/// Longest text of an override, in bytes.
const MAX_TEXT: usize = 64 << 10;
pub(super) const CONFIG: [&str; 4] = ["ran.openshift.io", "v1alpha1", "PreCachingConfig", "precachingconfigs"];
pub(super) const MAP: [&str; 4] = ["", "v1", "ConfigMap", "configmaps"];
const POLICY: [&str; 4] = ["policy.open-cluster-management.io", "v1", "Policy", "policies"];

/// A policy as it is kept.
pub(super) enum Kept {
    Root(Policy),
    Child(Child),
    Other,
}

impl Governed {
    /// Watches everything until it is dropped.
    pub(super) async fn follow(&self, handle: &Handle<ClusterGroupUpgrade>) {
        let api =
            |kind: [&str; 4]| -> Api<DynamicObject> { Api::all_with(handle.hub.watches.clone(), &resource(kind)) };
        let config = || watcher::Config::default().page_size(PAGE_SIZE);
        let backoff = WatchBackoff::of_optional_kind;
        let cluster = |object: &DynamicObject| (object.labels().clone(), ztp::read(object));
        let clusters =
            index::follow(api(MANAGED_CLUSTER), config(), backoff(), cluster, |change| self.clusters(handle, change));
        let policies = index::follow(api(POLICY), config(), backoff(), kept, |change| self.policies(handle, change));
        let ours = || config().labels(UPGRADE);
        let placements =
            index::follow(api(PLACEMENT), ours(), backoff(), Placed::read, |change| self.placements(handle, change));
        let spec = |object: &DynamicObject| PreCachingConfigSpec::deserialize(&object.data["spec"]).unwrap_or_default();
        let configs = index::follow(api(CONFIG), config(), backoff(), spec, |change| {
            self.settings(handle, CONFIG, change, |snapshot| &mut snapshot.configs);
        });
        let maps: Api<ConfigMap> = Api::all(handle.hub.watches.clone());
        let named = config().fields(&format!("metadata.name={OVERRIDES}"));
        let data = |map: &ConfigMap| {
            let mut data = map.data.clone().unwrap_or_default();
            data.retain(|key, text| OVERRIDDEN.contains(&key.as_str()) && text.len() <= MAX_TEXT);
            data
        };
        let overrides = index::follow(maps, named, backoff(), data, |change| {
            self.settings(handle, MAP, change, |snapshot| &mut snapshot.overrides);
        });
        let views = index::follow(api(VIEW), ours(), backoff(), views::read, |change| self.views(handle, change));
        let blocked = async {
            handle.objects().iter().for_each(|upgrade| count(handle, &key_of(&**upgrade)));
            loop {
                self.changes.notified().await;
                let changed = std::mem::take(&mut *self.changed.lock());
                for key in &changed {
                    count(handle, key);
                }
                let has_changed =
                    |blocker: &Reference| changed.contains(&(blocker.namespace.clone(), blocker.name.clone()));
                trigger(handle, |upgrade| upgrade.spec.blocking_crs.iter().any(has_changed));
            }
        };
        let own = config().fields("metadata.name=clustergroupupgrades.ran.openshift.io");
        let definition = index::follow(api(DEFINITION), own, backoff(), has_placements, |change| {
            self.definition(handle, change);
        });
        tokio::join!(clusters, policies, placements, views, configs, overrides, definition, blocked);
    }

    fn listed(&self, listed: &mut BTreeSet<&'static str>, kind: [&'static str; 4]) {
        listed.insert(kind[3]);
        self.joined.notify_one();
    }

    /// A hub without a kind that only some upgrades need: nothing is read, and an upgrade that needs it says so.
    fn missing<T: Default>(&self, known: &mut Known, kind: [&'static str; 4], error: &watcher::Error) -> T {
        if matches!(error, watcher::Error::InitialListFailed(error) if is_not_there(error)) {
            self.listed(&mut known.listed, kind);
            known.has_no_views |= kind == VIEW;
        }
        interrupted(error)
    }

    /// Before TALM 5.0 the definition had no `status.placements`: the hub would drop what is written there.
    pub(super) fn definition(&self, handle: &Handle<ClusterGroupUpgrade>, change: Change<bool>) {
        {
            let mut known = self.known.lock();
            let Known { listed, is_old, .. } = &mut *known;
            match change {
                Change::Listed(all) => {
                    self.listed(listed, DEFINITION);
                    *is_old = all.into_values().any(|has_placements| !has_placements);
                }
                Change::Set(_, has_placements) => *is_old = !has_placements,
                Change::Gone(_) => {}
                Change::Failed(error) => interrupted(&error),
            }
        }
        trigger(handle, |_| true);
    }

    /// Settings of pulls.
    pub(super) fn settings<E: Clone>(
        &self,
        handle: &Handle<ClusterGroupUpgrade>,
        kind: [&'static str; 4],
        change: Change<E>,
        of: impl Fn(&mut Snapshot) -> &mut Arc<BTreeMap<Key, E>>,
    ) {
        {
            let mut known = self.known.lock();
            let Known { snapshot, listed, .. } = &mut *known;
            match change {
                Change::Listed(all) => {
                    self.listed(listed, kind);
                    *of(snapshot) = Arc::new(all.into_iter().collect());
                }
                Change::Set(key, one) => drop(Arc::make_mut(of(snapshot)).insert(key, one)),
                Change::Gone(key) => drop(Arc::make_mut(of(snapshot)).remove(&key)),
                Change::Failed(error) => self.missing(&mut known, kind, &error),
            }
        }
        concerned(handle, &Concern::Pull);
    }

    pub(super) fn clusters(
        &self,
        handle: &Handle<ClusterGroupUpgrade>,
        change: Change<(BTreeMap<String, String>, Joined)>,
    ) {
        let mut flipped = None;
        let is_news = {
            let mut known = self.known.lock();
            let Known { snapshot, listed, joined, .. } = &mut *known;
            let clusters = &mut snapshot.clusters;
            match change {
                Change::Listed(all) => {
                    self.listed(listed, MANAGED_CLUSTER);
                    let all = all.into_iter().map(|((_, name), (labels, one))| ((name.clone(), labels), (name, one)));
                    let (labels, ones): (BTreeMap<_, _>, _) = all.unzip();
                    (*clusters, *joined) = (Arc::new(labels), ones);
                    true
                }
                Change::Set((_, name), (labels, one)) => {
                    flipped = (joined.insert(name.clone(), one.clone()) != Some(one)).then(|| name.clone());
                    let is_news = clusters.get(&name) != Some(&labels);
                    if is_news {
                        Arc::make_mut(clusters).insert(name, labels);
                    }
                    is_news
                }
                Change::Gone((_, name)) => {
                    joined.remove(&name);
                    Arc::make_mut(clusters).remove(&name).is_some()
                }
                Change::Failed(error) => interrupted(&error),
            }
        };
        // A heartbeat of a cluster is neither.
        if flipped.is_some() || is_news {
            self.joined.notify_one();
        }
        if let Some(name) = flipped {
            concerned(handle, &Concern::Batch(BTreeSet::from([name])));
        }
        if is_news {
            concerned(handle, &Concern::Cluster);
        }
    }

    pub(super) fn policies(&self, handle: &Handle<ClusterGroupUpgrade>, change: Change<Kept>) {
        let names: BTreeSet<String> = {
            let mut known = self.known.lock();
            let Known { snapshot, listed, .. } = &mut *known;
            match change {
                Change::Listed(all) => {
                    self.listed(listed, POLICY);
                    (snapshot.roots, snapshot.children) = Default::default();
                    all.into_iter().filter_map(|(key, one)| set_policy(snapshot, &key, Some(one))).collect()
                }
                Change::Set(key, one) => set_policy(snapshot, &key, Some(one)).into_iter().collect(),
                Change::Gone(key) => set_policy(snapshot, &key, None).into_iter().collect(),
                Change::Failed(error) => interrupted(&error),
            }
        };
        for name in names {
            concerned(handle, &Concern::Policy(name));
        }
    }

    pub(super) fn placements(&self, handle: &Handle<ClusterGroupUpgrade>, change: Change<Option<Placed>>) {
        let concerns: Vec<Concern> = {
            let mut known = self.known.lock();
            let Known { snapshot, listed, .. } = &mut *known;
            let placements = &mut snapshot.placements;
            match change {
                Change::Listed(all) => {
                    self.listed(listed, PLACEMENT);
                    let all: HashMap<Key, Placed> =
                        all.into_iter().filter_map(|(key, one)| Some((key, one?))).collect();
                    let upgrades: BTreeSet<Key> = all.values().map(|placed| placed.upgrade.clone()).collect();
                    *placements = Arc::new(all.into_iter().collect());
                    upgrades.into_iter().map(Concern::Upgrade).collect()
                }
                Change::Set(key, Some(placed)) => {
                    let upgrade = placed.upgrade.clone();
                    keep(placements, key, placed).then_some(Concern::Upgrade(upgrade)).into_iter().collect()
                }
                Change::Set(_, None) => Vec::new(),
                Change::Gone(key) => {
                    let gone = Arc::make_mut(placements).remove(&key);
                    gone.map(|placed| Concern::Upgrade(placed.upgrade)).into_iter().collect()
                }
                Change::Failed(error) => interrupted(&error),
            }
        };
        for concern in &concerns {
            concerned(handle, concern);
        }
    }

    pub(super) fn views(&self, handle: &Handle<ClusterGroupUpgrade>, change: Change<Option<View>>) {
        let clusters: BTreeSet<String> = {
            let mut known = self.known.lock();
            let Known { snapshot, listed, has_no_views, .. } = &mut *known;
            match change {
                Change::Listed(all) => {
                    self.listed(listed, VIEW);
                    *has_no_views = false;
                    let all: BTreeMap<Key, View> = all.into_iter().filter_map(|(key, one)| Some((key, one?))).collect();
                    let clusters = all.keys().map(|(cluster, _)| cluster.clone()).collect();
                    snapshot.views = Arc::new(all);
                    clusters
                }
                Change::Set(key, view) => changed_view(snapshot, key, view),
                Change::Gone(key) => changed_view(snapshot, key, None),
                Change::Failed(error) => self.missing(&mut known, VIEW, &error),
            }
        };
        if !clusters.is_empty() {
            concerned(handle, &Concern::Batch(clusters));
        }
    }
}

fn has_placements(definition: &DynamicObject) -> bool {
    let path = "/schema/openAPIV3Schema/properties/status/properties/placements";
    let mut versions = definition.data["spec"]["versions"].as_array().into_iter().flatten();
    versions.any(|version| version.pointer(path).is_some())
}

fn changed_view(snapshot: &mut Snapshot, key: Key, view: Option<View>) -> BTreeSet<String> {
    let cluster = key.0.clone();
    views::keep(&mut snapshot.views, key, view).then_some(cluster).into_iter().collect()
}

fn interrupted<T: Default>(error: &watcher::Error) -> T {
    if matches!(error, watcher::Error::InitialListFailed(error) if !is_not_there(error)) {
        warn!(error = sanitize_chain(error), "cannot list what upgrades need: none of them is reconciled");
    } else {
        debug!(error = sanitize_chain(error), "a watch of governance is interrupted");
    }
    T::default()
}

/// Keeps a Placement unless a newer one is known. Whether anything but its version has changed.
pub(super) fn keep(placements: &mut Arc<BTreeMap<Key, Placed>>, key: Key, placed: Placed) -> bool {
    let known = placements.get(&key);
    if known.is_some_and(|known| known.version > placed.version || *known == placed) {
        return false;
    }
    let is_news =
        known.is_none_or(|known| known.clusters != placed.clusters || known.unsatisfied != placed.unsatisfied);
    Arc::make_mut(placements).insert(key, placed);
    is_news
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
    // A child is found by its name, which holds that of its root.
    let own = |child: &Child| format!("{}.{}", child.root.namespace, child.root.name) == *name;
    let known = snapshot.children.get(namespace).and_then(|all| all.iter().find(|one| own(one)));
    if known != child.as_ref() {
        let root = child.as_ref().or(known).map(|child| child.root.name.clone());
        let all = Arc::make_mut(&mut snapshot.children).entry(namespace.clone()).or_default();
        all.retain(|one| !own(one));
        all.extend(child);
        concern = root;
    }
    concern
}

pub(super) fn kept(object: &DynamicObject) -> Kept {
    let name = object.name_any();
    match Child::read(&name, object.labels(), object.annotations(), &object.data) {
        Some(child) => Kept::Child(child),
        None if object.labels().contains_key(shared::cgu::policy::ROOT_POLICY) => Kept::Other,
        None => Kept::Root(Policy::read(object.annotations(), &object.data)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shared::cgu::objects::{self, UPGRADE_NAMESPACE};

    use super::*;

    fn object(namespace: &str, name: &str, labels: &Value, body: Value) -> DynamicObject {
        let mut object = body;
        object["metadata"] = json!({ "namespace": namespace, "name": name, "labels": labels, "resourceVersion": "7" });
        serde_json::from_value(object).unwrap()
    }

    fn policy(namespace: &str, name: &str, compliant: &str) -> DynamicObject {
        let is_child = name.contains('.');
        let labels = if is_child { json!({ shared::cgu::policy::ROOT_POLICY: name }) } else { json!({}) };
        let status = json!([{ "clustername": "a", "compliant": compliant }]);
        object(namespace, name, &labels, json!({ "spec": {}, "status": { "status": status, "compliant": compliant } }))
    }

    #[test]
    fn what_a_policy_says_concerns_the_upgrades_that_list_it() {
        let mut snapshot = Snapshot::default();
        let mut set = |namespace: &str, name: &str, compliant: Option<&str>| {
            let one = compliant.map(|compliant| kept(&policy(namespace, name, compliant)));
            let key = (namespace.to_owned(), name.to_owned());
            let concern = set_policy(&mut snapshot, &key, one);
            let counts = (snapshot.roots.len(), snapshot.children.values().map(Vec::len).sum::<usize>());
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
    }

    #[test]
    fn an_older_placement_is_not_believed() {
        let placement = |version: u64, clusters: &[&str]| {
            let labels = json!({ UPGRADE: "u", UPGRADE_NAMESPACE: "ns" });
            let clusters: Vec<String> = clusters.iter().map(ToString::to_string).collect();
            let selector = json!({ "labelSelector": { "matchExpressions": [objects::selected(&clusters)] } });
            let spec = json!({ "predicates": [{ "requiredClusterSelector": selector }] });
            let mut object = object("ns", "x", &labels, json!({ "spec": spec }));
            object.metadata.resource_version = Some(version.to_string());
            Placed::read(&object).unwrap()
        };
        let mut known = Arc::default();
        let key = || ("ns".to_owned(), "x".to_owned());
        assert!(keep(&mut known, key(), placement(9, &["a"])));
        assert!(!keep(&mut known, key(), placement(8, &[])), "what we have written is newer");
        assert!(!keep(&mut known, key(), placement(10, &["a"])), "the same");
        assert!(keep(&mut known, key(), placement(11, &["a", "b"])));
        assert_eq!(known[&key()].clusters, ["a", "b"]);
        assert_eq!(Placed::read(&object("ns", "y", &json!({}), json!({ "spec": {} }))), None, "another client's");
    }
}
