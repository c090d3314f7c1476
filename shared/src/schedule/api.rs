//! `hibernate.sh/v1alpha1` `PowerSchedule` and `ClusterPowerSchedule`: when targets sleep and wake.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use kube::{CustomResource, CustomResourceExt as _, KubeSchema, Resource};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::days;
use super::zone::instant;
use crate::kinds::operators::objects::OPERATORS;
pub use crate::kinds::shown::{CLUSTER_POWER_SCHEDULE, POWER_SCHEDULE};
use crate::kinds::{Kinds, TargetKind};
use crate::power::Power;
use crate::rollout::Share;
use crate::rollout::api::{MAX_MEMBERS, TargetGroup, Targets, duration, positive_share, share};

/// The kind of targets that stands for all that `kubectl hibernate ns/NAME` puts to sleep: the kinds of
/// [`crate::kinds::cron_job::IN_NAMESPACE`], and of operators.
pub const WORKLOADS: &str = "Workloads";

/// What both kinds of schedule have in common.
pub trait Schedule: Resource<DynamicType = ()> {
    /// When targets sleep and wake.
    fn spec(&self) -> &ScheduleSpec;

    /// What the controller observed.
    fn status(&self) -> Option<&ScheduleStatus>;
}

/// Declares a kind of schedule: both have the same spec, status and columns.
macro_rules! schedule {
    ($(#[$doc:meta])* $kind:ident, $name:literal, $plural:literal, $short:literal, $spec:ident $(, $scope:ident)?) => {
        $(#[$doc])*
        #[derive(CustomResource, Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq)]
        #[kube(
            group = "hibernate.sh",
            version = "v1alpha1",
            kind = $name,
            plural = $plural,
            shortname = $short,
            category = "hibernate",
            $($scope,)?
            status = "ScheduleStatus",
            derive = "PartialEq",
            printcolumn = r#"{"name":"Zone","type":"string","jsonPath":".spec.timeZone"}"#,
            printcolumn = r#"{"name":"State","type":"string","jsonPath":".status.state"}"#,
            printcolumn = r#"{"name":"Next","type":"string","jsonPath":".status.next[0].power"}"#,
            printcolumn = r#"{"name":"At","type":"string","jsonPath":".status.next[0].at"}"#,
            printcolumn = r#"{"name":"Targets","type":"integer","jsonPath":".status.targets"}"#,
            printcolumn = r#"{"name":"Rollout","type":"string","jsonPath":".status.lastEdge.rollout"}"#,
            printcolumn = r#"{"name":"Suspended","type":"boolean","jsonPath":".spec.suspend"}"#
        )]
        pub struct $spec(pub ScheduleSpec);

        impl Schedule for $kind {
            fn spec(&self) -> &ScheduleSpec {
                &self.spec.0
            }

            fn status(&self) -> Option<&ScheduleStatus> {
                self.status.as_ref()
            }
        }
    };
}

schedule! {
    /// A schedule for targets of its own namespace.
    PowerSchedule, "PowerSchedule", "powerschedules", "psch", PowerScheduleSpec, namespaced
}
schedule! {
    /// A schedule for targets of any namespace.
    ClusterPowerSchedule, "ClusterPowerSchedule", "clusterpowerschedules", "cpsch", ClusterPowerScheduleSpec
}

