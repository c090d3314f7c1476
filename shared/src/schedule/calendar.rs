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
    #[error(
        "line {line}: found {found:?}, must be a day or days and a reason, such as 2026-12-24..2027-01-02 Christmas"
    )]
    Line { line: usize, found: String },
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
        let found = || CalendarError::Line { line: index + 1, found: sanitize_to(line, MAX_REASON) };
        let (from, to) = between(from, to).ok_or_else(found)?;
        holidays.push(Holiday { from, to, reason: sanitize_to(reason, MAX_REASON).trim().to_owned() });
    }
    Ok(holidays)
}
