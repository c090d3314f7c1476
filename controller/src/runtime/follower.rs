//! Whoever receives the changes of a watch: the systems that reconcile, and readers that do not.

use kube::runtime::reflector::Store;

use super::{Guarded, Key, Object};

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
}
