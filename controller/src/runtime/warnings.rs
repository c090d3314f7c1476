//! Rate limit of log lines that repeat themselves: one a minute for each target and subject, with the count of those left out.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// Shortest time between two warnings about the same thing.
const PERIOD: Duration = Duration::from_mins(1);
/// Entries above which those that no longer matter are dropped.
const MAX_ENTRIES: usize = 20_000;

/// When what was last logged.
#[derive(Clone, Debug, Default)]
pub struct Warnings {
    last: Arc<Mutex<HashMap<(&'static str, String), Entry>>>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    logged: Instant,
    left_out: u64,
}

impl Warnings {
    /// How many warnings were left out since the last one, if one may be logged now.
    pub fn due(&self, about: &'static str, name: &str) -> Option<u64> {
        let now = Instant::now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.len() >= MAX_ENTRIES {
            last.retain(|_, entry| now.duration_since(entry.logged) < PERIOD);
        }
        let Some(entry) = last.get_mut(&(about, name.to_owned())) else {
            last.insert((about, name.to_owned()), Entry { logged: now, left_out: 0 });
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

    #[tokio::test(start_paused = true)]
    async fn entries_that_no_longer_matter_are_dropped() {
        let warnings = Warnings::default();
        for number in 0..MAX_ENTRIES {
            warnings.due("spoke", &number.to_string());
        }
        tokio::time::sleep(PERIOD).await;
        warnings.due("spoke", "one more");
        assert_eq!(warnings.last.lock().unwrap().len(), 1);
    }
}