/// The definitions of both kinds, for targets of these kinds.
pub fn definitions(kinds: Kinds) -> [Value; 2] {
    let names = |is_wanted: fn(&TargetKind) -> bool| -> Vec<&str> {
        let names = kinds.in_rollouts().filter(|row| is_wanted(row)).map(|row| row.kind.kind);
        names.chain([WORKLOADS]).collect()
    };
    let rule = |rule: &str, message: &str| json!({ "rule": rule, "message": message });
    let own = [
        rule(
            "!has(self.targets.namespaceSelector)",
            "a PowerSchedule is about its own namespace: leave namespaceSelector out, or create a ClusterPowerSchedule",
        ),
        rule(
            "!has(self.targets.names) || self.targets.names.all(t, !has(t.__namespace__))",
            "a PowerSchedule is about its own namespace: leave the namespaces of names out",
        ),
        rule(
            "!has(self.rollout) || !has(self.rollout.groups) || self.rollout.groups.all(g, !has(g.names) || g.names.all(t, !has(t.__namespace__)))",
            "a PowerSchedule is about its own namespace: leave the namespaces of names out",
        ),
        rule(
            "self.targets.kind != 'Workloads' || self.targets.all",
            "Workloads are all that runs in the namespace: set all: true",
        ),
    ];
    let everywhere = [rule(
        "self.targets.kind != 'Workloads' || !has(self.targets.selector)",
        "Workloads are selected by their namespaces: set namespaceSelector, names of namespaces, or all: true",
    )];
    let with = |mut definition: Value, kinds: Vec<&str>, rules: &[Value]| {
        let spec = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        spec["properties"]["targets"]["properties"]["kind"]["enum"] = json!(kinds);
        let operators = OPERATORS.map(|row| row.kind.resource_name());
        spec["properties"]["operatorKinds"]["items"]["enum"] = json!(operators);
        if let Some(all) = spec["x-kubernetes-validations"].as_array_mut() {
            all.extend_from_slice(rules);
        }
        definition
    };
    [
        with(json!(PowerSchedule::crd()), names(|row| row.kind.is_namespaced()), &own),
        with(json!(ClusterPowerSchedule::crd()), names(|_| true), &everywhere),
    ]
}

/// When targets sleep and wake.
#[derive(KubeSchema, Clone, Debug, Default, Deserialize, Serialize, PartialEq)]
#[serde(rename_all = "camelCase")]
#[x_kube(
    validation = Rule::new("has(self.awake) != has(self.events)").message("set exactly one: awake or events"),
    validation = Rule::new("!has(self.operatorKinds) || self.targets.kind == 'Workloads'").message("operatorKinds are a part of Workloads: leave them out, or set targets.kind: Workloads"),
)]
pub struct ScheduleSpec {
    /// The time zone of all times, such as Europe/Berlin.
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: String,
    /// When targets are awake. At all other times they sleep.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32))]
    pub awake: Vec<Window>,
    /// Moments at which targets sleep or wake.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 32))]
    pub events: Vec<Event>,
    /// Times with another state. A later one in the list wins, and each wins over calendars.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub exceptions: Vec<Exception>,
    /// Lists of days with another state. A later one in the list wins.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub calendars: Vec<CalendarReference>,
    /// Which targets.
    pub targets: Targets,
    /// Kinds of operators that Workloads include, such as clusters.postgresql.cnpg.io.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32), extend("x-kubernetes-list-type" = "set"))]
    pub operator_kinds: Vec<String>,
    /// How a change goes through the targets.
    #[serde(default, skip_serializing_if = "RolloutSettings::is_empty")]
    pub rollout: RolloutSettings,
    /// Of several schedules for a target, one of its namespace governs it, then the one with the highest priority, then
    /// the oldest one.
    #[serde(default)]
    #[schemars(range(min = -1_000, max = 1_000))]
    pub priority: i32,
    /// How much earlier wakes begin, so that targets are ready on time, such as 20m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration")]
    pub lead: Option<String>,
    /// Targets do not fall asleep for less than this. Default 30m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration")]
    pub minimum_sleep: Option<String>,
    /// Nothing happens while this is true.
    #[serde(default)]
    pub suspend: bool,
    /// The state of this time is applied once, as at an edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apply_at: Option<Time>,
}

/// A time of the week in which targets are awake.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct Window {
    /// Days on which it begins, such as Mon-Fri or Sat. Default: every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 7),
        inner(regex(pattern = "^(Mon|Tue|Wed|Thu|Fri|Sat|Sun)(-(Mon|Tue|Wed|Thu|Fri|Sat|Sun))?$"))
    )]
    pub days: Vec<String>,
    /// When it begins, such as 07:30.
    #[schemars(regex(pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$"))]
    pub from: String,
    /// When it ends, such as 18:00 or 24:00. On the next day, unless it is later than `from`.
    #[schemars(regex(pattern = "^(([01][0-9]|2[0-3]):[0-5][0-9]|24:00)$"))]
    pub to: String,
}

/// Moments at which targets change.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct Event {
    /// Minute, hour, day of the month, month and day of the week, such as `30 7 * * 1-5`.
    #[schemars(length(min = 9, max = 128))]
    pub cron: String,
    /// The state from then on.
    pub power: ScheduledPower,
}

