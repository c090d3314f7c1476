//! Durations between two moments, and as Go writes them (`1h30m`, `1.5h`, `300ms`) in `spec.hibernateAfter` and in Hive's
//! messages.

use std::time::Duration;

use jiff::Timestamp;

/// Why Go's `time.ParseDuration` or Hive would not accept a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("{0:?} is not a duration: write numbers with units (ns, us, µs, ms, s, m, h), such as 8h or 1h30m")]
    Syntax(String),
    /// Longer than Go's 64-bit nanoseconds, about 292 years.
    #[error("{0:?} is too long: the longest duration is 2562047h47m16s")]
    TooLong(String),
    #[error("{0:?} is not positive: write a duration longer than nothing, such as 8h")]
    NotPositive(String),
    #[error("{0:?} is negative: write 0 or a duration such as 8h")]
    Negative(String),
}

const UNITS: &[(&str, u64)] = &[
    ("ns", 1),
    ("us", 1_000),
    ("µs", 1_000), // U+00B5, micro sign
    ("μs", 1_000), // U+03BC, Greek letter mu
    ("ms", 1_000_000),
    ("s", 1_000_000_000),
    ("m", 60_000_000_000),
    ("h", 3_600_000_000_000),
];

/// Time from `then` to `now`, zero if `then` is later.
pub fn age(then: Timestamp, now: Timestamp) -> Duration {
    Duration::try_from(now.duration_since(then)).unwrap_or_default()
}

/// The begin of a length of time, or of all time.
pub fn before(end: Timestamp, length: Duration) -> Timestamp {
    end.checked_sub(length).unwrap_or(Timestamp::MIN)
}

/// The end of a length of time, or of all time.
pub fn after(begin: Timestamp, length: Duration) -> Timestamp {
    begin.checked_add(length).unwrap_or(Timestamp::MAX)
}

/// Reads a positive Go duration.
pub fn parse_positive(text: &str) -> Result<Duration, DurationError> {
    match parse(text)? {
        duration if duration.is_zero() || text.starts_with('-') => Err(DurationError::NotPositive(text.to_owned())),
        duration => Ok(duration),
    }
}

/// Reads a Go duration that may be zero.
pub fn parse_unsigned(text: &str) -> Result<Duration, DurationError> {
    match parse(text)? {
        duration if !duration.is_zero() && text.starts_with('-') => Err(DurationError::Negative(text.to_owned())),
        duration => Ok(duration),
    }
}

/// Reads a Go duration without its sign.
fn parse(text: &str) -> Result<Duration, DurationError> {
    let syntax = || DurationError::Syntax(text.to_owned());
    let too_long = || DurationError::TooLong(text.to_owned());
    let mut rest = text.strip_prefix(['-', '+']).unwrap_or(text);
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(syntax());
    }
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(syntax());
        }
        let end = after.find(|c: char| c == '.' || c.is_ascii_digit()).unwrap_or(after.len());
        let (name, after) = after.split_at(end);
        let (_, unit) = UNITS.iter().find(|(unit, _)| *unit == name).ok_or_else(syntax)?;
        let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| too_long())? };
        nanos = whole
            .checked_mul(u128::from(*unit))
            .and_then(|value| nanos.checked_add(value))
            .and_then(|value| value.checked_add(fraction_of(fraction, *unit)))
            .filter(|value| *value <= i64::MAX as u128)
            .ok_or_else(too_long)?;
        rest = after;
    }
    u64::try_from(nanos).map(Duration::from_nanos).map_err(|_| too_long())
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// `.fraction` of a unit in nanoseconds, truncated as Go does.
fn fraction_of(fraction: &str, unit: u64) -> u128 {
    let digits = fraction.bytes().take(18).map(|digit| u128::from(digit - b'0'));
    let (number, scale) = digits.fold((0, 1), |(number, scale), digit| (10 * number + digit, 10 * scale));
    number * u128::from(unit) / scale
}

/// The message of a transition that exceeds its limit.
pub fn overdue(limit: Duration, message: &str) -> String {
    format!("for more than {}: {message}", go_string(limit))
}

