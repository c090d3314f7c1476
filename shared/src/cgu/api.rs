//! `ran.openshift.io/v1alpha1` `ClusterGroupUpgrade`: every field of upstream, served or not.
//!
//! What these types do not know is dropped by them and kept on the object: [`status_patch`] writes only what differs,
//! and a cluster that has ended, of a list that a merge patch replaces as a whole, keeps its unknown fields in `other`.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use kube::{CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// Most policies of one upgrade: each is looked up for each cluster.
pub const MAX_POLICIES: usize = 500;
/// Minutes that an upgrade may take unless it says otherwise: the schema's default.
pub const DEFAULT_TIMEOUT: i64 = 240;

/// What is to be enforced, where, and how fast.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[kube(
    group = "ran.openshift.io",
    version = "v1alpha1",
    kind = "ClusterGroupUpgrade",
    plural = "clustergroupupgrades",
    shortname = "cgu",
    status = "ClusterGroupUpgradeStatus",
    derive = "Default",
    derive = "PartialEq",
    namespaced,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#,
    printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.conditions[-1:].reason"}"#,
    printcolumn = r#"{"name":"Details","type":"string","jsonPath":".status.conditions[-1:].message"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterGroupUpgradeSpec {
    /// What is written to clusters before and after.
    #[serde(default)]
    pub actions: Actions,
    /// Deprecated: a backup of each cluster first. Not served.
    #[serde(default)]
    pub backup: bool,
    /// What follows a batch whose time is over: `Continue` or `Abort`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub batch_timeout_action: String,
    /// Upgrades that end before this one starts.
    #[serde(default, rename = "blockingCRs", skip_serializing_if = "Vec::is_empty")]
    pub blocking_crs: Vec<Reference>,
    /// Clusters that match any of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_label_selectors: Vec<LabelSelector>,
    /// Deprecated: clusters with any of these labels, `KEY=VALUE` or `KEY` for an empty value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_selector: Vec<String>,
    /// Names of clusters, in the order in which they are upgraded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<String>,
    /// Whether it may start. Read until it has.
    #[serde(default = "enabled")]
    #[schemars(default = "enabled")]
    pub enable: bool,
    /// Names of the policies, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub managed_policies: Vec<String>,
    /// Names of `ManifestWorkReplicaSet`s to roll out instead of policies. Not served.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub manifest_work_templates: Vec<String>,
    /// Whether images are pulled before the start.
    #[serde(default)]
    pub pre_caching: bool,
    /// Settings of the pull.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre_caching_config_ref: Option<Reference>,
    /// Canaries, batches and time.
    pub remediation_strategy: RemediationStrategy,
}

const fn enabled() -> bool {
    true
}

/// Another object.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reference {
    /// Its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its namespace.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
}

impl Reference {
    /// The reference to this object.
    pub fn to(object: &impl ResourceExt) -> Self {
        Self { name: object.name_any(), namespace: object.namespace().unwrap_or_default() }
    }
}

/// What is written to clusters before and after.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Actions {
    /// For all clusters of the plan, when it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_enable: Option<ClusterActions>,
    /// For each cluster, when it is complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_completion: Option<AfterCompletion>,
}

impl Actions {
    /// What is written to a cluster at the start, or when it is complete, if anything is.
    pub fn of(&self, is_complete: bool) -> Option<&ClusterActions> {
        let after = || self.after_completion.as_ref().map(|after| &after.cluster);
        let actions = if is_complete { after() } else { self.before_enable.as_ref() };
        actions.filter(|actions| **actions != ClusterActions::default())
    }
}

/// Labels and annotations of `ManagedCluster`s.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterActions {
    /// Labels to set.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub add_cluster_labels: BTreeMap<String, String>,
    /// Deprecated: labels to remove; the values are ignored.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub delete_cluster_labels: BTreeMap<String, String>,
    /// Labels to remove.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove_cluster_labels: Vec<String>,
    /// Annotations to set.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub add_cluster_annotations: BTreeMap<String, String>,
    /// Annotations to remove.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remove_cluster_annotations: Vec<String>,
}

/// The same for a cluster that is complete, and what becomes of the objects of the upgrade.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AfterCompletion {
    /// Labels and annotations.
    #[serde(flatten)]
    pub cluster: ClusterActions,
    /// Whether its Placements and `PlacementBinding`s are deleted at its end.
    #[serde(default = "enabled")]
    #[schemars(default = "enabled")]
    pub delete_objects: bool,
}

