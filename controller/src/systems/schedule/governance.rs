//! What schedules and rollouts know of each other: which schedule governs a target, and which schedules have
//! rollouts that have changed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use kube::runtime::reflector::Store;
use parking_lot::Mutex;
use shared::rollout::api::PowerRollout;
use shared::schedule::api::{ClusterPowerSchedule, PowerSchedule, Schedule};
use shared::schedule::governs::{Governor, Governors};
use tokio::sync::Notify;

use crate::runtime::hub::object_ref;
use crate::runtime::{Follower, Guarded, Key, Object};
use crate::systems::guard::Namespaces;

/// All schedules of a hub, and what follows from them.
#[derive(Default)]
pub struct Governance {
    own: Mutex<Option<Store<Guarded<PowerSchedule>>>>,
    everywhere: Mutex<Option<Store<Guarded<ClusterPowerSchedule>>>>,
    /// Changes that the watches have brought.
    changes: AtomicU64,
    /// The answer, and at which change it was found.
    kept: Mutex<Option<(u64, Arc<Governors>)>>,
    /// The labels of every namespace.
    pub namespaces: Namespaces,
}

impl Governance {
    /// Which schedules govern. None until both lists are complete.
    pub fn governors(&self) -> Option<Arc<Governors>> {
        // Before the objects are read: what changes meanwhile voids the answer.
        let change = self.changes.load(Ordering::Acquire);
        if let Some((of, kept)) = &*self.kept.lock()
            && *of == change
        {
            return Some(kept.clone());
        }
        let governors = Arc::new(Governors::new(all(&self.own)?.into_iter().chain(all(&self.everywhere)?)));
        *self.kept.lock() = Some((change, governors.clone()));
        Some(governors)
    }
}

/// The schedules of one watch, as far as they can be read.
fn all<S: Schedule + Object>(store: &Mutex<Option<Store<Guarded<S>>>>) -> Option<Vec<Governor>> {
    let objects = store.lock().as_ref()?.state();
    Some(objects.iter().filter_map(|one| one.0.as_ref().ok()).map(Governor::of).collect())
}

impl Follower<PowerSchedule> for Governance {
    fn listed(&self, objects: &Store<Guarded<PowerSchedule>>) {
        *self.own.lock() = Some(objects.clone());
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    fn changed(&self, _: &Key) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }
}

impl Follower<ClusterPowerSchedule> for Governance {
    fn listed(&self, objects: &Store<Guarded<ClusterPowerSchedule>>) {
        *self.everywhere.lock() = Some(objects.clone());
        self.changes.fetch_add(1, Ordering::AcqRel);
    }

    fn changed(&self, _: &Key) {
        self.changes.fetch_add(1, Ordering::AcqRel);
    }
}

/// The rollouts of schedules.
#[derive(Default)]
pub struct ScheduledRollouts {
    rollouts: Mutex<Option<Store<Guarded<PowerRollout>>>>,
    own: Changed,
    everywhere: Changed,
}

/// Schedules of one kind whose rollouts have changed.
#[derive(Default)]
struct Changed {
    keys: Mutex<BTreeSet<Key>>,
    notify: Notify,
}

impl ScheduledRollouts {
    /// The rollout of this name.
    pub fn find(&self, name: &str) -> Option<Arc<PowerRollout>> {
        let rollouts = self.rollouts.lock();
        let found = rollouts.as_ref()?.get(&object_ref((String::new(), name.to_owned())))?;
        found.0.as_ref().ok().cloned().map(Arc::new)
    }

    /// Waits until rollouts of schedules of this kind change. Which schedules these are.
    pub async fn changed(&self, kind: &str) -> BTreeSet<Key> {
        let changed = self.of(kind);
        changed.notify.notified().await;
        std::mem::take(&mut changed.keys.lock())
    }

    fn of(&self, kind: &str) -> &Changed {
        if kind == shared::schedule::api::POWER_SCHEDULE.kind { &self.own } else { &self.everywhere }
    }
}

impl Follower<PowerRollout> for ScheduledRollouts {
    fn listed(&self, objects: &Store<Guarded<PowerRollout>>) {
        *self.rollouts.lock() = Some(objects.clone());
    }

    fn changed(&self, (_, name): &Key) {
        let Some(by) = self.find(name).and_then(|rollout| rollout.spec.scheduled_by.clone()) else { return };
        let changed = self.of(&by.kind);
        changed.keys.lock().insert((by.namespace, by.name));
        changed.notify.notify_one();
    }
}
