//! Our annotations: each key, how its value is written and read, and what keeps a target awake.
//!
//! Annotations are untrusted text. Parsing is bounded, and distinguishes a malformed value from a missing one.

pub mod format;
pub mod groups;
pub mod keys;
mod map;
pub mod mark;

use jiff::Timestamp;
use serde_json::{Value, json};

pub(crate) use self::map::is_judged;
pub use self::map::{Annotations, annotation, is_ours};

/// Names the holder of a hold that has no name.
pub const NAMELESS: &str = "an unknown user";

/// A request that a target stay awake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hold<'a> {
    /// Or one that has expired: at the second it names, it does not count any more.
    None,
    /// Stays awake until then.
    Until { until: Timestamp, by: Option<&'a str> },
    /// An end that cannot be parsed. Counts as a hold: staying awake is the safe side.
    Malformed { text: &'a str, by: Option<&'a str> },
}

/// The hold of a target. `annotation` reads an annotation of it.
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

/// What to write of [`keys::REASON`]: another reason, or the removal of the one before by a change without a reason.
pub(crate) fn reason_edit(before: Option<&str>, reason: Option<&str>, changes: bool) -> Option<(String, Value)> {
    let is_written = before != reason && (changes || reason.is_some());
    is_written.then(|| (keys::REASON.to_owned(), json!(reason)))
}

/// Whether this value of [`keys::PROTECTED`] protects a target. A malformed one does: staying awake is the safe side.
pub fn protected(value: Option<&str>) -> bool {
    value.is_some_and(|text| format::boolean(text) != Some(false))
}
