//! Rate limit of log lines that repeat themselves: one a minute for each subject and name, with the count of those left
//! out.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Shortest time between two warnings about the same thing.
const PERIOD: Duration = Duration::from_mins(1);
/// Names that are told apart unless [`Warnings::of_at_most`] says otherwise.
const MAX_NAMES: usize = 20_000;

/// When what was last logged.
///
/// Names may be a stranger's, as many and as long as it likes: a hash of each is kept, and past the limit all others of
/// a subject count as one name.
#[derive(Clone, Debug)]
pub struct Warnings {
    names: usize,
    hashes: RandomState,
    last: Arc<Mutex<Last>>,
}

#[derive(Debug)]
struct Last {
    entries: HashMap<(&'static str, u64), Entry>,
    /// When those that no longer matter were dropped.
    swept: Instant,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    logged: Instant,
    left_out: u64,
}

impl Default for Warnings {
    fn default() -> Self {
        Self::of_at_most(MAX_NAMES)
    }
}

impl Warnings {
    /// Tells so many names apart.
    pub fn of_at_most(names: usize) -> Self {
        let last = Last { entries: HashMap::new(), swept: Instant::now() };
        Self { names, hashes: RandomState::new(), last: Arc::new(Mutex::new(last)) }
    }

    /// How many warnings were left out since the last one, if one may be logged now.
    pub fn due(&self, about: &'static str, name: &str) -> Option<u64> {
        let now = Instant::now();
        let mut last = self.last.lock();
        let mut key = (about, self.hashes.hash_one(name));
        if last.entries.len() >= self.names && !last.entries.contains_key(&key) {
            if now.duration_since(last.swept) >= PERIOD {
                last.entries.retain(|_, entry| now.duration_since(entry.logged) < PERIOD);
                last.swept = now;
            }
            if last.entries.len() >= self.names {
                key.1 = 0;
            }
        }
        let Some(entry) = last.entries.get_mut(&key) else {
            last.entries.insert(key, Entry { logged: now, left_out: 0 });
            return Some(0);
        };
        if now.duration_since(entry.logged) < PERIOD {
            entry.left_out += 1;
            return None;
        }
        let left_out = entry.left_out;
        *entry = Entry { logged: now, left_out: 0 };
        Some(left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_warning_a_minute_with_the_count_of_those_left_out() {
        let warnings = Warnings::default();
        let mut logged = Vec::new();
        for second in 0..150_u64 {
            logged.extend(warnings.due("spoke", "ns/a").map(|left_out| (second, left_out)));
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(logged, [(0, 0), (60, 59), (120, 59)]);
        assert_eq!(warnings.due("spoke", "ns/b"), Some(0), "another target");
        assert_eq!(warnings.due("cloud", "ns/a"), Some(0), "another subject");
    }

    /// A stranger chooses the names: 20,000 in a minute, and again after it.
    #[tokio::test(start_paused = true)]
    async fn names_without_end_take_bounded_memory_and_few_lines() {
        let warnings = Warnings::of_at_most(100);
        for minute in 0..3 {
            let names = (0..20_000).map(|number| format!("{minute} {number}"));
            let lines: Vec<u64> = names.filter_map(|name| warnings.due("V6", &name)).collect();
            assert!((100..=101).contains(&lines.len()), "{} in minute {minute}", lines.len());
            assert!(warnings.last.lock().entries.len() <= 101);
            tokio::time::sleep(PERIOD).await;
        }
        assert_eq!(warnings.due("V6", "2 1"), Some(0), "what no longer matters is dropped");
    }
}
