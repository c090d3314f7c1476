//! Requests whose last answer was too large are not sent again at once: a watch that fails is opened again within a
//! second, and each try of a hostile spoke would cost as much as the answers of a hundred others.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::BoxError;
use crate::runtime::backoff::{Backoff, Streak};

/// How long a request is not sent after its answer was too large.
const BACKOFF: Backoff = Backoff { first: Duration::from_secs(5), most: Duration::from_mins(1) };
/// Paths that are remembered. We ask for a handful.
const MAX_PATHS: usize = 64;

/// The paths of one spoke whose last answers were too large.
#[derive(Clone, Debug, Default)]
pub struct RefusedPaths(Arc<Mutex<HashMap<String, Entry>>>);

#[derive(Debug)]
struct Entry {
    until: Instant,
    streak: Streak,
    why: String,
}

impl RefusedPaths {
    /// Why a request for this path is not sent now: what was wrong with the last answer.
    pub fn why(&self, path: &str) -> Option<BoxError> {
        let entries = self.0.lock();
        let entry = entries.get(path).filter(|entry| Instant::now() < entry.until)?;
        Some(entry.why.clone().into())
    }

    /// An answer was too large.
    pub fn add(&self, path: &str, why: &str) {
        let (mut entries, now) = (self.0.lock(), Instant::now());
        entries.retain(|_, entry| now < entry.until + BACKOFF.most);
        let mut streak = entries.get(path).map_or_else(Streak::default, |entry| entry.streak);
        if entries.len() < MAX_PATHS || entries.contains_key(path) {
            let until = now + streak.next(BACKOFF);
            entries.insert(path.to_owned(), Entry { until, streak, why: why.to_owned() });
        }
    }

    /// An answer was fine.
    pub fn remove(&self, path: &str) {
        self.0.lock().remove(path);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn each_answer_in_a_row_that_is_too_large_doubles_the_pause() {
        let refused = RefusedPaths::default();
        let is_refused = |path: &str| refused.why(path).is_some();
        for seconds in [5, 10, 20, 40, 60, 60] {
            refused.add("/nodes", "large");
            sleep(Duration::from_secs(seconds - 1)).await;
            assert!(is_refused("/nodes") && !is_refused("/leases"), "{seconds}");
            sleep(Duration::from_secs(1)).await;
            assert!(!is_refused("/nodes"), "{seconds}");
        }
        refused.add("/nodes", "large");
        assert_eq!(refused.why("/nodes").unwrap().to_string(), "large");
        refused.remove("/nodes");
        assert!(!is_refused("/nodes"));
        for number in 0..2 * MAX_PATHS {
            refused.add(&number.to_string(), "large");
        }
        assert_eq!(refused.0.lock().len(), MAX_PATHS);
    }
}
