//! Objects of operators, as far as the controller reads them: for schedules of Workloads, and as members of rollouts.

use std::borrow::Cow;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::admission::Settings;
use crate::kinds::lifecycle::Lifecycle;
use crate::kinds::sleep_reader::RowObject;
use crate::kinds::sleep_row::SleepRow;
use crate::kinds::{Change, Intent, Kind, Progress, TargetError, TargetKind, View};
use crate::power::Power;
use crate::read::{Foreign, Limits, lenient};

/// Kinds of operators that a schedule of Workloads may include.
pub const OPERATORS: [&TargetKind; SHOOT_AT] = match ROWS.first_chunk() {
    Some(rows) => *rows,
    None => panic!("fewer rows"),
};

/// Index of `VirtualMachine` in [`ROWS`].
pub const VIRTUAL_MACHINE_AT: usize = 6;
/// Index of `Shoot` in [`ROWS`], which sleeps with no namespace.
pub const SHOOT_AT: usize = 16;

/// Kinds of operators that the controller reads.
const ROWS: [&TargetKind; 17] = [
    &super::CNPG,
    &super::EDB,
    &super::CNPG_SCHEDULED_BACKUP,
    &super::CNPG_POOLER,
    &super::ROLLOUT,
    &super::SCALED_OBJECT,
    &super::VIRTUAL_MACHINE,
    &super::CRUNCHY,
    &super::PERCONA_XTRADB,
    &super::PERCONA_MONGODB,
    &super::PERCONA_POSTGRES,
    &super::NOTEBOOK,
    &super::RAY_CLUSTER,
    &super::RAY_SERVICE,
    &super::CASSANDRA,
    &super::CLICK_HOUSE,
    &super::SHOOT,
];

/// An object of the kind `ROWS[AT]`, with the fields that the controller reads.
// serde's derive knows neither defaults of such parameters nor one default for all fields beside them.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Fields<const AT: usize, const IS_WATCHED: bool> {
    /// With `managedFields`, unless it is watched.
    #[serde(default)]
    pub metadata: ObjectMeta,
    /// The fields that the rows write, and those that say what an object scales.
    #[serde(default)]
    pub spec: OperatorSpec,
    /// The fields that refuse a sleep.
    #[serde(default)]
    pub status: OperatorStatus,
}

/// A workload of schedules.
pub type OperatorObject<const AT: usize> = Fields<AT, false>;
/// A target of rollouts.
pub type MemberObject<const AT: usize> = Fields<AT, true>;

/// What the rows of [`OPERATORS`] read of a spec.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OperatorSpec {
    // Texts and lists of other kinds have these names, too.
    #[serde(deserialize_with = "lenient")]
    suspend: Option<bool>,
    stopped: Option<bool>,
    pause: Option<bool>,
    shutdown: Option<bool>,
    running: Option<bool>,
    stop: Option<String>,
    run_strategy: Option<String>,
    #[serde(deserialize_with = "lenient")]
    instances: Option<u32>,
    replicas: Option<u32>,
    scale_target_ref: Option<Reference>,
    workload_ref: Option<Reference>,
    hibernation: Option<Hibernation>,
}

/// Of a `Shoot`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Hibernation {
    enabled: Option<bool>,
}

/// An object that another one scales.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Reference {
    #[serde(skip_serializing_if = "Option::is_none")]
    kind: Option<String>,
    name: String,
}

/// What the rows read of a status before they write, and of the state of a [`MemberObject`].
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct OperatorStatus {
    phase: Option<String>,
    printable_status: Option<String>,
    run_strategy: Option<String>,
    hibernated: Option<bool>,
    // Argo's is a text.
    #[serde(deserialize_with = "lenient")]
    observed_generation: Option<i64>,
    last_operation: Option<Operation>,
    conditions: Vec<StatusCondition>,
    constraints: Vec<StatusCondition>,
    credentials: Option<Credentials>,
}

/// What Gardener does to a `Shoot`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Operation {
    state: String,
    description: String,
}

/// A condition, as far as rows read it.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct StatusCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

/// Of a `Shoot`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub struct Credentials {
    rotation: Rotations,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
struct Rotations {
    etcd_encryption_key: Rotation,
    service_account_key: Rotation,
}

#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
struct Rotation {
    phase: Option<String>,
}

impl<const AT: usize, const IS_WATCHED: bool> Fields<AT, IS_WATCHED> {
    /// Its row.
    pub const ROW: &'static TargetKind = ROWS[AT];
    const KIND: &'static Kind = &ROWS[AT].kind;
    const SLEEP: &'static SleepRow = match ROWS[AT].sleep_row() {
        Some(row) => row,
        None => &SleepRow::PLAIN,
    };

    /// The object for the reader of its row.
    pub fn value(&self) -> Value {
        json!({ "metadata": self.metadata, "spec": self.spec, "status": self.status })
    }
}