/// Prints a duration as Go's `Duration.String` does: `2m0s`, `1h0m0s`, `1.5s`, `300ms`.
pub fn go_string(duration: Duration) -> String {
    let nanos = duration.as_nanos();
    match nanos {
        0 => "0s".to_owned(),
        1..1_000 => format!("{nanos}ns"),
        1_000..1_000_000 => format!("{}µs", decimal(nanos, 1_000)),
        1_000_000..1_000_000_000 => format!("{}ms", decimal(nanos, 1_000_000)),
        _ => {
            let (hours, minutes) = (nanos / 3_600_000_000_000, nanos / 60_000_000_000 % 60);
            let seconds = decimal(nanos % 60_000_000_000, 1_000_000_000);
            match (hours, minutes) {
                (0, 0) => format!("{seconds}s"),
                (0, _) => format!("{minutes}m{seconds}s"),
                _ => format!("{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

fn decimal(value: u128, unit: u128) -> String {
    let width = unit.ilog10() as usize;
    let text = format!("{}.{:0width$}", value / unit, value % unit);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// `118h`, or `12m` or `38s` below an hour: rounded down.
pub fn hours(seconds: u64) -> String {
    match seconds {
        0 => "0h".to_owned(),
        1..60 => format!("{seconds}s"),
        60..3_600 => format!("{}m", seconds / 60),
        _ => format!("{}h", seconds / 3_600),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn fuzz_durations() {
        ::fuzz::run("durations", &[b"1h30m", b"1.5h", b"90s", b"2us", b"0.000000001s", b"2540400h10m10s"], |bytes| {
            let Ok(text) = std::str::from_utf8(bytes) else { return false };
            let (positive, unsigned) = (parse_positive(text), parse_unsigned(text));
            if let Ok(duration) = unsigned {
                assert_eq!(parse_unsigned(&go_string(duration)), Ok(duration), "{text:?}");
            }
            positive.is_ok()
        });
    }

    use super::*;

    #[test]
    fn reads_what_go_reads() {
        for (text, nanos) in [
            ("8h", 8 * 3_600_000_000_000),
            ("1h30m", 5_400_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("300ms", 300_000_000),
            ("7µs", 7_000),
            ("7us", 7_000),
            ("1ns", 1),
            ("2562047h47m16.854775807s", i64::MAX as u64),
        ] {
            assert_eq!(parse_positive(text), Ok(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn refuses_what_go_or_common_sense_refuse() {
        for text in ["", "8", "h", "8 h", "8d", "1h-3m", "eight", ".h", "1.2.3h"] {
            assert!(matches!(parse_positive(text), Err(DurationError::Syntax(_))), "{text}");
        }
        for text in ["0s", "0", "0h0m", "-8h", "-0s"] {
            assert!(matches!(parse_positive(text), Err(DurationError::NotPositive(_))), "{text}");
        }
        for text in ["2562047h47m16.854775808s", "99999999h", "9999999999999999999999999999999999999999999h"] {
            assert!(matches!(parse_positive(text), Err(DurationError::TooLong(_))), "{text}");
        }
    }

    #[test]
    fn nothing_is_a_duration_where_nothing_is_allowed() {
        for text in ["0", "0s", "-0s", "0h0m"] {
            assert_eq!(parse_unsigned(text), Ok(Duration::ZERO), "{text}");
        }
        assert_eq!(parse_unsigned("2h"), Ok(Duration::from_hours(2)));
        assert!(matches!(parse_unsigned("-2h"), Err(DurationError::Negative(_))));
        assert!(matches!(parse_unsigned("two hours"), Err(DurationError::Syntax(_))));
    }

    #[test]
    fn prints_as_go_prints() {
        for (millis, text) in [(120_000, "2m0s"), (3_600_000, "1h0m0s"), (1_500, "1.5s"), (300, "300ms"), (0, "0s")] {
            assert_eq!(go_string(Duration::from_millis(millis)), text);
        }
    }
}
