//! The fields of a `FoundationDBCluster` that the operator's Go types have. A status that it writes has nothing else in
//! it.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The status.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    /// Every process group, those that go included.
    pub process_groups: Vec<Group>,
    /// Which generation is in which state.
    pub generations: BTreeMap<String, i64>,
    /// State of the database.
    pub health: Health,
    /// Whether the database has its configuration.
    pub configured: bool,
    /// The version that runs.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub running_version: String,
}

/// State of the database.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Health {
    /// It answers.
    pub available: bool,
    /// Nothing is wrong with it.
    pub healthy: bool,
    /// Every datum is there as often as it should be.
    pub full_replication: bool,
}

/// A process group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Group {
    /// Its ID, such as `storage-1`.
    #[serde(rename = "processGroupID")]
    pub id: String,
    /// Its class.
    pub process_class: String,
    /// Its addresses, the last known ones if it has no Pod.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Since when it is to go.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub removal_timestamp: Option<String>,
    /// Since when it is excluded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclusion_timestamp: Option<String>,
    /// Whether it goes without exclusion.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exclusion_skipped: bool,
    /// What is wrong with it.
    pub process_group_conditions: Vec<Condition>,
    /// Its zone, the last known one if it has no Pod.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub fault_domain: String,
}

/// Something wrong with a process group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// What.
    #[serde(rename = "type")]
    pub type_: String,
    /// Since when, seconds since 1970.
    pub timestamp: i64,
}

/// Its Pod, claim or Service is on the way out, or gone. Never taken back.
pub const RESOURCES_TERMINATING: &str = "ResourcesTerminating";
/// The database excludes a process that is not to go.
pub const MARKED_AS_EXCLUDED: &str = "ProcessIsMarkedAsExcluded";

impl Group {
    /// Whether it is to go.
    pub fn is_marked(&self) -> bool {
        self.removal_timestamp.is_some()
    }

    /// Whether it counts as excluded.
    pub fn is_excluded(&self) -> bool {
        self.exclusion_timestamp.is_some() || self.exclusion_skipped
    }

    /// Whether nothing of it is made again.
    pub fn is_leaving(&self) -> bool {
        self.is_marked() && self.is_excluded()
    }

    /// Since when it has a condition.
    pub fn since(&self, type_: &str) -> Option<i64> {
        self.process_group_conditions.iter().find(|condition| condition.type_ == type_).map(|c| c.timestamp)
    }

    /// Marks it as excluded: nothing else that was wrong with it counts any more.
    pub fn set_excluded(&mut self, now: &str) {
        self.exclusion_timestamp = Some(now.to_owned());
        self.process_group_conditions.retain(|condition| condition.type_ == RESOURCES_TERMINATING);
    }

    /// Whether it has a volume.
    pub fn is_stateful(&self) -> bool {
        matches!(self.process_class.as_str(), "storage" | "log")
    }

    /// Whether its processes are excluded by address, too.
    pub fn is_log(&self) -> bool {
        self.process_class == "log"
    }
}

/// A cluster as a pass has it in memory.
#[derive(Clone, Debug)]
pub struct Cluster {
    /// As it was read or last written.
    pub object: Value,
    /// Its status, changed as the pass goes on.
    pub status: Status,
}

impl Cluster {
    pub fn new(object: Value) -> Result<Self> {
        let status = object.get("status").cloned().unwrap_or_else(|| json!({}));
        let status = serde_json::from_value(status).context("read the status of a FoundationDBCluster")?;
        Ok(Self { object, status })
    }

    /// Its name.
    pub fn name(&self) -> &str {
        self.object["metadata"]["name"].as_str().unwrap_or_default()
    }

    /// Its generation.
    pub fn generation(&self) -> i64 {
        self.object["metadata"]["generation"].as_i64().unwrap_or_default()
    }

    /// A field of its spec, by JSON pointer.
    pub fn spec(&self, pointer: &str) -> &Value {
        self.object["spec"].pointer(pointer).unwrap_or(&Value::Null)
    }

