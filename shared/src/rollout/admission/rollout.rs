//! A `PowerRollout` as the rules see it.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::admission::bounded::members;
use crate::admission::{Meta, Object, from_map};

/// What the rules read of a `PowerRollout`.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Rollout {
    /// Metadata.
    #[serde(deserialize_with = "from_map")]
    pub metadata: Meta,
    /// What is to be done: every field as it is written.
    #[serde(default, deserialize_with = "members")]
    pub spec: Option<BTreeMap<String, Box<RawValue>>>,
}

impl Rollout {
    /// A field of the spec, as it is written.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.spec.as_ref()?.get(name).map(|value| value.get())
    }
}

impl Object for Rollout {
    type Settings = ();

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}
