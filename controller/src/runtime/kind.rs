//! Watches one kind of object for one or more systems, in one term of leadership.
//!
//! The first system of a kind owns the watch. Another one attaches to it: both share one list, one watch and one store,
//! but each has its own queue, so that neither holds up the other.

use std::sync::Arc;

use futures::channel::mpsc::unbounded;
use futures::future::{BoxFuture, join_all};
use futures::{FutureExt, Stream, StreamExt};
use kube::Api;
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, Store};
use kube::runtime::watcher::{self, Event, watcher};
use parking_lot::Mutex;
use server::hub::Kept;
use shared::text::sanitize_chain;
use tokio::time::Instant;
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
    /// Watches the kind of this system for it.
    pub fn watch<S: System>(&self, system: impl FnOnce(Handle<S::Object>) -> S) -> Kind<S::Object> {
        let (reader, writer) = reflector::store();
        let mut kind = Kind {
            term: self.clone(),
            reader,
            writer,
            systems: Vec::new(),
            settings: None,
            trim: None,
            followers: Vec::new(),
            runs: Vec::new(),
        };
        kind.attach(system);
        kind
    }
}

/// A value of each term: what one term knew is never used in another.
#[derive(Debug, Default)]
pub struct PerTerm<T>(Mutex<Option<(Instant, Arc<T>)>>);

impl<T: Default> PerTerm<T> {
    /// The value of the term that this hub belongs to.
    pub fn of(&self, hub: &Hub) -> Arc<T> {
        let mut current = self.0.lock();
        match &*current {
            Some((began, value)) if *began == hub.began => value.clone(),
            _ => current.insert((hub.began, Arc::default())).1.clone(),
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
    fn failed(&self, error: &watcher::Error) {
        let _ = error;
    }
}

/// A kind of object, and the systems that work on it.
pub struct Kind<K: Object> {
    term: Term,
    reader: Store<Guarded<K>>,
    writer: Writer<Guarded<K>>,
    /// Names of the systems, the owner first.
    systems: Vec<&'static str>,
    /// Of the owner.
    settings: Option<Settings>,
    trim: Option<fn(&mut K)>,
    followers: Vec<Arc<dyn Follower<K>>>,
    /// The reconciles of each system.
    runs: Vec<BoxFuture<'static, ()>>,
}

impl<K: Object> Kind<K> {
    /// Lets another system work on the same objects, with a queue of its own.
    pub fn with<S: System<Object = K>>(mut self, system: Option<impl FnOnce(Handle<K>) -> S>) -> Self {
        if let Some(system) = system {
            self.attach(system);
        }
        self
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

    fn attach<S: System<Object = K>>(&mut self, system: impl FnOnce(Handle<K>) -> S) {
        let (sender, triggers) = unbounded();
        let (hub, watched) = (self.term.hub.clone(), self.reader.clone());
        let handle = Handle { hub, system: S::NAME, watched, triggers: sender };
        let system = system(handle.clone());
        self.settings.get_or_insert(system.settings());
        self.term.readiness.begins(S::NAME, &plural::<K>());
        self.systems.push(S::NAME);
        let reconciler = Arc::new(Reconciler::new(system, handle));
        self.runs.push(reconciler.clone().run(triggers).boxed());
        self.followers.push(reconciler);
    }

    /// Works until it is dropped.
    pub async fn run(self) {
        let objects: Api<Guarded<K>> = Api::all(self.term.hub.watches.clone());
        let (page_size, optional) = self.settings.as_ref().map_or((50, false), |own| (own.page_size, own.optional));
        let backoff = if optional { WatchBackoff::of_optional_kind() } else { WatchBackoff::of_hub() };
        if optional {
            granted::<K>(&self.term, &self.systems).await;
        }
        let events = watcher(objects, watcher::Config::default().page_size(page_size)).backoff(backoff);
        self.run_on(events).await;
    }

    /// Works on these events until they end.
    pub async fn run_on(self, events: impl Stream<Item = watcher::Result<Event<Guarded<K>>>> + Send) {
        let (readiness, mut kept) = (self.term.readiness, Kept::new(self.term.hub.memory));
        let trim = |object: &mut Guarded<K>| {
            slim(object);
            if let (Some(trim), Ok(read)) = (self.trim, &mut object.0) {
                trim(read);
                object.1 = object.1.min(TRIMMED);
            }
        };
        let follow = async {
            let admitted = |event: Event<_>| kept.admitted(event.modify(trim));
            let mut admitted = admitted;
            let events = events.map(|event| event.map(&mut admitted)).reflect(self.writer);
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

/// Makes the systems of one kind anew for each term, and after a panic that no single target accounts for.
pub type Group = Box<dyn Fn(&Term) -> BoxFuture<'static, ()> + Send + Sync>;

/// Registers the systems of one kind.
pub fn group<K: Object>(kind: impl Fn(&Term) -> Kind<K> + Send + Sync + 'static) -> Group {
    Box::new(move |term| kind(term).run().boxed())
}

/// Runs all systems for one term of leadership, until it is dropped.
pub async fn run(groups: &[Group], term: Term) {
    let panics = Panics::of("runtime", term.hub.metrics.clone());
    join_all(groups.iter().map(|group| panics.keep_alive("a watch", || group(&term)))).await;
}