    /// Whether a list of its spec names an ID.
    pub fn names(&self, list: &str, id: &str) -> bool {
        self.spec(list).as_array().into_iter().flatten().any(|name| name == id)
    }

    /// Classes and how many groups of each there are to be.
    pub fn counts(&self) -> BTreeMap<String, usize> {
        let counts = self.spec("/processCounts").as_object().into_iter().flatten();
        counts
            .map(|(class, count)| {
                (class.clone(), usize::try_from(count.as_i64().unwrap_or_default()).unwrap_or_default())
            })
            .collect()
    }

    /// Whether Pods are known by the addresses of Services of their own.
    pub fn uses_services(&self) -> bool {
        self.spec("/routing/publicIPSource") == "service"
    }

    /// Whether it excludes by locality.
    pub fn uses_localities(&self) -> bool {
        self.spec("/automationOptions/useLocalitiesForExclusion").as_bool().unwrap_or(true)
    }

    /// Whether its operator excludes and includes only together with the other operators of the database.
    pub fn is_global(&self) -> bool {
        self.spec("/automationOptions/synchronizationMode") == "global"
    }

    /// What the IDs of its groups begin with, if anything.
    pub fn id_prefix(&self) -> &str {
        self.spec("/processGroupIDPrefix").as_str().unwrap_or_default()
    }

    /// Labels that everything of the cluster has, and by which it is found.
    pub fn match_labels(&self) -> BTreeMap<String, String> {
        self.label_map("/labels/matchLabels")
            .unwrap_or_else(|| [("foundationdb.org/fdb-cluster-name".to_owned(), self.name().to_owned())].into())
    }

    /// Labels that hold the ID of a group; the first one counts.
    pub fn id_labels(&self) -> Vec<String> {
        self.label_names("/labels/processGroupIDLabels", "foundationdb.org/fdb-process-group-id")
    }

    /// Labels that hold its class.
    pub fn class_labels(&self) -> Vec<String> {
        self.label_names("/labels/processClassLabels", "foundationdb.org/fdb-process-class")
    }

    /// Every label of what belongs to a group.
    pub fn labels_of(&self, id: &str, class: &str) -> BTreeMap<String, String> {
        let mut labels = self.label_map("/labels/resourceLabels").unwrap_or_default();
        labels.extend(self.match_labels());
        labels.extend(self.id_labels().into_iter().map(|name| (name, id.to_owned())));
        labels.extend(self.class_labels().into_iter().map(|name| (name, class.to_owned())));
        labels
    }

    /// Name of a group's Pod and Service: without the prefix.
    pub fn pod_name(&self, id: &str, class: &str) -> String {
        let number = id.rsplit('-').next().unwrap_or_default();
        format!("{}-{}-{number}", self.name(), class.replace('_', "-"))
    }

    /// A new ID.
    pub fn new_id(&self, class: &str, number: u32) -> String {
        let prefix = self.id_prefix();
        if prefix.is_empty() { format!("{class}-{number}") } else { format!("{prefix}-{class}-{number}") }
    }

    /// What a group is excluded by.
    pub fn exclusion_targets(&self, group: &Group) -> Vec<String> {
        let mut targets = Vec::new();
        if self.uses_localities() {
            targets.push(format!("{}{}", crate::database::LOCALITY, group.id));
        }
        if !self.uses_localities() || group.is_log() {
            targets.extend(group.addresses.iter().cloned());
        }
        targets
    }

    fn label_map(&self, pointer: &str) -> Option<BTreeMap<String, String>> {
        let labels: BTreeMap<String, String> = serde_json::from_value(self.spec(pointer).clone()).ok()?;
        (!labels.is_empty()).then_some(labels)
    }

    fn label_names(&self, pointer: &str, default: &str) -> Vec<String> {
        let names: Vec<String> = serde_json::from_value(self.spec(pointer).clone()).unwrap_or_default();
        if names.is_empty() { vec![default.to_owned()] } else { names }
    }
}