impl<const AT: usize, const IS_WATCHED: bool> Resource for Fields<AT, IS_WATCHED> {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Self::KIND.kind.into()
    }

    fn group((): &()) -> Cow<'_, str> {
        Self::KIND.group.into()
    }

    /// The oldest one, which every release of an operator serves.
    fn version((): &()) -> Cow<'_, str> {
        Self::KIND.versions.last().copied().unwrap_or_default().into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        Self::KIND.plural.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

impl<const AT: usize, const IS_WATCHED: bool> Foreign for Fields<AT, IS_WATCHED> {
    const LIMITS: Limits = if IS_WATCHED { Limits::OBJECT } else { Limits::MANAGED };
}

impl<const AT: usize> Lifecycle for MemberObject<AT> {
    fn view(&self, rules: Option<&Settings>) -> View {
        RowObject { row: Self::SLEEP, object: &self.value() }.view(rules)
    }

    fn change(&self, intent: &Intent<'_>) -> Result<Change, TargetError> {
        RowObject { row: Self::SLEEP, object: &self.value() }.change(intent)
    }

    fn progress(&self, action: Power) -> Progress {
        RowObject { row: Self::SLEEP, object: &self.value() }.progress(action)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::kinds::sleep_row::{At, Test};
    use crate::read::json;

    /// Every place that a row reads before it writes, and of a target of rollouts those of its state.
    fn places(kind: &TargetKind) -> Vec<&'static str> {
        let row = kind.sleep_row().unwrap();
        let reads_state = row.may_stop || kind.in_rollouts.is_some();
        let of = |test: &Test| match test {
            Test::Is(At::Field(at), _) | Test::IsTrue(At::Field(at)) => Some(*at),
            _ => None,
        };
        let states = row.states.iter().filter(|_| reads_state).flat_map(|state| state.when.iter().filter_map(of));
        let obstacles = row.obstacles.iter().flat_map(|one| one.when.iter().filter_map(of));
        row.switches.iter().map(|switch| switch.at).chain(states).chain(obstacles).collect()
    }

    #[test]
    fn what_a_row_reads_is_read() {
        let mut seen = 0;
        for row in ROWS {
            for at in places(row) {
                // A field has the type that its reader has.
                let samples = [json!(true), json!(3), json!("x")];
                let read = samples.iter().any(|sample| {
                    let mut object = json!({ "metadata": { "name": "one" } });
                    crate::object::put(&mut object, at, sample.clone());
                    let found = serde_json::from_value::<OperatorObject<0>>(object.clone()).map(|found| found.value());
                    found.is_ok_and(|found| found.pointer(at) == Some(sample))
                });
                assert!(read, "{}: {at}", row.kind.resource_name());
                seen += 1;
            }
        }
        assert!(seen > 20, "{seen}");
    }

    /// An object with every field of ours that its definition has, of the type that it has there.
    fn defined(row: &TargetKind) -> Option<Value> {
        let path = format!("../../shared/upstream-crds/operators/{}.json", row.kind.resource_name());
        let text = std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).ok()?;
        let definition: Value = serde_json::from_str(&text).unwrap();
        let version = definition["spec"]["versions"].as_array().unwrap().iter().find(|one| one["served"] == true)?;
        let fields = &version["schema"]["openAPIV3Schema"]["properties"];
        let sample = |schema: &Value| match schema["type"].as_str()? {
            "boolean" => Some(json!(true)),
            "integer" => Some(json!(3)),
            "string" => Some(json!("x")),
            "array" => Some(json!([{ "name": "a" }])),
            "object" => Some(json!({ "name": "a" })),
            _ => None,
        };
        let ours = json!({ "spec": OperatorSpec::default(), "status": OperatorStatus::default() });
        let part = |part: &str| -> Value {
            let names = ours[part].as_object().unwrap().keys();
            let filled = names.filter_map(|name| Some((name.clone(), sample(fields[part]["properties"].get(name)?)?)));
            filled.collect::<serde_json::Map<_, _>>().into()
        };
        Some(json!({ "metadata": { "name": "one" }, "spec": part("spec"), "status": part("status") }))
    }

    #[test]
    fn every_field_has_a_type_that_is_read_in_each_definition() {
        for row in ROWS {
            let Some(object) = defined(row) else { continue };
            let read = json::<OperatorObject<0>>(object.to_string().as_bytes(), &Limits::MANAGED);
            let read = read.unwrap_or_else(|error| panic!("{}: {error}: {object}", row.kind.resource_name()));
            let Some(sleep) = row.sleep_row() else { continue };
            for at in sleep.switches.iter().map(|switch| switch.at).filter(|at| object.pointer(at).is_some()) {
                assert_eq!(read.value.value().pointer(at), object.pointer(at), "{}", row.kind.resource_name());
            }
        }
    }

    #[test]
    fn every_kind_of_a_namespace_that_an_operator_runs_is_in_the_list() {
        let rows = crate::kinds::KINDS.in_namespace();
        let rows = rows.into_iter().filter(|row| row.sleep_row().is_some());
        let names = |rows: Vec<&TargetKind>| rows.iter().map(|row| row.kind.resource_name()).collect::<Vec<_>>();
        assert_eq!(names(rows.collect()), names(OPERATORS.to_vec()));
    }
}
