//! `hibernate.sh/v1alpha1` `PowerRollout`: sleep or wake of a fleet in waves.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::{CustomResource, CustomResourceExt as _, KubeSchema};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::share::{Share, ShareError};
use super::status::PowerRolloutStatus;
use crate::admission::policy::list;
use crate::annotation::mark::Action;
use crate::kinds::{CLUSTER_DEPLOYMENT, Kinds, TargetKind};

/// Most members of a rollout: their UIDs fit into one `ConfigMap` of 1 MiB.
pub const MAX_MEMBERS: u32 = 50_000;

/// Targets of kinds with namespaces.
const WITH_NAMESPACES: &str = "(!has(self.targets.names) || self.targets.names.all(t, has(t.__namespace__))) && (!has(self.groups) || self.groups.all(g, !has(g.names) || g.names.all(t, has(t.__namespace__))))";
/// Targets of cluster-scoped kinds.
const WITHOUT_NAMESPACES: &str = "!has(self.targets.namespaceSelector) && (!has(self.targets.names) || self.targets.names.all(t, !has(t.__namespace__))) && (!has(self.groups) || self.groups.all(g, !has(g.names) || g.names.all(t, !has(t.__namespace__))))";

/// The definition of rollouts over these kinds.
pub fn definition(kinds: Kinds) -> Value {
    let names = |is_wanted: fn(&TargetKind) -> bool| -> Vec<&str> {
        kinds.in_rollouts().filter(|row| is_wanted(row)).map(|row| row.kind.kind).collect()
    };
    let (cluster_scoped, unscheduled) =
        (list(&names(|row| !row.kind.is_namespaced())), list(&names(|row| !row.has_schedule)));
    let mut definition = json!(PowerRollout::crd());
    let spec = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    spec["properties"]["targets"]["properties"]["kind"]["enum"] = json!(names(|_| true));
    let rules = [
        json!({
            "rule": format!("self.targets.kind in {cluster_scoped} ? ({WITHOUT_NAMESPACES}) : ({WITH_NAMESPACES})"),
            "message": "targets of a cluster-scoped kind have no namespace, all others have one",
        }),
        json!({
            "rule": format!("!(self.targets.kind in {unscheduled}) || (!has(self.wakeAt) && !has(self.holdAwakeUntil))"),
            "message": "wakeAt and holdAwakeUntil need a kind whose controller ends a sleep or a hold by itself",
        }),
    ];
    if let Some(all) = spec["x-kubernetes-validations"].as_array_mut() {
        all.extend(rules);
    }
    definition
}

