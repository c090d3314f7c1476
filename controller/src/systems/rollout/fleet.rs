//! All `ClusterDeployments` as rollouts read them: what the watch of the Hive system brings, and what rollouts have
//! written since.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kube::Resource;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::Store;
use shared::hive::api::ClusterDeployment;
use shared::rollout::observed::Observed;
use tokio::sync::Notify;

use super::checks::Identity;
use crate::cloud_registry::PLATFORMS;
use crate::runtime::hub::{key_of, version};
use crate::runtime::{Follower, Guarded, Key};

/// A `ClusterDeployment` and what rollouts read of it.
#[derive(Debug)]
pub struct Item {
    /// As it was read.
    pub object: Arc<Guarded<ClusterDeployment>>,
    /// What was read of it.
    pub observed: Observed,
}

impl Item {
    fn of(object: &Arc<Guarded<ClusterDeployment>>) -> Option<Arc<Self>> {
        let observed = Observed::of(object.0.as_ref().ok()?, PLATFORMS);
        Some(Arc::new(Self { object: object.clone(), observed }))
    }

    /// Namespace and name.
    pub fn key(&self) -> Key {
        (self.observed.namespace.clone(), self.observed.name.clone())
    }

    /// What tells it from another object of that name.
    pub fn identity(&self) -> Identity {
        (self.key(), self.object.meta().uid.clone().unwrap_or_default())
    }

    /// The object.
    pub fn cluster(&self) -> Option<&ClusterDeployment> {
        self.object.0.as_ref().ok()
    }
}

/// Everything that one watch has brought.
#[derive(Debug, Default)]
struct Known {
    /// The watch's store, once its list was complete.
    objects: Option<Store<Guarded<ClusterDeployment>>>,
    items: HashMap<Key, Arc<Item>>,
}

/// The `ClusterDeployments` of one term of leadership.
#[derive(Debug, Default)]
pub struct Fleet {
    known: Mutex<Known>,
    /// Something has changed.
    pub changes: Notify,
}

impl Fleet {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All objects. `None` until the first list is complete.
    pub fn items(&self) -> Option<Vec<Arc<Item>>> {
        let known = &mut *self.lock();
        let objects = known.objects.as_ref()?.state();
        let mut items = HashMap::with_capacity(objects.len());
        for object in &objects {
            let key = key_of(&**object);
            let kept = known.items.remove(&key).filter(|item| {
                // What was written here is newer until the watch has caught up.
                Arc::ptr_eq(&item.object, object)
                    || (item.object.meta().uid == object.meta().uid && version(&*item.object) > version(&**object))
            });
            items.extend(kept.or_else(|| Item::of(object)).map(|item| (key, item)));
        }
        known.items = items;
        Some(known.items.values().cloned().collect())
    }

    /// Keeps what a write has returned: no plan is to be made on an older object.
    pub fn wrote(&self, cluster: ClusterDeployment) -> Option<Arc<Item>> {
        let item = Item::of(&Arc::new(DeserializeGuard(Ok(cluster))))?;
        self.lock().items.insert(key_of(&*item.object), item.clone());
        Some(item)
    }
}

impl Follower<ClusterDeployment> for Fleet {
    fn listed(&self, objects: &Store<Guarded<ClusterDeployment>>) {
        self.lock().objects = Some(objects.clone());
        self.changes.notify_one();
    }

    fn changed(&self, _: &Key) {
        self.changes.notify_one();
    }
}
