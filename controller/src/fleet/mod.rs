//! Kinds that are watched, for any consumer: what a watch brings, and what the consumer has written since.
//!
//! A kind whose objects rollouts start implements [`Member`], and is watched for a [`Watched`], whether a system of ours
//! works on it or not. Nothing else in here depends on a kind.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use kube::runtime::reflector::Store;
use parking_lot::Mutex;
use serde_json::Value;
use shared::annotation::keys;
use shared::guarded::Managed;
use shared::kinds::lifecycle::Lifecycle;
use shared::kinds::operators::objects::MemberObject;
use shared::kinds::{TargetKind, View};
use shared::spoke::SpokeError;
use shared::text::sanitize_to;
use tokio::sync::Notify;

use crate::cloud_registry::RULES;
use crate::runtime::hub::{key_of, version};
use crate::runtime::kind::Group;
use crate::runtime::{Follower, Guarded, Hub, Key, Object, Term, WriteError, group};
use crate::spoke::Network;

/// Longest reason against a sleep, in characters.
pub const MAX_REASON: usize = 200;

/// Longest name of a field manager, in characters.
const MAX_MANAGER: usize = 64;

/// Why a cluster must not hibernate, if anything says so. An error says nothing about the cluster.
pub type Verdict = Result<Option<String>, SpokeError>;

/// One object: its namespace and name, and its UID.
pub type Identity = (Key, String);

impl<const AT: usize> Member for MemberObject<AT> {}

/// What the controller knows of a kind of target besides its row.
pub trait Member: Object + Lifecycle {
    /// Why the object must not go to sleep now, as its own API server says. An error says nothing about it.
    fn objection(&self, _hub: &Hub, _network: &Network) -> impl Future<Output = Verdict> + Send {
        std::future::ready(Ok(None))
    }
}

/// What an object shares a cloud's limits with.
pub type Domain = Arc<dyn Fn(&Item) -> Option<Arc<str>> + Send + Sync>;

/// A kind whose objects rollouts start.
#[derive(Clone)]
pub struct FleetKind {
    /// Its row.
    pub row: &'static TargetKind,
    /// Its objects.
    pub fleet: Arc<dyn Fleet>,
    /// What an object shares a cloud's limits with, if that is known.
    pub domain: Domain,
    /// Whether TALM upgrades clusters that have the names of its objects.
    pub upgrades: bool,
}

impl FleetKind {
    /// A kind whose objects say themselves what they share a cloud's limits with.
    pub fn of(row: &'static TargetKind, fleet: Arc<dyn Fleet>) -> Self {
        let domain = |item: &Item| item.view.obstacles.domain.as_deref().map(Arc::from);
        Self { row, fleet, domain: Arc::new(domain), upgrades: false }
    }
}

/// A kind of target that only rollouts work on: it has a controller of its own.
pub struct MemberKind(Watch);

/// Makes the watch of a kind in a term of leadership.
type Watch = Box<dyn Fn(&Term) -> (FleetKind, Group<'static>) + Send + Sync>;

impl MemberKind {
    /// The kind of these objects.
    pub fn of<K: Member>(row: &'static TargetKind) -> Self {
        Self(Box::new(move |term| {
            let (term, fleet) = (term.clone(), Arc::<Watched<K>>::default());
            (FleetKind::of(row, fleet.clone()), group(move || term.watch().followed_by(fleet.clone())))
        }))
    }

    /// Its objects in a new term of leadership, and their watch.
    pub fn watch(&self, term: &Term) -> (FleetKind, Group<'static>) {
        (self.0)(term)
    }
}

/// The objects of a kind.
pub trait Fleet: Send + Sync {
    /// All objects. `None` until the first list is complete.
    fn items(&self) -> Option<Vec<Arc<Item>>>;

    /// Keeps what a write has returned: no plan is to be made on an older object.
    fn keep(&self, item: Arc<Item>);

    /// Wakes up when an object has changed.
    fn changed(&self) -> BoxFuture<'_, ()>;
}

/// An object, and what was read of it.
#[derive(Debug)]
pub struct Item {
    /// What was read of it.
    pub view: View,
    /// UID, empty for an object without one.
    uid: String,
    version: Option<u64>,
    object: Arc<dyn Source>,
}

/// An object of some kind.
trait Source: fmt::Debug + Send + Sync {
    fn lifecycle(&self) -> Option<&dyn Lifecycle>;
    fn patch<'a>(&'a self, hub: &'a Hub, patch: Value) -> BoxFuture<'a, Result<Option<Arc<Item>>, WriteError>>;
    fn objection<'a>(&'a self, hub: &'a Hub, network: &'a Network) -> BoxFuture<'a, Verdict>;
    fn reference(&self) -> ObjectReference;
    fn managed<'a>(&'a self, hub: &'a Hub) -> BoxFuture<'a, kube::Result<Option<Managed>>>;
}