/// What a fleet is to do, and how fast.
#[derive(CustomResource, KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[kube(
    group = "hibernate.sh",
    version = "v1alpha1",
    kind = "PowerRollout",
    plural = "powerrollouts",
    shortname = "pr",
    category = "hibernate",
    status = "PowerRolloutStatus",
    derive = "PartialEq",
    printcolumn = r#"{"name":"Action","type":"string","jsonPath":".spec.action"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Targets","type":"integer","jsonPath":".status.total"}"#,
    printcolumn = r#"{"name":"Succeeded","type":"integer","jsonPath":".status.counts.Succeeded"}"#,
    printcolumn = r#"{"name":"Failed","type":"integer","jsonPath":".status.counts.Failed"}"#,
    printcolumn = r#"{"name":"Until","type":"string","jsonPath":".spec.notAfter"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("self.action == oldSelf.action").message("action is immutable: create another PowerRollout"),
    validation = Rule::new("self.targets == oldSelf.targets").message("targets are immutable: create another PowerRollout"),
    validation = Rule::new("has(self.restoreOf) == has(oldSelf.restoreOf) && (!has(self.restoreOf) || self.restoreOf == oldSelf.restoreOf)")
        .message("restoreOf is immutable: create another PowerRollout"),
    validation = Rule::new("has(self.asOf) == has(oldSelf.asOf) && (!has(self.asOf) || self.asOf == oldSelf.asOf) && has(self.scheduledBy) == has(oldSelf.scheduledBy) && (!has(self.scheduledBy) || self.scheduledBy == oldSelf.scheduledBy)")
        .message("asOf and scheduledBy are immutable: create another PowerRollout"),
    validation = Rule::new("(has(self.groups) ? self.groups.map(g, g.name) : []) == (has(oldSelf.groups) ? oldSelf.groups.map(g, g.name) : [])")
        .message("names and order of groups are immutable: create another PowerRollout"),
    validation = Rule::new("(self.action == 'Restore') == has(self.restoreOf)")
        .message("restoreOf names the rollout to undo: set it if, and only if, action is Restore"),
    validation = Rule::new("!has(self.notBefore) || timestamp(self.notBefore) < timestamp(self.notAfter)")
        .message("notAfter must be later than notBefore"),
    validation = Rule::new("!has(self.notBefore) || ((!has(self.wakeAt) || timestamp(self.notBefore) < timestamp(self.wakeAt)) && (!has(self.holdAwakeUntil) || timestamp(self.notBefore) < timestamp(self.holdAwakeUntil)))")
        .message("wakeAt and holdAwakeUntil must be later than notBefore"),
    validation = Rule::new("!has(self.deadline) || duration(self.deadline) >= duration('1s')").message("deadline must be at least 1s"),
    validation = Rule::new("timestamp(self.notAfter) < timestamp('9999-01-01T00:00:00Z') && (!has(self.notBefore) || timestamp(self.notBefore) < timestamp('9999-01-01T00:00:00Z')) && (!has(self.wakeAt) || timestamp(self.wakeAt) < timestamp('9999-01-01T00:00:00Z')) && (!has(self.holdAwakeUntil) || timestamp(self.holdAwakeUntil) < timestamp('9999-01-01T00:00:00Z'))")
        .message("notAfter, notBefore, wakeAt and holdAwakeUntil must be before the year 9999"),
    validation = Rule::new("(!has(self.maxFailures) || type(self.maxFailures) != int || self.maxFailures <= self.maxTargets) && (!has(self.groups) || self.groups.all(g, !has(g.maxFailures) || type(g.maxFailures) != int || g.maxFailures <= self.maxTargets))")
        .message("maxFailures must not be more than maxTargets: use a percentage for any number of targets"),
    validation = Rule::new("self.acceptFailures >= oldSelf.acceptFailures && self.retryFailed >= oldSelf.retryFailed")
        .message("acceptFailures and retryFailed are counters: they only increase"),
    validation = Rule::new("self.abort || !oldSelf.abort").message("an aborted rollout stays aborted: create another PowerRollout"),
)]
pub struct PowerRolloutSpec {
    /// Hibernate, Resume, or Restore: give back the states from before another rollout.
    pub action: Action,
    /// The rollout to undo. Its records on the targets are read, even after it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_of: Option<RolloutReference>,
    /// Which targets.
    pub targets: Targets,
    /// The rollout halts if it selects more targets than this when it starts.
    #[schemars(range(min = 1, max = MAX_MEMBERS))]
    pub max_targets: u32,
    /// Groups that go first, in this order: canaries. The remaining targets are the last group. Who is in which is
    /// frozen when it starts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub groups: Vec<TargetGroup>,
    /// How many targets are under way at once: a number, or a percentage of all. Default 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "positive_share")]
    pub max_concurrency: Option<Share>,
    /// How many targets start in a minute. Default 30; a Hibernate has no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub starts_per_minute: Option<u32>,
    /// How many of the remaining targets may fail: a number, or a percentage of them. Default 100% for a Hibernate,
    /// else 10%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "share")]
    pub max_failures: Option<Share>,
    /// How long a target may take, such as 20m. Default 15m for a Hibernate, else 30m; 45m for a Cluster of KKP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration")]
    pub deadline: Option<String>,
    /// How long a target must stay in its state to count. Default 2m in groups, 0s for the remaining targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration")]
    pub min_success_time: Option<String>,
    /// Nothing starts before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Time>,
    /// Nothing starts after this time: a manifest that is applied again later does nothing.
    pub not_after: Time,
    /// Nothing starts while this is true. What is under way goes on.
    #[serde(default)]
    pub paused: bool,
    /// Nothing starts any more. Nothing is reversed.
    #[serde(default)]
    pub abort: bool,
    /// Increase it to go on after too many failures: those so far no longer count.
    #[serde(default)]
    #[schemars(range(max = 1_000_000))]
    pub accept_failures: u32,
    /// Increase it to start failed targets again.
    #[serde(default)]
    #[schemars(range(max = 1_000_000))]
    pub retry_failed: u32,
    /// Written to each target: when the controller wakes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<Time>,
    /// Written to each target: until when it is held awake.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_awake_until: Option<Time>,
    /// Written to each target: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 512))]
    pub reason: Option<String>,
    /// A target whose state was requested later than this is left as it is. Default: when the rollout started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub as_of: Option<Time>,
    /// The schedule that it carries out. Targets that another schedule governs are left out. Only the controller sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduled_by: Option<ScheduleReference>,
    /// How long a finished rollout is kept, such as 168h. By default it stays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration")]
    pub ttl_after_finished: Option<String>,
}

/// Another rollout.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct RolloutReference {
    /// Its name, for people.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its UID.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,
}

