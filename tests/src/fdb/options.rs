//! What a new database is like, and the knobs that can be turned while it runs.

use std::collections::BTreeMap;
use std::time::Duration;

pub use fdb_simulator::database::{Settings, UpdateMode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// From a bound Pod to one that is Ready.
pub(crate) const POD_START: Duration = Duration::from_millis(100);
/// From the DELETE of a Pod to its end.
pub(crate) const POD_END: Duration = Duration::from_millis(500);
/// From a Pod that is Ready to its process in the database's status.
pub(crate) const REPORT: Duration = Duration::from_millis(200);
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