impl<K: Member> Source for Guarded<K> {
    fn lifecycle(&self) -> Option<&dyn Lifecycle> {
        self.0.as_ref().ok().map(|object| object as &dyn Lifecycle)
    }

    fn patch<'a>(&'a self, hub: &'a Hub, patch: Value) -> BoxFuture<'a, Result<Option<Arc<Item>>, WriteError>> {
        async move {
            let Ok(object) = &self.0 else { return Ok(None) };
            let written = hub.patch(object, patch).await?;
            Ok(Item::of(&Arc::new(Self::from(written))))
        }
        .boxed()
    }

    fn objection<'a>(&'a self, hub: &'a Hub, network: &'a Network) -> BoxFuture<'a, Verdict> {
        match &self.0 {
            Ok(object) => object.objection(hub, network).boxed(),
            Err(_) => std::future::ready(Ok(None)).boxed(),
        }
    }

    fn reference(&self) -> ObjectReference {
        self.object_ref(&())
    }

    fn managed<'a>(&'a self, hub: &'a Hub) -> BoxFuture<'a, kube::Result<Option<Managed>>> {
        let meta = self.meta();
        let name = meta.name.as_deref().unwrap_or_default();
        server::hub::managed::<K>(&hub.client, meta.namespace.as_deref(), name).boxed()
    }
}

impl Item {
    fn of<K: Member>(object: &Arc<Guarded<K>>) -> Option<Arc<Self>> {
        let view = object.0.as_ref().ok()?.view(Some(&RULES));
        let uid = object.meta().uid.clone().unwrap_or_default();
        Some(Arc::new(Self { view, uid, version: version(&**object), object: object.clone() }))
    }

    /// Namespace and name.
    pub fn key(&self) -> Key {
        (self.view.identity.namespace.clone(), self.view.identity.name.clone())
    }

    /// What tells it from another object of that name.
    pub fn identity(&self) -> Identity {
        (self.key(), self.uid.clone())
    }

    /// The object, if it can be read.
    pub fn lifecycle(&self) -> Option<&dyn Lifecycle> {
        self.object.lifecycle()
    }

    /// Namespace and name for logs.
    pub fn full_name(&self) -> String {
        match self.key() {
            (namespace, name) if namespace.is_empty() => name,
            (namespace, name) => format!("{namespace}/{name}"),
        }
    }

    /// Applies a merge patch to the object as it was read. The object as it is then.
    ///
    /// # Errors
    /// When nothing was written, or the outcome is unknown.
    pub async fn patch(&self, hub: &Hub, patch: Value) -> Result<Option<Arc<Self>>, WriteError> {
        self.object.patch(hub, patch).await
    }

    /// For Events about it.
    pub fn reference(&self) -> ObjectReference {
        self.object.reference()
    }

    /// The field manager that wrote its spec last, since then and besides this controller, and has such members of it,
    /// sanitized.
    ///
    /// # Errors
    /// When the hub does not say it, which does not mean that there is none.
    pub async fn writer(
        &self,
        hub: &Hub,
        since: Timestamp,
        is_of: impl Fn(&str) -> bool,
    ) -> kube::Result<Option<String>> {
        let managed = self.object.managed(hub).await?;
        let writer = managed.as_ref().and_then(|managed| managed.wrote_spec(since, keys::CONTROLLER, is_of));
        Ok(writer.map(|manager| sanitize_to(manager, MAX_MANAGER)))
    }

    /// Why it must not go to sleep now.
    ///
    /// # Errors
    /// When nothing can be said about it.
    pub async fn objection(&self, hub: &Hub, network: &Network) -> Verdict {
        Ok(self.object.objection(hub, network).await?.map(|why| sanitize_to(&why, MAX_REASON)))
    }
}

/// The objects of one kind in one term of leadership.
#[derive(Debug)]
pub struct Watched<K: Member> {
    /// The watch's store, once its list was complete.
    objects: Mutex<Option<Store<Guarded<K>>>>,
    /// What was read of them.
    items: Mutex<HashMap<Key, Arc<Item>>>,
    /// What writes have returned since.
    written: Mutex<HashMap<Key, Arc<Item>>>,
    changes: Notify,
}

