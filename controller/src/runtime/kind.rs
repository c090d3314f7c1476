//! Watches one kind of object for the systems that work on it and for its followers, in one term of leadership.
//!
//! All share one list, one watch and one store, but each system has its own queue, so that none holds up another. The
//! first one sets the limits of the watch.

use std::borrow::Cow;
use std::sync::Arc;

use futures::channel::mpsc::unbounded;
use futures::future::{self, BoxFuture, join_all};
use futures::{FutureExt, Stream, StreamExt};
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{self, Event, watcher};
use server::WatchMemory;
use shared::text::sanitize_chain;
use tracing::debug;

use super::hub::{key_of, slim};
use super::panics::Panics;
use super::readiness::Readiness;
use super::reconcile::Reconciler;
use super::watch_backoff::WatchBackoff;
use super::{Guarded, Handle, Hub, Key, Object, Settings, System};

/// Bytes of an object of which only a part is kept.
const TRIMMED: usize = 8 << 10;

/// One term of leadership.
#[derive(Clone)]
pub struct Term {
    /// The hub in this term.
    pub hub: Hub,
    /// Receives the state of the watches.
    pub readiness: Arc<Readiness>,
}

impl Term {
    /// Watches a kind.
    pub fn watch<K: Object>(&self) -> Kind<K> {
        let (reader, writer) = reflector::store();
        Kind {
            term: self.clone(),
            reader,
            writer,
            systems: Vec::new(),
            settings: None,
            trim: None,
            followers: Vec::new(),
            runs: vec![future::pending().boxed()],
        }
    }
}

/// Receives the changes of a watch. Called on the task of the watch: it must not block.
pub trait Follower<K: Object>: Send + Sync + 'static {
    /// The list is complete: these are all objects, and the store is kept up to date from here on.
    fn listed(&self, objects: &Store<Guarded<K>>);

    /// An object was added, has changed or is gone.
    fn changed(&self, key: &Key);

    /// An object is gone.
    fn gone(&self, key: &Key) {
        self.changed(key);
    }

    /// The watch was interrupted, and is tried again.
    fn failed(&self, _error: &watcher::Error) {}
}

/// A kind of object, the systems that work on it, and those who follow it.
pub struct Kind<K: Object> {
    term: Term,
    reader: Store<Guarded<K>>,
    writer: Writer<Guarded<K>>,
    /// Names of the systems.
    systems: Vec<&'static str>,
    /// Of the first of them.
    settings: Option<Settings>,
    trim: Option<fn(&mut K)>,
    followers: Vec<Arc<dyn Follower<K>>>,
    /// The reconciles of each system.
    runs: Vec<BoxFuture<'static, ()>>,
}

impl<K: Object> Kind<K> {
    /// Lets a system work on the objects, with a queue of its own.
    pub fn with<S: System<Object = K>>(mut self, system: impl FnOnce(Handle<K>) -> S) -> Self {
        let (sender, triggers) = unbounded();
        let (hub, watched) = (self.term.hub.clone(), self.reader.clone());
        let handle = Handle { hub, system: S::NAME, action: S::ACTION, watched, triggers: sender };
        let system = system(handle.clone());
        self.settings.get_or_insert(S::SETTINGS);
        self.begins(S::NAME);
        let reconciler = Arc::new(Reconciler::new(system, handle));
        self.runs.push(reconciler.clone().run(triggers).boxed());
        self.followers.push(reconciler);
        self
    }

    fn begins(&mut self, system: &'static str) {
        self.term.readiness.begins(system, &plural::<K>());
        self.systems.push(system);
    }

    /// Tells this reader, too, what the watch brings, and before the systems: what they decide may depend on it.
    pub fn followed_by<F: Follower<K>>(mut self, follower: Arc<F>) -> Self {
        self.followers.insert(0, follower);
        self
    }

    /// Keeps of each object only what this leaves of it: tenants may make the rest large.
    pub fn trimmed_by(mut self, trim: fn(&mut K)) -> Self {
        self.trim = Some(trim);
        self
    }

    /// In `/readyz?verbose`, a kind without a system has its own name.
    fn named(&mut self) {
        if let (true, Cow::Borrowed(name)) = (self.systems.is_empty(), K::plural(&())) {
            self.begins(name);
        }
    }