/// Canaries, batches and time.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct RemediationStrategy {
    /// Clusters that go first, one by one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub canaries: Vec<String>,
    /// Clusters of a batch. 0 or less: all of them.
    pub max_concurrency: i64,
    /// Minutes for the whole upgrade.
    #[serde(default = "default_timeout")]
    #[schemars(default = "default_timeout")]
    pub timeout: i64,
}

impl RemediationStrategy {
    /// When an upgrade that began then times out as a whole.
    pub fn deadline(&self, started: Timestamp) -> Timestamp {
        let timeout = SignedDuration::from_secs(self.timeout.saturating_mul(60));
        started.checked_add(timeout).unwrap_or(if self.timeout < 0 { Timestamp::MIN } else { Timestamp::MAX })
    }
}

const fn default_timeout() -> i64 {
    DEFAULT_TIMEOUT
}

/// Where an upgrade is. All of its state: another controller goes on from here.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterGroupUpgradeStatus {
    /// Backups. Not served: neither read nor written.
    #[serde(skip_serializing)]
    #[schemars(schema_with = "any")]
    pub backup: Option<IgnoredAny>,
    /// Clusters that have ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<ClusterState>,
    /// Clusters of a batch, as computed from `maxConcurrency`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub computed_max_concurrency: Option<i64>,
    /// Conditions; the one whose status changed last is the last.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Of earlier versions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub copied_policies: Vec<String>,
    /// Policies that every cluster complied with when the plan was made.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub managed_policies_compliant_before_upgrade: Vec<String>,
    /// Subscriptions in the policies, by policy: JSON lists of kind, name, apiVersion and namespace.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub managed_policies_content: BTreeMap<String, String>,
    /// Policies to enforce, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub managed_policies_for_upgrade: Vec<PolicyReference>,
    /// Namespaces of the policies, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub managed_policies_ns: BTreeMap<String, String>,
    /// Names of its `PlacementBinding`s.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub placement_bindings: Vec<String>,
    /// Names of its Placements.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub placements: Vec<String>,
    /// The pull of images.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub precaching: Option<Precaching>,
    /// The batches.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub remediation_plan: Vec<Vec<String>>,
    /// Actual names of objects by `NAMESPACE/desired name`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub safe_resource_names: BTreeMap<String, String>,
    /// Times and the current batch.
    // TALM always writes it.
    pub status: Progress,
}

fn any(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({ "type": "object", "nullable": true, "x-kubernetes-preserve-unknown-fields": true })
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A policy to enforce.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct PolicyReference {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

/// A cluster that has ended.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct ClusterState {
    /// Its name.
    pub name: String,
    /// [`COMPLETE`] or [`TIMED_OUT`].
    pub state: String,
    /// The policy that it did not comply with in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current_policy: Option<PolicyStatus>,
    /// The rest, such as `currentManifestWork`.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: Map<String, Value>,
}

/// State of a cluster that complies with every policy.
pub const COMPLETE: &str = "complete";
/// State of a cluster whose time was over.
pub const TIMED_OUT: &str = "timedout";

/// A policy, and whether a cluster complies with it.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct PolicyStatus {
    /// Its name.
    pub name: String,
    /// `NonCompliant`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub status: String,
}

/// The pull of images.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(default)]
pub struct Precaching {
    /// Deprecated.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<String>,
    /// What is pulled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spec: Option<PrecachingSpec>,
    /// State by cluster.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub status: BTreeMap<String, String>,
}

/// What is pulled.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct PrecachingSpec {
    /// More images.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub additional_images: Vec<String>,
    /// Images that match are left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub exclude_precache_patterns: Vec<String>,
    /// Images of catalogs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operators_indexes: Vec<String>,
    /// `PACKAGE:CHANNEL`
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub operators_packages_and_channels: Vec<String>,
    /// Image of the release.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub platform_image: String,
    /// Free space that is needed, such as `35 GiB`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub space_required: String,
}

/// Times and the current batch.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct Progress {
    /// When it ended, with everything that follows an end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed_at: Option<Time>,
    /// Number of the current batch, from 1. 0: none.
    #[serde(skip_serializing_if = "is_default")]
    pub current_batch: i64,
    /// The clusters of the current batch.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub current_batch_remediation_progress: BTreeMap<String, ClusterProgress>,
    /// When the current batch started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current_batch_started_at: Option<Time>,
    /// When it started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
}

/// Where a cluster of the current batch is.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterProgress {
    /// When it first complied with its current policy, while that soaks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_compliant_at: Option<Time>,
    /// Index of its current manifest work. Not served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub manifest_work_index: Option<i64>,
    /// Index of its current policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy_index: Option<i64>,
    /// `NotStarted`, `InProgress` or `Completed`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub state: String,
}

