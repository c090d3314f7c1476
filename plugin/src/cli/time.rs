//! `--for` and `--until`: a time in the future, in the forms that people write.

use std::time::Duration;

use clap::Args;
use jiff::civil::{DateTime, Time};
use jiff::{Timestamp, ToSpan, Zoned};
use shared::annotation::format;
use shared::duration::{self, DurationError};

/// Less than this is over before anything has happened.
const SHORTEST: Duration = Duration::from_mins(1);

/// The flags.
#[derive(Clone, Debug, Default, Args)]
#[group(id = "when", multiple = false)]
pub(crate) struct TimeFlags {
    /// How long, such as 14h or 1h30m
    ///
    /// Length of the sleep, or of --hold-awake: at least 1m. Counts from now, or from --not-before.
    #[arg(long = "for", value_name = "DURATION", value_parser = length)]
    length: Option<Duration>,
    /// Until when, such as 18:00 or "tomorrow 08:00"
    ///
    /// 2026-12-24T18:00:00Z, or local time as 2026-12-24T18:00, 18:00 (the next one) or "tomorrow 08:00".
    #[arg(long, value_name = "TIME", hide_short_help = true)]
    until: Option<String>,
}

/// Why a moment cannot be meant.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TimeError {
    #[error(
        "{flag} {text:?} is not a time: write 2026-12-24T18:00:00Z, or local time as 2026-12-24T18:00, 18:00 or \"tomorrow 08:00\""
    )]
    NotATime { flag: &'static str, text: String },
    #[error("{flag} {text:?} has passed: it means {meant}, and now it is {now}")]
    Past { flag: &'static str, text: String, meant: String, now: String },
    #[error(
        "--not-before {not_before} is not earlier than --not-after {not_after}: give an earlier --not-before, or a later --not-after"
    )]
    Order { not_before: String, not_after: String },
    #[error(
        "--until {end} is not later than --not-before {not_before}: give a later --until, or an earlier --not-before"
    )]
    Ended { end: String, not_before: String },
    #[error("--for {0:?} ends after the year 9999")]
    TooFar(String),
    #[error("--for and --until need a controller, which {0} does not have: they apply to ClusterDeployments only")]
    NoController(String),
    #[error("--for and --until need --hold-awake here")]
    NothingHeld,
}

impl TimeError {
    /// Of times in the wrong order.
    pub(crate) fn order(not_before: Timestamp, not_after: Timestamp) -> Self {
        Self::Order { not_before: format::seconds(not_before), not_after: format::seconds(not_after) }
    }
}

fn length(text: &str) -> Result<Duration, String> {
    let length = duration::parse_positive(text).map_err(|error: DurationError| error.to_string())?;
    if length < SHORTEST {
        return Err("it is shorter than a minute".to_owned());
    }
    Ok(length)
}

impl TimeFlags {
    /// Whether nothing was given.
    pub(crate) fn is_empty(&self) -> bool {
        self.length.is_none() && self.until.is_none()
    }

    /// The moment that is meant, if one was given. `begin`: when the sleep begins, if that is a time to come.
    ///
    /// # Errors
    /// When the text is no time, or one that has passed, or it ends before it begins.
    pub(crate) fn resolve(&self, now: &Zoned, begin: Option<Timestamp>) -> Result<Option<Timestamp>, TimeError> {
        let end = match (self.length, &self.until) {
            (Some(length), _) => {
                let end = begin.unwrap_or(now.timestamp()).checked_add(length);
                end.map_err(|_| TimeError::TooFar(duration::go_string(length)))?
            }
            (None, Some(text)) => moment("--until", text, now)?,
            (None, None) => return Ok(None),
        };
        match begin.filter(|begin| end <= *begin) {
            None => Ok(Some(end)),
            Some(begin) => Err(TimeError::Ended { end: format::seconds(end), not_before: format::seconds(begin) }),
        }
    }
}

/// Reads a moment to come, the value of a flag. A clock that is turned back shows some times twice: the first one is
/// meant; of the times that a clock skips, the one as long after the change.
///
/// # Errors
/// When it is no time, or has passed.
pub(crate) fn moment(flag: &'static str, text: &str, now: &Zoned) -> Result<Timestamp, TimeError> {
    let unreadable = || TimeError::NotATime { flag, text: text.to_owned() };
    let local = |at: DateTime| at.to_zoned(now.time_zone().clone()).map(|at| at.timestamp()).map_err(|_| unreadable());
    let days_ahead = |days: i64, time: Time| {
        let day = now.date().checked_add(days.days()).map_err(|_| unreadable())?;
        local(day.to_datetime(time))
    };
    let text = text.trim();
    let moment = if let Some(moment) = format::time(text) {
        moment
    } else if let Some(time) = time_of_day(text) {
        match days_ahead(0, time)? {
            today if today > now.timestamp() => today,
            _ => days_ahead(1, time)?,
        }
    } else if let Some(time) = text.strip_prefix("tomorrow ").and_then(|time| time_of_day(time.trim())) {
        days_ahead(1, time)?
    } else {
        let (date, time) = text.split_once(['T', ' ']).ok_or_else(unreadable)?;
        let date = date.parse().map_err(|_| unreadable())?;
        local(DateTime::from_parts(date, time_of_day(time).ok_or_else(unreadable)?))?
    };
    if moment <= now.timestamp() {
        let meant = format::seconds(moment);
        return Err(TimeError::Past { flag, text: text.to_owned(), meant, now: format::seconds(now.timestamp()) });
    }
    Ok(moment)
}

