//! IDs that become parts of URLs.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Longest ID, in bytes.
const MAX: usize = 64;

/// The ID of a thing in OpenStack: letters, digits, `-` and `_`, whoever wrote it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct Id(String);

impl Id {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Id {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        let is_known = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let is_id = (1..=MAX).contains(&text.len()) && text.chars().all(is_known);
        if is_id { Ok(Self(text)) } else { Err("an ID has 1 to 64 letters, digits, - and _") }
    }
}

impl From<Id> for String {
    fn from(id: Id) -> Self {
        id.0
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl AsRef<str> for Id {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}
