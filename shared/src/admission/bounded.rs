//! Bounds of what is kept of a request. Whoever reaches the webhook may send one, and all requests share its memory.

use std::collections::BTreeMap;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::visit::{self, Map, text};

/// Longest name, reference or value in bytes that is kept. Names have up to 253, user names of identity providers more.
pub const MAX_TEXT_BYTES: usize = 4 * 1024;
/// Most members of a map that are kept.
const MAX_ENTRIES: usize = 1_000;

/// Reads a text of at most 4 KiB.
///
/// # Errors
/// When it is no text, or longer.
pub fn short<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    visit::short(deserializer, MAX_TEXT_BYTES)
}

/// The same of a text that may be absent or null.
///
/// # Errors
/// As [`short`].
pub fn short_if_any<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    Ok(Option::<ShortText>::deserialize(deserializer)?.map(|ShortText(text)| text))
}

/// Reads a text of any length, cut to 4 KiB with an ellipsis.
///
/// # Errors
/// When it is no text.
pub fn cut<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    deserializer.deserialize_str(text("a string", |text| {
        let end = text.floor_char_boundary(MAX_TEXT_BYTES);
        Ok(if end < text.len() { format!("{}…", &text[..end]) } else { text.to_owned() })
    }))
}

/// A text of at most 4 KiB.
#[derive(Debug)]
struct ShortText(String);

impl<'de> Deserialize<'de> for ShortText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        short(deserializer).map(Self)
    }
}

/// Reads labels: a map of at most 1,000 short texts. None if it is absent or null.
///
/// # Errors
/// When it is no such map.
pub fn labels<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BTreeMap<String, String>>, D::Error> {
    let labels = members::<ShortText, D>(deserializer)?;
    Ok(labels.map(|labels| labels.into_iter().map(|(key, ShortText(value))| (key, value)).collect()))
}

/// Reads a map of at most 1,000 members with short keys. None if it is absent or null.
///
/// # Errors
/// When it is no such map.
pub fn members<'de, V: Deserialize<'de>, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<BTreeMap<String, V>>, D::Error> {
    deserializer.deserialize_any(Map {
        kept: Some(BTreeMap::new()),
        wanted: |_| true,
        take: |members: &mut Option<BTreeMap<String, V>>, ShortText(key), value| {
            let members = members.get_or_insert_default();
            if members.len() == MAX_ENTRIES {
                return Err(format!("must be a map of at most {MAX_ENTRIES} entries"));
            }
            members.insert(key, value);
            Ok(())
        },
    })
}

/// Whether a list of texts has one of these in it. The list is read to its end, and nothing of it is kept.
pub fn has_any(list: &RawValue, wanted: &[String]) -> bool {
    struct HasAny<'a>(&'a [String]);

    impl<'de> Visitor<'de> for HasAny<'_> {
        type Value = bool;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<bool, A::Error> {
            let mut found = false;
            let is_wanted = || text("a string", |text| Ok(self.0.iter().any(|wanted| wanted == text)));
            while let Some(is_wanted) = list.next_element_seed(is_wanted())? {
                found |= is_wanted;
            }
            Ok(found)
        }
    }

    serde_json::Deserializer::from_str(list.get()).deserialize_seq(HasAny(wanted)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct Read {
        #[serde(deserialize_with = "short")]
        name: String,
        #[serde(deserialize_with = "short_if_any")]
        state: Option<String>,
        #[serde(deserialize_with = "labels")]
        labels: Option<BTreeMap<String, String>>,
        #[serde(deserialize_with = "cut")]
        user: String,
    }

    fn read(json: &str) -> Result<Read, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_kept_has_an_end() {
        let found = read(r#"{"name":"d\u0065mo","state":null,"labels":{"a":"b"}}"#).unwrap();
        assert_eq!(
            (found.name.as_str(), found.state, found.labels.map(|labels| labels.len())),
            ("demo", None, Some(1))
        );
        let long = "x".repeat(MAX_TEXT_BYTES + 1);
        let many: Vec<String> = (0..=MAX_ENTRIES).map(|number| format!("\"{number}\":\"\"")).collect();
        for (json, why) in [
            (format!(r#"{{"name":"{long}"}}"#), "must be a string of at most 4096 bytes"),
            (format!(r#"{{"state":"{long}"}}"#), "must be a string of at most 4096 bytes"),
            (format!(r#"{{"labels":{{"{long}":"x"}}}}"#), "must be a string of at most 4096 bytes"),
            (format!(r#"{{"labels":{{"x":"{long}"}}}}"#), "must be a string of at most 4096 bytes"),
            (format!(r#"{{"labels":{{{}}}}}"#, many.join(",")), "must be a map of at most 1000 entries"),
            (r#"{"user":7}"#.to_owned(), "expected a string"),
            (r#"{"name":7}"#.to_owned(), "expected a string"),
            (r#"{"state":[]}"#.to_owned(), "expected a string"),
        ] {
            let error = read(&json).unwrap_err();
            assert!(error.contains(why), "{why}: {error}");
        }
    }

    #[test]
    fn a_name_is_cut_at_a_character() {
        let user = |name: &str| read(&format!(r#"{{"user":"{name}"}}"#)).unwrap().user;
        assert_eq!(user("alice"), "alice");
        assert_eq!(user(&"x".repeat(MAX_TEXT_BYTES)).len(), MAX_TEXT_BYTES);
        assert_eq!(
            user(&format!("x{}", "ü".repeat(MAX_TEXT_BYTES))),
            format!("x{}…", "ü".repeat(MAX_TEXT_BYTES / 2 - 1))
        );
    }

    #[test]
    fn a_member_of_a_long_list_is_found_wherever_it_stands() {
        let wanted = ["hive".to_owned()];
        let of = |list: &str| has_any(serde_json::from_str(list).unwrap(), &wanted);
        let others = vec!["\"other\""; 500_000].join(",");
        assert!(of(&format!("[{others},\"h\\u0069ve\"]")) && of(&format!("[\"hive\",{others}]")));
        assert!(!of(&format!("[{others}]")) && !of("[]") && !of("null") && !of("{\"hive\":1}") && !of("\"hive\""));
        assert!(!of("[\"hive\",7]"), "no list of texts");
    }
}
