//! What EC2 has refused of late: such instances are asked for again by one call a try, apart from all others.
//!
//! EC2 names one instance and refuses the whole batch. To find everybody who is to blame takes a call for each of them, which is
//! right once; but while nothing changes, every later try would cost the same calls again. So whoever was refused is asked for
//! together with the others like it, and whoever is named then sits out until all the others were named, too. When the cause is
//! gone for one of them only, its turn comes after as many tries as there are others at the most.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

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
    /// It was named since everybody was asked for last, and sits this one out.
    sits_out: bool,
}

impl Refused {
    /// Who was refused of late, and who was not; each in the order given.
    pub(crate) fn split(&self, ids: Vec<String>) -> (Vec<String>, Vec<String>) {
        self.with(|all| {
            all.retain(|_, known| known.at.elapsed() < REMEMBERED);
            ids.into_iter().partition(|id| all.contains_key(id))
        })
    }

    /// Whose turn it is, and who sits this one out. When all of them have sat out, it begins anew.
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
        change(&mut self.all.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
