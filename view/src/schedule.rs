//! What a `PowerSchedule` or `ClusterPowerSchedule` asks for, and what comes next.

use serde::Serialize;
use serde_json::{Value, json};
use shared::kinds::ShownKind;
use shared::schedule::api::{PowerSchedule, Schedule as _, ScheduleSpec, ScheduleStatus};

use super::error::ViewError;
use super::known;

/// What is shown of a schedule.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(into = "Value")]
pub struct ScheduleState {
    pub row: &'static ShownKind,
    /// Of either kind, which have the same fields.
    pub schedule: PowerSchedule,
    pub(super) is_gone: bool,
}

impl ScheduleState {
    /// # Errors
    /// When the object does not match its schema.
    pub fn read(row: &'static ShownKind, object: Value) -> Result<Self, ViewError> {
        let schedule = serde_json::from_value(object).map_err(ViewError::unreadable)?;
        Ok(Self { row, schedule, is_gone: false })
    }

    /// Empty for a cluster-wide one.
    pub fn namespace(&self) -> &str {
        self.schedule.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.schedule.metadata.name.as_deref().unwrap_or_default()
    }

    /// The name for messages.
    pub fn full_name(&self) -> String {
        self.row.kind.full_name(self.name())
    }

    pub fn spec(&self) -> &ScheduleSpec {
        self.schedule.spec()
    }

    /// None while no controller has seen it.
    pub fn status(&self) -> Option<&ScheduleStatus> {
        self.schedule.status()
    }

    /// The state that it asks for now; empty if it asks for none.
    pub fn state(&self) -> String {
        let state = self.status().and_then(|status| status.state);
        if self.is_gone { "Deleted".to_owned() } else { state.map(|state| state.to_string()).unwrap_or_default() }
    }
}

impl From<ScheduleState> for Value {
    /// In the form that `-o json` documents. Later versions only add fields.
    fn from(state: ScheduleState) -> Self {
        let (spec, status) = (state.spec(), state.status().cloned().unwrap_or_default());
        known(json!({
            "type": state.row.kind.type_name(),
            "namespace": state.schedule.metadata.namespace,
            "name": state.name(),
            "timeZone": spec.time_zone,
            "priority": spec.priority,
            "suspended": spec.suspend,
            "state": state.state(),
            "next": status.next,
            "lastEdge": status.last_edge,
            "targets": status.targets,
            "conditions": status.conditions,
        }))
    }
}

#[cfg(test)]
mod tests {
    use shared::kinds::{CLUSTER_SCHEDULE, SCHEDULE};

    use super::*;

    #[test]
    fn both_kinds_have_the_documented_form() {
        for (row, namespace, kind) in [
            (&SCHEDULE, json!("team"), "powerschedule.hibernate.sh"),
            (&CLUSTER_SCHEDULE, Value::Null, "clusterpowerschedule.hibernate.sh"),
        ] {
            let object = json!({
                "metadata": { "name": "night", "namespace": namespace },
                "spec": {
                    "timeZone": "Europe/Berlin", "targets": { "all": true },
                    "awake": [{ "from": "07:30", "to": "18:00" }],
                },
                "status": { "state": "Sleep", "targets": 3 },
            });
            let expected = known(json!({
                "type": kind, "namespace": namespace, "name": "night", "timeZone": "Europe/Berlin", "priority": 0,
                "suspended": false, "state": "Sleep", "next": [], "targets": 3, "conditions": [],
            }));
            assert_eq!(json!(ScheduleState::read(row, object).unwrap()), expected);
        }
        assert!(ScheduleState::read(&SCHEDULE, json!({ "metadata": {} })).is_err());
    }
}
