//! A number of targets, or a percentage of them.

use std::fmt;
use std::str::FromStr;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::{Deserialize, Serialize};

/// A number of targets, or a percentage of them: `20` or `5%`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "IntOrString", into = "IntOrString")]
pub enum Share {
    /// An absolute number.
    Count(u32),
    /// A percentage of all, 0 to 100.
    Percent(u8),
}

/// An invalid share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a number such as 20, or a percentage from 0% to 100%")]
pub struct ShareError;

impl Share {
    /// Resolves the share against a total, rounded up.
    pub fn of(self, total: usize) -> usize {
        match self {
            Self::Count(count) => usize::try_from(count).unwrap_or(usize::MAX),
            // Cannot overflow: neither part exceeds the total.
            Self::Percent(percent) => {
                let percent = usize::from(percent);
                total / 100 * percent + (total % 100 * percent).div_ceil(100)
            }
        }
    }
}

impl FromStr for Share {
    type Err = ShareError;

    fn from_str(text: &str) -> Result<Self, ShareError> {
        let number = |digits: &str| {
            let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
            digits.parse().ok().filter(|_| is_number).ok_or(ShareError)
        };
        match text.strip_suffix('%') {
            Some(percent) => {
                let percent = number(percent)?;
                u8::try_from(percent).ok().filter(|percent| *percent <= 100).map(Self::Percent).ok_or(ShareError)
            }
            None => number(text).map(Self::Count),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Count(count) => write!(out, "{count}"),
            Self::Percent(percent) => write!(out, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_is_rounded_up() {
        for (text, total, expected) in [
            ("20", 6, 20),
            ("0", 6, 0),
            ("30%", 3, 1),
            ("50%", 6, 3),
            ("10%", 101, 11),
            ("1%", 0, 0),
            ("100%", usize::MAX, usize::MAX),
        ] {
            let share: Share = text.parse().unwrap();
            assert_eq!((share.of(total), share.to_string().as_str()), (expected, text));
        }
    }

    #[test]
    fn an_invalid_share_is_refused() {
        for text in ["", "%", "-1", "+1", "101%", "256%", "1.5", "5 %", "4294967296", "five"] {
            assert_eq!(text.parse::<Share>(), Err(ShareError), "{text:?}");
        }
    }
}
