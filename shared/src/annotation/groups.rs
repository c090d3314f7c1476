//! Annotation [`keys::PROCESS_GROUPS`] on an Event: the process groups that it is about.
//!
//! The note of such an Event names the first few groups for people. This names them for programs: compact JSON with a
//! version.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::keys;
use crate::record::{Format, is_zero};

/// More groups than fit.
const MAX_GROUPS: usize = 1000;

/// The process groups that an Event is about.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct ProcessGroups {
    groups: Vec<String>,
    /// How many did not fit.
    #[serde(default, skip_serializing_if = "is_zero")]
    more: usize,
}

impl Format for ProcessGroups {
    // All annotations of an object together may have 256 KiB.
    const MAX_BYTES: usize = 8 * 1024;

    fn cut(&mut self) -> bool {
        self.groups.pop().inspect(|_| self.more += 1).is_some()
    }
}

impl ProcessGroups {
    /// `ids`: of process groups. Those that do not fit are counted when the value is written.
    pub fn new<'a>(ids: impl IntoIterator<Item = &'a str>) -> Self {
        let mut ids = ids.into_iter();
        let groups = ids.by_ref().take(MAX_GROUPS).map(str::to_owned).collect();
        Self { groups, more: ids.count() }
    }

    /// Whether this group is listed. It may also be one of those that did not fit.
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
        assert_eq!(ProcessGroups::read(&groups.text()), Ok(groups.clone()));
        assert_eq!((groups.has("storage-1"), groups.has("storage-")), (true, false));
    }

    #[test]
    fn what_does_not_fit_is_counted() {
        let ids: Vec<String> = (0..2000).map(|number| format!("storage-{number}")).collect();
        let groups = ProcessGroups::read(&ProcessGroups::new(ids.iter().map(String::as_str)).text()).unwrap();
        assert!(groups.more > 0 && groups.groups.len() + groups.more == 2000);
        assert_eq!((groups.has("storage-0"), groups.has("storage-1999")), (true, false));
    }

    proptest! {
        #[test]
        fn every_value_fits_and_reads_back(ids in proptest::collection::vec(".{0,80}", 0..200)) {
            let groups = ProcessGroups::new(ids.iter().map(String::as_str));
            let text = groups.text();
            prop_assert!(text.len() <= ProcessGroups::MAX_BYTES, "{}", text.len());
            let read = ProcessGroups::read(&text).unwrap();
            prop_assert_eq!(read.groups.len() + read.more, ids.len());
            prop_assert_eq!(&read.groups[..], &groups.groups[..read.groups.len()]);
        }
    }
}
