//! Readers of a watch that do not reconcile: they receive its changes.

use std::sync::Arc;

use futures::FutureExt;
use futures::channel::mpsc::UnboundedReceiver;
use futures::future::BoxFuture;
use kube::runtime::reflector::Store;

use super::worker::Worker;
use super::{Guarded, Key, Object};

/// Receives the changes of a watch. Called on the task of the watch: it must not block.
pub trait Follower<K: Object>: Send + Sync + 'static {
    /// The list is complete: these are all objects, and the store is kept up to date from here on.
    fn listed(&self, objects: &Store<Guarded<K>>);
    /// An object was added, has changed or is gone.
    fn changed(&self, key: &Key);
}

/// A follower as its watch sees it.
pub(super) struct Following<F>(pub(super) Arc<F>);

impl<K: Object, F: Follower<K>> Worker<K> for Following<F> {
    fn changed(&self, key: Key) {
        self.0.changed(&key);
    }

    fn gone(&self, key: &Key) {
        self.0.changed(key);
    }

    fn listed(&self, watched: &Store<Guarded<K>>) {
        self.0.listed(watched);
    }

    fn run(self: Arc<Self>, _: UnboundedReceiver<Key>) -> BoxFuture<'static, ()> {
        std::future::pending().boxed()
    }
}
