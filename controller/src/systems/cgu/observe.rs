//! What is known of governance on the hub, and which upgrades a change concerns.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use serde_json::Value;
use shared::cgu::api::{ClusterGroupUpgrade, Reference};
use shared::cgu::conditions::{PROGRESSING, SUCCEEDED};
use shared::cgu::objects::{self, Names, UPGRADE, UPGRADE_NAMESPACE};
use shared::cgu::policy::{Child, Policy};
use shared::text::sanitize_chain;
use tokio::sync::Notify;
use tracing::debug;

use super::is_blocked_by;
use crate::runtime::hub::{key_of, version};
use crate::runtime::index::{self, Change};
use crate::runtime::watch_backoff::WatchBackoff;
use crate::runtime::{Follower, Guarded, Handle, Key};

/// Policies of one page of the first list: some kilobytes each, and 100 for a root over a large fleet.
const PAGE_SIZE: u32 = 100;

/// Names of kinds: group, version, kind, plural.
pub(super) const MANAGED_CLUSTER: [&str; 4] =
    ["cluster.open-cluster-management.io", "v1", "ManagedCluster", "managedclusters"];
pub(super) const PLACEMENT: [&str; 4] = ["cluster.open-cluster-management.io", "v1beta1", "Placement", "placements"];
pub(super) const BINDING: [&str; 4] =
    ["policy.open-cluster-management.io", "v1", "PlacementBinding", "placementbindings"];
const POLICY: [&str; 4] = ["policy.open-cluster-management.io", "v1", "Policy", "policies"];

/// A kind as kube names it.
pub(super) fn resource([group, version, kind, plural]: [&str; 4]) -> ApiResource {
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural)
}

/// A Placement of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placed {
    /// Its upgrade.
    pub(super) upgrade: Key,
    /// Clusters that it selects.
    pub(super) clusters: Vec<String>,
    /// Why it selects nothing.
    pub(super) unsatisfied: Option<String>,
    version: Option<u64>,
}

impl Placed {
    /// `None` for a Placement that is no upgrade's.
    pub(super) fn read(object: &DynamicObject) -> Option<Self> {
        let label = |key: &str| object.labels().get(key).cloned();
        let conditions = object.data["status"]["conditions"].as_array().into_iter().flatten();
        let is_void = |one: &&Value| {
            one["type"] == "PlacementSatisfied"
                && one["status"] == "False"
                && one["reason"] == "NoManagedClusterSetBindings"
        };
        Some(Self {
            upgrade: (label(UPGRADE_NAMESPACE)?, label(UPGRADE)?),
            clusters: objects::clusters(&object.data),
            unsatisfied: conditions
                .into_iter()
                .find(is_void)
                .map(|one| one["message"].as_str().unwrap_or_default().to_owned()),
            version: version(object),
        })
    }
}

/// What is known at one moment. Each part is copied only when it changes while a reconcile holds it.
#[derive(Clone, Default)]
pub(super) struct Snapshot {
    /// Labels of clusters.
    pub(super) clusters: Arc<BTreeMap<String, BTreeMap<String, String>>>,
    /// Root policies.
    pub(super) roots: Arc<BTreeMap<Reference, Arc<Policy>>>,
    /// Child policies by cluster.
    pub(super) children: Arc<BTreeMap<String, Vec<Child>>>,
    /// Placements of upgrades, by namespace and name.
    pub(super) placements: Arc<BTreeMap<Key, Placed>>,
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

/// A policy as it is kept.
enum Kept {
    Root(Policy),
    Child(Child),
    Other,
}

/// What is known, and what has changed.
#[derive(Default)]
pub struct Governed {
    known: Mutex<Known>,
    /// Upgrades that have changed: those that they block are reconciled.
    changed: Mutex<BTreeSet<Key>>,
    changes: Notify,
}

#[derive(Default)]
struct Known {
    snapshot: Snapshot,
    /// Kinds whose first list is complete.
    listed: BTreeSet<&'static str>,
}

/// Whom a change concerns.
enum Concern {
    /// Upgrades that list a policy of this name.
    Policy(String),
    /// Upgrades that have not started.
    Cluster,
    /// One upgrade.
    Upgrade(Key),
}

impl Governed {
    /// What is known; `None` until every kind is listed.
    pub(super) fn snapshot(&self) -> Option<Snapshot> {
        let known = self.known.lock();
        (known.listed.len() == 3).then(|| known.snapshot.clone())
    }

    /// Keeps what a write has returned: no decision is made on an older Placement.
    pub(super) fn placed(&self, object: &DynamicObject) {
        if let Some(placed) = Placed::read(object) {
            keep(&mut self.known.lock().snapshot.placements, key_of(object), placed);
        }
    }

