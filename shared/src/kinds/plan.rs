//! How `plan` judges the objects of a kind, besides what their reader finds
//! ([`Lifecycle::findings`](super::lifecycle::Lifecycle::findings)).

use serde_json::Value;

use super::confirmation::Preflight;
use super::kind::Kind;

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

/// A kind of which nothing is known but what its own change refuses and warns of.
pub static BY_CHANGE: Plan = Plan { preflight: None, rules: None, sync: None, is_upgraded: false };