impl ClusterGroupUpgradeStatus {
    /// The condition of this type.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.conditions.iter().find(|condition| condition.type_ == type_)
    }

    /// Whether the condition of this type has this status.
    pub fn is(&self, type_: &str, status: &str) -> bool {
        self.condition(type_).is_some_and(|condition| condition.status == status)
    }

    /// The policies to enforce, in order. No upgrade starts with more.
    pub fn policies(&self) -> Vec<Reference> {
        let all = self.managed_policies_for_upgrade.iter().take(MAX_POLICIES);
        all.map(|one| Reference { name: one.name.clone(), namespace: one.namespace.clone() }).collect()
    }
}

/// The merge patch that turns one status into the other; `None` if they are equal. Fields that these types do not know
/// are in neither.
pub fn status_patch(before: &ClusterGroupUpgradeStatus, after: &ClusterGroupUpgradeStatus) -> Option<Value> {
    if before == after {
        return None;
    }
    let mut changes = changes(&json!(before), &json!(after))?;
    // It may be missing, and empty objects are equal.
    changes.as_object_mut()?.entry("status").or_insert_with(|| json!({}));
    Some(json!({ "status": changes }))
}

fn changes(before: &Value, after: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return (before != after).then(|| after.clone());
    };
    let mut patch: Map<String, Value> =
        old.keys().filter(|key| !new.contains_key(*key)).map(|key| (key.clone(), Value::Null)).collect();
    for (key, value) in new {
        let change = old.get(key).map_or_else(|| Some(value.clone()), |old| changes(old, value));
        patch.extend(change.map(|change| (key.clone(), change)));
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> Value {
        json!({ "status": {
            "computedMaxConcurrency": 2,
            "future": { "a": 1 },
            "clusters": [{ "name": "a", "state": "complete", "currentManifestWork": { "name": "w" }, "future": 1 }],
            "managedPoliciesForUpgrade": [{ "name": "p", "namespace": "ns", "future": 2 }],
            "placements": ["p-1"],
            "status": {
                "currentBatch": 1, "future": 3,
                "currentBatchRemediationProgress": { "b": { "state": "InProgress", "policyIndex": 0, "future": 4 } },
            },
        } })
    }

    #[test]
    fn fields_that_are_unknown_survive_every_write() {
        let mut written = object();
        let before: ClusterGroupUpgradeStatus = serde_json::from_value(written["status"].clone()).unwrap();
        assert_eq!(status_patch(&before, &before), None);
        let first = ClusterGroupUpgradeStatus { computed_max_concurrency: Some(2), ..Default::default() };
        let patch = status_patch(&ClusterGroupUpgradeStatus::default(), &first).unwrap();
        assert_eq!(patch, json!({ "status": { "computedMaxConcurrency": 2, "status": {} } }));

        let mut after = before.clone();
        after.clusters.push(ClusterState {
            name: "b".to_owned(),
            state: TIMED_OUT.to_owned(),
            ..ClusterState::default()
        });
        after.placements.clear();
        after.status.current_batch = 2;
        let progress = after.status.current_batch_remediation_progress.get_mut("b").unwrap();
        "Completed".clone_into(&mut progress.state);
        progress.policy_index = None;
        let patch = status_patch(&before, &after).unwrap();
        assert_eq!(patch["status"].get("computedMaxConcurrency"), None, "unchanged");
        json_patch::merge(&mut written, &patch);

        let mut expected = object();
        let status = &mut expected["status"];
        status["clusters"].as_array_mut().unwrap().push(json!({ "name": "b", "state": "timedout" }));
        status.as_object_mut().unwrap().remove("placements");
        status["status"]["currentBatch"] = json!(2);
        status["status"]["currentBatchRemediationProgress"] = json!({ "b": { "state": "Completed", "future": 4 } });
        assert_eq!(written, expected);
    }

    #[test]
    fn defaults_are_those_of_the_schema() {
        let spec: ClusterGroupUpgradeSpec = serde_json::from_value(
            json!({ "remediationStrategy": { "maxConcurrency": 3 }, "actions": { "afterCompletion": {} } }),
        )
        .unwrap();
        assert!(spec.enable && !spec.backup && !spec.pre_caching);
        assert_eq!(spec.remediation_strategy.timeout, DEFAULT_TIMEOUT);
        assert!(spec.actions.after_completion.unwrap().delete_objects);
    }
}
