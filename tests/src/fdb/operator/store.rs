//! What the operator has seen of its namespace, and what wakes it.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fdb_simulator::operator::Kind;
use futures::StreamExt as _;
use kube::api::{ApiResource, DynamicObject};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::fdb::{self, KIND};

const KINDS: [Kind; 4] = [Kind::Cluster, Kind::Pod, Kind::Claim, Kind::Service];

fn resource(kind: Kind) -> ApiResource {
    match kind {
        Kind::Cluster => fdb::resource(),
        other => ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", other.name())),
    }
}

#[derive(Default)]
struct Seen {
    objects: HashMap<(Kind, String), Arc<DynamicObject>>,
    gone: HashSet<String>,
    listed: HashSet<Kind>,
}

/// The objects of one namespace, kept up to date by watches and by the operator's own writes.
pub struct Store {
    client: Client,
    namespace: String,
    seen: Arc<Mutex<Seen>>,
    _watches: JoinSet<()>,
}

impl Store {
    /// Begins to watch. Whatever wakes the operator of a cluster is sent, in words.
    pub fn start(client: &Client, namespace: &str, cluster: &str, wakes: &mpsc::UnboundedSender<String>) -> Self {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let mut watches = JoinSet::new();
        for kind in KINDS {
            let api = Api::namespaced_with(client.clone(), namespace, &resource(kind));
            watches.spawn(watch(api, kind, cluster.to_owned(), seen.clone(), wakes.clone()));
        }
        Self { client: client.clone(), namespace: namespace.to_owned(), seen, _watches: watches }
    }

    /// Whether every kind has been listed.
    pub fn is_complete(&self) -> bool {
        lock(&self.seen).listed.len() == KINDS.len()
    }

    /// An API of a kind.
    pub fn api(&self, kind: Kind) -> Api<DynamicObject> {
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource(kind))
    }

    /// An object.
    pub fn get(&self, kind: Kind, name: &str) -> Option<Arc<DynamicObject>> {
        lock(&self.seen).objects.get(&(kind, name.to_owned())).cloned()
    }

    /// Every object of a kind.
    pub fn all(&self, kind: Kind) -> Vec<Arc<DynamicObject>> {
        lock(&self.seen).objects.iter().filter(|((of, _), _)| *of == kind).map(|(_, object)| object.clone()).collect()
    }

    /// Takes in the answer to a write of one's own.
    pub fn put(&self, kind: Kind, object: DynamicObject) {
        lock(&self.seen).put(kind, object);
    }

    /// Takes in that an object is gone.
    pub fn remove(&self, kind: Kind, object: &DynamicObject) {
        lock(&self.seen).remove(kind, object);
    }
}

impl Seen {
    fn put(&mut self, kind: Kind, object: DynamicObject) {
        let key = (kind, object.name_any());
        let newer = self.objects.get(&key).is_none_or(|old| version(old) <= version(&object));
        if newer && !self.gone.contains(&object.uid().unwrap_or_default()) {
            self.objects.insert(key, Arc::new(object));
        }
    }

    fn remove(&mut self, kind: Kind, object: &DynamicObject) {
        let (key, uid) = ((kind, object.name_any()), object.uid().unwrap_or_default());
        if self.objects.get(&key).is_some_and(|old| old.uid().unwrap_or_default() == uid) {
            self.objects.remove(&key);
        }
        self.gone.insert(uid);
    }
}

fn version(object: &DynamicObject) -> u64 {
    object.metadata.resource_version.as_deref().and_then(|version| version.parse().ok()).unwrap_or_default()
}

/// What an update has to change to wake the operator: generation, annotations or labels. Not status, not finalizers.
type Mark = (Option<i64>, String);

fn mark(object: &DynamicObject) -> Mark {
    let metadata = &object.metadata;
    (metadata.generation, format!("{:?}{:?}", metadata.annotations, metadata.labels))
}

async fn watch(
    api: Api<DynamicObject>,
    kind: Kind,
    cluster: String,
    seen: Arc<Mutex<Seen>>,
    wakes: mpsc::UnboundedSender<String>,
) {
    let mut marks: HashMap<String, Mark> = HashMap::new();
    let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
    while let Some(event) = events.next().await {
        let (object, what) = match event {
            Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) => {
                let (uid, new) = (object.uid().unwrap_or_default(), mark(&object));
                let old = marks.insert(uid, new.clone());
                lock(&seen).put(kind, object.clone());
                let what = match old {
                    None => "created",
                    Some(old) if old != new => "changed",
                    Some(_) => continue,
                };
                (object, what)
            }
            Ok(watcher::Event::Delete(object)) => {
                marks.remove(&object.uid().unwrap_or_default());
                lock(&seen).remove(kind, &object);
                (object, "deleted")
            }
            Ok(watcher::Event::InitDone) => {
                lock(&seen).listed.insert(kind);
                continue;
            }
            Ok(watcher::Event::Init) | Err(_) => continue,
        };
        let is_owner = |owner: &k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference| {
            owner.kind == KIND && owner.name == cluster
        };
        let ours = match kind {
            Kind::Cluster => object.name_any() == cluster,
            _ => object.metadata.owner_references.iter().flatten().any(is_owner),
        };
        if ours && wakes.send(format!("{} {} {what}", kind.name(), object.name_any())).is_err() {
            return;
        }
    }
}

fn lock(seen: &Mutex<Seen>) -> MutexGuard<'_, Seen> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}
