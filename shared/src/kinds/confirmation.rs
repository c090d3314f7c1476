//! Preflights of a controller. Where a sleep destroys something the user confirms it after one, before intent is written.

use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

use super::lifecycle::TargetError;
use crate::finding::Finding;

/// How one kind requests a preflight and reads its answer. Pure: an object in, data out.
pub trait Preflight: fmt::Debug + Sync {
    /// The request for a fresh preflight of an object that is to sleep.
    ///
    /// # Errors
    /// When the object does not match its schema.
    fn request(&self, object: &Value, now: Timestamp) -> Result<Request, TargetError>;

    /// The controller's answer to a request; `None` while there is none.
    ///
    /// # Errors
    /// When the object does not match its schema.
    fn answer(&self, object: &Value, requested: &str) -> Result<Option<Briefing>, TargetError>;

    /// The last answer to any client, about a sleep until `end`.
    ///
    /// # Errors
    /// When the object does not match its schema.
    fn last(&self, object: &Value, end: Option<Timestamp>) -> Result<Option<Briefing>, TargetError>;

    /// Why the controller may not answer.
    fn silence(&self, object: &Value) -> String;

    /// Whether the user confirms what a patch requests: a sleep that destroys something, and not only a change of what goes
    /// with it.
    fn confirms(&self, _patch: &Value) -> bool {
        false
    }
}

/// A preflight that is to be requested.
#[derive(Clone, Debug, PartialEq)]
pub enum Request {
    /// A JSON merge patch. The answer names the request by `id`.
    Write {
        /// What tells this request from any other.
        id: String,
        /// The patch.
        patch: Value,
    },
    /// No preflight can be made of the object as it is; the text says why, and what the sleep does instead.
    Impossible(String),
}

/// What a user reads before the sleep is confirmed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Briefing {
    /// When the controller checked; `None` if it did not.
    pub at: Option<Timestamp>,
    /// What the sleep does and what it costs, a sentence each.
    pub consequences: Vec<String>,
    /// What the sleep deletes and keeps, as numbers that add up over several targets, such as `5`, `Machines deleted`.
    pub totals: Vec<(u32, &'static str)>,
    /// What was found, the most severe first.
    pub findings: Vec<Finding>,
    /// How many findings the controller left out.
    pub left_out: usize,
}

impl Briefing {
    /// The totals of several targets: `50 Machines deleted, 30 volumes kept`. Empty if there are none.
    pub fn sum<'a>(all: impl IntoIterator<Item = &'a Self>) -> String {
        let mut sums: Vec<(u32, &str)> = Vec::new();
        for (amount, what) in all.into_iter().flat_map(|briefing| &briefing.totals) {
            match sums.iter_mut().find(|(_, known)| known == what) {
                Some((sum, _)) => *sum = sum.saturating_add(*amount),
                None => sums.push((*amount, what)),
            }
        }
        sums.iter().map(|(sum, what)| format!("{sum} {what}")).collect::<Vec<_>>().join(", ")
    }

    /// The findings that refuse the sleep.
    pub fn refusals(&self, forced: bool) -> Vec<&Finding> {
        self.findings.iter().filter(|found| found.severity.refuses(forced)).collect()
    }

    /// Whether a force would accept every refusal.
    pub fn can_be_forced(&self) -> bool {
        self.refusals(true).is_empty()
    }
}
