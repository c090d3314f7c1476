//! How far TALM's `ClusterGroupUpgrade` is, under either controller.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Value, json};
use shared::cgu::api::{ClusterGroupUpgrade, ClusterState};
use shared::cgu::phase::UpgradePhase;

use super::error::ViewError;
use super::known;

/// What is shown of an upgrade.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(into = "Value")]
pub struct UpgradeState {
    pub upgrade: ClusterGroupUpgrade,
    pub phase: UpgradePhase,
    pub members: Vec<Member>,
    pub(super) is_gone: bool,
}

/// A cluster of the plan, or one that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Member {
    pub name: String,
    pub batch: Option<usize>,
    pub state: String,
    pub policy: Option<String>,
}

impl UpgradeState {
    /// # Errors
    /// When the object does not match its schema.
    pub fn read(object: Value) -> Result<Self, ViewError> {
        let upgrade: ClusterGroupUpgrade = serde_json::from_value(object).map_err(ViewError::unreadable)?;
        let status = upgrade.status.clone().unwrap_or_default();
        let of_plan = status
            .remediation_plan
            .iter()
            .zip(1..)
            .flat_map(|(batch, number)| batch.iter().map(move |name| (name.clone(), Some(number))));
        let records: BTreeMap<&String, &ClusterState> = status.clusters.iter().map(|one| (&one.name, one)).collect();
        let (mut members, mut known) = (Vec::new(), BTreeSet::new());
        let ended = status.clusters.iter().map(|one| (one.name.clone(), None));
        for (name, batch) in of_plan.chain(ended) {
            if !known.insert(name.clone()) {
                continue;
            }
            let record = records.get(&name);
            let progress = status.status.current_batch_remediation_progress.get(&name);
            let index = progress.and_then(|one| usize::try_from(one.policy_index?).ok());
            let policy =
                index.and_then(|index| status.managed_policies_for_upgrade.get(index)).map(|one| one.name.clone());
            let timed_out = record.and_then(|one| one.current_policy.as_ref()).map(|policy| policy.name.clone());
            let state = record.map(|one| one.state.clone()).or_else(|| progress.map(|one| one.state.clone()));
            members.push(Member { name, batch, state: state.unwrap_or_default(), policy: timed_out.or(policy) });
        }
        Ok(Self { phase: UpgradePhase::of(&status), members, upgrade, is_gone: false })
    }

    pub fn namespace(&self) -> &str {
        self.upgrade.metadata.namespace.as_deref().unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.upgrade.metadata.name.as_deref().unwrap_or_default()
    }

    /// How many clusters are in this state.
    pub fn count(&self, state: &str) -> usize {
        self.members.iter().filter(|member| member.state == state).count()
    }

    /// `2 of 3`; empty before the first batch.
    pub fn batch(&self) -> String {
        let status = self.upgrade.status.as_ref();
        let (current, all) =
            status.map_or((0, 0), |status| (status.status.current_batch, status.remediation_plan.len()));
        if current > 0 { format!("{current} of {all}") } else { String::new() }
    }

    /// Its phase, in a word.
    pub fn state(&self) -> String {
        if self.is_gone { "Deleted".to_owned() } else { self.phase.to_string() }
    }
}

impl From<UpgradeState> for Value {
    /// In the form that `-o json` documents. Later versions only add fields.
    fn from(state: UpgradeState) -> Self {
        let status = state.upgrade.status.clone().unwrap_or_default();
        let members = state.members.iter().map(|one| {
            known(json!({ "name": one.name, "batch": one.batch, "state": one.state, "policy": one.policy }))
        });
        known(json!({
            "namespace": state.upgrade.metadata.namespace,
            "name": state.upgrade.metadata.name,
            "state": state.state(),
            "message": state.phase.message(&status),
            "currentBatch": status.status.current_batch,
            "batches": status.remediation_plan.len(),
            "startedAt": status.status.started_at,
            "completedAt": status.status.completed_at,
            "clusters": members.collect::<Vec<_>>(),
        }))
    }
}