/// `18:00` or `18:00:30`, and nothing that only looks like it.
fn time_of_day(text: &str) -> Option<Time> {
    let shape: Vec<u8> = text.bytes().map(|byte| if byte.is_ascii_digit() { b'0' } else { byte }).collect();
    matches!(shape.as_slice(), b"00:00" | b"00:00:00").then(|| text.parse().ok())?
}

/// Now, where the user is.
pub(crate) fn now() -> Zoned {
    Zoned::now()
}

#[cfg(test)]
mod tests {
    use jiff::tz::{self, TimeZone};

    use super::*;

    /// A Saturday evening two hours west of the sun.
    fn evening() -> Zoned {
        "2026-11-21T20:30:00+02:00[+02:00]".parse().unwrap()
    }

    fn until(text: &str, now: &Zoned) -> Result<Timestamp, TimeError> {
        moment("--until", text, now)
    }

    fn meant(text: &str) -> String {
        match until(text, &evening()) {
            Ok(moment) => format::seconds(moment),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn a_moment_can_be_named_in_several_ways() {
        for (text, expected) in [
            ("2026-12-24T18:00:00Z", "2026-12-24T18:00:00Z"),
            ("2026-12-24T18:00:00+01:00", "2026-12-24T17:00:00Z"),
            ("2026-12-24T18:00", "2026-12-24T16:00:00Z"),
            ("2026-12-24 18:00", "2026-12-24T16:00:00Z"),
            ("2026-12-24T18:00:30", "2026-12-24T16:00:30Z"),
            ("21:00", "2026-11-21T19:00:00Z"),
            ("20:30", "2026-11-22T18:30:00Z"),
            ("08:00", "2026-11-22T06:00:00Z"),
            ("tomorrow 08:00", "2026-11-22T06:00:00Z"),
            ("tomorrow 21:00", "2026-11-22T19:00:00Z"),
        ] {
            assert_eq!(meant(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_moment_to_come_is_named() {
        for text in ["", "soon", "18", "18:0", "25:00", "8pm", "tomorrow", "2026-12-24", "2026-13-01T00:00", "-18:00"] {
            let error = meant(text);
            assert!(error.starts_with(&format!("--until {text:?} is not a time: write ")), "{text}: {error}");
        }
        assert_eq!(
            meant("2026-11-21T18:00"),
            "--until \"2026-11-21T18:00\" has passed: it means 2026-11-21T16:00:00Z, and now it is 2026-11-21T18:30:00Z"
        );
        assert!(meant("2026-11-21T18:30:00Z").contains("has passed"), "now is not to come");
    }

    #[test]
    fn every_form_that_an_error_names_is_one() {
        let message = meant("soon");
        let (_, forms) = message.split_once(": write ").unwrap();
        let forms = forms.replace(", or local time as ", "|").replace(", ", "|").replace(" or ", "|").replace('"', "");
        assert_eq!(forms.split('|').count(), 4, "{forms}");
        for form in forms.split('|') {
            assert!(until(form, &evening()).is_ok(), "{form}: {message}");
        }
    }

    #[test]
    fn a_length_is_counted_from_now_and_at_least_a_minute() {
        let resolved =
            |text: &str| TimeFlags { length: Some(length(text).unwrap()), until: None }.resolve(&evening(), None);
        assert_eq!(resolved("14h").unwrap().map(format::seconds).unwrap(), "2026-11-22T08:30:00Z");
        assert_eq!(resolved("1m").unwrap().map(format::seconds).unwrap(), "2026-11-21T18:31:00Z");
        assert!(matches!(resolved("2562047h"), Ok(Some(_)) | Err(TimeError::TooFar(_))));
        for text in ["59s", "0", "-1h", "14", "soon"] {
            assert!(length(text).is_err(), "{text}");
        }
        assert_eq!(TimeFlags::default().resolve(&evening(), None), Ok(None));
    }

    #[test]
    fn what_begins_later_ends_after_that() {
        let begin = "2026-11-21T22:00:00Z".parse().unwrap();
        let flags = |length: Option<u64>, until: Option<&str>| TimeFlags {
            length: length.map(Duration::from_hours),
            until: until.map(str::to_owned),
        };
        let resolved = |flags: TimeFlags| {
            flags
                .resolve(&evening(), Some(begin))
                .map(|end| end.map(format::seconds))
                .map_err(|error| error.to_string())
        };
        for (flags, expected) in [
            (flags(Some(3), None), Ok(Some("2026-11-22T01:00:00Z".to_owned()))),
            (flags(None, Some("tomorrow 08:00")), Ok(Some("2026-11-22T06:00:00Z".to_owned()))),
            (flags(None, None), Ok(None)),
            (
                flags(None, Some("2026-11-21T22:00:00Z")),
                Err("--until 2026-11-21T22:00:00Z is not later than --not-before 2026-11-21T22:00:00Z: give a later --until, \
                     or an earlier --not-before"
                    .to_owned()),
            ),
        ] {
            assert_eq!(resolved(flags), expected);
        }
    }

    /// Where clocks change, the next 02:30 exists all the same.
    #[test]
    fn changes_of_the_clock_are_survived() {
        let after = tz::offset(2);
        let zone = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        let at = |text: &str| text.parse::<DateTime>().unwrap().to_zoned(zone.clone()).unwrap();
        let skipped = until("02:30", &at("2026-03-28T20:00")).unwrap();
        assert_eq!(skipped.to_zoned(zone.clone()).offset(), after, "{skipped}");
        let twice = until("02:30", &at("2026-10-24T20:00")).unwrap();
        assert_eq!(twice.to_zoned(zone.clone()).offset(), after, "the first of the two: {twice}");
    }
}
