//! Rows of a report: targets, or groups of them.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;

use super::history::{SleepHistory, Usage};
use super::period::Period;
use super::prices::{Amount, Prices};

/// Hours of a week that nights and weekends have, from Monday to Friday 18:00 to 8:00: 118 of 168.
const NIGHTS: (u64, u64) = (118, 168);
/// The group of a target without a value.
const NONE: &str = "-";

/// Type, namespace and name of a target.
type Key = (String, String, String);

/// A target of a report.
#[derive(Clone, Debug, Default)]
pub struct Reported {
    /// Type, namespace and name.
    pub key: Key,
    /// The name in tables.
    pub name: String,
    /// How long it slept.
    pub history: SleepHistory,
    /// The schedule that governs it.
    pub schedule: Option<String>,
    /// Until when it is held awake, and by whom.
    pub held: Option<String>,
}

/// What a row is of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum By {
    Target,
    Namespace,
    /// The value of this label.
    Label(String),
    Platform,
    /// The instance type. Hours of clusters cannot be split by it.
    Type,
}

/// One row.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Row {
    /// The target, or the value that the targets share.
    pub name: String,
    /// Namespace; empty if the targets have several, or none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Platform; empty if they have several.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub platform: String,
    /// Region; empty if they have several.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub region: String,
    /// Infrastructure ID (Hive) or name (KKP); empty if they have several.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub resource: String,
    /// How many targets.
    pub targets: u64,
    /// Seconds that they existed in the period.
    pub existed_seconds: u64,
    /// Seconds asleep.
    pub asleep_seconds: u64,
    /// Seconds of sleeps during which a machine may have run.
    pub unknown_seconds: u64,
    /// Seconds asleep of their machines, by instance type.
    pub machine_seconds: BTreeMap<String, u64>,
    /// Of these, seconds of machines whose price is known.
    pub priced_seconds: u64,
    /// The list cost of those, by instance type.
    #[serde(skip)]
    pub amounts: BTreeMap<String, Amount>,
    /// The same as text; none without prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub avoided_list_cost: Option<String>,
    /// Seconds that nights and weekends would add, of targets without a schedule or without a sleep.
    pub could_sleep_seconds: u64,
    /// The same times machines: the sort key.
    #[serde(skip)]
    potential: u64,
    /// Remarks, such as `no schedule`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

/// The rows of a period, those first that could avoid most; and all of them as one.
pub fn rows(targets: &[Reported], by: &By, period: Period, prices: Option<&Prices>, now: Timestamp) -> (Vec<Row>, Row) {
    let mut groups: BTreeMap<Key, Row> = BTreeMap::new();
    let mut total = Row { name: "TOTAL".to_owned(), ..Row::default() };
    for target in targets {
        let usage = target.history.usage(period, now);
        total.add(target, &usage, prices);
        for (key, name, usage) in by.parts(target, usage) {
            let row = groups.entry(key).or_insert_with(|| Row { name, ..Row::default() });
            row.add(target, &usage, prices);
        }
    }
    let mut rows: Vec<Row> = groups.into_values().collect();
    let price = |row: &mut Row| row.avoided_list_cost = prices.map(|_| row.amount().to_string());
    rows.iter_mut().for_each(price);
    price(&mut total);
    let groups = rows.iter_mut().filter(|_| *by != By::Target);
    groups.chain([&mut total]).for_each(|row| row.notes.clear());
    rows.sort_by_key(|row| (Reverse(row.potential), Reverse(row.amount()), Reverse(row.asleep_seconds)));
    (rows, total)
}

impl By {
    /// The rows that a target is part of: key, name, and its share.
    fn parts(&self, target: &Reported, usage: Usage) -> Vec<(Key, String, Usage)> {
        let of_name = |name: &str| (String::new(), String::new(), name.to_owned());
        let value = match self {
            Self::Target => return vec![(target.key.clone(), target.name.clone(), usage)],
            Self::Type => {
                let part = |(kind, seconds): (String, u64)| {
                    let machines = BTreeMap::from([(kind.clone(), seconds)]);
                    (of_name(&kind), kind, Usage { machines, ..Usage::default() })
                };
                return usage.machines.into_iter().map(part).collect();
            }
            Self::Namespace => Some(&target.key.1),
            Self::Platform => Some(&target.history.platform),
            Self::Label(label) => target.history.labels.get(label),
        };
        let value = value.filter(|value| !value.is_empty()).map_or(NONE, String::as_str);
        vec![(of_name(value), value.to_owned(), usage)]
    }
}