/// A state that a schedule asks for.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq, strum::Display)]
pub enum ScheduledPower {
    /// Targets sleep.
    Sleep,
    /// Targets are awake.
    Awake,
}

impl From<Power> for ScheduledPower {
    fn from(power: Power) -> Self {
        match power {
            Power::Running => Self::Awake,
            Power::Hibernating => Self::Sleep,
        }
    }
}

impl From<ScheduledPower> for Power {
    fn from(power: ScheduledPower) -> Self {
        match power {
            ScheduledPower::Awake => Self::Running,
            ScheduledPower::Sleep => Self::Hibernating,
        }
    }
}

/// What an exception asks for.
#[derive(Clone, Copy, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq, strum::Display)]
pub enum ExceptionPower {
    /// Targets sleep.
    Sleep,
    /// Targets are awake.
    Awake,
    /// The schedule changes nothing.
    Unchanged,
}

impl ExceptionPower {
    /// The state, if it is to change.
    pub fn power(self) -> Option<Power> {
        match self {
            Self::Sleep => Some(Power::Hibernating),
            Self::Awake => Some(Power::Running),
            Self::Unchanged => None,
        }
    }
}

/// A time with another state.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct Exception {
    /// When it begins: a day such as 2026-12-24, or a time such as 2026-12-24T18:00.
    #[schemars(schema_with = "day_or_time")]
    pub from: String,
    /// When it ends: a day, which is part of it, or a time. Default: the day of `from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "day_or_time")]
    pub to: Option<String>,
    /// The state in it.
    pub power: ExceptionPower,
    /// Why.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 256))]
    pub reason: String,
}

impl Exception {
    /// When it ends; none if it cannot be read.
    pub fn end(&self, zone: &TimeZone) -> Option<Timestamp> {
        let (_, end) = days::between(&self.from, self.to.as_deref())?;
        Some(instant(zone, end))
    }
}

fn day_or_time(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}(T[0-9]{2}:[0-9]{2})?$" })
}

/// A list of days in a `ConfigMap` of the schedule's namespace; for a `ClusterPowerSchedule`, of the controller's.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct CalendarReference {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub config_map: String,
    /// The key with lines such as `2026-12-24..2027-01-02 reason`.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
    /// The state on these days.
    pub power: ExceptionPower,
}

/// How a change goes through the targets: as the fields of a `PowerRollout`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct RolloutSettings {
    /// Nothing changes if there are more targets than this. Default 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = MAX_MEMBERS))]
    pub max_targets: Option<u32>,
    /// How many targets are under way at once. Default 100% for a sleep, else 20.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "positive_share")]
    pub max_concurrency: Option<Share>,
    /// How many targets wake in a minute. Default 30.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub starts_per_minute: Option<u32>,
    /// How many targets may fail. Default 100% for a sleep, else 10%.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "share")]
    pub max_failures: Option<Share>,
    /// Groups that go first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 20), extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub groups: Vec<TargetGroup>,
    /// How long a target may take, such as 20m.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(schema_with = "duration")]
    pub deadline: Option<String>,
}

impl RolloutSettings {
    /// Nothing changes if there are more targets, or namespaces of Workloads, than this.
    pub fn most_targets(&self) -> u32 {
        self.max_targets.unwrap_or(1_000)
    }

    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What the controller observed of a schedule.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ScheduleStatus {
    /// The generation of the spec that this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The state that the schedule asks for now; none while it asks for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ScheduledPower>,
    /// The next edges, three at most.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next: Vec<NextEdge>,
    /// The last edge that was acted on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_edge: Option<LastEdge>,
    /// Targets of its last rollout.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<u32>,
    /// `Valid` and `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// An edge to come.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct NextEdge {
    /// When.
    pub at: Time,
    /// The state from then on.
    pub power: ScheduledPower,
    /// The window, event, exception or calendar that it comes from.
    pub source: String,
}

/// An edge that was acted on.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct LastEdge {
    /// When.
    pub at: Time,
    /// The state from then on.
    pub power: ScheduledPower,
    /// The window, event, exception or calendar that it comes from.
    pub source: String,
    /// The rollout that carries it out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rollout: Option<String>,
    /// The phase of that rollout, or why there is none; of Workloads, what became of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<String>,
    /// How many Workloads, or namespaces of them, are still to be changed: this is tried until the next edge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<u32>,
}
