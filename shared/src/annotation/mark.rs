//! Annotation [`keys::ROLLOUT`] on a target: the claim of a rollout, and once that has ended, its record.
//!
//! A rollout owns a target from its claim to its record, and nothing else. Tenants may edit the annotation: a reader
//! takes it for what a rollout says of itself, never for a right.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::format;
#[cfg(doc)]
use super::keys;
use crate::power::Power;
use crate::record::Format;
use crate::text::sanitize_to;

/// Longest reason of a record in characters.
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

/// What a rollout says of a target.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Mark {
    /// Name of the rollout, for people.
    #[serde(rename = "by")]
    pub name: String,
    /// UID of the rollout.
    pub uid: String,
    /// What it is for.
    pub action: Action,
    /// Index of its group. A target that stands in for a canary stays in that group.
    pub group: u32,
    /// Which attempt this is: how often `retryFailed` had been raised when it began.
    pub attempt: u32,
    /// The state that was asked for before.
    pub before: Power,
    /// The state that this rollout asked for.
    pub wanted: Power,
    /// When it claimed the target, RFC 3339.
    #[serde(rename = "at")]
    pub since: String,
    /// Until when its start holds the target awake, RFC 3339. A Restore ends this hold and no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until: Option<String>,
    /// The `wake-at` that its start removed or gave back, RFC 3339. A Restore gives it back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<String>,
    /// How it ended. Until then this is a claim.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<Ended>,
}

/// How the work on a target ended.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Ended {
    /// In one word.
    pub result: Outcome,
    /// Why, for people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// When, RFC 3339.
    pub at: String,
    /// Of a failure: since when it had failed, RFC 3339. Accepting failures counts from here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
}

/// How the work on a target ended, in one word. Users see it: it is never renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, strum::Display, strum::EnumIter)]
pub enum Outcome {
    /// It reached its state, and held it.
    Succeeded,
    /// It failed.
    Failed,
    /// Its deadline passed.
    TimeOut,
    /// A person or a newer rollout asked for something else.
    Overridden,
    /// The rollout was deleted before, or had started before the target was created.
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
    /// Reads the annotation. `None` if it is too long, of another version or no such value.
    pub fn parse(text: &str) -> Option<Self> {
        Self::read(text).ok()
    }

    /// Writes the annotation.
    pub fn text(&self) -> String {
        Format::text(self)
    }

    /// The record of this claim. A record stays as it is.
    pub fn end(&self, result: Outcome, reason: &str, now: Timestamp) -> Self {
        let ended = Ended { result, reason: sanitize_to(reason, MAX_REASON), at: format::seconds(now), failed: None };
        Self { ended: self.ended.clone().or(Some(ended)), ..self.clone() }
    }

    /// The same record, of a target that had failed since then.
    pub fn failed_at(mut self, since: Option<Timestamp>) -> Self {
        if let Some(ended) = &mut self.ended {
            ended.failed = ended.failed.take().or_else(|| since.map(format::seconds));
        }
        self
    }

    /// Until when its start holds the target awake.
    pub fn hold(&self) -> Option<Timestamp> {
        format::time(self.held_until.as_deref()?)
    }

    /// The `wake-at` that its start removed or gave back.
    pub fn removed_wake(&self) -> Option<Timestamp> {
        format::time(self.wake_at.as_deref()?)
    }

    /// Whether a rollout with this UID works on the target.
    pub fn is_claim_of(&self, uid: &str) -> bool {
        self.uid == uid && self.ended.is_none()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn claim(uid: &str, wanted: Power) -> Mark {
        let action = if wanted == Power::Running { Action::Resume } else { Action::Hibernate };
        let before = if wanted == Power::Running { Power::Hibernating } else { Power::Running };
        let since = "2026-11-24T12:00:00Z".to_owned();
        let (held_until, wake_at, ended) = (None, None, None);
        let (name, uid) = ("night".into(), uid.into());
        Mark { name, uid, action, group: 0, attempt: 0, before, wanted, since, held_until, wake_at, ended }
    }

    #[test]
    fn the_annotation_is_read_as_it_was_written() {
        let claim = claim("u", Power::Hibernating);
        let text = r#"{"v":1,"by":"night","uid":"u","action":"Hibernate","group":0,"attempt":0,"before":"Running","wanted":"Hibernating","at":"2026-11-24T12:00:00Z"}"#;
        assert_eq!((claim.text().as_str(), Mark::parse(text)), (text, Some(claim.clone())));
        let now = "2026-11-24T12:05:00Z".parse().unwrap();
        let record = claim.end(Outcome::Failed, &format!("\u{1b}[31m{}", "x".repeat(10_000)), now);
        assert!(record.text().len() < Mark::MAX_BYTES && !record.text().contains('\u{1b}'), "{}", record.text());
        assert_eq!(Mark::parse(&record.text()), Some(record.clone()));
        assert!(claim.is_claim_of("u") && !claim.is_claim_of("other") && !record.is_claim_of("u"));
        assert_eq!(record.end(Outcome::Succeeded, "", now), record, "a record stays as it is");
        for forged in ["\\u001b[31mnight", "../night", "a b", ""] {
            assert_eq!(Mark::parse(&text.replace("night", forged)), None, "{forged}");
        }
    }

    #[test]
    fn what_is_no_mark_is_none() {
        let long = claim(&"u".repeat(Mark::MAX_BYTES), Power::Running).text();
        let long_uid = claim(&"u".repeat(254), Power::Running).text();
        let undated = Mark { since: "soon".into(), ..claim("u", Power::Running) }.text();
        let unheld = Mark { held_until: Some("soon".into()), ..claim("u", Power::Running) }.text();
        for text in ["", "{}", r#"{"v":1}"#, r#"{"v":2,"by":"n"}"#, &long, &long_uid, &undated, &unheld] {
            assert_eq!(Mark::parse(text), None, "{text:.40}");
        }
    }
}