/// A schedule.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct ScheduleReference {
    /// `PowerSchedule` or `ClusterPowerSchedule`.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Its namespace, if it has one.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Its UID.
    #[schemars(length(min = 1, max = 64))]
    pub uid: String,
}

/// Which targets.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("(self.all ? 1 : 0) + (has(self.names) ? 1 : 0) + (has(self.selector) || has(self.namespaceSelector) ? 1 : 0) == 1")
        .message("set exactly one: names, selectors, or all: true"),
)]
pub struct Targets {
    /// Their kind: `ClusterDeployment`, which is the default, or `Cluster` of KKP.
    #[serde(default = "default_kind")]
    pub kind: String,
    /// Labels of the targets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "selector")]
    pub selector: Option<LabelSelector>,
    /// Labels of their namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "selector")]
    pub namespace_selector: Option<LabelSelector>,
    /// The targets by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 1_000))]
    pub names: Vec<TargetName>,
    /// Every object of the kind.
    #[serde(default)]
    pub all: bool,
}

impl Default for Targets {
    fn default() -> Self {
        let (selector, namespace_selector, names) = (None, None, Vec::new());
        Self { kind: default_kind(), selector, namespace_selector, names, all: false }
    }
}

fn default_kind() -> String {
    CLUSTER_DEPLOYMENT.kind.kind.to_owned()
}

/// A target.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq, PartialOrd, Ord)]
pub struct TargetName {
    /// Its namespace; none for a kind that is cluster-scoped.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Targets that go before the remaining ones.
#[derive(KubeSchema, Clone, Debug, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(validation = Rule::new("has(self.names) != has(self.selector)").message("set exactly one: names or selector"))]
pub struct TargetGroup {
    /// Its name.
    #[schemars(length(min = 1, max = 63), regex(pattern = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"))]
    pub name: String,
    /// Labels of its members.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "selector")]
    pub selector: Option<LabelSelector>,
    /// Its members by name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 1_000))]
    pub names: Vec<TargetName>,
    /// How many of them may fail: a number, or a percentage of them. Default 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "share")]
    pub max_failures: Option<Share>,
    /// Whether the rollout pauses once the group is over.
    #[serde(default)]
    pub pause_after: bool,
}

impl TryFrom<IntOrString> for Share {
    type Error = ShareError;

    fn try_from(value: IntOrString) -> Result<Self, ShareError> {
        match value {
            IntOrString::Int(count) => u32::try_from(count).map(Self::Count).map_err(|_| ShareError),
            IntOrString::String(text) => text.parse(),
        }
    }
}

impl From<Share> for IntOrString {
    fn from(share: Share) -> Self {
        match share {
            Share::Count(count) => i32::try_from(count).map_or_else(|_| Self::String(share.to_string()), Self::Int),
            Share::Percent(_) => Self::String(share.to_string()),
        }
    }
}

pub(crate) fn share(_: &mut SchemaGenerator) -> Schema {
    share_from(0, "^(100|[1-9]?[0-9])%$")
}

pub(crate) fn positive_share(_: &mut SchemaGenerator) -> Schema {
    share_from(1, "^(100|[1-9][0-9]?)%$")
}

fn share_from(minimum: u32, percentage: &str) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "anyOf": [{ "type": "integer" }, { "type": "string" }],
        "minimum": minimum,
        "maximum": 100_000,
        "pattern": percentage,
    })
}

/// What [`crate::duration`] reads, in ASCII and without a sign.
pub(crate) fn duration(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "maxLength": 32, "pattern": "^(0|([0-9]{1,6}(\\.[0-9]{1,6})?(ns|us|ms|s|m|h))+)$" })
}

/// An empty selector would select every target. It is refused: `all: true` states that intent.
fn selector(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = LabelSelector::json_schema(generator);
    schema.insert("minProperties".to_owned(), 1.into());
    let rule = "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : !has(self.values) || size(self.values) == 0";
    let message = "In and NotIn need values, Exists and DoesNotExist have none";
    // Of the lists: the API server compiles a rule only if its cost has a limit.
    for (path, key, value) in [
        ("matchExpressions/items/properties/operator", "enum", json!(["In", "NotIn", "Exists", "DoesNotExist"])),
        ("matchLabels", "minProperties", json!(1)),
        ("matchExpressions", "minItems", json!(1)),
        ("matchExpressions", "maxItems", json!(100)),
        ("matchExpressions/items/properties/values", "maxItems", json!(1_000)),
        ("matchExpressions/items", "x-kubernetes-validations", json!([{ "rule": rule, "message": message }])),
    ] {
        if let Some(Value::Object(part)) = schema.pointer_mut(&format!("/properties/{path}")) {
            part.insert(key.to_owned(), value);
        }
    }
    schema
}
