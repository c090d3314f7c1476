//! The only reader of what comes from outside: objects of the hub, answers of spokes and clouds, requests, files of tenants.
//!
//! One parser builds our own types in one pass, and counts what they keep. What bounds an input is what builds it: a value
//! that would keep more than its limit is refused, whatever its type; what no type asks for is skipped without being built.

mod meter;
mod pick;
pub mod yaml;

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, DeserializeSeed as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

pub use self::pick::pick;

use self::meter::{Budget, Seed};
use crate::annotation::is_ours;

/// How much is kept.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Bytes of all that is kept.
    pub kept: usize,
    /// Bytes of one text that is kept.
    pub text: usize,
    /// The same of an annotation.
    pub annotation: usize,
    /// Bytes up to which an annotation of others is kept: those that are read are short, and any may be a sign to reconcile.
    pub brief: usize,
    /// Whether a member of this name, inside of a member of that name, is skipped.
    pub skips: fn(inside: &str, name: &str) -> bool,
}

impl Limits {
    /// An object of the hub. Longer annotations of others, and what the API server notes of its managers, are skipped.
    pub const OBJECT: Self =
        Self { kept: 64 << 10, text: 64 << 10, annotation: 16 << 10, brief: 512, skips: is_of_others };

    /// An object that names thousands of others, such as the members of a fleet.
    pub const FLEET: Self = Self { kept: 2 << 20, text: 1 << 20, ..Self::OBJECT };
    /// A Secret or a `ConfigMap`: they are read one by one.
    pub const DATA: Self = Self { kept: 3 << 20, text: 2 << 20, ..Self::OBJECT };

    /// An answer of so many bytes: it keeps no more than its text has. With the text, and what a list has while it grows,
    /// it takes at most four times as much.
    pub fn answer(bytes: usize) -> Self {
        Self { kept: (128 << 10) + bytes, text: 64 << 10, annotation: 64 << 10, brief: 0, skips: |_, _| false }
    }
}

fn is_of_others(inside: &str, name: &str) -> bool {
    name == "managedFields" || inside == "annotations" && !is_ours(name)
}

/// A type that is read from outside. Each stands in the test of all readers.
pub trait Foreign: DeserializeOwned {
    /// How much of it is kept.
    const LIMITS: Limits = Limits::OBJECT;

    /// Bytes that it keeps besides, of what it reads by a reader of its own.
    fn besides(&self) -> usize {
        0
    }
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
pub fn json<'de, T: Deserialize<'de>>(text: &'de [u8], limits: &Limits) -> Result<Read<T>, ReadError> {
    json_charged(text, limits, &mut |_| true)
}

/// The same, and charges what is kept, in bytes, before it is built: `charge` says whether there is room.
///
/// # Errors
/// Also when there is none.
pub fn json_charged<'de, T: Deserialize<'de>>(
    text: &'de [u8],
    limits: &Limits,
    charge: &mut dyn FnMut(usize) -> bool,
) -> Result<Read<T>, ReadError> {
    let text = std::str::from_utf8(text).map_err(|error| ReadError(error.to_string()))?;
    parsed(text, limits, charge)
}

/// The same of what is known to be UTF-8.
///
/// # Errors
/// As [`json`].
pub fn text<'de, T: Deserialize<'de>>(text: &'de str, limits: &Limits) -> Result<Read<T>, ReadError> {
    parsed(text, limits, &mut |_| true)
}

fn parsed<'de, T: Deserialize<'de>>(
    text: &'de str,
    limits: &Limits,
    charge: &mut dyn FnMut(usize) -> bool,
) -> Result<Read<T>, ReadError> {
    let budget = RefCell::new(Budget::new(limits, charge));
    let mut parser = serde_json::Deserializer::from_str(text);
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

/// Declares types of which every field may be missing, or anything: that one has its default. Fields behind the semicolon
/// are texts, of any parser.
macro_rules! lenient_types {
    ($($(#[$doc:meta])* $name:ident {
        $($(#[$of_field:meta])* $field:ident: $type:ty,)*
        $(; $($(#[$of_text:meta])* $text:ident,)*)?
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, serde::Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        pub struct $name {
            $($(#[$of_field])* #[serde(deserialize_with = "crate::read::lenient")] pub $field: $type,)*
            $($($(#[$of_text])* #[serde(deserialize_with = "crate::read::any_text")] pub $text: String,)*)?
        }
    )*};
}
pub(crate) use lenient_types;

/// Reads a text, by any parser; anything else is an empty one.
///
/// # Errors
/// When the value is malformed.
pub fn any_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    deserializer.deserialize_any(AnyText)
}

struct AnyText;

macro_rules! no_text {
    ($($visit:ident: $type:ty),*) => {$(
        fn $visit<E>(self, _: $type) -> Result<String, E> {
            Ok(String::new())
        }
    )*};
}

impl<'de> Visitor<'de> for AnyText {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("anything")
    }

    no_text! { visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64 }

    fn visit_str<E>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_unit<E>(self) -> Result<String, E> {
        Ok(String::new())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<String, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(String::new())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<String, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(String::new())
    }
}

#[cfg(test)]
mod tests;
