//! How long a cluster has slept, by month and by type of machine: the message of condition [`LEDGER`].
//!
//! | # | when, each time in a status write that is due anyway | what is written |
//! |---|---|---|
//! | L1 | the cluster falls asleep | its machines by type |
//! | L2 | its sleep ends: a wake begins, or a machine runs | what was asleep, and of what nothing proves that it was |
//! | L3 | L1 or L2, and the ledger cannot be read, is another object's, or is from the future | a new one |

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::{Deserialize, Serialize};

use super::period::{Month, Span, day_of, days, intersection};
use crate::cloud::MAX_PRICE_KEY;
use crate::duration::{after, age};
use crate::record::{Format, RecordError};
use crate::text::sanitize_to;

/// Condition type of ours.
pub const LEDGER: &str = "SleepLedger";
/// Its reason: its version, for people.
pub const REASON: &str = "V1";
/// Reason of the Event about a ledger that does not count.
pub const DROPPED: &str = "LedgerDropped";
/// Months that are kept.
const MAX_MONTHS: usize = 14;
/// Days that are kept.
pub const MAX_DAYS: usize = 31;
/// Instance types that are kept.
const MAX_TYPES: usize = 6;
/// Machines of a cluster.
pub(super) const MAX_MACHINES: u64 = 10_000;
/// Seconds of a day.
pub const DAY: u64 = 86_400;
/// The precision of times of conditions.
const SECOND: Duration = Duration::from_secs(1);
/// How much later than planned the second next observation may be, so that it follows without a gap.
const SLACK: Duration = Duration::from_mins(1);
/// All further types.
const OTHER: &str = "other";

/// The record of one cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Ledger {
    /// The object's UID.
    uid: String,
    /// Until when sleeps are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Timestamp>,
    /// Types of machines. The other lists count in this order.
    types: Vec<String>,
    /// Machines that sleep, or slept last.
    machines: Vec<u64>,
    /// The oldest first.
    months: Vec<MonthRow>,
    /// The day of the first of `days`.
    #[serde(skip_serializing_if = "Option::is_none")]
    day: Option<Date>,
    /// Seconds asleep of that day, and of the days before it.
    days: Vec<u64>,
}

/// A month: seconds asleep, seconds unknown, and seconds asleep of machines by type.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct MonthRow(Month, u64, u64, Vec<u64>);

/// Machines of one type, and what of a sleep is proven of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineGroup {
    /// The cloud's word for their type.
    pub kind: String,
    /// How many.
    pub count: u64,
    /// When they slept; empty if nothing proves that they did.
    pub asleep: Span,
}

/// A sleep that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sleep {
    /// From the observed sleep to its end.
    pub span: Span,
    /// What of it is proven for all machines.
    pub asleep: Span,
    /// Its machines.
    pub machines: Vec<MachineGroup>,
}

/// An object before a status write.
#[derive(Clone, Copy, Debug)]
pub struct Before<'a> {
    /// Its metadata.
    pub meta: &'a ObjectMeta,
    /// The message of its ledger, if it has one.
    pub message: Option<&'a str>,
    /// Since when it sleeps.
    pub since: Option<Timestamp>,
}

/// Why a ledger does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LedgerError {
    /// It cannot be read.
    #[error(transparent)]
    Unreadable(#[from] RecordError),
    /// The object or its status was restored or copied.
    #[error("it belongs to another object")]
    OtherObject,
    /// It was forged, or a clock was wrong.
    #[error("it counts time that has not come")]
    Future,
}

/// The note of the Event about a ledger that does not count.
pub fn dropped_note(why: &LedgerError) -> String {
    format!("condition {LEDGER} does not count: {why}; a new one was started, and its earlier months are lost")
}

impl Format for Ledger {
    const MAX_BYTES: usize = 1_536;

    fn checked(mut self) -> Option<Self> {
        self.types.iter_mut().for_each(|kind| *kind = sanitize_to(kind, MAX_PRICE_KEY));
        let Self { types, months, .. } = &self;
        let most = types.len();
        let is_possible = |MonthRow(month, asleep, unknown, machines): &MonthRow| {
            let all = month.days() * DAY;
            let total = asleep.saturating_add(*unknown);
            total <= all && machines.len() <= most && machines.iter().all(|one| *one <= total * MAX_MACHINES)
        };
        let in_order = months.windows(2).all(|two| two[0].0 < two[1].0);
        let are_days = self.days.len() <= MAX_DAYS && self.days.iter().all(|one| *one <= DAY);
        let are_machines = self.machines.len() <= most && self.machines.iter().all(|one| *one <= MAX_MACHINES);
        let is_short = most <= MAX_TYPES && months.len() <= MAX_MONTHS;
        let is_valid = in_order && are_days && are_machines && is_short && months.iter().all(is_possible);
        (is_valid && self.day.is_some() != self.days.is_empty()).then_some(self)
    }