impl<K: Member> Default for Watched<K> {
    fn default() -> Self {
        let (items, written) = (Mutex::default(), Mutex::default());
        Self { objects: Mutex::new(None), items, written, changes: Notify::new() }
    }
}

impl<K: Member> Fleet for Watched<K> {
    fn items(&self) -> Option<Vec<Arc<Item>>> {
        // To read thousands of objects takes a second: the first rollout that asks does it for all, and no write waits.
        let mut items = self.items.lock();
        items.extend(self.written.lock().drain());
        let objects = self.objects.lock().as_ref()?.state();
        let mut current = HashMap::with_capacity(objects.len());
        for object in &objects {
            let key = key_of(&**object);
            let kept = items.remove(&key).filter(|item| {
                // What was written here is newer until the watch has caught up. Then the watch's object takes its place:
                // two of each would double the memory of a fleet.
                let is_of_watch = std::ptr::addr_eq(Arc::as_ptr(&item.object), Arc::as_ptr(object));
                let is_same = object.meta().uid.as_deref().unwrap_or_default() == item.uid;
                is_of_watch || is_same && item.version > version(&**object)
            });
            current.extend(kept.or_else(|| Item::of(object)).map(|item| (key, item)));
        }
        *items = current;
        Some(items.values().cloned().collect())
    }

    fn keep(&self, item: Arc<Item>) {
        self.written.lock().insert(item.key(), item);
    }

    fn changed(&self) -> BoxFuture<'_, ()> {
        self.changes.notified().boxed()
    }
}

impl<K: Member> Follower<K> for Watched<K> {
    fn listed(&self, objects: &Store<Guarded<K>>) {
        *self.objects.lock() = Some(objects.clone());
        self.changes.notify_one();
    }

    fn changed(&self, _: &Key) {
        self.changes.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use kube::runtime::{reflector, watcher};
    use serde_json::json;
    use shared::hive::api::ClusterDeployment;

    use super::*;
    use crate::runtime::testing::MemoryHub;

    fn object(version: &str) -> Guarded<ClusterDeployment> {
        let cluster = json!({
            "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
            "metadata": { "namespace": "ns", "name": "demo", "uid": "u", "resourceVersion": version },
            "spec": { "baseDomain": "test", "clusterName": "demo", "platform": {} },
        });
        serde_json::from_value(cluster).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_kind_that_no_system_works_on_is_watched_as_well() {
        let hub = MemoryHub::default();
        let path = "/apis/hive.openshift.io/v1/namespaces/ns/clusterdeployments/demo";
        hub.put(path, serde_json::to_value(object("1").0.unwrap()).unwrap());
        let (term, fleet) = (hub.term(), Arc::new(Watched::<ClusterDeployment>::default()));
        let kind = term.watch().followed_by(fleet.clone());
        let work = tokio::spawn(kind.run_on(hub.watch("/apis/hive.openshift.io/")));
        Fleet::changed(&*fleet).await;
        assert_eq!(fleet.items().unwrap()[0].full_name(), "ns/demo");
        assert!(!work.is_finished(), "it goes on");
        assert!(term.readiness.answer(true, true).1.contains("clusterdeployments"), "and is in /readyz?verbose");
    }

    /// A rollout over ten thousand targets must not keep ten thousand objects of its own.
    #[test]
    fn what_was_written_is_kept_until_the_watch_has_it() {
        let (objects, mut writer) = reflector::store::<Guarded<ClusterDeployment>>();
        for event in [watcher::Event::Init, watcher::Event::InitApply(object("1")), watcher::Event::InitDone] {
            writer.apply_watcher_event(&event);
        }
        let fleet = Watched::<ClusterDeployment>::default();
        fleet.listed(&objects);
        let only = || fleet.items().unwrap().remove(0);
        let is_of_watch = |item: &Item| std::ptr::addr_eq(Arc::as_ptr(&item.object), Arc::as_ptr(&objects.state()[0]));
        let first = only();
        assert!(is_of_watch(&first) && Arc::ptr_eq(&first, &only()), "read once for each version");
        let reads = fleet.items.lock();
        fleet.keep(Item::of(&Arc::new(object("2"))).unwrap()); // does not wait
        drop(reads);
        assert_eq!((only().version, is_of_watch(&only())), (Some(2), false), "newer than the watch");
        writer.apply_watcher_event(&watcher::Event::Apply(object("2")));
        assert_eq!((only().version, is_of_watch(&only())), (Some(2), true), "the watch has caught up");
    }
}
