//! Annotation [`keys::PROCESS_GROUPS`] on an Event: the process groups that it is about.
//!
//! The note of such an Event names the first few groups for people. This names them for programs: compact JSON with a
//! version.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::keys;
use super::versioned;

/// The version that this code writes, and the only one that it reads.
const VERSION: u32 = 1;
/// Longest value in bytes. All annotations of an object together may have 256 KiB.
const MAX_BYTES: usize = 8 * 1024;

/// The process groups that an Event is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ProcessGroups {
    /// IDs of process groups.
    groups: Vec<String>,
    /// How many more there are than fit.
    #[serde(default, skip_serializing_if = "is_zero")]
    more: usize,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl ProcessGroups {
    /// The groups with these IDs; those that do not fit are counted.
    pub fn new<'a>(ids: impl IntoIterator<Item = &'a str>) -> Self {
        // The frame of the JSON and the largest count.
        let mut left = MAX_BYTES - 64;
        let mut value = Self::default();
        for id in ids {
            // Quotes, a comma and, at worst, six bytes for each character that JSON has to escape.
            let bytes = 3 + id.chars().map(|c| if c.is_control() { 6 } else { c.len_utf8().max(2) }).sum::<usize>();
            if value.more == 0 && bytes <= left {
                left -= bytes;
                value.groups.push(id.to_owned());
            } else {
                value.more += 1;
            }
        }
        value
    }

    /// Reads the annotation. `None` if it is too long, of another version or no such value.
    pub fn parse(text: &str) -> Option<Self> {
        versioned::parse(text, VERSION, MAX_BYTES)
    }

    /// Writes the annotation.
    pub fn text(&self) -> String {
        versioned::text(self, VERSION)
    }

    /// Whether this group is named. It may be one of those that did not fit.
    pub fn has(&self, id: &str) -> bool {
        self.groups.iter().any(|group| group == id)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_value_is_compact_and_reads_back() {
        let groups = ProcessGroups::new(["storage-1", "log-2"]);
        assert_eq!(groups.text(), r#"{"v":1,"groups":["storage-1","log-2"]}"#);
        assert_eq!(ProcessGroups::parse(&groups.text()), Some(groups.clone()));
        assert_eq!((groups.has("storage-1"), groups.has("storage-")), (true, false));
    }

    #[test]
    fn other_versions_are_ignored_and_other_fields_are_not_minded() {
        for text in ["", "[]", "{}", r#"{"groups":["a"]}"#, r#"{"v":2,"groups":["a"]}"#, r#"{"v":1,"groups":"a"}"#] {
            assert_eq!(ProcessGroups::parse(text), None, "{text}");
        }
        let newer = ProcessGroups::parse(r#"{"v":1,"groups":["a"],"zones":["z"]}"#);
        assert_eq!(newer, Some(ProcessGroups::new(["a"])));
        let long = ProcessGroups { groups: vec!["x".repeat(MAX_BYTES)], more: 0 };
        assert_eq!(ProcessGroups::parse(&long.text()), None);
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let ids: Vec<String> = (0..2000).map(|number| format!("storage-{number}")).collect();
        let groups = ProcessGroups::new(ids.iter().map(String::as_str));
        assert!(groups.more > 0 && groups.groups.len() + groups.more == 2000);
        assert_eq!((groups.has("storage-0"), groups.has("storage-1999")), (true, false));
    }

    proptest! {
        #[test]
        fn every_value_fits_and_reads_back(ids in proptest::collection::vec(".{0,80}", 0..200)) {
            let groups = ProcessGroups::new(ids.iter().map(String::as_str));
            let text = groups.text();
            prop_assert!(text.len() <= MAX_BYTES, "{}", text.len());
            prop_assert_eq!(ProcessGroups::parse(&text), Some(groups));
        }

        #[test]
        fn no_text_is_too_odd_to_be_read(text in ".{0,80}") {
            let _ = ProcessGroups::parse(&text);
        }
    }
}
