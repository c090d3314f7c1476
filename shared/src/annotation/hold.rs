//! What keeps a target awake: protection from sleep, and a hold until some time.

use jiff::Timestamp;

use super::map::Annotations;
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

/// Whether a hold keeps a target awake.
#[must_use]
pub fn hold(annotations: &Annotations, now: Timestamp) -> Hold<'_> {
    let Some(text) = annotations.get(keys::HOLD_AWAKE_UNTIL) else {
        return Hold::None;
    };
    let by = annotations.get(keys::HOLD_AWAKE_BY).filter(|by| !by.is_empty());
    match format::time(text) {
        None => Hold::Malformed { text, by },
        Some(until) if until <= now => Hold::None,
        Some(until) => Hold::Until { until, by },
    }
}

/// Whether a target is protected. One spelling, so that policy, plugin and webhook cannot differ; V9 keeps others out.
#[must_use]
pub fn protected(annotations: &Annotations) -> bool {
    annotations.get(keys::PROTECTED).and_then(format::boolean) == Some(true)
}
