//! What a controller has in its cache: the objects of a kind, by a watch.

use std::fmt::Debug;
use std::hash::Hash;
use std::pin::pin;
use std::sync::Arc;

use futures::StreamExt as _;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;

/// The objects of a kind. The watch ends with this.
pub(crate) struct Watched<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    store: Store<K>,
    task: JoinHandle<()>,
}

impl<K> Watched<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync + Unpin,
{
    /// Begins to watch. `see` gets each event, in order.
    pub(crate) fn start(
        api: Api<K>,
        kind: K::DynamicType,
        mut see: impl FnMut(&watcher::Event<K>) + Send + 'static,
    ) -> Self {
        let writer = Writer::new(kind);
        let store = writer.as_reader();
        let task = tokio::spawn(async move {
            let events = reflector::reflector(writer, watcher(api, watcher::Config::default()).default_backoff());
            let mut events = pin!(events);
            while let Some(event) = events.next().await {
                match event {
                    Ok(event) => see(&event),
                    Err(error) => tracing::debug!(%error, "a watch of the KKP double"),
                }
            }
        });
        Self { store, task }
    }

    /// The same without a listener.
    pub(crate) fn quiet(api: Api<K>, kind: K::DynamicType) -> Self {
        Self::start(api, kind, |_| {})
    }

    /// All of them, as they were seen last.
    pub(crate) fn all(&self) -> Vec<Arc<K>> {
        self.store.state()
    }

    /// The one of this name.
    pub(crate) fn named(&self, name: &str) -> Option<Arc<K>> {
        self.store.find(|object| object.meta().name.as_deref() == Some(name))
    }
}

impl<K> Drop for Watched<K>
where
    K: Resource + Clone + 'static,
    K::DynamicType: Eq + Hash + Clone,
{
    fn drop(&mut self) {
        self.task.abort();
    }
}
