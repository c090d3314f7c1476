//! What keeps a target awake: protection from sleep, and a hold until some time.

use jiff::Timestamp;

use super::{format, keys};

/// Who holds a target awake, if they did not say.
pub const NAMELESS: &str = "an unknown user";

/// A request that a target stay awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold<'a> {
    /// None, or one that has expired: from the second it names on, it no longer counts.
    None,
    /// It must stay awake until then.
    Until {
        /// When the hold ends.
        until: Timestamp,
        /// Who holds, if they said so.
        by: Option<&'a str>,
    },
    /// A hold whose end cannot be parsed. Counts as a hold: staying awake is the safe side.
    Malformed {
        /// What stands there instead of a time.
        text: &'a str,
        /// Who holds, if they said so.
        by: Option<&'a str>,
    },
}

/// Whether a hold keeps a target awake. `annotation` reads an annotation of it.
pub fn hold<'a>(annotation: impl Fn(&str) -> Option<&'a str>, now: Timestamp) -> Hold<'a> {
    let Some(text) = annotation(keys::HOLD_AWAKE_UNTIL) else {
        return Hold::None;
    };
    let by = annotation(keys::HOLD_AWAKE_BY).filter(|by| !by.is_empty());
    match format::time(text) {
        None => Hold::Malformed { text, by },
        Some(until) if until <= now => Hold::None,
        Some(until) => Hold::Until { until, by },
    }
}

/// Whether the annotation [`keys::PROTECTED`] with this value protects a target. What cannot be read protects: staying
/// awake is the safe side.
pub fn protected(value: Option<&str>) -> bool {
    value.is_some_and(|text| format::boolean(text) != Some(false))
}
