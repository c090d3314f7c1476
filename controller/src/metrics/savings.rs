//! What sleep avoids, by platform, region and type of machine. No metric is of one target.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use server::metrics::Declare as _;
use shared::savings::history::SleepHistory;
use shared::text::sanitize_to;

use super::Label;
use crate::runtime::{Key, hash};

/// Machines by platform, region and type.
type Place = [Label<String>; 3];

/// Combinations of labels: clouds and their tenants choose the words.
const MAX_PLACES: usize = 300;
/// Characters of a word.
const MAX_WORD: usize = 40;

pub struct SavingsMetrics {
    seconds: Family<[Label<String>; 1], Counter>,
    machine_seconds: Family<Place, Counter>,
    machines: Family<Place, Gauge>,
    /// The machines of each target that sleeps.
    counted: Mutex<HashMap<u64, Vec<(Place, i64)>>>,
    places: Mutex<HashSet<Place>>,
}

impl SavingsMetrics {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let seconds = "Seconds asleep of completed sleeps, by platform";
        let machine_seconds = "Machine seconds asleep of completed sleeps, by platform, region and type";
        let machines = "Machines of sleeping targets, by platform, region and type";
        Self {
            seconds: registry.add("asleep_seconds", seconds),
            machine_seconds: registry.add("machine_asleep_seconds", machine_seconds),
            machines: registry.add("machines_asleep", machines),
            counted: Mutex::default(),
            places: Mutex::default(),
        }
    }

    /// Counts what a write has added to the ledger of a target.
    pub fn ledger_written(&self, before: &SleepHistory, after: &SleepHistory) {
        let (asleep, machines) = after.ledger.added_since(&before.ledger);
        if asleep > 0 {
            let [platform, ..] = self.place(after, "");
            self.seconds.get_or_create_owned(&[platform]).inc_by(asleep);
        }
        for (kind, added) in machines.into_iter().filter(|(_, added)| *added > 0) {
            self.machine_seconds.get_or_create_owned(&self.place(after, &kind)).inc_by(added);
        }
    }

    /// Sets the machines of a target: those that sleep.
    pub fn set_machines(&self, target: &Key, history: &SleepHistory) {
        let machines = history.ledger.machines().filter(|(_, count)| *count > 0);
        let asleep = machines.filter(|_| history.asleep_since.is_some());
        let asleep = asleep.map(|(kind, count)| (self.place(history, kind), i64::try_from(count).unwrap_or(i64::MAX)));
        self.replace(target, asleep.collect());
    }

    /// A target is gone.
    pub fn forget(&self, target: &Key) {
        self.replace(target, Vec::new());
    }

    /// Leadership was lost.
    pub fn forget_all(&self) {
        let mut counted = self.counted.lock();
        counted.clear();
        self.machines.clear();
    }

    fn replace(&self, target: &Key, asleep: Vec<(Place, i64)>) {
        let mut counted = self.counted.lock();
        let id = hash(target);
        let before = if asleep.is_empty() { counted.remove(&id) } else { counted.insert(id, asleep.clone()) };
        if before.as_ref() == Some(&asleep) {
            return;
        }
        let gone = before.into_iter().flatten().map(|(place, count)| (place, -count));
        for (place, count) in gone.chain(asleep) {
            self.machines.get_or_create_owned(&place).inc_by(count);
        }
    }

    fn place(&self, history: &SleepHistory, kind: &str) -> Place {
        let place = |platform: &str, region: &str, kind: &str| {
            [("platform", platform), ("region", region), ("type", kind)]
                .map(|(name, word)| (name, sanitize_to(word, MAX_WORD)))
        };
        let wanted = place(&history.platform, &history.region, kind);
        let mut places = self.places.lock();
        if places.len() < MAX_PLACES || places.contains(&wanted) {
            places.insert(wanted.clone());
            return wanted;
        }
        place("other", "other", "other")
    }
}

#[cfg(test)]
mod tests {
    use shared::savings::ledger::Ledger;

    use super::*;

    fn history(kind: &str, count: u64) -> SleepHistory {
        let mut ledger = Ledger::new("u");
        ledger.begin_sleep([(kind.to_owned(), count)]);
        let asleep_since = Some("2026-11-29T18:00:00Z".parse().unwrap());
        SleepHistory { platform: "aws".to_owned(), ledger, asleep_since, ..SleepHistory::default() }
    }

    #[test]
    fn machines_count_while_they_sleep_and_words_are_bounded() {
        let metrics = SavingsMetrics::new(&mut Registry::default());
        let key = |name: &str| ("x".to_owned(), name.to_owned());
        let found = |kind: &str| metrics.machines.get_or_create_owned(&metrics.place(&history(kind, 1), kind)).get();
        metrics.set_machines(&key("a"), &history("m6i.xlarge", 3));
        metrics.set_machines(&key("a"), &history("m6i.xlarge", 3));
        metrics.set_machines(&key("b"), &history("m6i.xlarge", 2));
        assert_eq!(found("m6i.xlarge"), 5);
        metrics.set_machines(&key("b"), &SleepHistory { asleep_since: None, ..history("m6i.xlarge", 2) });
        metrics.forget(&key("a"));
        assert_eq!(found("m6i.xlarge"), 0);
        for at in 0..2 * MAX_PLACES {
            metrics.set_machines(&key("c"), &history(&format!("type-{at}"), 1));
        }
        assert_eq!(metrics.places.lock().len(), MAX_PLACES);
    }
}
