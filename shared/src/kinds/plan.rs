//! What `plan` reads of an object before a sleep or a wake of it is requested. Pure.

use std::fmt;

use jiff::Timestamp;
use serde_json::Value;

use super::confirmation::Preflight;
use super::kind::Kind;
use super::lifecycle::{Change, Intent, Lifecycle};
use crate::finding::Finding;
use crate::power::Power;

/// Code of a refusal that is none of our rules.
pub const REFUSED: &str = "Refused";
/// Code of what the change itself warns of.
const WARNED: &str = "Change";

/// How `plan` judges the objects of a kind.
#[derive(Debug)]
pub struct Plan {
    /// The controller's preflight; none if no controller makes one.
    pub preflight: Option<&'static dyn Preflight>,
    /// The rules of the webhook about the kind; none if it has none.
    pub rules: Option<RuleTable>,
    /// The object that says whether what a cluster gets from the hub has been applied.
    pub sync: Option<SyncObject>,
    /// Whether `ClusterGroupUpgrades` name objects of the kind.
    pub is_upgraded: bool,
    /// What the hub's objects show.
    pub findings: fn(&PlanFacts<'_>) -> HubFindings,
}

/// The rules of the webhook about a kind.
#[derive(Debug)]
pub struct RuleTable {
    /// Whether the table has a row of this name.
    pub has: fn(&str) -> bool,
    /// Row and field of the rule that depends on the settings of the webhook.
    pub by_settings: (&'static str, &'static str),
}

/// An object with the name of a target.
#[derive(Debug)]
pub struct SyncObject {
    /// Its kind.
    pub kind: Kind,
    /// Whether it says that everything has been applied.
    pub is_applied: fn(&Value) -> bool,
}

/// What is known of an object.
pub struct PlanFacts<'a> {
    /// The object.
    pub object: &'a Value,
    /// The same, read.
    pub target: &'a dyn Lifecycle,
    /// What [`Plan::sync`] says; `None` if that is unknown.
    pub is_synced: Option<bool>,
    /// The current time.
    pub now: Timestamp,
}

/// What the hub's objects show.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct HubFindings {
    /// What the rules say of a sleep: an answer of the hub to a dry run may change it.
    pub judged: Vec<Finding>,
    /// The rest.
    pub others: Vec<Finding>,
}

impl fmt::Debug for PlanFacts<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.target.fmt(f)
    }
}

/// A kind of which nothing is known but what its own change refuses and warns of.
pub static BY_CHANGE: Plan = Plan { preflight: None, rules: None, sync: None, is_upgraded: false, findings: of_change };

/// What a change refuses and warns of: the sleep, or the wake of what sleeps.
fn of_change(facts: &PlanFacts<'_>) -> HubFindings {
    let power = match facts.target.view(None).desired.power {
        Power::Hibernating => Power::Running,
        Power::Running => Power::Hibernating,
    };
    let intent = Intent { power, reason: None, end: None, now: facts.now, queried: true, force: false };
    let judged = match facts.target.change(&intent) {
        Err(error) => vec![Finding::block(REFUSED, error.to_string())],
        Ok(Change::Patch { warnings, .. }) => warnings.iter().map(|text| Finding::warn(WARNED, text)).collect(),
        Ok(_) => Vec::new(),
    };
    HubFindings { judged, others: Vec::new() }
}
