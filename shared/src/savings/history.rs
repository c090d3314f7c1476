//! The sleep history of one object.

use std::collections::BTreeMap;

use jiff::civil::Date;
use jiff::{SignedDuration, Timestamp, ToSpan as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::ledger::{DAY, Ledger, LedgerError, MAX_MACHINES};
use super::period::{self, Month, Period, Span, day_of, intersection, seconds};

/// The sleep history of one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SleepHistory {
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// The name under which bills have its machines.
    pub resource: String,
    /// When it was created.
    pub created: Timestamp,
    /// Its cloud.
    pub platform: String,
    /// The cloud's region.
    pub region: String,
    /// Its ledger; empty if it has none that counts.
    pub ledger: Ledger,
    /// Why its ledger does not count.
    pub dropped: Option<LedgerError>,
    /// Since when it sleeps.
    pub asleep_since: Option<Timestamp>,
}

/// A period of one object, in seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// How long the object existed in the period.
    pub existed: u64,
    /// Asleep.
    pub asleep: u64,
    /// Of sleeps during which a machine may have run. Of days: at most this.
    pub unknown: u64,
    /// Asleep of machines, by type; a machine of no known type has none.
    pub machines: BTreeMap<String, u64>,
}

impl SleepHistory {
    /// The history of an object with this message of its ledger.
    pub fn new(meta: &ObjectMeta, message: Option<&str>) -> Self {
        let uid = meta.uid.as_deref().unwrap_or_default();
        // What has not come is in no period: it is cut where a period is read.
        let (ledger, dropped) = Ledger::or_new(message, uid, Timestamp::MAX);
        let created = meta.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
        Self { labels: meta.labels.clone().unwrap_or_default(), created, ledger, dropped, ..Self::default() }
    }

    /// The usage in a period. A sleep that has not ended counts as asleep up to now.
    pub fn usage(&self, period: Period, now: Timestamp) -> Usage {
        let span = intersection(period.span(now), (self.created, Timestamp::MAX));
        let existed = seconds(span);
        if existed == 0 {
            return Usage::default();
        }
        let mut usage = match period {
            Period::Month(month) => of_month(&self.ledger, month),
            Period::Since(day) => of_days(&self.ledger, day),
        };
        if let Some(current) = self.current(now) {
            let asleep = seconds(intersection(span, current));
            usage.asleep += asleep;
            for (kind, count) in self.ledger.machines() {
                *usage.machines.entry(kind.to_owned()).or_default() += asleep * count;
            }
        }
        let asleep = usage.asleep.min(existed);
        usage.machines.values_mut().for_each(|seconds| *seconds = (*seconds).min(existed * MAX_MACHINES));
        Usage { existed, asleep, unknown: usage.unknown.min(existed - asleep), ..usage }
    }

    /// Seconds asleep of each of the last days, the oldest first. A sleep that has not ended counts up to now.
    pub fn days(&self, count: usize, now: Timestamp) -> Vec<(Date, u64)> {
        let back = i64::try_from(count).unwrap_or(i64::MAX).saturating_sub(1);
        let first = day_of(now).saturating_sub(SignedDuration::from_hours(24 * back));
        let mut days: BTreeMap<Date, u64> = first.series(1.day()).take(count).map(|day| (day, 0)).collect();
        for (day, asleep) in self.ledger.of_days(first).chain(self.current(now).into_iter().flat_map(period::days)) {
            if let Some(sum) = days.get_mut(&day) {
                *sum = (*sum + asleep).min(DAY);
            }
        }
        days.into_iter().collect()
    }

    /// What the ledger does not have yet of a sleep that has not ended.
    fn current(&self, now: Timestamp) -> Option<Span> {
        let since = self.asleep_since.filter(|since| *since < now)?;
        let counted = self.ledger.counted().unwrap_or(Timestamp::MIN);
        Some((since.max(counted).min(now), now))
    }

    /// Machines that sleep, or slept last; 1 if nothing is known of them.
    pub fn machine_count(&self) -> u64 {
        self.ledger.machines().map(|(_, count)| count).sum::<u64>().max(1)
    }
}

fn of_month(ledger: &Ledger, month: Month) -> Usage {
    let (asleep, unknown, machines) = ledger.of_month(month);
    let machines = machines.into_iter().map(|(kind, seconds)| (kind.to_owned(), seconds)).collect();
    Usage { asleep, unknown, machines, ..Usage::default() }
}

/// Days have no machines: a month's machines count by the share of its sleep. Unknown is that of the months.
fn of_days(ledger: &Ledger, first: Date) -> Usage {
    let mut by_month: BTreeMap<Month, u64> = ledger.months_since(first).map(|month| (month, 0)).collect();
    for (day, seconds) in ledger.of_days(first) {
        *by_month.entry(Month::of(day)).or_default() += seconds;
    }
    let mut usage = Usage::default();
    for (month, seconds) in by_month {
        let of_month = of_month(ledger, month);
        let asleep = seconds.min(of_month.asleep);
        usage.asleep += asleep;
        usage.unknown += of_month.unknown;
        for (kind, slept) in of_month.machines {
            let share = u128::from(slept) * u128::from(asleep) / u128::from(of_month.asleep.max(1));
            *usage.machines.entry(kind).or_default() += u64::try_from(share).unwrap_or(u64::MAX);
        }
    }
    usage
}
