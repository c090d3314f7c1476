//! Days and times as schedules write them.

use jiff::ToSpan as _;
use jiff::civil::{Date, DateTime, Time};

/// Days of the week, in the order of their bits.
const WEEK: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];

/// Some days of the week: a bit each, Monday first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Days(u8);

impl Days {
    /// Every day.
    pub const ALL: Self = Self(0b111_1111);

    /// Reads `Mon-Fri` or `Sat`; `Sat-Mon` goes over the end of the week. None if it is neither.
    pub fn parse(text: &str) -> Option<Self> {
        let place = |name: &str| WEEK.iter().position(|known| *known == name);
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (place(first)?, place(last)?);
        let days = (0..WEEK.len())
            .filter(|day| if first <= last { (first..=last).contains(day) } else { *day >= first || *day <= last });
        Some(Self(days.fold(0, |bits, day| bits | 1 << day)))
    }

    /// These days and those.
    pub fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether this date is one of them.
    pub fn contain(self, date: Date) -> bool {
        self.0 & (1 << date.weekday().to_monday_zero_offset()) != 0
    }
}

/// Minutes since midnight of `07:30` or `24:00`. None if it is no time.
pub fn minutes(text: &str) -> Option<i16> {
    let (hour, minute) = text.split_once(':')?;
    let two =
        |text: &str| (text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())?;
    let (hour, minute): (i16, i16) = (two(hour)?, two(minute)?);
    ((hour < 24 && minute < 60) || (hour, minute) == (24, 0)).then_some(hour * 60 + minute)
}

/// So many minutes after the midnight with which a date begins.
pub fn at(date: Date, minutes: i16) -> Option<DateTime> {
    date.to_datetime(Time::midnight()).checked_add(i64::from(minutes).minutes()).ok()
}

/// Where `2026-12-24` or `2026-12-24T18:00` begins, and where it ends if it is a day. None if it is neither.
pub fn begin(text: &str) -> Option<(DateTime, Option<DateTime>)> {
    let (date, time) = text.split_once('T').map_or((text, None), |(date, time)| (date, Some(time)));
    if date.len() != 10 {
        return None;
    }
    let date: Date = date.parse().ok()?;
    match time {
        Some(time) => Some((at(date, minutes(time).filter(|minutes| *minutes < 24 * 60)?)?, None)),
        None => Some((at(date, 0)?, Some(at(date, 24 * 60)?))),
    }
}

/// The times between two of [`begin`]'s texts: a last day is part of them.
pub fn between(from: &str, to: Option<&str>) -> Option<(DateTime, DateTime)> {
    let (from, end) = begin(from)?;
    let to = match to.map(begin) {
        None => end,
        Some(found) => found.map(|(begin, end)| end.unwrap_or(begin)),
    };
    to.filter(|to| *to > from).map(|to| (from, to))
}
