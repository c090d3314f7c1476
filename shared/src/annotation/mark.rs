//! Annotation [`keys::ROLLOUT`] on a target: the claim of a rollout, and once that has ended, its record.
//!
//! A rollout owns a target from its claim to its record, and nothing else. Tenants may edit the annotation: it informs a
//! reader, and grants nothing.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format;
#[cfg(doc)]
use super::keys;
use crate::power::Power;
use crate::record::Format;
use crate::text::sanitize_to;

/// Characters of the reason of a record.
const MAX_REASON: usize = 200;

/// What a rollout is for.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize, JsonSchema, strum::Display, strum::EnumString,
)]
pub enum Action {
    /// Put every target to sleep.
    Hibernate,
    /// Wake every target.
    Resume,
    /// Give every target the state that it had before another rollout.
    Restore,
}

/// The claim of a rollout on a target, or its record.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// Name of the rollout, for people.
    #[serde(rename = "by")]
    pub name: String,
    pub uid: String,
    pub action: Action,
    /// Index of its group. A target that stands in for a canary stays in that group.
    pub group: u32,
    /// The value of `retryFailed` when this attempt started.
    pub attempt: u32,
    /// The desired state before.
    pub before: Power,
    /// The state that this rollout requests.
    pub wanted: Power,
    /// When it claimed the target, RFC 3339.
    #[serde(rename = "at")]
    pub since: String,
    /// Until when this rollout holds the target awake, RFC 3339. A Restore ends this hold and no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until: Option<String>,
    /// The `wake-at` that this rollout removed or restored, RFC 3339. A Restore restores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<String>,
    /// How it ended. Until then this is a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
}

/// How the work on a target ended.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Ended {
    pub result: Outcome,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// When, RFC 3339.
    pub at: String,
    /// Since when a failed target had failed, RFC 3339. Accepting failures counts from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// How the work on a target ended. Users see the word: it is never renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, strum::Display, strum::EnumIter)]
pub enum Outcome {
    /// It reached its state, and held it.
    Succeeded,
    Failed,
    TimeOut,
    /// A person or a newer rollout requested another state.
    Overridden,
    /// The rollout was deleted, or the target is newer than its start.
    Abandoned,
}

impl Format for Mark {
    const MAX_BYTES: usize = 2 * 1024;

    fn checked(mut self) -> Option<Self> {
        if let Some(ended) = &mut self.ended {
            ended.reason = sanitize_to(&ended.reason, MAX_REASON);
        }
        let ended = self.ended.as_ref().map(|ended| &ended.at);
        let times = [ended, self.held_until.as_ref(), self.wake_at.as_ref()];
        let is_dated = times.into_iter().flatten().all(|at| format::time(at).is_some());
        Some(self).filter(|mark| is_dated && !mark.uid.is_empty() && !mark.name.is_empty())
    }
}

impl Mark {
    /// `None` if the value is too long, of another version or malformed.
    pub fn parse(text: &str) -> Option<Self> {
        Self::read(text).ok()
    }

    pub fn text(&self) -> String {
        Format::text(self)
    }

    /// Ends this claim. A record stays as it is.
    pub fn end(&self, result: Outcome, reason: &str, now: Timestamp) -> Self {
        let ended = Ended { result, reason: sanitize_to(reason, MAX_REASON), at: format::seconds(now), failed: None };
        Self { ended: self.ended.clone().or(Some(ended)), ..self.clone() }
    }

    /// Adds since when the target had failed.
    pub fn failed_at(mut self, since: Option<Timestamp>) -> Self {
        if let Some(ended) = &mut self.ended {
            ended.failed = ended.failed.take().or_else(|| since.map(format::seconds));
        }
        self
    }

    pub fn hold(&self) -> Option<Timestamp> {
        format::time(self.held_until.as_deref()?)
    }

    pub fn removed_wake(&self) -> Option<Timestamp> {
        format::time(self.wake_at.as_deref()?)
    }

    /// Whether the rollout with this UID works on the target.
    pub fn is_claim_of(&self, uid: &str) -> bool {
        self.uid == uid && self.ended.is_none()
    }
}

#[cfg(test)]
pub(crate) mod tests;
