//! What sleep avoids, by platform, region and type of machine. No metric is of one target.

use std::collections::{HashMap, HashSet};

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use server::metrics::Declare as _;
use shared::savings::ledger::Ledger;
use shared::savings::usage::Account;

use super::Label;
use crate::runtime::{Key, hash};

/// Machines by platform, region and type.
type Place = [Label<String>; 3];

/// Places that are told apart: clouds and their tenants choose the words.
const MAX_PLACES: usize = 300;

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
        Self {
            seconds: registry
                .add("asleep_seconds", "Seconds that targets were asleep, by platform, once they are awake"),
            machine_seconds: registry
                .add("machine_asleep_seconds", "The same of machines, by platform, region and type"),
            machines: registry.add("machines_asleep", "Machines that are asleep, by platform, region and type"),
            counted: Mutex::default(),
            places: Mutex::default(),
        }
    }

    /// Counts what a write has added to the ledger of a target.
    pub fn slept(&self, before: &Account, after: &Account) {
        let totals = |account: &Account| account.ledger.as_ref().map(Ledger::totals).unwrap_or_default();
        let ((asleep_before, machines_before), (asleep, machines)) = (totals(before), totals(after));
        if asleep > asleep_before {
            let platform = [("platform", after.platform.clone())];
            self.seconds.get_or_create_owned(&platform).inc_by(asleep - asleep_before);
        }
        for (kind, seconds) in machines {
            let added = seconds.saturating_sub(machines_before.get(&kind).copied().unwrap_or_default());
            if added > 0 {
                self.machine_seconds.get_or_create_owned(&self.place(after, &kind)).inc_by(added);
            }
        }
    }

    /// Counts the machines of a target while it sleeps.
    pub fn count(&self, target: &Key, account: &Account) {
        let machines = account.ledger.iter().flat_map(Ledger::machines).filter(|(_, count)| *count > 0);
        let asleep = machines.filter(|_| account.asleep_since.is_some());
        let asleep = asleep.map(|(kind, count)| (self.place(account, kind), i64::try_from(count).unwrap_or(i64::MAX)));
        self.replace(target, asleep.collect());
    }

    /// A target is gone.
    pub fn forget(&self, target: &Key) {
        self.replace(target, Vec::new());
    }

    /// Leadership was lost.
    pub fn forget_all(&self) {
        self.counted.lock().clear();
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

    fn place(&self, account: &Account, kind: &str) -> Place {
        let place = |platform: &str, region: &str, kind: &str| {
            [("platform", platform.to_owned()), ("region", region.to_owned()), ("type", kind.to_owned())]
        };
        let wanted = place(&account.platform, &account.region, kind);
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
    use super::*;

    fn account(kind: &str, count: u64) -> Account {
        let mut ledger = Ledger::new("u");
        ledger.fell_asleep([(kind.to_owned(), count)]);
        let asleep_since = Some("2026-11-29T18:00:00Z".parse().unwrap());
        Account { platform: "aws".to_owned(), ledger: Some(ledger), asleep_since, ..Account::default() }
    }

    #[test]
    fn machines_count_while_they_sleep_and_words_are_bounded() {
        let metrics = SavingsMetrics::new(&mut Registry::default());
        let key = |name: &str| ("x".to_owned(), name.to_owned());
        let found = |kind: &str| metrics.machines.get_or_create_owned(&metrics.place(&account(kind, 1), kind)).get();
        metrics.count(&key("a"), &account("m6i.xlarge", 3));
        metrics.count(&key("a"), &account("m6i.xlarge", 3));
        metrics.count(&key("b"), &account("m6i.xlarge", 2));
        assert_eq!(found("m6i.xlarge"), 5);
        metrics.count(&key("b"), &Account { asleep_since: None, ..account("m6i.xlarge", 2) });
        metrics.forget(&key("a"));
        assert_eq!(found("m6i.xlarge"), 0);
        for at in 0..2 * MAX_PLACES {
            metrics.count(&key("c"), &account(&format!("type-{at}"), 1));
        }
        assert_eq!(metrics.places.lock().len(), MAX_PLACES);
    }
}
