//! Condition [`DATA`]: the content of our other conditions as versioned data.
//!
//! A status patch cannot write annotations, and Hive's schema prunes unknown fields. A condition is the only place that
//! the same API call can write. Its status is `False`, because Hive sorts an unknown condition that is `True` before
//! all others, as a failure.
//!
//! Each part describes one other condition and names that condition's `lastProbeTime`. If the times differ, another
//! controller wrote the condition since, and the part does not count.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::api::{ClusterDeployment, Condition};
use crate::annotation::format::whole_seconds;
use crate::finding::Finding;
use crate::read::lenient;
use crate::record::{Format, is_zero};

/// Condition type of ours.
pub const DATA: &str = "HibernationData";

/// Reason of the condition: its version, for people.
pub(super) const REASON: &str = "V1";

/// Everything that the condition holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Data {
    /// What the condition `HibernationProgress` counts.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    progress: Option<Progress>,
    /// What the condition `HibernationPreflight` lists.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    preflight: Option<Preflight>,
}

/// How far a transition is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Progress {
    /// `lastProbeTime` of the condition that this describes.
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
    pub at: Timestamp,
    /// What was found, the most severe first.
    pub findings: Vec<Finding>,
    /// How many findings are left out because the message would be too long. The least severe go first.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: usize,
}

/// A part that cannot be read is left out, so that the other one counts.
impl Format for Data {
    const MAX_BYTES: usize = 16 * 1024;

    fn cut(&mut self) -> bool {
        let Some(preflight) = &mut self.preflight else { return false };
        preflight.findings.pop().inspect(|_| preflight.left_out += 1).is_some()
    }
}

impl Data {
    /// What the cluster's condition holds; nothing if it has none that can be read.
    pub fn of(cluster: &ClusterDeployment) -> Self {
        Self::read(cluster.message(DATA)).unwrap_or_default()
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
        let at = whole_seconds(at);
        let progress = count.map(|Count { unit, awaited, total }| Progress { at, unit, awaited, total });
        Self { progress, ..self }
    }

    /// With these findings instead of the old ones.
    pub fn with_preflight(self, at: Timestamp, mut findings: Vec<Finding>) -> Self {
        findings.sort();
        Self { preflight: Some(Preflight { at: whole_seconds(at), findings, left_out: 0 }), ..self }
    }
}

/// Whether a part describes this condition as it stands.
fn describes(condition: &Condition, at: Timestamp) -> bool {
    condition.last_probe_time.as_ref().is_some_and(|probed| whole_seconds(probed.0) == at)
}

#[cfg(test)]
mod tests;
