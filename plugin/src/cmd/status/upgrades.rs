//! `status cgus` and `status cgu/NAME`: how far TALM's upgrades are, under either controller.

use std::collections::{BTreeMap, BTreeSet};

use hub::watch::Place;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use shared::annotation::format;
use shared::cgu::api::{COMPLETE, ClusterGroupUpgrade, ClusterState, TIMED_OUT};
use shared::cgu::phase::UpgradePhase;
use shared::kinds::{CLUSTER_GROUP_UPGRADE, Kind};
use shared::text::count;

use super::follow::{self, Shown};
use super::{found, searched};
use crate::cli::{HubArgs, StatusArgs};
use crate::connect::connect;
use crate::error::{Exit, Problem};
use crate::output::age::age;
use crate::output::{self, Color};

/// The width of the names in front of the values.
const NAMES: usize = 11;

/// Runs the command for upgrades.
///
/// # Errors
/// When nothing can be asked at all. Failures of single upgrades are printed and counted.
pub(crate) async fn run(names: &[String], args: &StatusArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let hub = connect(hub_args)?;
    let namespace = searched(&hub, hub_args);
    let found = found(&hub, Record::kind(), names, hub_args).await?;
    follow::run::<Record>(&hub, (namespace, names), found, args, hub_args).await
}

/// One upgrade.
#[derive(Clone, PartialEq)]
struct Record {
    upgrade: ClusterGroupUpgrade,
    phase: UpgradePhase,
    members: Vec<Member>,
    is_gone: bool,
}

/// A cluster of the plan, or one that has ended.
#[derive(Clone, PartialEq)]
struct Member {
    name: String,
    batch: Option<usize>,
    state: String,
    policy: Option<String>,
}

impl Record {
    fn new(upgrade: ClusterGroupUpgrade) -> Self {
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
        Self { phase: UpgradePhase::of(&status), members, upgrade, is_gone: false }
    }

    fn count(&self, state: &str) -> usize {
        self.members.iter().filter(|member| member.state == state).count()
    }

    fn batch(&self) -> String {
        let status = self.upgrade.status.as_ref();
        let (current, all) =
            status.map_or((0, 0), |status| (status.status.current_batch, status.remediation_plan.len()));
        if current > 0 { format!("{current} of {all}") } else { String::new() }
    }

    fn state(&self) -> String {
        if self.is_gone { "Deleted".to_owned() } else { self.phase.to_string() }
    }
}

impl Shown for Record {
    const LIST: &'static str = "ClusterGroupUpgradeStatusList";
    const HEAD: &'static [&'static str] =
        &["NAMESPACE", "NAME", "STATE", "BATCH", "CLUSTERS", "COMPLETE", "TIMED OUT", "AGE"];

    fn kind() -> &'static Kind {
        &CLUSTER_GROUP_UPGRADE.kind
    }

    fn read(object: Value) -> Result<Self, Problem> {
        Ok(Self::new(serde_json::from_value(object).map_err(Problem::unreadable)?))
    }

    fn place(&self) -> Place {
        let metadata = &self.upgrade.metadata;
        (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
    }

    fn gone(mut self) -> Self {
        self.is_gone = true;
        self
    }

    /// In the form that `-o json` documents. Later versions only add fields.
    fn documented(&self) -> Value {
        let status = self.upgrade.status.clone().unwrap_or_default();
        let members = self.members.iter().map(|one| {
            output::known(json!({ "name": one.name, "batch": one.batch, "state": one.state, "policy": one.policy }))
        });
        output::known(json!({
            "namespace": self.upgrade.metadata.namespace,
            "name": self.upgrade.metadata.name,
            "state": self.state(),
            "message": self.phase.message(&status),
            "currentBatch": status.status.current_batch,
            "batches": status.remediation_plan.len(),
            "startedAt": status.status.started_at,
            "completedAt": status.status.completed_at,
            "clusters": members.collect::<Vec<_>>(),
        }))
    }

    fn line(&self, now: Timestamp) -> Vec<String> {
        let created = self.upgrade.metadata.creation_timestamp.as_ref();
        vec![
            self.upgrade.metadata.namespace.clone().unwrap_or_default(),
            self.upgrade.metadata.name.clone().unwrap_or_default(),
            self.state(),
            self.batch(),
            self.members.len().to_string(),
            self.count(COMPLETE).to_string(),
            self.count(TIMED_OUT).to_string(),
            created.map(|at| age(at.0, now)).unwrap_or_default(),
        ]
    }

    /// An upgrade with its clusters, sanitized, and with colors if they are on.
    fn full(&self, now: Timestamp, colors: bool) -> Vec<String> {
        let status = self.upgrade.status.clone().unwrap_or_default();
        let past = |at: Timestamp| format!("{} ({} ago)", format::seconds(at), age(at, now));
        let timeout = SignedDuration::from_secs(self.upgrade.spec.remediation_strategy.timeout.saturating_mul(60));
        let started = status.status.started_at.as_ref().map(|at| at.0);
        let until =
            started.and_then(|at| at.checked_add(timeout).ok()).filter(|_| status.status.completed_at.is_none());
        let tally = format!(
            "{}: {} complete, {} timed out",
            count(self.members.len(), "cluster"),
            self.count(COMPLETE),
            self.count(TIMED_OUT)
        );
        let fields = [
            ("State", Some(self.state())),
            ("Message", self.phase.message(&status).map(str::to_owned)),
            ("Batch", Some(self.batch()).filter(|text| !text.is_empty())),
            ("Clusters", Some(tally)),
            ("Started", started.map(past)),
            ("Until", until.map(format::seconds)),
            ("Ended", status.status.completed_at.as_ref().map(|at| past(at.0))),
        ];
        let mut lines = follow::described(self, NAMES, &fields, ("State", self.color().filter(|_| colors)));
        if !self.members.is_empty() {
            let row = |one: &Member| {
                let batch = one.batch.map(|batch| batch.to_string()).unwrap_or_default();
                vec![one.name.clone(), batch, one.state.clone(), one.policy.clone().unwrap_or_default()]
            };
            lines.push(String::new());
            lines.extend(output::table(&["CLUSTER", "BATCH", "STATE", "POLICY"], self.members.iter().map(row)));
        }
        lines
    }
}

