//! How a person reads one object: a line of a table, or everything.

use jiff::Timestamp;

use crate::output::{self, Color};

/// How it is printed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Style {
    pub(super) now: Timestamp,
    pub(super) colors: bool,
    /// Whether inner tables have headers.
    pub(super) headers: bool,
    /// `-o wide`.
    pub(super) wide: bool,
}

/// An object as a person reads it.
pub(super) trait Render {
    /// A line of the table.
    fn line(&self, now: Timestamp) -> Vec<String>;
    /// Everything, sanitized.
    fn full(&self, style: &Style) -> Vec<String>;
}

/// The name of an object and what is known of it, a sanitized line each. One of them may have a color.
pub(super) fn described(
    name: &str,
    width: usize,
    fields: &[(&str, Option<String>)],
    (colored, color): (&str, Option<Color>),
) -> Vec<String> {
    let line = |(name, value): &(&str, Option<String>)| {
        let value = output::one_line(value.as_deref()?);
        let value = match color.filter(|_| *name == colored) {
            Some(color) => color.paint(&value, true),
            None => value,
        };
        Some(format!("  {:<width$}{value}", format!("{name}:")))
    };
    std::iter::once(output::one_line(name)).chain(fields.iter().filter_map(line)).collect()
}