    fn cut(&mut self) -> bool {
        (!self.months.is_empty()).then(|| self.months.remove(0)).is_some()
    }
}

impl Ledger {
    /// An empty ledger of the object with this UID.
    pub fn new(uid: &str) -> Self {
        Self { uid: uid.to_owned(), ..Self::default() }
    }

    /// The ledger in a condition of the object with this UID.
    ///
    /// # Errors
    /// When it does not count, and why.
    pub fn of(message: &str, uid: &str, now: Timestamp) -> Result<Self, LedgerError> {
        let ledger = Self::read(message)?;
        if ledger.uid != uid {
            return Err(LedgerError::OtherObject);
        }
        // Clocks of two controllers differ.
        let latest = now.checked_add(SignedDuration::from_hours(1)).unwrap_or(now);
        let today = day_of(latest);
        let is_future = ledger.months.last().is_some_and(|row| row.0 > Month::of(today));
        if is_future || ledger.day > Some(today) || ledger.at > Some(latest) {
            return Err(LedgerError::Future);
        }
        Ok(ledger)
    }

    /// The same, or an empty one: if there is none, or (with the cause) none that counts.
    pub fn or_new(message: Option<&str>, uid: &str, now: Timestamp) -> (Self, Option<LedgerError>) {
        match message.map(|message| Self::of(message, uid, now)) {
            None => (Self::new(uid), None),
            Some(Ok(ledger)) => (ledger, None),
            Some(Err(error)) => (Self::new(uid), Some(error)),
        }
    }

    /// The ledger after a status write that reports whether the object sleeps, with why the one before does not count.
    /// `None` if no sleep begins or ends. `machines`: those of a sleep that begins. `sleep`: what is proven of one that ends.
    pub fn after<M: IntoIterator<Item = (String, u64)>>(
        Before { meta, message, since }: Before<'_>,
        sleeps: bool,
        now: Timestamp,
        machines: impl FnOnce() -> M,
        sleep: impl FnOnce(Span, &Self) -> Sleep,
    ) -> Option<(Self, Option<LedgerError>)> {
        if sleeps == since.is_some() {
            return None;
        }
        let (mut ledger, dropped) = Self::or_new(message, meta.uid.as_deref().unwrap_or_default(), now);
        match since {
            None => ledger.begin_sleep(machines()),
            Some(since) => {
                // A restored object may say that it slept before it was created. Conditions have whole seconds: the
                // sleep may have begun at the end of this one.
                let created = meta.creation_timestamp.as_ref().map_or(since, |created| created.0);
                let begun = after(since.max(created), SECOND);
                let sleep = sleep((begun.min(now), now), &ledger);
                ledger.end_sleep(&sleep);
            }
        }
        Some((ledger, dropped))
    }

    /// L1: these machines sleep now.
    pub fn begin_sleep(&mut self, machines: impl IntoIterator<Item = (String, u64)>) {
        self.machines.clear();
        for (kind, count) in machines {
            let at = self.place_of(&kind);
            let machines = member(&mut self.machines, at);
            *machines = machines.saturating_add(count).min(MAX_MACHINES);
        }
    }

    /// L2: this sleep has ended. No time is counted twice.
    pub fn end_sleep(&mut self, sleep: &Sleep) {
        let counted = self.at.unwrap_or(Timestamp::MIN);
        let span = intersection(sleep.span, (counted, Timestamp::MAX));
        let asleep = intersection(span, sleep.asleep);
        for (day, seconds) in days(asleep) {
            self.month(day).1 += seconds;
            self.day(day, seconds);
        }
        let unknown =
            if asleep.0 < asleep.1 { [(span.0, asleep.0), (asleep.1, span.1)] } else { [span, (span.1, span.1)] };
        for (day, seconds) in unknown.into_iter().flat_map(days) {
            self.month(day).2 += seconds;
        }
        for MachineGroup { kind, count, asleep } in &sleep.machines {
            let at = self.place_of(kind);
            for (day, seconds) in days(intersection(span, *asleep)) {
                let MonthRow(_, asleep, unknown, machines) = self.month(day);
                let most = (*asleep + *unknown) * MAX_MACHINES;
                let one = member(machines, at);
                *one = one.saturating_add(seconds * count.min(&MAX_MACHINES)).min(most);
            }
        }
        let too_many = self.months.len().saturating_sub(MAX_MONTHS);
        self.months.drain(..too_many);
        self.at = Some(sleep.span.1.max(counted));
    }

    /// Seconds asleep of all months, and of machines by type.
    pub fn totals(&self) -> (u64, BTreeMap<String, u64>) {
        self.added_since(&Self::default())
    }

