//! A value as it is written, of which the beginning is kept.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::LazyLock;

use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::text::sanitize;

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
