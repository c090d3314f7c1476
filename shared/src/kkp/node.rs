//! What a Node of a user cluster was before a drain: it stands on the Node, written with the change.

use serde::{Deserialize, Serialize};

use crate::record::Format;

/// Bytes of a value of [`super::keys::SKIP_EVICTION`] that are kept: machine-controller asks only whether there is one.
const MAX_VALUE: usize = 128;

/// The value of [`super::keys::CORDONED`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeBefore {
    /// `spec.unschedulable`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unschedulable: bool,
    /// The value of [`super::keys::SKIP_EVICTION`], if it had one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skip_eviction: Option<String>,
}

impl Format for NodeBefore {
    const MAX_BYTES: usize = 1024;

    fn checked(self) -> Option<Self> {
        Some(Self::of(self.unschedulable, self.skip_eviction.as_deref()))
    }
}

impl NodeBefore {
    /// Of a Node as it is.
    pub fn of(unschedulable: bool, skip_eviction: Option<&str>) -> Self {
        let kept = |value: &str| if value.len() <= MAX_VALUE { value.to_owned() } else { String::new() };
        Self { unschedulable, skip_eviction: skip_eviction.map(kept) }
    }

    /// What the annotation says. Whoever may write the Node may have changed it: what cannot be read is of a Node that was
    /// open.
    pub fn read_or_open(text: &str) -> Self {
        Self::read(text).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_tenant_may_have_written_is_bounded() {
        let long = "\u{1}".repeat(MAX_VALUE);
        for (unschedulable, skip_eviction) in
            [(false, None), (true, Some("")), (true, Some("mine")), (false, Some(long.as_str()))]
        {
            let before = NodeBefore::of(unschedulable, skip_eviction);
            assert_eq!(before.skip_eviction.as_deref(), skip_eviction);
            let text = before.bounded_text().unwrap();
            assert_eq!(NodeBefore::read_or_open(&text), before, "{text}");
        }
        assert_eq!(NodeBefore::of(true, Some(&"x".repeat(MAX_VALUE + 1))), NodeBefore::of(true, Some("")));
        let forged = format!("{{\"v\":1,\"skipEviction\":{:?}}}", "x".repeat(MAX_VALUE + 1));
        assert_eq!(NodeBefore::read_or_open(&forged), NodeBefore::of(false, Some("")));
        let too_long = format!("{{\"v\":1,\"unschedulable\":true,\"x\":{:?}}}", "x".repeat(NodeBefore::MAX_BYTES));
        for text in ["", "true", "{}", "{\"v\":2,\"unschedulable\":true}", too_long.as_str()] {
            assert_eq!(NodeBefore::read_or_open(text), NodeBefore::default(), "{text}");
        }
    }
}
