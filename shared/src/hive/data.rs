//! Condition [`DATA`]: the content of our other conditions as versioned data.
//!
//! A status patch cannot write annotations, and Hive's schema prunes unknown fields. A condition is the only place that
//! the same API call can write. Its status is `False`, because Hive sorts an unknown condition that is `True` before
//! all others, as a failure.
//!
//! Each part describes one other condition and names that condition's `lastProbeTime`. If the times differ, another
//! controller wrote the condition since, and the part does not count.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use super::api::{ClusterDeployment, Condition};
use crate::annotation::{format, versioned};
use crate::finding::Finding;

/// Condition type of ours.
pub const DATA: &str = "HibernationData";

/// The version that this code writes, and the only one that it reads.
const VERSION: u32 = 1;
/// Reason of the condition: its version, for people.
const REASON: &str = "V1";
/// Longest message in bytes.
const MAX_BYTES: usize = 16 * 1024;

/// Everything that the condition holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Data {
    /// What the condition `HibernationProgress` counts.
    #[serde(default, deserialize_with = "if_readable", skip_serializing_if = "Option::is_none")]
    progress: Option<Progress>,
    /// What the condition `HibernationPreflight` lists.
    #[serde(default, deserialize_with = "if_readable", skip_serializing_if = "Option::is_none")]
    preflight: Option<Preflight>,
}

/// How far a transition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Progress {
    /// `lastProbeTime` of the condition that this describes.
    #[serde(with = "seconds")]
    pub at: Timestamp,
    /// What is counted.
    pub unit: Unit,
    /// How many are not yet as they should be.
    pub awaited: usize,
    /// How many there are.
    pub total: usize,
}

/// What a decision counts; [`Progress`] once it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count {
    /// What is counted.
    pub unit: Unit,
    /// How many are not yet as they should be.
    pub awaited: usize,
    /// How many there are.
    pub total: usize,
}

/// What a [`Progress`] counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Instances in the cloud.
    Instances,
    /// Nodes of the spoke.
    Nodes,
    /// `ClusterOperator`s of the spoke.
    Operators,
}

/// What a preflight found.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Preflight {
    /// `lastProbeTime` of the condition that this describes.
    #[serde(with = "seconds")]
    pub at: Timestamp,
    /// What was found, the gravest first.
    pub findings: Vec<Finding>,
    /// How many findings are left out because the message would be too long. The least grave go first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
}

impl Data {
    /// Reads the message of the condition. `None` if it is too long, of another version or no such value.
    ///
    /// A part that cannot be read is left out, so that the other one counts.
    pub fn parse(text: &str) -> Option<Self> {
        versioned::parse(text, VERSION, MAX_BYTES)
    }

    /// What the cluster's condition holds; nothing if it has none that can be read.
    pub fn of(cluster: &ClusterDeployment) -> Self {
        let message = cluster.condition(DATA).and_then(|condition| condition.message.as_deref());
        message.and_then(Self::parse).unwrap_or_default()
    }

    /// What the condition `HibernationProgress` counts. `None` if there is nothing about the condition as it stands.
    pub fn progress_of(&self, condition: &Condition) -> Option<Progress> {
        self.progress.filter(|progress| describes(condition, progress.at))
    }

    /// What the condition `HibernationPreflight` lists. `None` if there is nothing about the condition as it stands.
    pub fn preflight_of(self, condition: &Condition) -> Option<Preflight> {
        self.preflight.filter(|preflight| describes(condition, preflight.at))
    }

    /// With this count instead of the old progress, for the condition `HibernationProgress` written at `at`.
    pub fn with_progress(self, at: Timestamp, count: Option<Count>) -> Self {
        let progress = count.map(|Count { unit, awaited, total }| Progress { at, unit, awaited, total });
        Self { progress, ..self }
    }

    /// With these findings instead of the old ones.
    pub fn with_preflight(self, at: Timestamp, mut findings: Vec<Finding>) -> Self {
        findings.sort();
        Self { preflight: Some(Preflight { at, findings, left_out: 0 }), ..self }
    }

    /// Writes the message: compact JSON of at most 16 KiB.
    pub fn text(&self) -> String {
        let mut data = self.clone();
        loop {
            let text = versioned::text(&data, VERSION);
            let findings = data.preflight.as_mut().filter(|_| text.len() > MAX_BYTES);
            let Some(preflight) = findings else { return text };
            if preflight.findings.pop().is_none() {
                return text;
            }
            preflight.left_out += 1;
        }
    }

    /// The condition that holds this, in place of the cluster's. `None` if there is nothing to hold and the cluster has
    /// none, or if the cluster's holds the same.
    pub fn replaces(&self, cluster: &ClusterDeployment, now: Timestamp) -> Option<Condition> {
        let condition = self.condition(cluster, now);
        let needed = match cluster.condition(DATA) {
            Some(old) => old.message != condition.message,
            None => *self != Self::default(),
        };
        needed.then_some(condition)
    }

    fn condition(&self, cluster: &ClusterDeployment, now: Timestamp) -> Condition {
        let since = cluster.condition(DATA).and_then(|old| old.last_transition_time.clone());
        Condition {
            type_: DATA.to_owned(),
            status: "False".to_owned(),
            last_probe_time: Some(Time(now)),
            last_transition_time: Some(since.unwrap_or(Time(now))),
            reason: Some(REASON.to_owned()),
            message: Some(self.text()),
        }
    }
}

/// Whether a part describes this condition as it stands. Conditions hold whole seconds.
fn describes(condition: &Condition, at: Timestamp) -> bool {
    condition.last_probe_time.as_ref().is_some_and(|probed| probed.0.as_second() == at.as_second())
}

/// A part that is there and can be read.
fn if_readable<'de, T: DeserializeOwned, D: Deserializer<'de>>(deserializer: D) -> Result<Option<T>, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it with a reference")]
fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// Times as annotations hold them.
mod seconds {
    use serde::de::Error as _;

    use super::{Deserialize, Deserializer, Serializer, Timestamp, format};

    pub(super) fn serialize<S: Serializer>(time: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&format::seconds(*time))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        let text = String::deserialize(deserializer)?;
        format::time(&text).ok_or_else(|| D::Error::custom("no RFC 3339 time"))
    }
}

#[cfg(test)]
mod tests;
