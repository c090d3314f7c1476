//! Counts what a reader keeps, and notes values that do not fit their types.

use std::fmt;

use serde::de::Error;

use super::{Field, Limits};
use crate::text::sanitize_to;

/// Bytes of a text, a list or a map besides its contents.
pub(super) const OVERHEAD: usize = 24;
/// Limit for values that do not fit. No type has so many fields: more of them repeat.
const MAX_MISFITS: usize = 256;

/// Characters of an error, which may quote the input.
const MAX_ERROR: usize = 200;

pub(super) fn line(error: &impl fmt::Display) -> String {
    sanitize_to(error, MAX_ERROR)
}

/// An error that keeps one line of its message.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct ShortError(pub(super) String);

impl Error for ShortError {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self(line(&message))
    }
}

/// What is kept so far, and what did not fit.
pub(super) struct Budget<'a> {
    limits: &'a Limits,
    charge: &'a mut dyn FnMut(usize) -> bool,
    pub(super) kept: usize,
    /// Names of the members around the current value, and where each of them ends.
    names: String,
    ends: Vec<usize>,
    pub(super) fields: Vec<Field>,
    misfits: usize,
    /// Why the last value does not fit its type. The parser is behind that value.
    pub(super) misfit: Option<String>,
    /// Why nothing more can be read.
    pub(super) fatal: Option<String>,
}

impl<'a> Budget<'a> {
    pub(super) fn new(limits: &'a Limits, charge: &'a mut dyn FnMut(usize) -> bool) -> Self {
        let (names, ends, fields) = (String::with_capacity(128), Vec::with_capacity(8), Vec::new());
        Self { limits, charge, kept: 0, names, ends, fields, misfits: 0, misfit: None, fatal: None }
    }

    /// Counts and charges so many bytes.
    pub(super) fn keep(&mut self, bytes: usize) -> Result<(), String> {
        self.kept = self.kept.saturating_add(bytes);
        let fits = self.kept <= self.limits.kept;
        if fits && (self.charge)(bytes) {
            return Ok(());
        }
        let most = if fits { "there is memory for".to_owned() } else { Size(self.limits.kept).to_string() };
        Err(format!("more than {most} of it would be kept"))
    }

    #[inline]
    pub(super) fn text(&mut self, length: usize) -> Result<(), String> {
        let is_annotation = self.around(2) == "annotations";
        let most = if is_annotation { self.limits.annotation } else { self.limits.text };
        if length > most {
            return Err(format!("must be a text of at most {}", Size(most)));
        }
        self.keep(length + OVERHEAD)
    }

    #[inline]
    pub(super) fn skips(&self, name: &str) -> bool {
        (self.limits.skips)(self.around(1), name)
    }

    /// Bytes up to which a skipped member is kept here nevertheless.
    pub(super) fn brief(&self) -> usize {
        if self.around(1) == "annotations" { self.limits.brief } else { 0 }
    }

    /// The name of the nth member around the current value, counted from the inside; empty if there is none.
    #[inline]
    fn around(&self, nth: usize) -> &str {
        self.ends.len().checked_sub(nth).map_or("", |at| self.name(at))
    }

    /// The name of a member around the current value, counted from the outside.
    #[inline]
    fn name(&self, at: usize) -> &str {
        let begin = at.checked_sub(1).and_then(|at| self.ends.get(at)).copied().unwrap_or_default();
        self.ends.get(at).and_then(|end| self.names.get(begin..*end)).unwrap_or_default()
    }

    #[inline]
    pub(super) fn enter(&mut self, name: &str) {
        self.names.push_str(name);
        self.ends.push(self.names.len());
    }

    #[inline]
    pub(super) fn leave(&mut self) {
        self.ends.pop();
        self.names.truncate(self.ends.last().copied().unwrap_or_default());
    }

    fn path(&self) -> Vec<String> {
        (0..self.ends.len()).map(|at| self.name(at).to_owned()).collect()
    }

    /// Ends a value, before which so much was kept. One that did not fit has a default: it is listed, and nothing of it
    /// counts.
    pub(super) fn settle(&mut self, before: usize) -> Result<(), String> {
        if let Some(why) = &self.fatal {
            return Err(why.clone());
        }
        let Some(why) = self.misfit.take() else { return Ok(()) };
        self.kept = before;
        self.misfits += 1;
        if self.misfits > MAX_MISFITS {
            self.fatal = Some("too many values do not fit".to_owned());
        }
        let path = self.path();
        if !self.fields.iter().any(|other| path.starts_with(&other.path)) {
            self.fields.retain(|other| !other.path.starts_with(&path));
            self.fields.push(Field { path, why });
        }
        Ok(())
    }

    /// Notes an error of the parser. After a misfit it is no error: the parser is behind that value.
    pub(super) fn fail(&mut self, error: &impl fmt::Display) {
        if self.misfit.is_none() {
            self.fatal.get_or_insert_with(|| line(error));
        }
    }

    /// Notes that a type refuses the value that the parser has just read.
    pub(super) fn refuse(&mut self, error: &impl fmt::Display) {
        if self.fatal.is_none() {
            self.misfit.get_or_insert_with(|| line(error));
        }
    }
}

pub(super) struct Size(pub(super) usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes if bytes >= 1 << 20 => write!(f, "{} MiB", bytes >> 20),
            bytes if bytes >= 1 << 10 => write!(f, "{} KiB", bytes >> 10),
            bytes => write!(f, "{bytes} bytes"),
        }
    }
}
