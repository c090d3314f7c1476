//! What a `PowerSchedule` or `ClusterPowerSchedule` asks for, and what comes next.

use futures::future::join_all;
use hub::error::HubError;
use hub::{HubClient, Resource, is_namespace};
use jiff::Timestamp;
use serde::Serialize;
use serde_json::{Value, json};
use shared::kinds::{CLUSTER_SCHEDULE, Governed, SCHEDULE, ScheduledChange, ShownKind, TargetKind, View};
use shared::power::Power;
use shared::rollout::NamespaceLabels;
use shared::schedule::api::{PowerSchedule, Schedule as _, ScheduleSpec, ScheduleStatus};
use shared::schedule::governs::{Candidate, Governor, Governors};

use super::error::{Failure, ViewError};
use super::known;
use super::resolve::NAMESPACE;

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

/// The schedules that may govern targets.
#[derive(Debug, Default)]
pub struct Schedules {
    states: Vec<ScheduleState>,
    governors: Governors,
    labels: NamespaceLabels,
}

impl Schedules {
    /// The cluster-wide ones and those of a namespace, of all, or (if it is empty) of none; with why some are not known.
    pub async fn list(hub: &HubClient, namespace: Option<&str>) -> (Self, Vec<Failure>) {
        let (mut states, mut failures) = (Vec::new(), Vec::new());
        let rows = [&SCHEDULE, &CLUSTER_SCHEDULE].into_iter().skip(usize::from(namespace == Some("")));
        let lists = rows.map(|row| {
            let namespace = namespace.filter(|_| row.kind.is_namespaced());
            async move { (row, hub.list(Resource::preferred(&row.kind), namespace, "", "").await) }
        });
        for (row, listed) in join_all(lists).await {
            match listed {
                // One that cannot be read governs nothing, and `status schedules` says so.
                Ok(found) => {
                    states.extend(found.items.into_iter().filter_map(|one| ScheduleState::read(row, one).ok()));
                }
                Err(HubError::NoKind(_)) => {}
                Err(error) => failures.push(Failure::of_kind(&row.kind, error.into())),
            }
        }
        let mut all = Self::of_states(states, NamespaceLabels::new());
        if all.governors.need_namespaces() {
            match namespaces(hub, namespace).await {
                Ok(labels) => all.labels = labels,
                Err(error) => failures.push(Failure::of_kind(&NAMESPACE, error.into())),
            }
        }
        (all, failures)
    }

    /// These, with the labels of namespaces as far as they matter.
    pub fn of_states(states: Vec<ScheduleState>, labels: NamespaceLabels) -> Self {
        let governors = Governors::new(states.iter().map(|state| Governor::of(&state.schedule)));
        Self { states, governors, labels }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.states.is_empty()
    }

    /// The schedules that select an object of this kind, the one that governs it first.
    pub fn of(&self, row: &TargetKind, object: &View) -> Vec<(&ScheduleState, Candidate<'_>)> {
        let is = |state: &ScheduleState, one: &Governor| {
            state.schedule.metadata.namespace == one.namespace && state.name() == one.name
        };
        let found = self.governors.of_target(row, object, &self.labels).into_iter();
        found.filter_map(|one| Some((self.states.iter().find(|state| is(state, one.governor))?, one))).collect()
    }

    /// The schedule that governs an object of this kind; of two, the one whose edge comes first.
    pub fn governed(&self, row: &TargetKind, object: &View) -> Option<Governed> {
        let governing = self.of(row, object).into_iter().filter(|(_, candidate)| candidate.governs);
        let next = |one: &Governed| one.next.first().map_or(Timestamp::MAX, |edge| edge.at);
        governing.map(|(state, _)| Governed::from(state)).min_by_key(next)
    }
}

/// The labels of a namespace, or of all.
async fn namespaces(hub: &HubClient, namespace: Option<&str>) -> Result<NamespaceLabels, HubError> {
    let resource = Resource::preferred(&NAMESPACE);
    let found = match namespace.filter(|name| is_namespace(name)) {
        Some(name) => vec![hub.get(resource, "", name).await?],
        None => hub.list(resource, None, "", "").await?.items,
    };
    let labels = |object: &Value| View::of_value(object, Power::Running).identity;
    Ok(found.iter().map(labels).map(|identity| (identity.name, identity.labels)).collect())
}

impl From<&ScheduleState> for Governed {
    fn from(state: &ScheduleState) -> Self {
        let edges = state.status().filter(|_| !state.spec().suspend).into_iter().flat_map(|status| &status.next);
        Self {
            kind: state.row.kind.type_name(),
            namespace: state.namespace().to_owned(),
            name: state.name().to_owned(),
            suspended: state.spec().suspend,
            next: edges.map(|edge| ScheduledChange { at: edge.at.0, power: edge.power.to_string() }).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use shared::kinds::operators::VIRTUAL_MACHINE;

    use super::*;

    #[test]
    fn of_two_schedules_that_govern_a_machine_the_one_whose_edge_comes_first_is_shown() {
        let schedule = |name: &str, targets: Value, next: &str, suspend: bool| {
            let object = json!({
                "metadata": { "name": name, "uid": name },
                "spec": {
                    "timeZone": "UTC", "awake": [{ "from": "07:30", "to": "18:00" }], "suspend": suspend,
                    "targets": targets, "operatorKinds": ["virtualmachines.kubevirt.io"],
                },
                "status": { "next": [{ "at": next, "power": "Sleep", "source": "" }] },
            });
            ScheduleState::read(&CLUSTER_SCHEDULE, object).unwrap()
        };
        let (early, late) = ("2026-11-27T17:00:00Z", "2026-11-27T18:00:00Z");
        let machine = View::of_value(&json!({ "metadata": { "name": "web", "namespace": "team" } }), Power::Running);
        for (machines, is_suspended, shop, expected) in [
            (early, false, late, "machines"),
            (late, false, early, "shop"),
            (early, true, late, "shop"),
            (early, false, early, "machines"),
        ] {
            let states = vec![
                schedule("machines", json!({ "kind": "VirtualMachine", "all": true }), machines, is_suspended),
                schedule("shop", json!({ "kind": "Workloads", "all": true }), shop, false),
            ];
            let all = Schedules::of_states(states, NamespaceLabels::new());
            let governed = all.governed(&VIRTUAL_MACHINE, &machine).unwrap();
            assert_eq!(governed.name, expected, "{machines} {is_suspended} {shop}");
        }
    }

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
