//! Cron expressions of five fields, as Kubernetes' `CronJobs` have them. They match civil times.

use croner::parser::{CronParser, Seconds, Year};
use jiff::civil::DateTime;

/// A cron expression.
#[derive(Clone, Debug)]
pub struct Cron(croner::Cron);

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
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed).build();
        let cron = Self(parser.parse(text).map_err(|error| error.to_string())?);
        if [&cron.0.pattern.days, &cron.0.pattern.days_of_week].iter().any(|field| field.has_modifiers()) {
            return Err("L and W are no part of a field".to_owned());
        }
        // One that matches at all does so on a day of a leap year and one of the seven days on which it begins.
        let begin = DateTime::constant(2000, 1, 1, 0, 0, 0, 0);
        let first = cron.from(begin).next().filter(|first| first.year() < 2029);
        if first.is_some() { Ok(cron) } else { Err("there is no such day".to_owned()) }
    }

    /// How often it matches on a day on which it does.
    pub fn times_a_day(&self) -> usize {
        self.0.pattern.hours.values().len() * self.0.pattern.minutes.values().len()
    }

    /// When it matches from this time on.
    pub fn from(&self, first: DateTime) -> impl Iterator<Item = DateTime> {
        self.0.iter_from(first, croner::Direction::Forward)
    }

    /// When it matched up to this time, the last time first.
    pub fn before(&self, last: DateTime) -> impl Iterator<Item = DateTime> {
        self.0.iter_from(last, croner::Direction::Backward)
    }
}