impl Row {
    fn add(&mut self, target: &Reported, usage: &Usage, prices: Option<&Prices>) {
        let SleepHistory { platform, region, resource, .. } = &target.history;
        let is_first = self.targets == 0;
        for (one, other) in [
            (&mut self.namespace, &target.key.1),
            (&mut self.platform, platform),
            (&mut self.region, region),
            (&mut self.resource, resource),
        ] {
            if is_first {
                one.clone_from(other);
            } else if one != other {
                one.clear();
            }
        }
        self.targets += 1;
        self.existed_seconds += usage.existed;
        self.asleep_seconds += usage.asleep;
        self.unknown_seconds += usage.unknown;
        for (kind, seconds) in &usage.machines {
            let sum = self.machine_seconds.entry(kind.clone()).or_default();
            *sum = sum.saturating_add(*seconds);
            if let Some(amount) = prices.and_then(|prices| prices.cost(kind, region, *seconds)) {
                self.priced_seconds = self.priced_seconds.saturating_add(*seconds);
                *self.amounts.entry(kind.clone()).or_default() += amount;
            }
        }
        let has_slept = usage.asleep + usage.unknown > 0;
        if usage.existed > 0 && (!has_slept || target.schedule.is_none()) {
            let could = (usage.existed * NIGHTS.0 / NIGHTS.1).saturating_sub(usage.asleep);
            self.could_sleep_seconds += could;
            self.potential += could * target.history.machine_count();
        }
        self.notes.extend(notes(target, usage));
    }

    /// The list cost of all machines that have a price.
    pub fn amount(&self) -> Amount {
        let mut sum = Amount::default();
        self.amounts.values().for_each(|amount| sum += *amount);
        sum
    }

    /// Seconds asleep of all machines.
    pub fn machines(&self) -> u64 {
        self.machine_seconds.values().fold(0, |sum, seconds| sum.saturating_add(*seconds))
    }

    /// Percent of the existing time asleep; none without any.
    pub fn share(&self) -> Option<u64> {
        percent(self.asleep_seconds, self.existed_seconds)
    }

    /// Percent of the machine seconds that have a price; none without any.
    pub fn priced(&self) -> Option<u64> {
        percent(self.priced_seconds, self.machines())
    }
}

fn notes(target: &Reported, usage: &Usage) -> Vec<String> {
    let mut notes = Vec::new();
    if usage.existed > 0 && usage.asleep + usage.unknown == 0 {
        notes.push("no sleep in period".to_owned());
    }
    if usage.existed > 0 && target.schedule.is_none() {
        notes.push("no schedule".to_owned());
    }
    notes.extend(target.held.clone());
    notes.extend(target.history.dropped.as_ref().map(|why| format!("its ledger does not count: {why}")));
    notes
}

/// Whole percent, rounded down; none of nothing.
pub fn percent(part: u64, whole: u64) -> Option<u64> {
    let percent = (u128::from(part) * 100).checked_div(u128::from(whole))?;
    Some(u64::try_from(percent).unwrap_or(u64::MAX))
}

/// Machines that sleep, or slept last, of types without a price, by type and region.
pub fn unpriced(targets: &[Reported], prices: &Prices) -> BTreeMap<(String, String), u64> {
    let mut found = BTreeMap::new();
    for history in targets.iter().map(|target| &target.history) {
        for (kind, count) in history.ledger.machines().filter(|(_, count)| *count > 0) {
            if prices.cost(kind, &history.region, 0).is_none() {
                *found.entry((kind.to_owned(), history.region.clone())).or_default() += count;
            }
        }
    }
    found
}
