//! Instances that EC2 refused recently. Each try spends one call on them, separate from all other instances.
//!
//! EC2 names one instance and refuses the whole batch, so finding all refused instances costs a call for each. The
//! first try pays that; while nothing changes, later tries must not pay it again. Refused instances therefore share one
//! call, and the one that EC2 names is skipped until EC2 has named all the others. When the cause goes away for one of
//! them, its call succeeds after at most as many tries as there are others.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use shared::cloud::Refusal;
use tokio::time::Instant;

/// Longer than any pause between two tries.
const REFUSAL_TTL: Duration = Duration::from_mins(3);

/// The instances that one kind of call was refused for.
#[derive(Debug, Default)]
pub(crate) struct RefusalCache {
    all: Mutex<HashMap<String, CacheEntry>>,
}

#[derive(Debug)]
struct CacheEntry {
    refusal: Refusal,
    at: Instant,
    /// EC2 named it since the last call for all of them: this try skips it.
    sits_out: bool,
}

impl RefusalCache {
    /// The recently refused instances, and the others; each in the order given.
    pub(crate) fn split(&self, ids: Vec<String>) -> (Vec<String>, Vec<String>) {
        let mut all = self.all.lock();
        all.retain(|_, known| known.at.elapsed() < REFUSAL_TTL);
        ids.into_iter().partition(|id| all.contains_key(id))
    }

    /// The instances to try, and those to skip. When all were skipped once, the cycle restarts.
    pub(crate) fn turn(&self, ids: Vec<String>) -> (Vec<String>, Vec<String>) {
        let mut all = self.all.lock();
        let (out, turn): (Vec<_>, Vec<_>) =
            ids.into_iter().partition(|id| all.get(id).is_some_and(|known| known.sits_out));
        if !turn.is_empty() {
            return (turn, out);
        }
        for id in &out {
            if let Some(known) = all.get_mut(id) {
                known.sits_out = false;
            }
        }
        (out, turn)
    }

    /// Adds a refusal. An instance that sits out goes on doing so.
    pub(crate) fn remember(&self, refusal: &Refusal, sits_out: bool) {
        let mut all = self.all.lock();
        let sits_out = sits_out || all.get(&refusal.id).is_some_and(|known| known.sits_out);
        all.insert(refusal.id.clone(), CacheEntry { refusal: refusal.clone(), at: Instant::now(), sits_out });
    }

    /// The earlier refusals of those who were not named this time.
    pub(crate) fn again(&self, ids: &[String]) -> Vec<Refusal> {
        let mut all = self.all.lock();
        let known = ids.iter().filter_map(|id| {
            let known = all.get_mut(id)?;
            known.at = Instant::now();
            Some(known.refusal.clone())
        });
        known.collect()
    }

    /// Drops instances that were moved.
    pub(crate) fn forget(&self, ids: &[String]) {
        let mut all = self.all.lock();
        for id in ids {
            all.remove(id);
        }
    }
}