    /// Works until it is dropped.
    pub async fn run(mut self) {
        self.named();
        let objects: Api<Guarded<K>> = Api::all(self.term.hub.watches.clone());
        let (page_size, optional) = self.settings.as_ref().map_or((50, true), |own| (own.page_size, own.optional));
        let backoff = if optional { WatchBackoff::of_optional_kind() } else { WatchBackoff::of_hub() };
        if optional {
            granted::<K>(&self.term, &self.systems).await;
        }
        let events = watcher(objects, watcher::Config::default().page_size(page_size)).backoff(backoff);
        self.run_on(events).await;
    }

    /// Works on these events until they end.
    pub async fn run_on(mut self, events: impl Stream<Item = watcher::Result<Event<Guarded<K>>>> + Send) {
        self.named();
        let (readiness, mut memory) = (self.term.readiness, WatchMemory::new(self.term.hub.memory));
        let trim = |object: &mut Guarded<K>| {
            slim(object);
            if let (Some(trim), Ok(read)) = (self.trim, &mut object.0) {
                trim(read);
                object.1 = object.1.min(TRIMMED);
            }
        };
        let follow = async {
            let mut charge = |event: Event<_>| memory.charge(event.modify(trim));
            let events = events.map(|event| event.map(&mut charge)).reflect(self.writer);
            let mut events = std::pin::pin!(events);
            let mut listed: Option<Vec<Key>> = None;
            while let Some(event) = events.next().await {
                match event {
                    Ok(Event::Init) => {
                        listed = Some(Vec::new());
                        continue; // no answer yet
                    }
                    // The store has them when the list is complete.
                    Ok(Event::InitApply(object)) => listed.get_or_insert_default().push(key_of(&object)),
                    Ok(Event::InitDone) => {
                        let listed = listed.take().unwrap_or_default();
                        for follower in &self.followers {
                            follower.listed(&self.reader);
                            for key in &listed {
                                follower.changed(key);
                            }
                        }
                    }
                    Ok(Event::Apply(object)) => {
                        let key = key_of(&object);
                        self.followers.iter().for_each(|follower| follower.changed(&key));
                    }
                    Ok(Event::Delete(object)) => {
                        let key = key_of(&object);
                        self.followers.iter().for_each(|follower| follower.gone(&key));
                    }
                    Err(error) => {
                        debug!(systems = ?self.systems, error = sanitize_chain(&error), "watch interrupted");
                        self.followers.iter().for_each(|follower| follower.failed(&error));
                        for system in &self.systems {
                            readiness.fails(system, &error);
                        }
                        continue;
                    }
                }
                for system in &self.systems {
                    readiness.works(system);
                }
            }
        };
        tokio::select! {
            () = follow => {}
            _ = join_all(self.runs) => {}
        }
    }
}

/// Waits until the hub lets us list a kind, without a request that it would refuse.
fn granted<K: Object>(term: &Term, systems: &[&'static str]) -> impl Future<Output = ()> + Send + use<K> {
    let (term, systems, mut pauses) = (term.clone(), systems.to_vec(), WatchBackoff::of_optional_kind());
    async move {
        while !server::hub::may_list::<K>(&term.hub.client).await {
            for system in &systems {
                term.readiness.denied(system);
            }
            tokio::time::sleep(pauses.next().unwrap_or_default()).await;
        }
    }
}

/// `clusterdeployments.hive.openshift.io`.
fn plural<K: Object>() -> String {
    format!("{}.{}", K::plural(&()), K::group(&())).trim_end_matches('.').to_owned()
}

/// Makes the systems of one kind, and makes them anew after a panic that no single target accounts for.
pub type Group<'a> = Box<dyn Fn() -> BoxFuture<'static, ()> + Send + Sync + 'a>;

/// Registers a kind.
pub fn group<'a, K: Object>(kind: impl Fn() -> Kind<K> + Send + Sync + 'a) -> Group<'a> {
    Box::new(move || kind().run().boxed())
}

/// Runs all kinds for one term of leadership, until it is dropped.
pub async fn run(groups: &[Group<'_>], hub: &Hub) {
    let panics = Panics::of("runtime", hub.metrics.clone());
    join_all(groups.iter().map(|group| panics.keep_alive("a watch", group))).await;
}