    /// The same, less what this older ledger of the object has of those months.
    pub fn added_since(&self, before: &Self) -> (u64, BTreeMap<String, u64>) {
        let (mut asleep, mut machines): (u64, BTreeMap<String, u64>) = (0, BTreeMap::new());
        for MonthRow(month, of_month, _, _) in &self.months {
            let (asleep_before, _, machines_before) = before.of_month(*month);
            asleep += of_month.saturating_sub(asleep_before);
            for (kind, seconds) in self.of_month(*month).2 {
                let known = machines_before.iter().find(|(one, _)| *one == kind).map_or(0, |(_, seconds)| *seconds);
                *machines.entry(kind.to_owned()).or_default() += seconds.saturating_sub(known);
            }
        }
        (asleep, machines)
    }

    /// The machines that sleep, or slept last, with this part of a sleep.
    pub fn groups(&self, asleep: Span) -> Vec<MachineGroup> {
        self.machines().map(|(kind, count)| MachineGroup { kind: kind.to_owned(), count, asleep }).collect()
    }

    /// Until when sleeps are counted.
    pub fn counted(&self) -> Option<Timestamp> {
        self.at
    }

    /// Machines by type that sleep, or slept last.
    pub fn machines(&self) -> impl Iterator<Item = (&str, u64)> {
        self.types.iter().map(String::as_str).zip(self.machines.iter().copied())
    }

    /// Seconds asleep, unknown, and of machines by type in a month.
    pub(super) fn of_month(&self, month: Month) -> (u64, u64, Vec<(&str, u64)>) {
        let found = self.months.iter().find(|row| row.0 == month);
        let machines = |row: &MonthRow| self.types.iter().map(String::as_str).zip(row.3.clone()).collect();
        found.map_or((0, 0, Vec::new()), |row| (row.1, row.2, machines(row)))
    }

    /// The months from this day on.
    pub(super) fn months_since(&self, first: Date) -> impl Iterator<Item = Month> {
        self.months.iter().map(|row| row.0).filter(move |month| *month >= Month::of(first))
    }

    /// Seconds asleep by day, from `first` on.
    pub(super) fn of_days(&self, first: Date) -> impl Iterator<Item = (Date, u64)> {
        let before = std::iter::successors(self.day, |day| day.yesterday().ok());
        before.zip(self.days.iter().copied()).take_while(move |(day, _)| *day >= first)
    }

    fn place_of(&mut self, kind: &str) -> usize {
        let kind = sanitize_to(kind, MAX_PRICE_KEY);
        let room = if self.types.len() + 1 < MAX_TYPES { kind.as_str() } else { OTHER };
        let known = [kind.as_str(), room].into_iter().find_map(|kind| self.types.iter().position(|one| one == kind));
        known.unwrap_or_else(|| {
            self.types.push(room.to_owned());
            self.types.len() - 1
        })
    }

    fn month(&mut self, day: Date) -> &mut MonthRow {
        let month = Month::of(day);
        let at = self.months.partition_point(|row| row.0 < month);
        if self.months.get(at).is_none_or(|row| row.0 != month) {
            self.months.insert(at, MonthRow(month, 0, 0, Vec::new()));
        }
        &mut self.months[at]
    }

    fn day(&mut self, day: Date, seconds: u64) {
        let last = *self.day.get_or_insert(day);
        let ahead = days_between(last, day);
        if ahead > 0 {
            let empty = std::iter::repeat_n(0, ahead.min(MAX_DAYS));
            self.days.splice(..0, empty);
            self.days.truncate(MAX_DAYS);
            self.day = Some(day);
        }
        let back = days_between(day, self.day.unwrap_or(day));
        if back < MAX_DAYS {
            let one = member(&mut self.days, back);
            *one = one.saturating_add(seconds).min(DAY);
        }
    }
}

/// From when to when observations of this process, without a gap, have found a target asleep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    span: Option<Span>,
    /// Whether the last observation found it awake.
    is_over: bool,
}

impl Seen {
    /// Adds an observation. `every`: how often a sleeping target is observed.
    pub fn observe(&mut self, asleep: bool, now: Timestamp, every: Duration) {
        if !asleep {
            self.is_over = true;
            return;
        }
        let follows = |(from, until): &Span| *from <= now && age(*until, now) <= every * 2 + SLACK;
        let from = self.span.filter(|span| !self.is_over && follows(span)).map_or(now, |(from, _)| from);
        *self = Self { span: Some((from, now)), is_over: false };
    }

    /// The part of a sleep that was observed; empty if none was.
    pub fn of(&self, sleep: Span) -> Span {
        self.span.map_or((sleep.0, sleep.0), |seen| intersection(sleep, seen))
    }
}

/// Days from one to the other, 0 if the other is not later.
fn days_between(one: Date, other: Date) -> usize {
    usize::try_from((other - one).get_days()).unwrap_or_default()
}

fn member(list: &mut Vec<u64>, at: usize) -> &mut u64 {
    if list.len() <= at {
        list.resize(at + 1, 0);
    }
    &mut list[at]
}
