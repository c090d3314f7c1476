//! The only reader of what comes from outside: objects of the hub, answers of spokes and clouds, requests, files of tenants.
//!
//! One parser builds our own types in one pass, and counts what they keep. What bounds an input is what builds it: a value
//! that would keep more than its limit is refused, whatever its type; what no type asks for is skipped without being built.

mod meter;
mod pick;
pub mod yaml;

use std::cell::RefCell;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, DeserializeSeed as _};
use serde::{Deserialize, Deserializer};

pub use self::pick::pick;

use self::meter::{Budget, Seed};
use crate::annotation::is_read;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of all that is kept.
    pub kept: usize,
    /// Bytes of one text that is kept.
    pub text: usize,
    /// Whether a member of this name, inside of a member of that name, is skipped.
    pub skips: fn(inside: &str, name: &str) -> bool,
}

impl Limits {
    /// An object of the hub. Annotations that nothing of ours reads, and what the API server notes of its managers, are
    /// skipped.
    pub const OBJECT: Self = Self { kept: 64 << 10, text: 16 << 10, skips: is_of_others };

    /// An answer of so many bytes. With its text, and what a list has while it grows, it takes at most four times as much.
    pub fn answer(bytes: usize) -> Self {
        Self { kept: (64 << 10) + 2 * bytes, text: 64 << 10, skips: |_, _| false }
    }
}

fn is_of_others(inside: &str, name: &str) -> bool {
    name == "managedFields" || inside == "annotations" && !is_read(name)
}

/// What was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read<T> {
    /// The value.
    pub value: T,
    /// Bytes that it keeps, itself included: at least as many as it takes.
    pub kept: usize,
    /// Fields that hold a default, because they could not be read.
    pub fields: Vec<Field>,
}

/// A field that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The names that lead to it.
    pub path: Vec<String>,
    /// Why, sanitized.
    pub why: String,
}

/// Why nothing was read: a sanitized line, such as `invalid type: integer 7, expected a string at line 1 column 9`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReadError(pub String);

/// Reads a value from JSON.
///
/// # Errors
/// When it is malformed, does not fit the type, or would keep more than the limits allow.
pub fn json<T: DeserializeOwned>(text: &[u8], limits: &Limits) -> Result<Read<T>, ReadError> {
    json_charged(text, limits, &mut |_| true)
}

/// The same, and charges what is kept, in bytes, before it is built: `charge` says whether there is room.
///
/// # Errors
/// Also when there is none.
pub fn json_charged<T: DeserializeOwned>(
    text: &[u8],
    limits: &Limits,
    charge: &mut dyn FnMut(usize) -> bool,
) -> Result<Read<T>, ReadError> {
    let budget = RefCell::new(Budget::new(limits, charge));
    let mut parser = serde_json::Deserializer::from_slice(text);
    let own = budget.borrow_mut().keep(size_of::<T>());
    let built = own
        .map_err(serde::de::Error::custom)
        .and_then(|()| Seed { seed: PhantomData::<T>, budget: &budget }.deserialize(&mut parser))
        .and_then(|value| parser.end().map(|()| value));
    let Budget { kept, fields, misfit, fatal, .. } = budget.into_inner();
    match built {
        Ok(value) => Ok(Read { value, kept, fields }),
        Err(error) => Err(ReadError(located(fatal.or(misfit), &error))),
    }
}

/// Why, and where.
fn located(why: Option<String>, error: &serde_json::Error) -> String {
    let text = crate::text::sanitize_to(error, 300);
    match why {
        // A text that is quoted may have the position cut off.
        Some(why) if !why.contains(" at line ") => format!("{why} at line {} column {}", error.line(), error.column()),
        Some(why) => why,
        None => text,
    }
}

/// Reads a field that may be anything. One that does not fit has its default, and is listed if [`json`] reads it; any other
/// parser stops there.
///
/// # Errors
/// Never: the parser goes on behind the value, or fails there.
pub fn lenient<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(T::deserialize(deserializer).unwrap_or_default())
}

#[cfg(test)]
mod tests;
