//! The only reader of untrusted input: objects of the hub, answers of spokes and clouds, requests, files of tenants.
//!
//! One pass builds our own types and counts what they keep. A value that would keep more than its limit is refused, whatever
//! its type; a field that no type has is skipped without being built.

mod budget;
mod meter;
mod pick;
pub mod yaml;

use std::cell::RefCell;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeOwned, DeserializeSeed as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

pub use self::pick::pick;

use self::budget::Budget;
use self::meter::CountingSeed;
use crate::annotation::is_ours;

/// Limits in bytes of what is kept of an input.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// In all.
    pub kept: usize,
    /// One text.
    pub text: usize,
    /// One annotation.
    pub annotation: usize,
    /// An annotation of others; a longer one is skipped. Those that we read are short, and a change of any other may be a
    /// request to reconcile.
    pub brief: usize,
    /// Whether the member `name` of the member `inside` is skipped.
    pub skips: fn(inside: &str, name: &str) -> bool,
}

impl Limits {
    /// An object of the hub. Longer annotations of others and `managedFields` are skipped.
    pub const OBJECT: Self =
        Self { kept: 64 << 10, text: 64 << 10, annotation: 16 << 10, brief: 512, skips: is_of_others };

    /// An object that names thousands of others, such as the members of a fleet.
    pub const FLEET: Self = Self { kept: 2 << 20, text: 1 << 20, ..Self::OBJECT };
    /// A fleet whose annotations hold a record as long as all annotations of an object may be.
    pub const DATABASE: Self = Self { annotation: 256 << 10, ..Self::FLEET };
    /// A workload, with its `managedFields`.
    pub const MANAGED: Self = Self { kept: 256 << 10, skips: is_annotation_of_others, ..Self::OBJECT };
    /// A Secret or a `ConfigMap`, which are read one by one.
    pub const DATA: Self = Self { kept: 3 << 20, text: 2 << 20, ..Self::OBJECT };

    /// An answer of so many bytes, which keeps no more than its text has. With the text and the spare room of growing lists
    /// it takes at most four times as much memory.
    pub fn answer(bytes: usize) -> Self {
        Self { kept: (128 << 10) + bytes, text: 64 << 10, annotation: 64 << 10, brief: 0, skips: |_, _| false }
    }
}

fn is_of_others(inside: &str, name: &str) -> bool {
    name == "managedFields" || is_annotation_of_others(inside, name)
}

fn is_annotation_of_others(inside: &str, name: &str) -> bool {
    inside == "annotations" && !is_ours(name)
}

/// A type that is read from untrusted input. Each is in the test of all readers.
pub trait Foreign: DeserializeOwned {
    const LIMITS: Limits = Limits::OBJECT;

    /// Bytes that its fields with a reader of their own keep besides.
    fn besides(&self) -> usize {
        0
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read<T> {
    pub value: T,
    /// Upper bound of the memory of the value, itself included.
    pub kept: usize,
    /// Fields that hold a default because they could not be read.
    pub fields: Vec<Field>,
}

/// A field that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    pub path: Vec<String>,
    /// Sanitized.
    pub why: String,
}

/// Why nothing was read: a sanitized line, such as `invalid type: integer 7, expected a string at line 1 column 9`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ReadError(pub String);

/// Reads JSON. A value that would keep more than the limits is an error.
pub fn json<'de, T: Deserialize<'de>>(text: &'de [u8], limits: &Limits) -> Result<Read<T>, ReadError> {
    json_charged(text, limits, &mut |_| true)
}

/// Reads JSON, and charges what is kept, in bytes, before it is built. `charge` returns whether there is room; without it
/// the value is an error.
pub fn json_charged<'de, T: Deserialize<'de>>(
    text: &'de [u8],
    limits: &Limits,
    charge: &mut dyn FnMut(usize) -> bool,
) -> Result<Read<T>, ReadError> {
    let text = std::str::from_utf8(text).map_err(|error| ReadError(error.to_string()))?;
    parse(text, limits, charge)
}

/// Reads JSON that is UTF-8 already.
pub fn text<'de, T: Deserialize<'de>>(text: &'de str, limits: &Limits) -> Result<Read<T>, ReadError> {
    parse(text, limits, &mut |_| true)
}

fn parse<'de, T: Deserialize<'de>>(
    text: &'de str,
    limits: &Limits,
    charge: &mut dyn FnMut(usize) -> bool,
) -> Result<Read<T>, ReadError> {
    let budget = RefCell::new(Budget::new(limits, charge));
    let mut parser = serde_json::Deserializer::from_str(text);
    let own = budget.borrow_mut().keep(size_of::<T>());
    let built = own
        .map_err(serde::de::Error::custom)
        .and_then(|()| CountingSeed { seed: PhantomData::<T>, budget: &budget }.deserialize(&mut parser))
        .and_then(|value| parser.end().map(|()| value));
    let Budget { kept, fields, misfit, fatal, .. } = budget.into_inner();
    match built {
        Ok(value) => Ok(Read { value, kept, fields }),
        Err(error) => Err(ReadError(with_position(fatal.or(misfit), &error))),
    }
}

fn with_position(why: Option<String>, error: &serde_json::Error) -> String {
    match why {
        // A text that is quoted may have the position cut off.
        Some(why) if !why.contains(" at line ") => format!("{why} at line {} column {}", error.line(), error.column()),
        Some(why) => why,
        None => crate::text::sanitize_to(error, 300),
    }
}

/// Reads a field that may hold anything. One that does not fit gets its default, and is listed if [`json`] reads it. With
/// another parser reading ends there.
pub fn lenient<'de, T: Deserialize<'de> + Default, D: Deserializer<'de>>(deserializer: D) -> Result<T, D::Error> {
    Ok(T::deserialize(deserializer).unwrap_or_default())
}

/// Declares types of which every field may be missing or malformed: it gets its default. Fields behind the semicolon are
/// texts, with any parser.
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

/// Reads a text with any parser. Anything else becomes an empty one.
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
