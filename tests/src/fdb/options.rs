//! What a new database is like, and the knobs that can be turned while it runs.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::delay::Delay;

/// How the operator writes the status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum UpdateMode {
    /// A full update of what it has in memory, refused with 409 if another client has written in between. The default.
    #[default]
    Update,
    /// Server-side apply by force (`--server-side-apply`): writes of other clients in between are lost silently.
    Apply,
}

/// Who runs the operator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Runner {
    /// A task of the test's own process.
    #[default]
    Task,
    /// A process of the world, `fdb-operator-NAMESPACE`, that can be killed, frozen and restarted.
    Program,
    /// Nobody.
    Nobody,
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
    /// Process groups of class `cluster_controller`: no volumes.
    pub cluster_controller: usize,
    /// More classes with their counts, such as coordinator, transaction or stateless.
    pub classes: BTreeMap<String, usize>,
    /// Nodes, each a zone of its own, that its Pods are spread over.
    pub zones: usize,
    /// `spec.processGroupIDPrefix`, if any.
    pub prefix: Option<String>,
    /// `spec.routing.publicIPSource`: pod or service.
    pub public_ip_source: String,
    /// `spec.labels`, if any.
    pub labels: Value,
    /// `spec.automationOptions.removalMode`: All, Zone, `ProcessGroup` or None.
    pub removal_mode: String,
    /// `spec.automationOptions.waitBetweenRemovalsSeconds`; the operator's 60 if absent. Divided by the speed.
    pub wait_between: Option<i64>,
    /// `spec.automationOptions.replacements.failureDetectionTimeSeconds`; the operator's 7200 if absent. Divided by the
    /// speed.
    pub failure_detection: Option<i64>,
    /// `spec.automationOptions.useLocalitiesForExclusion`.
    pub localities: bool,
    /// Size of each volume.
    pub volume_size: String,
    /// Annotations on the `FoundationDBCluster`.
    pub annotations: BTreeMap<String, String>,
    /// A merge patch over the `FoundationDBCluster` before it is created.
    pub patch: Value,
    /// Who runs the operator.
    pub runner: Runner,
    /// The knobs, as they stand at first.
    pub settings: Settings,
}

impl Default for FdbOptions {
    fn default() -> Self {
        Self {
            namespace: None,
            storage: 3,
            log: 3,
            cluster_controller: 1,
            classes: BTreeMap::new(),
            zones: 3,
            prefix: None,
            public_ip_source: "pod".to_owned(),
            labels: Value::Null,
            removal_mode: "Zone".to_owned(),
            wait_between: None,
            failure_detection: None,
            localities: true,
            volume_size: "16Gi".to_owned(),
            annotations: BTreeMap::new(),
            patch: Value::Null,
            runner: Runner::default(),
            settings: Settings::fast(),
        }
    }
}

/// Knobs of one database and its operator. All can be turned while it runs.
#[expect(clippy::struct_excessive_bools, reason = "knobs, each by itself")]
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Settings {
    /// How the operator writes the status.
    pub update_mode: UpdateMode,
    /// The operator's own waits are divided by this, the seconds of `spec.automationOptions` among them: 60 s between
    /// removals, 60 s after a conflict, 30 s without fault tolerance, 15 s while something is not excluded, 10 s while
    /// not reconciled.
    pub speed: f64,
    /// How long a pass takes between reading the cluster and its first sub-step: the database's status takes seconds to
    /// a minute.
    pub pass_delay: Delay,
    /// From a bound Pod to one that is Ready.
    pub start_delay: Delay,
    /// From a Pod that is Ready to its process in the database's status.
    pub report_delay: Delay,
    /// From the DELETE of a Pod to its end.
    pub terminate_delay: Delay,
    /// How old the last recovery must be before anything is excluded: `--minimum-recovery-time-for-exclusion`, 120 s.
    pub exclusion_recovery: Delay,
    /// How old it must be before anything is included: `--minimum-recovery-time-for-inclusion`, 600 s.
    pub inclusion_recovery: Delay,
    /// Whether the database answers.
    pub available: bool,
    /// Whether the database could bear another failure. If not, the operator removes nothing.
    pub fault_tolerant: bool,
    /// Makes the operator do the wrong thing: it takes every marked group for excluded and removes it with the data on
    /// it.
    pub wrong: bool,
    /// Every pass ends early and comes again after the operator's 600 s, as while processes wait to be bounced.
    pub bounce: bool,
    /// Points at which the operator stops until they are taken out again: see [`super::operator::pass::Point`].
    pub hold: BTreeSet<String>,
}

impl Default for Settings {
    /// As in reality.
    fn default() -> Self {
        Self {
            update_mode: UpdateMode::Update,
            speed: 1.0,
            pass_delay: Delay::default(),
            start_delay: Delay::secs(1),
            report_delay: Delay::secs(3),
            terminate_delay: Delay::secs(3),
            exclusion_recovery: Delay::secs(120),
            inclusion_recovery: Delay::secs(600),
            available: true,
            fault_tolerant: true,
            wrong: false,
            bounce: false,
            hold: BTreeSet::new(),
        }
    }
}

impl Settings {
    /// For tests: a minute is three seconds.
    pub fn fast() -> Self {
        Self {
            speed: 20.0,
            start_delay: Delay::millis(100),
            report_delay: Delay::millis(200),
            terminate_delay: Delay::millis(500),
            exclusion_recovery: Delay::millis(100),
            inclusion_recovery: Delay::default(),
            ..Self::default()
        }
    }
}
