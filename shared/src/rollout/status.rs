//! The status of a `PowerRollout`.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What the controller observed of a rollout.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PowerRolloutStatus {
    /// In one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<RolloutPhase>,
    /// Why it is in this phase, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The generation of the spec that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// When the first target could start. Members, groups and totals are frozen from here on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// The generation of the spec when it started, whose members were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members_generation: Option<i64>,
    /// When it is expected to end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_end: Option<Time>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// Members when it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u32>,
    /// Members of each group when it started. Percentages are of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<GroupStatus>,
    /// Names of the spec that no cluster had when it started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_found: Option<NotFound>,
    /// Members by state.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<String, u32>,
    /// Up to 50 members, failed ones first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub targets: Vec<TargetStatus>,
    /// Why nothing starts until `acceptFailures` or `retryFailed` increases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub halt: Option<Halt>,
    /// `spec.retryFailed` when it was last observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// The failures that `acceptFailures` has accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accepted: Option<Accepted>,
    /// The group that is over and whose `pauseAfter` has to be cleared before the next one starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaits_approval: Option<String>,
    /// When a leader last observed the targets. Deadlines exclude the time from here to the next observation, if it is
    /// more than 30 s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_at: Option<Time>,
    /// Times in which no leader observed the targets: deadlines exclude them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unobserved: Vec<Interval>,
    /// Times in which the rollout was paused: `minSuccessTime` excludes them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paused: Vec<Interval>,
    /// `Complete` and `Halted`, for `kubectl wait`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// A rollout in one word. Users see it: it is never renamed.
#[derive(
    Clone, Copy, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq, Hash, strum::Display, strum::EnumIter,
)]
pub enum RolloutPhase {
    /// Created paused: the status shows what would start.
    Planned,
    /// `notBefore` has not passed, or the controller waits for the policy that guards rollouts, or its requester has
    /// too many rollouts.
    Waiting,
    /// Targets start, or are under way.
    Progressing,
    /// `paused` is set, or a group with `pauseAfter` is over. Targets under way go on.
    Paused,
    /// Too many failures, or more members than `maxTargets`: nothing starts.
    Halted,
    /// `abort` is set, and no target is under way any more.
    Aborted,
    /// Every member succeeded, or was in its state already.
    Succeeded,
    /// Over, and some members did not succeed: they failed, were refused or overridden, or `notAfter` passed first.
    Finished,
}

impl RolloutPhase {
    /// Whether the rollout is over. Only `retryFailed` makes it go on.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Aborted | Self::Succeeded | Self::Finished)
    }
}

/// Why nothing starts. It ends once one of the counters differs from the one recorded here.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Halt {
    /// The group with too many failures; empty for the remaining targets.
    pub group: String,
    /// When.
    pub at: Time,
    /// `spec.acceptFailures` then.
    pub accept_failures: u32,
    /// `spec.retryFailed` then, as far as it had taken effect.
    pub retry_failed: u32,
}

/// Which failures no longer count.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Accepted {
    /// `spec.acceptFailures` when it was last observed.
    pub count: u32,
    /// When it last increased: failures until then are accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

/// A length of time.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct Interval {
    /// Its beginning.
    pub from: Time,
    /// Its end; absent while it lasts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<Time>,
}

/// A group when the rollout started.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct GroupStatus {
    /// Its name; empty for the remaining targets.
    pub name: String,
    /// Its members.
    pub total: u32,
}

/// Names that no cluster has.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct NotFound {
    /// How many.
    pub count: u32,
    /// The first of them.
    pub names: Vec<String>,
}

/// One member.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct TargetStatus {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// In one word.
    pub state: String,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}
