//! Objects with fields that cannot be read: a text is too long, a list stands where a number should be.
//!
//! Such a field is left out, so that everything else is judged and stamped, and is denied by its name
//! ([`super::judge`]). One pass over the object finds all of them; where there are any, one more reads what stands there.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::{Denial, Fault, Finding};
use crate::annotation::is_judged;
use crate::read::{self, Field, Limits, Read, ReadError, lenient, pick};
use crate::text::sanitize;

/// Row of what cannot be read, whatever the kind.
pub const UNREADABLE: &str = "unreadable";

/// Longest name, reference or value in bytes that is kept. Names have up to 253, user names of identity providers more.
pub const MAX_TEXT_BYTES: usize = 4 * 1024;
/// Bytes of all annotations of an object, by the rule of the API server.
const MAX_ANNOTATIONS: usize = 256 << 10;

impl Limits {
    /// The objects of a request: besides their annotations a few names, or labels and owners of a volume.
    pub const ADMISSION: Self = Self {
        kept: 2 * MAX_ANNOTATIONS + (128 << 10),
        text: MAX_TEXT_BYTES,
        annotation: MAX_ANNOTATIONS,
        brief: 0,
        skips: is_of_others,
    };
}

fn is_of_others(inside: &str, name: &str) -> bool {
    name == "managedFields" || inside == "annotations" && !is_judged(name)
}

/// A field that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    field: Field,
    found: Option<Written>,
    altered: bool,
}

/// What cannot be read of the objects of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnreadFields {
    /// Of the object as it is stored.
    pub old: Vec<Unread>,
    /// Of the object as it is to be stored.
    pub new: Vec<Unread>,
}

impl Unread {
    /// Whether the request sets or alters the field.
    pub fn altered(&self) -> bool {
        self.altered
    }

    /// Whether nothing is known of the field at this path, or not all of it.
    pub fn concerns(&self, path: &[&str]) -> bool {
        self.field.path.iter().zip(path).all(|(one, other)| one == other)
    }

    /// Whether nothing is known of the field at this path.
    pub fn covers(&self, path: &[&str]) -> bool {
        self.field.path.len() <= path.len() && self.concerns(path)
    }

    /// Why nothing of the object can be read, if that is so.
    pub fn of_all(&self) -> Option<&str> {
        self.field.path.is_empty().then_some(self.field.why.as_str())
    }

    /// The denial of the field.
    pub fn denial(&self) -> Finding<Denial> {
        let found = self.found.as_ref().map(ToString::to_string).unwrap_or_default();
        // A parser appends the position.
        let why = self.field.why.rsplit_once(" at line ").map_or(self.field.why.as_str(), |(why, _)| why);
        let message = format!("found {found}, which cannot be read: {why}");
        Finding { row: UNREADABLE, detail: Denial { fault: Fault::Invalid, field: self.name(), message } }
    }

    /// The field, as denials name it.
    fn name(&self) -> String {
        let mut field = String::new();
        for name in &self.field.path {
            match name {
                name if name.contains(['.', '/']) => field.extend(["[", name, "]"]),
                name if field.is_empty() => field.push_str(name),
                name => field.extend([".", name]),
            }
        }
        field
    }
}

/// The objects of a request, in an `AdmissionReview`, and what stands behind them.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", bound = "K: Deserialize<'de>")]
pub struct Objects<K> {
    /// The object as it is to be stored.
    #[serde(default, deserialize_with = "lenient")]
    pub object: Option<K>,
    /// The object as it is stored.
    #[serde(default, deserialize_with = "lenient")]
    pub old_object: Option<K>,
    /// What cannot be read of them.
    #[serde(skip)]
    pub unread: UnreadFields,
    /// Whether nothing will be stored.
    #[serde(default, deserialize_with = "lenient")]
    pub dry_run: bool,
    #[serde(default, deserialize_with = "lenient")]
    options: Options,
}

/// `CreateOptions`, `UpdateOptions` or `PatchOptions`.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Options {
    #[serde(deserialize_with = "lenient")]
    field_manager: String,
}

#[derive(Deserialize)]
#[serde(bound = "K: Deserialize<'de>")]
struct Review<K> {
    request: Objects<K>,
}

impl<K: DeserializeOwned> Objects<K> {
    /// Reads a review. Fields that cannot be read are left out of the objects, and listed.
    ///
    /// # Errors
    /// When it is no review.
    pub fn read(review: &str) -> Result<Self, ReadError> {
        let Read { value: Review { request: mut objects }, fields, .. } = read::text(review, &Limits::ADMISSION)?;
        if !fields.is_empty() {
            objects.unread = UnreadFields::of(review, fields);
        }
        Ok(objects)
    }

    /// The field manager that the client gave; empty if it gave none, in which case the API server made one up.
    pub fn field_manager(&mut self) -> String {
        std::mem::take(&mut self.options.field_manager)
    }
}

impl UnreadFields {
    /// What stands in these fields of a review, and whether the request alters it. What is stored besides is never shown.
    fn of(review: &str, fields: Vec<Field>) -> Self {
        let of = |Field { path, .. }: &Field, object: &str| path.get(1).is_some_and(|name| name == object);
        let (new, mut old): (Vec<_>, Vec<_>) = fields.into_iter().partition(|field| of(field, "object"));
        old.retain(|field| of(field, "oldObject"));
        if new.is_empty() {
            return Self { old: found(review, old, false), new: vec![] };
        }
        let unseen = |field| Unread { field: inside(field), found: None, altered: false };
        Self { old: old.into_iter().map(unseen).collect(), new: found(review, new, true) }
    }
}

/// What stands in these fields of a review, before and after.
fn found(review: &str, fields: Vec<Field>, is_new: bool) -> Vec<Unread> {
    let stored = fields.iter().filter(|_| is_new).map(|Field { path, .. }| {
        let before = [path.first().cloned().unwrap_or_default(), "oldObject".to_owned()];
        [&before, path.get(2..).unwrap_or_default()].concat()
    });
    let stored: Vec<_> = stored.collect();
    let paths: Vec<_> = fields.iter().map(|field| &field.path).chain(&stored).map(Vec::as_slice).collect();
    let texts = pick(review, &paths);
    let (after, before) = texts.split_at(fields.len());
    let before = before.iter().chain(std::iter::repeat(&None));
    let all = fields.into_iter().zip(after.iter().zip(before));
    all.map(|(field, (after, before))| Unread {
        field: inside(field),
        found: after.map(Written::from),
        altered: after != before,
    })
    .collect()
}

/// A field of a review as one of its object.
fn inside(mut field: Field) -> Field {
    field.path.drain(..field.path.len().min(2));
    field
}

/// Bytes that are kept: a time, a number, a word.
const MAX_BEGIN: usize = 40;

/// Keyed, so that no writer of a value can compute another one with the same digest.
static DIGEST: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// A value as it is written. Two are equal if they are written alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Written {
    /// The whole of it, or of a longer one its beginning.
    pub begin: String,
    length: usize,
    digest: u64,
}

impl From<&str> for Written {
    fn from(text: &str) -> Self {
        let begin = text[..text.floor_char_boundary(MAX_BEGIN)].to_owned();
        Self { begin, length: text.len(), digest: DIGEST.hash_one(text) }
    }
}

/// Borrows the value from what is parsed, and keeps a few bytes.
impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        <&RawValue>::deserialize(deserializer).map(|text| Self::from(text.get()))
    }
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&sanitize(&self.begin))?;
        if self.begin.len() < self.length { write!(f, "... ({} bytes)", self.length) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests;
