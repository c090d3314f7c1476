//! How many looks are due and have not begun.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;

use tokio::time::Instant;

/// When each target is to be looked at. kube's runner keeps its own queue to itself, so this one is kept beside it, by hashes.
#[derive(Debug, Default)]
pub struct Queue {
    due: Mutex<HashMap<u64, Instant>>,
}

impl Queue {
    /// A look is due at this moment, unless one is sooner.
    pub fn add(&self, target: &impl Hash, at: Instant) {
        if let Ok(mut due) = self.due.lock() {
            due.entry(key(target)).and_modify(|due| *due = at.min(*due)).or_insert(at);
        }
    }

    /// A look has begun, or none is needed any more.
    pub fn take(&self, target: &impl Hash) {
        if let Ok(mut due) = self.due.lock() {
            due.remove(&key(target));
        }
    }

    /// Nobody is to look at anything.
    pub fn clear(&self) {
        if let Ok(mut due) = self.due.lock() {
            due.clear();
        }
    }

    /// Looks that are due now.
    pub fn depth(&self, now: Instant) -> usize {
        self.due.lock().map_or(0, |due| due.values().filter(|at| **at <= now).count())
    }
}

fn key(target: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    target.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_due_and_has_not_begun_is_counted() {
        let (queue, now) = (Queue::default(), Instant::now());
        let later = now + Duration::from_secs(1);
        queue.add(&"a", now);
        queue.add(&"b", later);
        assert_eq!((queue.depth(now), queue.depth(later)), (1, 2));
        queue.add(&"a", later);
        queue.add(&"b", now);
        assert_eq!(queue.depth(now), 2, "the sooner moment counts");
        queue.take(&"a");
        assert_eq!(queue.depth(later), 1);
        queue.clear();
        assert_eq!(queue.depth(later), 0);
    }
}
