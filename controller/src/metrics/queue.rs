//! The depth of the reconcile queues.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::runtime::hash;

/// When each target of each system is due, by the hash of its key.
#[derive(Debug, Default)]
pub struct Queue {
    due: Mutex<BTreeMap<&'static str, HashMap<u64, Instant>>>,
}

impl Queue {
    /// Shows the queue of a system even while it is empty.
    pub fn begin(&self, system: &'static str) {
        self.due.lock().entry(system).or_default();
    }

    /// A reconcile is due then, unless one is due sooner.
    pub fn add(&self, system: &'static str, target: &impl Hash, at: Instant) {
        let mut due = self.due.lock();
        due.entry(system).or_default().entry(hash(target)).and_modify(|due| *due = at.min(*due)).or_insert(at);
    }

    /// A reconcile has started, or is not needed any more.
    pub fn take(&self, system: &'static str, target: &impl Hash) {
        if let Some(due) = self.due.lock().get_mut(system) {
            due.remove(&hash(target));
        }
    }

    pub fn clear(&self) {
        self.due.lock().values_mut().for_each(HashMap::clear);
    }

    /// Reconciles that are due and have not started, by system.
    pub fn depth(&self, now: Instant) -> BTreeMap<&'static str, i64> {
        let count = |due: &HashMap<u64, Instant>| due.values().filter(|at| **at <= now).count();
        self.due.lock().iter().map(|(system, due)| (*system, i64::try_from(count(due)).unwrap_or(i64::MAX))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_due_and_has_not_begun_is_counted() {
        let (queue, now) = (Queue::default(), Instant::now());
        let later = now + Duration::from_secs(1);
        let depth = |at| queue.depth(at).get("hive").copied();
        assert_eq!(depth(now), None);
        queue.begin("hive");
        assert_eq!(depth(now), Some(0));
        queue.add("hive", &"a", now);
        queue.add("fdb", &"a", now);
        queue.add("hive", &"b", later);
        assert_eq!((depth(now), depth(later)), (Some(1), Some(2)));
        queue.add("hive", &"a", later);
        queue.add("hive", &"b", now);
        assert_eq!(depth(now), Some(2), "the sooner moment counts");
        queue.take("hive", &"a");
        assert_eq!(depth(later), Some(1));
        queue.clear();
        assert_eq!(depth(later), Some(0));
    }
}
