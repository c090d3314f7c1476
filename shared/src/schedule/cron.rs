//! Cron expressions of five fields, as Kubernetes' `CronJobs` have them. They match civil times.

use std::cell::RefCell;
use std::sync::Arc;

use croner::Direction;
use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;

/// Expressions that a thread keeps parsed: those of the longest schedule.
const KEPT: usize = 32;

/// A cron expression. It is kept as its text: parsed, one takes 10 KB, a byte for each year.
#[derive(Clone, Debug)]
pub struct Cron {
    text: String,
    times_a_day: usize,
}

impl Cron {
    /// Reads five fields of numbers, names, `*`, `,`, `-` and `/`.
    ///
    /// # Errors
    /// Why it cannot be read, or that no day is such a day.
    pub fn parse(text: &str) -> Result<Self, String> {
        if let Some(other) =
            text.chars().find(|c| !(c.is_ascii_alphanumeric() || matches!(c, ' ' | '*' | ',' | '-' | '/')))
        {
            return Err(format!("{other:?} is not part of a field"));
        }
        if text.split_ascii_whitespace().count() != 5 {
            return Err(format!("it has {} fields", text.split_ascii_whitespace().count()));
        }
        let parsed = parsed(text).map_err(|error| error.to_string())?;
        let pattern = &parsed.pattern;
        if [&pattern.days, &pattern.days_of_week].iter().any(|field| field.has_modifiers()) {
            return Err("L and W are no part of a field".to_owned());
        }
        // One that matches at all does so on a day of a leap year and one of the seven days on which it begins.
        let begin = DateTime::constant(2000, 1, 1, 0, 0, 0, 0);
        let first = parsed.iter_from(begin, Direction::Forward).next().filter(|first| first.year() < 2029);
        let times_a_day = pattern.hours.values().len() * pattern.minutes.values().len();
        first.map(|_| Self { text: text.to_owned(), times_a_day }).ok_or_else(|| "there is no such day".to_owned())
    }

    /// How often it matches on a day on which it does.
    pub fn times_a_day(&self) -> usize {
        self.times_a_day
    }

    /// When it matches from this time on.
    pub fn from(&self, first: DateTime) -> impl Iterator<Item = DateTime> {
        self.iter(first, Direction::Forward)
    }

    /// When it matched up to this time, the last time first.
    pub fn before(&self, last: DateTime) -> impl Iterator<Item = DateTime> {
        self.iter(last, Direction::Backward)
    }

    fn iter(&self, begin: DateTime, direction: Direction) -> impl Iterator<Item = DateTime> {
        parsed(&self.text).into_iter().flat_map(move |parsed| parsed.iter_from(begin, direction))
    }
}

/// The expression, parsed. A thread keeps the last few: one schedule needs its own again and again.
fn parsed(text: &str) -> Result<Arc<croner::Cron>, croner::errors::CronError> {
    thread_local! { static LAST: RefCell<Vec<(String, Arc<croner::Cron>)>> = const { RefCell::new(Vec::new()) } }
    LAST.with_borrow_mut(|last| {
        if let Some((_, found)) = last.iter().find(|(known, _)| known == text) {
            return Ok(found.clone());
        }
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let found = Arc::new(parser.parse(text)?);
        last.truncate(KEPT - 1);
        last.insert(0, (text.to_owned(), found.clone()));
        Ok(found)
    })
}
