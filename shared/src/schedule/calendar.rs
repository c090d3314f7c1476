//! Calendars: lines such as `2026-12-24..2027-01-02 Christmas`.

use jiff::civil::DateTime;

use super::days::between;
use crate::text::sanitize_to;

/// Largest calendar, in bytes.
pub const MAX_BYTES: usize = 64 << 10;
/// Longest reason that is kept, in characters.
const MAX_REASON: usize = 64;

/// Days with a reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holiday {
    /// When they begin.
    pub from: DateTime,
    /// When they end.
    pub to: DateTime,
    /// Why.
    pub reason: String,
}

/// Why a calendar cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CalendarError {
    #[error("found {0} bytes, must be {MAX_BYTES} at most: use several calendars")]
    TooLong(usize),
    /// It does not quote the line: who writes a schedule need not be who may read `ConfigMaps`.
    #[error("line {0}: must be a day or days and a reason, such as 2026-12-24..2027-01-02 Christmas")]
    Line(usize),
}

/// The days of a calendar in a `ConfigMap`, whose text is that of its key, or why they are not known.
///
/// # Errors
/// When there is no such key, or its text is no calendar.
pub fn of_key(config_map: &str, key: &str, text: Option<&str>) -> Result<Vec<Holiday>, String> {
    let text = text.ok_or_else(|| format!("{config_map} has no key {key}: add it"))?;
    parse(text).map_err(|error| format!("{config_map}, key {key}: {error}"))
}

/// Reads a calendar. Empty lines, and what follows a `#`, are left out.
///
/// # Errors
/// When it is too long, or a line has another form.
pub fn parse(text: &str) -> Result<Vec<Holiday>, CalendarError> {
    if text.len() > MAX_BYTES {
        return Err(CalendarError::TooLong(text.len()));
    }
    let mut holidays = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let (days, reason) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let (from, to) = days.split_once("..").map_or((days, None), |(from, to)| (from, Some(to)));
        let (from, to) = between(from, to).ok_or(CalendarError::Line(index + 1))?;
        holidays.push(Holiday { from, to, reason: sanitize_to(reason, MAX_REASON).trim().to_owned() });
    }
    Ok(holidays)
}
