//! JSON values with a version: `{"v":1,...}`.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Version {
    v: u32,
}

#[derive(Serialize)]
struct Versioned<'a, T> {
    v: u32,
    #[serde(flatten)]
    value: &'a T,
}

/// Reads a value. `None` if it is longer than `max_bytes`, of another version or malformed.
pub fn parse<T: DeserializeOwned>(text: &str, version: u32, max_bytes: usize) -> Option<T> {
    if self::version(text, max_bytes)? == version { serde_json::from_str(text).ok() } else { None }
}

/// The version of a value that is no longer than `max_bytes`. `None` if it has none.
pub fn version(text: &str, max_bytes: usize) -> Option<u32> {
    if text.len() > max_bytes { None } else { serde_json::from_str::<Version>(text).ok().map(|version| version.v) }
}

/// Writes a value as compact JSON.
pub fn text(value: &impl Serialize, version: u32) -> String {
    // Maps with string keys, strings and numbers always serialize.
    serde_json::to_string(&Versioned { v: version, value }).unwrap_or_default()
}