impl Record {
    const fn color(&self) -> Option<Color> {
        match self.phase {
            UpgradePhase::UpgradeCompleted => Some(Color::Green),
            UpgradePhase::UpgradeTimedOut | UpgradePhase::UpgradeCannotStart => Some(Color::Red),
            UpgradePhase::UpgradeNotCompleted => Some(Color::Yellow),
            UpgradePhase::UpgradeNotStarted => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_is_shown_with_its_clusters() {
        let condition = json!({
            "type": "Progressing", "status": "True", "reason": "InProgress", "message": "Remediating non-compliant policies",
            "lastTransitionTime": "2026-11-24T17:50:00Z",
        });
        let upgrade = json!({
            "metadata": { "name": "wave-1", "namespace": "ztp", "creationTimestamp": "2026-11-24T17:50:00Z" },
            "spec": { "remediationStrategy": { "maxConcurrency": 1, "timeout": 60 } },
            "status": {
                "conditions": [condition], "remediationPlan": [["a"], ["b"], ["c\u{1b}[2J"]],
                "clusters": [{ "name": "ready", "state": "complete" }, {
                    "name": "a", "state": "timedout", "currentPolicy": { "name": "p1", "status": "NonCompliant" },
                }],
                "managedPoliciesForUpgrade": [{ "name": "p1", "namespace": "n" }, { "name": "p2", "namespace": "n" }],
                "status": {
                    "currentBatch": 2, "startedAt": "2026-11-24T17:52:00Z",
                    "currentBatchRemediationProgress": { "b": { "state": "InProgress", "policyIndex": 1 } },
                },
            },
        });
        let record = Record::new(serde_json::from_value(upgrade).unwrap());
        let now = "2026-11-24T18:00:00Z".parse().unwrap();
        insta::assert_snapshot!(record.full(now, false).join("\n"), @r"
        clustergroupupgrade.ran.openshift.io/wave-1
          State:     UpgradeNotCompleted
          Message:   Remediating non-compliant policies
          Batch:     2 of 3
          Clusters:  4 clusters: 1 complete, 1 timed out
          Started:   2026-11-24T17:52:00Z (8m ago)
          Until:     2026-11-24T18:52:00Z

        CLUSTER   BATCH   STATE        POLICY
        a         1       timedout     p1
        b         2       InProgress   p2
        c [2J     3       -            -
        ready     -       complete     -
        ");
        assert_eq!(record.line(now), ["ztp", "wave-1", "UpgradeNotCompleted", "2 of 3", "4", "1", "1", "10m"]);
        assert_eq!(
            record.documented()["clusters"][1],
            json!({ "name": "b", "batch": 2, "state": "InProgress", "policy": "p2" })
        );
    }
}
