//! Periods of time in UTC: spans, months, and a number of days up to now.

use std::fmt;
use std::str::FromStr;

use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};
use serde::{Deserialize, Serialize};

/// From the first to the second, which is not before it.
pub type Span = (Timestamp, Timestamp);

/// Most days that a span is split into: more than a ledger keeps.
const MAX_SPLIT_DAYS: i64 = 430;

/// A month in UTC, as `2026-11`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Month(Date);

/// What a report is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// A month.
    Month(Month),
    /// This day and all days up to now.
    Since(Date),
}

impl Month {
    /// The month that a day is in.
    pub fn of(day: Date) -> Self {
        Self(day.first_of_month())
    }

    /// The month after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1.month()))
    }

    /// Its days.
    pub fn days(self) -> u64 {
        self.0.days_in_month().unsigned_abs().into()
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.0.year(), self.0.month())
    }
}

impl FromStr for Month {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let day = if text.len() == 7 { format!("{text}-01").parse().ok() } else { None };
        day.map(Self).ok_or_else(|| format!("found {text:?}, must be a month such as 2026-11"))
    }
}

impl From<Month> for String {
    fn from(month: Month) -> Self {
        month.to_string()
    }
}

impl TryFrom<String> for Month {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl Period {
    /// So many days up to now, the one of now among them.
    pub fn last_days(days: u8, now: Timestamp) -> Self {
        Self::Since(day_of(now).saturating_sub(i64::from(days.saturating_sub(1)).days()))
    }

    /// From its begin to its end, or to now.
    pub fn span(self, now: Timestamp) -> Span {
        match self {
            Self::Month(month) => {
                let (begin, end) = (start(month.0), start(month.next().0));
                (begin.min(now), end.min(now))
            }
            Self::Since(day) => (start(day).min(now), now),
        }
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Month(month) => write!(f, "{month}"),
            Self::Since(day) => write!(f, "since {day}"),
        }
    }
}

/// The day in UTC.
pub fn day_of(at: Timestamp) -> Date {
    at.to_zoned(TimeZone::UTC).date()
}

/// When a day begins.
pub fn start(day: Date) -> Timestamp {
    day.to_zoned(TimeZone::UTC).map_or(Timestamp::MAX, |begin| begin.timestamp())
}

/// Its length in whole seconds.
pub fn seconds((from, to): Span) -> u64 {
    u64::try_from(to.duration_since(from).as_secs()).unwrap_or_default()
}

/// What two spans have in common; an empty one if that is nothing.
pub fn intersection(one: Span, other: Span) -> Span {
    let from = one.0.max(other.0);
    (from, one.1.min(other.1).max(from))
}

/// The days of a span, and its seconds of each. What is older than a ledger keeps is left out.
pub fn days((from, to): Span) -> impl Iterator<Item = (Date, u64)> {
    let oldest = to.checked_sub(SignedDuration::from_hours(24 * MAX_SPLIT_DAYS)).unwrap_or(Timestamp::MIN);
    let mut at = from.max(oldest);
    std::iter::from_fn(move || {
        let day = day_of(at);
        let end = start(day.tomorrow().ok()?).min(to);
        let part = (at < to).then(|| (day, seconds((at, end))))?;
        at = end;
        Some(part)
    })
}
