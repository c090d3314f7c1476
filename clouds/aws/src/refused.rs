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
const REMEMBERED: Duration = Duration::from_mins(3);

/// The instances that one kind of call was refused for.
#[derive(Debug, Default)]
pub(crate) struct Refused {
    all: Mutex<HashMap<String, Known>>,
}

#[derive(Debug)]
struct Known {
    refusal: Refusal,
    at: Instant,
    /// EC2 named it since the last call for all of them: this try skips it.
    sits_out: bool,
}

impl Refused {
    /// The recently refused instances, and the others; each in the order given.
    pub(crate) fn split(&self, ids: Vec<String>) -> (Vec<String>, Vec<String>) {
        self.with(|all| {
            all.retain(|_, known| known.at.elapsed() < REMEMBERED);
            ids.into_iter().partition(|id| all.contains_key(id))
        })
    }

    /// The instances to try, and those to skip. When all were skipped once, the cycle restarts.
    pub(crate) fn turn(&self, ids: Vec<String>) -> (Vec<String>, Vec<String>) {
        self.with(|all| {
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
        })
    }

    /// It is refused again, or for the first time. Whoever sits out goes on doing so.
    pub(crate) fn remember(&self, refusal: &Refusal, sits_out: bool) {
        self.with(|all| {
            let sits_out = sits_out || all.get(&refusal.id).is_some_and(|known| known.sits_out);
            all.insert(refusal.id.clone(), Known { refusal: refusal.clone(), at: Instant::now(), sits_out });
        });
    }

    /// What was said of those who were not named this time.
    pub(crate) fn again(&self, ids: &[String]) -> Vec<Refusal> {
        self.with(|all| {
            let known = ids.iter().filter_map(|id| {
                let known = all.get_mut(id)?;
                known.at = Instant::now();
                Some(known.refusal.clone())
            });
            known.collect()
        })
    }

    /// They have been moved.
    pub(crate) fn forget(&self, ids: &[String]) {
        self.with(|all| ids.iter().for_each(|id| drop(all.remove(id))));
    }

    fn with<T>(&self, change: impl FnOnce(&mut HashMap<String, Known>) -> T) -> T {
        change(&mut self.all.lock())
    }
}