    /// Watches everything until it is dropped.
    pub(super) async fn follow(&self, handle: &Handle<ClusterGroupUpgrade>) {
        let api =
            |kind: [&str; 4]| -> Api<DynamicObject> { Api::all_with(handle.hub.watches.clone(), &resource(kind)) };
        let config = || watcher::Config::default().page_size(PAGE_SIZE);
        let backoff = WatchBackoff::of_optional_kind;
        let labels = |object: &DynamicObject| object.labels().clone();
        let clusters =
            index::follow(api(MANAGED_CLUSTER), config(), backoff(), labels, |change| self.clusters(handle, change));
        let policies = index::follow(api(POLICY), config(), backoff(), kept, |change| self.policies(handle, change));
        let ours = config().labels(UPGRADE);
        let placements =
            index::follow(api(PLACEMENT), ours, backoff(), Placed::read, |change| self.placements(handle, change));
        let blocked = async {
            loop {
                self.changes.notified().await;
                for key in std::mem::take(&mut *self.changed.lock()) {
                    trigger(handle, |upgrade| is_blocked_by(upgrade, &key));
                }
            }
        };
        tokio::join!(clusters, policies, placements, blocked);
    }

    fn clusters(&self, handle: &Handle<ClusterGroupUpgrade>, change: Change<BTreeMap<String, String>>) {
        let is_news = {
            let mut known = self.known.lock();
            let Known { snapshot, listed } = &mut *known;
            let clusters = &mut snapshot.clusters;
            match change {
                Change::Listed(all) => {
                    listed.insert(MANAGED_CLUSTER[3]);
                    *clusters = Arc::new(all.into_iter().map(|((_, name), labels)| (name, labels)).collect());
                    true
                }
                Change::Set((_, name), labels) if clusters.get(&name) != Some(&labels) => {
                    Arc::make_mut(clusters).insert(name, labels);
                    true
                }
                Change::Gone((_, name)) => Arc::make_mut(clusters).remove(&name).is_some(),
                Change::Set(..) => false,
                Change::Failed(error) => interrupted(&error),
            }
        };
        if is_news {
            concerned(handle, &Concern::Cluster);
        }
    }

    fn policies(&self, handle: &Handle<ClusterGroupUpgrade>, change: Change<Kept>) {
        let names: BTreeSet<String> = {
            let mut known = self.known.lock();
            let Known { snapshot, listed } = &mut *known;
            match change {
                Change::Listed(all) => {
                    listed.insert(POLICY[3]);
                    (snapshot.roots, snapshot.children) = Default::default();
                    all.into_iter().filter_map(|(key, one)| set_policy(snapshot, &key, Some(one))).collect()
                }
                Change::Set(key, one) => set_policy(snapshot, &key, Some(one)).into_iter().collect(),
                Change::Gone(key) => set_policy(snapshot, &key, None).into_iter().collect(),
                Change::Failed(error) => {
                    interrupted(&error);
                    BTreeSet::new()
                }
            }
        };
        for name in names {
            concerned(handle, &Concern::Policy(name));
        }
    }

    fn placements(&self, handle: &Handle<ClusterGroupUpgrade>, change: Change<Option<Placed>>) {
        let concerns: Vec<Concern> = {
            let mut known = self.known.lock();
            let Known { snapshot, listed } = &mut *known;
            let placements = &mut snapshot.placements;
            match change {
                Change::Listed(all) => {
                    listed.insert(PLACEMENT[3]);
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
                Change::Failed(error) => {
                    interrupted(&error);
                    Vec::new()
                }
            }
        };
        for concern in &concerns {
            concerned(handle, concern);
        }
    }
}

fn interrupted(error: &watcher::Error) -> bool {
    debug!(error = sanitize_chain(error), "a watch of governance is interrupted");
    false
}

/// Keeps a Placement unless a newer one is known. Whether anything but its version has changed.
fn keep(placements: &mut Arc<BTreeMap<Key, Placed>>, key: Key, placed: Placed) -> bool {
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

fn kept(object: &DynamicObject) -> Kept {
    let name = object.name_any();
    match Child::read(&name, object.labels(), &object.data) {
        Some(child) => Kept::Child(child),
        None if object.labels().contains_key(shared::cgu::policy::ROOT_POLICY) => Kept::Other,
        None => Kept::Root(Policy::read(object.annotations(), &object.data)),
    }
}

fn concerned(handle: &Handle<ClusterGroupUpgrade>, concern: &Concern) {
    match concern {
        Concern::Upgrade(key) => handle.trigger(key.clone()),
        Concern::Policy(name) => trigger(handle, |upgrade| upgrade.spec.managed_policies.contains(name)),
        Concern::Cluster => trigger(handle, |upgrade| {
            let condition = |type_| upgrade.status.as_ref().and_then(|status| status.condition(type_));
            condition(SUCCEEDED).is_none() && condition(PROGRESSING).is_none_or(|found| found.status != "True")
        }),
    }
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
    fn listed(&self, _: &Store<Guarded<ClusterGroupUpgrade>>) {}

    fn changed(&self, key: &Key) {
        self.changed.lock().insert(key.clone());
        self.changes.notify_one();
    }
}

/// Drops what no decision needs.
pub fn trim(upgrade: &mut ClusterGroupUpgrade) {
    if let Some(status) = &mut upgrade.status {
        status.backup = None;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

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
