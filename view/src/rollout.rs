//! How far a `PowerRollout` is.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::rollout::api::{PowerRollout, PowerRolloutSpec};
use shared::rollout::status::PowerRolloutStatus;

use super::error::ViewError;
use super::known;

/// What is shown of a rollout.
#[derive(Clone, Debug, Serialize)]
#[serde(into = "Value")]
pub struct RolloutState {
    pub name: String,
    /// Empty while no controller has seen it.
    pub phase: String,
    pub requested_by: Option<String>,
    pub created_at: Option<Timestamp>,
    pub spec: PowerRolloutSpec,
    pub status: PowerRolloutStatus,
}

impl PartialEq for RolloutState {
    /// By what is shown.
    fn eq(&self, other: &Self) -> bool {
        self.spec.paused == other.spec.paused && json!(self) == json!(other)
    }
}

impl RolloutState {
    /// # Errors
    /// When the object does not match its schema.
    pub fn read(object: Value) -> Result<Self, ViewError> {
        let PowerRollout { metadata, spec, status } = serde_json::from_value(object).map_err(ViewError::unreadable)?;
        let mut status = status.unwrap_or_default();
        status.message = status.message.filter(|text| !text.is_empty());
        Ok(Self {
            requested_by: metadata.annotations.and_then(|mut notes| notes.remove(keys::REQUESTED_BY)),
            created_at: metadata.creation_timestamp.map(|time| time.0),
            name: metadata.name.unwrap_or_default(),
            phase: status.phase.map(|phase| phase.to_string()).unwrap_or_default(),
            spec,
            status,
        })
    }
}

impl From<RolloutState> for Value {
    /// In the form that `-o json` documents. Later versions only add fields.
    fn from(RolloutState { name, phase, requested_by, created_at, spec, status }: RolloutState) -> Self {
        known(json!({
            "name": name,
            "action": spec.action,
            "phase": phase,
            "message": status.message,
            "requestedBy": requested_by,
            "reason": spec.reason,
            "createdAt": created_at,
            "notBefore": time(spec.not_before.as_ref()),
            "notAfter": spec.not_after.0,
            "startedAt": time(status.started_at.as_ref()),
            "estimatedEnd": time(status.estimated_end.as_ref()),
            "finishedAt": time(status.finished_at.as_ref()),
            // The rollout that it undoes.
            "restoreOf": spec.restore_of.as_ref().map(|other| &other.name),
            // The group after which a person has to approve.
            "awaitsApproval": status.awaits_approval,
            // The group with too many failures; empty for the remaining targets.
            "haltedGroup": status.halt.as_ref().map(|halt| &halt.group),
            "total": status.total,
            "counts": status.counts,
            "groups": status.groups,
            "targets": status.targets,
        }))
    }
}

/// A moment of the API.
pub fn time(time: Option<&Time>) -> Option<Timestamp> {
    time.map(|time| time.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documented_form_leaves_out_what_is_unknown() {
        let object = json!({
            "metadata": {
                "name": "night", "creationTimestamp": "2026-11-24T17:50:00Z",
                "annotations": { "hibernate.sh/requested-by": "alice\u{1b}[31m" },
            },
            "spec": {
                "action": "Hibernate", "maxTargets": 12, "notAfter": "2026-11-24T20:00:00Z", "targets": { "all": true },
                "reason": "weekend",
            },
            "status": {},
        });
        assert_eq!(
            json!(RolloutState::read(object).unwrap()),
            json!({
                "name": "night", "action": "Hibernate", "phase": "", "requestedBy": "alice\u{1b}[31m", "reason": "weekend",
                "createdAt": "2026-11-24T17:50:00Z", "notAfter": "2026-11-24T20:00:00Z", "counts": {}, "groups": [], "targets": [],
            })
        );
    }
}
