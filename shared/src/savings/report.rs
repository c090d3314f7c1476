//! Targets added up by what they are grouped by.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use super::ledger::Ledger;
use super::period::Period;
use super::prices::{Amount, Prices};
use super::usage::{Account, Usage};

/// Hours of a week that nights and weekends have, from Monday to Friday 18:00 to 8:00: 118 of 168.
const NIGHTS: (u64, u64) = (118, 168);
const HOUR: u64 = 3_600;
/// The group of a target without a value.
const NONE: &str = "-";

/// A target with its account.
#[derive(Clone, Debug, Default)]
pub struct Sleeper {
    /// As people name it.
    pub name: String,
    /// Namespace, empty if it has none.
    pub namespace: String,
    /// What it says of its sleep.
    pub account: Account,
    /// The schedule that governs it.
    pub schedule: Option<String>,
    /// Until when it is held awake, and by whom.
    pub held: Option<String>,
}

/// What rows are made by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    Target,
    Namespace,
    /// The value of this label.
    Label(String),
    Platform,
    /// The type of machine. Hours of clusters cannot be told apart by it.
    Type,
}

/// One row.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// What it is about.
    pub name: String,
    /// Namespace, platform, region and the name that a bill has, where all of its targets have the same.
    #[serde(skip)]
    pub place: (String, String, String, String),
    /// How many targets.
    pub targets: u64,
    /// Seconds that they existed in the period.
    pub seconds: u64,
    /// Seconds asleep.
    pub asleep_seconds: u64,
    /// Seconds of sleeps that nothing proves.
    pub unknown_seconds: u64,
    /// Seconds asleep of their machines, by type.
    pub machine_seconds: BTreeMap<String, u64>,
    /// Of these, seconds of machines whose price is known.
    pub priced_seconds: u64,
    /// What those would have cost at list prices.
    #[serde(skip)]
    pub amount: Amount,
    /// The same, for people and programs; none without prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avoided_at_list_prices: Option<String>,
    /// Seconds asleep that nights and weekends would add.
    pub possible_seconds: u64,
    /// The same of machines, which rows are sorted by.
    #[serde(skip)]
    pub possible: u64,
    /// What people may want to know.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The rows of a period, those first that could avoid most; and all of them as one.
pub fn rows(sleepers: &[Sleeper], by: &By, period: Period, prices: Option<&Prices>, now: Timestamp) -> (Vec<Row>, Row) {
    let mut groups: BTreeMap<String, Row> = BTreeMap::new();
    let mut total = Row { name: "TOTAL".to_owned(), ..Row::default() };
    for sleeper in sleepers {
        let usage = sleeper.account.usage(period, now);
        total.add(sleeper, &usage, prices);
        let mut parts = vec![(by.key(sleeper), usage.clone())];
        if *by == By::Type {
            let part = |(kind, seconds): (String, u64)| {
                (kind.clone(), Usage { machines: BTreeMap::from([(kind, seconds)]), ..Usage::default() })
            };
            parts = usage.machines.into_iter().map(part).collect();
        }
        for (key, usage) in parts {
            let row = groups.entry(key.clone()).or_insert_with(|| Row { name: key, ..Row::default() });
            row.add(sleeper, &usage, prices);
        }
    }
    let mut rows: Vec<Row> = groups.into_values().collect();
    let price = |row: &mut Row| row.avoided_at_list_prices = prices.map(|_| row.amount.to_string());
    rows.iter_mut().for_each(price);
    price(&mut total);
    total.notes.clear();
    rows.sort_by_key(|row| (Reverse(row.possible), Reverse(row.amount), Reverse(row.asleep_seconds)));
    (rows, total)
}

impl By {
    fn key(&self, sleeper: &Sleeper) -> String {
        let key = match self {
            Self::Target | Self::Type => Some(&sleeper.name),
            Self::Namespace => Some(&sleeper.namespace),
            Self::Platform => Some(&sleeper.account.platform),
            Self::Label(label) => sleeper.account.labels.get(label),
        };
        key.filter(|key| !key.is_empty()).map_or_else(|| NONE.to_owned(), String::clone)
    }
}

impl Row {
    fn add(&mut self, sleeper: &Sleeper, usage: &Usage, prices: Option<&Prices>) {
        let Account { platform, region, resource, .. } = &sleeper.account;
        let (namespace, is_first) = (&sleeper.namespace, self.targets == 0);
        let (of_namespace, of_platform, of_region, of_resource) = &mut self.place;
        for (one, other) in
            [(of_namespace, namespace), (of_platform, platform), (of_region, region), (of_resource, resource)]
        {
            if is_first {
                one.clone_from(other);
            } else if one != other {
                one.clear();
            }
        }
        self.targets += 1;
        self.seconds += usage.lived;
        self.asleep_seconds += usage.asleep;
        self.unknown_seconds += usage.unknown;
        for (kind, seconds) in &usage.machines {
            *self.machine_seconds.entry(kind.clone()).or_default() += seconds;
            if let Some(amount) = prices.and_then(|prices| prices.cost(kind, region, *seconds)) {
                self.priced_seconds += seconds;
                self.amount += amount;
            }
        }
        let never = usage.lived > 0 && usage.asleep + usage.unknown == 0 && sleeper.account.asleep_since.is_none();
        if usage.lived > 0 && (never || sleeper.schedule.is_none()) {
            let possible = (usage.lived * NIGHTS.0 / NIGHTS.1).saturating_sub(usage.asleep);
            self.possible_seconds += possible;
            self.possible += possible * sleeper.account.size();
        }
        self.notes.extend(notes(sleeper, usage, never));
    }

    /// Seconds asleep of all machines.
    pub fn machines(&self) -> u64 {
        self.machine_seconds.values().sum()
    }

    /// Hundredths of the time that it existed, asleep.
    pub fn share(&self) -> Option<u64> {
        (self.asleep_seconds * 100).checked_div(self.seconds)
    }

    /// Hundredths of the machines' hours whose price is known.
    pub fn priced(&self) -> Option<u64> {
        (self.priced_seconds * 100).checked_div(self.machines())
    }
}

fn notes(sleeper: &Sleeper, usage: &Usage, never: bool) -> Vec<String> {
    let mut notes = Vec::new();
    if never {
        notes.push("never slept".to_owned());
    }
    if sleeper.schedule.is_none() && usage.lived > 0 {
        notes.push("no schedule".to_owned());
    }
    notes.extend(sleeper.held.clone());
    notes.extend(sleeper.account.dropped.as_ref().map(|why| format!("its ledger does not count: {why}")));
    notes
}

/// Machines that sleep, or slept last, of types without a price, by type and region.
pub fn unpriced(sleepers: &[Sleeper], prices: &Prices) -> BTreeMap<(String, String), u64> {
    let mut found = BTreeMap::new();
    for account in sleepers.iter().map(|sleeper| &sleeper.account) {
        for (kind, count) in account.ledger.iter().flat_map(Ledger::machines).filter(|(_, count)| *count > 0) {
            if prices.cost(kind, &account.region, 0).is_none() {
                *found.entry((kind.to_owned(), account.region.clone())).or_default() += count;
            }
        }
    }
    found
}

/// `118h`, and of less than an hour `12m` or `38s`: rounded down.
pub fn length(seconds: u64) -> String {
    match seconds {
        0 => "0h".to_owned(),
        1..60 => format!("{seconds}s"),
        60..HOUR => format!("{}m", seconds / 60),
        _ => format!("{}h", seconds / HOUR),
    }
}
