//! A system as the watch of its kind sees it.

use std::sync::Arc;

use futures::channel::mpsc::UnboundedReceiver;
use futures::future::BoxFuture;
use kube::runtime::reflector::{ObjectRef, Store};

use super::{Guarded, Key, Object};

/// A system as its watch sees it.
pub(super) trait Worker<K: Object>: Send + Sync {
    /// An object was added or has changed.
    fn changed(&self, key: Key);
    /// An object is gone.
    fn gone(&self, key: &Key);
    /// All objects are listed: what is not among them is gone.
    fn listed(&self, watched: &Store<Guarded<K>>);
    /// Reconciles until it is dropped.
    fn run(self: Arc<Self>, triggers: UnboundedReceiver<Key>) -> BoxFuture<'static, ()>;
}

/// Whether an object is watched.
pub(super) fn is_watched<K: Object>(watched: &Store<Guarded<K>>, key: &Key) -> bool {
    let (namespace, name) = key;
    watched.get(&ObjectRef::new(name).within(namespace)).is_some()
}
