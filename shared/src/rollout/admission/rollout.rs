//! A `PowerRollout` as the rules see it.

use serde::Deserialize;

use crate::admission::bounded::{elements, short_if_any};
use crate::admission::{Meta, Object, from_map};

/// What the rules read of a `PowerRollout`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Rollout {
    /// Metadata.
    #[serde(deserialize_with = "from_map")]
    pub metadata: Meta,
    /// What is to be done.
    #[serde(deserialize_with = "from_map")]
    pub spec: Spec,
}

/// `spec`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// Whether nothing starts.
    pub paused: bool,
    /// The groups that go first.
    #[serde(deserialize_with = "elements")]
    pub groups: Vec<Group>,
    /// How often failures were accepted.
    pub accept_failures: i64,
    /// How often failed targets were to start again.
    pub retry_failed: i64,
    /// The end, as it is written.
    #[serde(deserialize_with = "short_if_any")]
    pub not_after: Option<String>,
}

/// `spec.groups[]`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Group {
    /// Its name.
    #[serde(deserialize_with = "short_if_any")]
    pub name: Option<String>,
    /// Whether the rollout pauses after it.
    pub pause_after: bool,
}

impl Spec {
    /// Whether the pause after a group of the old spec is no more.
    pub(super) fn approves(&self, old: &Self) -> bool {
        let pauses = |group: &&Group| group.pause_after;
        let is_kept = |one: &Group| self.groups.iter().filter(pauses).any(|other| other.name == one.name);
        old.groups.iter().filter(pauses).any(|group| !is_kept(group))
    }
}

impl Object for Rollout {
    type Settings = ();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
