//! Durations on the command line, in kubectl's style: `30s`, `1h30m`, a bare number of seconds, and `0` for no limit.

use std::time::Duration;

use shared::duration::{self, DurationError};

/// A limit of time; none for `0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limit(pub(crate) Option<Duration>);

/// Reads a limit.
///
/// # Errors
/// When the text is neither a Go duration nor a number of seconds, or is negative.
pub(crate) fn parse(text: &str) -> Result<Limit, DurationError> {
    let with_unit = if text.parse::<u32>().is_ok() { format!("{text}s") } else { text.to_owned() };
    match duration::parse_positive(&with_unit) {
        Ok(duration) => Ok(Limit(Some(duration))),
        Err(DurationError::NotPositive(_)) if !text.starts_with('-') => Ok(Limit(None)),
        Err(error) => Err(error),
    }
}

/// `38s`, `2m5s`, `1h0m5s`: whole seconds as Go prints them.
pub(crate) fn elapsed(duration: Duration) -> String {
    duration::go_string(Duration::from_secs(duration.as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_kubectl_reads() {
        for (text, seconds) in [("30s", Some(30)), ("45", Some(45)), ("1h30m", Some(5400)), ("0", None), ("0s", None)] {
            assert_eq!(parse(text), Ok(Limit(seconds.map(Duration::from_secs))), "{text}");
        }
        for text in ["-1s", "soon", "", "5 m", "-0"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn elapsed_time_has_no_fractions() {
        assert_eq!(elapsed(Duration::from_millis(38_900)), "38s");
        assert_eq!(elapsed(Duration::from_secs(125)), "2m5s");
    }
}
