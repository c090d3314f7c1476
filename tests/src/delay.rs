//! Durations as people write them on the command line and as they stand in JSON: `5s`, `1m30s`, `0s`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use shared::duration;

/// A duration of zero or more, written as Go writes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Delay(pub Duration);

impl Delay {
    /// A delay of whole milliseconds.
    pub const fn millis(millis: u64) -> Self {
        Self(Duration::from_millis(millis))
    }

    /// A delay of whole seconds.
    pub const fn secs(secs: u64) -> Self {
        Self(Duration::from_secs(secs))
    }

    /// In seconds, with fractions.
    pub fn as_secs_f64(self) -> f64 {
        self.0.as_secs_f64()
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&duration::go_string(self.0))
    }
}

impl FromStr for Delay {
    type Err = duration::DurationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "0" | "0s" => Ok(Self::default()),
            _ => duration::parse_positive(text).map(Self),
        }
    }
}

impl From<Delay> for String {
    fn from(delay: Delay) -> Self {
        delay.to_string()
    }
}

impl TryFrom<String> for Delay {
    type Error = duration::DurationError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}
