//! What a new database is like, and the knobs that can be turned while it runs.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The operator's own waits are divided by this, the seconds of `spec.automationOptions` among them: 60 s between
/// removals, 60 s after a conflict, 30 s while the database is unavailable, 15 s while something is not excluded, 10 s
/// while not reconciled.
pub(crate) const SPEED: f64 = 20.0;
/// From a bound Pod to one that is Ready.
pub(crate) const POD_START: Duration = Duration::from_millis(100);
/// From the DELETE of a Pod to its end.
pub(crate) const POD_END: Duration = Duration::from_millis(500);
/// From a Pod that is Ready to its process in the database's status.
pub(crate) const REPORT: Duration = Duration::from_millis(200);
/// How old the last recovery must be, in seconds, before anything is excluded: `--minimum-recovery-time-for-exclusion`,
/// 120 s. That for an inclusion, 600 s, is 0 here.
pub(crate) const EXCLUSION_RECOVERY: f64 = 0.1;

/// How the operator writes the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UpdateMode {
    /// A full update of what it has in memory, refused with 409 if another client has written in between. The default.
    Update,
    /// Server-side apply by force (`--server-side-apply`): writes of other clients in between are lost silently.
    Apply,
}

/// What a new database is like. The default is the one that was observed: redundancy double, 3 storage, 3 log, 1
/// cluster controller.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct FdbOptions {
    /// Namespace; if absent, the name and some random characters.
    pub namespace: Option<String>,
    /// Process groups of class storage.
    pub storage: usize,
    /// Process groups of class log.
    pub log: usize,
    /// Nodes, each a zone of its own, that its Pods are spread over.
    pub zones: usize,
    /// `spec.processGroupIDPrefix`, if any.
    pub prefix: Option<String>,
    /// `spec.routing.publicIPSource`: pod or service.
    pub public_ip_source: String,
    /// `spec.labels`, if any.
    pub labels: Value,
    /// `spec.automationOptions.removalMode`: All or Zone.
    pub removal_mode: String,
    /// `spec.automationOptions.waitBetweenRemovalsSeconds`; the operator's 60 if absent. Divided by the speed.
    pub wait_between: Option<i64>,
    /// `spec.automationOptions.useLocalitiesForExclusion`.
    pub localities: bool,
    /// Annotations on the `FoundationDBCluster`.
    pub annotations: BTreeMap<String, String>,
    /// A merge patch over the `FoundationDBCluster` before it is created.
    pub patch: Value,
    /// The knobs, as they stand at first.
    pub settings: Settings,
}

impl Default for FdbOptions {
    fn default() -> Self {
        Self {
            namespace: None,
            storage: 3,
            log: 3,
            zones: 3,
            prefix: None,
            public_ip_source: "pod".to_owned(),
            labels: Value::Null,
            removal_mode: "Zone".to_owned(),
            wait_between: None,
            localities: true,
            annotations: BTreeMap::new(),
            patch: Value::Null,
            settings: Settings::default(),
        }
    }
}

/// Knobs of one database and its operator. All can be turned while it runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Settings {
    /// How the operator writes the status.
    pub update_mode: UpdateMode,
    /// Whether the database answers.
    pub available: bool,
    /// Makes the operator do the wrong thing: it takes every marked group for excluded and removes it with the data on
    /// it.
    pub wrong: bool,
    /// So many of the operator's next fetches of the database's status fail, each after its 10 s.
    pub failed_fetches: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { update_mode: UpdateMode::Update, available: true, wrong: false, failed_fetches: 0 }
    }
}
