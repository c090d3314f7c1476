//! Upgrades as a person reads them.

use jiff::Timestamp;
use shared::annotation::format;
use shared::cgu::api::{COMPLETE, TIMED_OUT};
use shared::cgu::phase::UpgradePhase;
use shared::kinds::CLUSTER_GROUP_UPGRADE;
use shared::text;
use view::age::age;
use view::upgrade::{Member, UpgradeState};

use super::{Render, Style, described, table_below};
use crate::output::Color;

/// The width of the names in front of the values.
const NAMES: usize = 11;

impl Render for UpgradeState {
    /// An upgrade with its clusters, sanitized, and with colors if they are on.
    fn full(&self, style: &Style) -> Vec<String> {
        let status = self.upgrade.status.clone().unwrap_or_default();
        let past = |at: Timestamp| format!("{} ({} ago)", format::seconds(at), age(at, style.now));
        let started = status.status.started_at.as_ref().map(|at| at.0);
        let is_running = status.status.completed_at.is_none();
        let until = started.filter(|_| is_running).map(|at| self.upgrade.spec.remediation_strategy.deadline(at));
        let tally = format!(
            "{}: {} complete, {} timed out",
            text::count(self.members.len(), "cluster"),
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
        let name = CLUSTER_GROUP_UPGRADE.kind.full_name(self.name());
        let color = color(self.phase).filter(|_| style.colors);
        let mut lines = described(&name, NAMES, &fields, ("State", color));
        let row = |one: &Member| {
            let batch = one.batch.map(|batch| batch.to_string()).unwrap_or_default();
            vec![one.name.clone(), batch, one.state.clone(), one.policy.clone().unwrap_or_default()]
        };
        lines.extend(table_below(&["CLUSTER", "BATCH", "STATE", "POLICY"], self.members.iter().map(row)));
        lines
    }
}

const fn color(phase: UpgradePhase) -> Option<Color> {
    match phase {
        UpgradePhase::UpgradeCompleted => Some(Color::Green),
        UpgradePhase::UpgradeTimedOut | UpgradePhase::UpgradeCannotStart => Some(Color::Red),
        UpgradePhase::UpgradeNotCompleted => Some(Color::Yellow),
        UpgradePhase::UpgradeNotStarted => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use view::{Item, lines};

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
        let record = UpgradeState::read(upgrade).unwrap();
        let now = "2026-11-24T18:00:00Z".parse().unwrap();
        insta::assert_snapshot!(record.full(&Style { now, colors: false, headers: true, wide: false }).join("\n"), @r"
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
        assert_eq!(
            lines::line(&Item::Upgrade(Box::new(record.clone())), now).unwrap(),
            ["ztp", "wave-1", "UpgradeNotCompleted", "2 of 3", "4", "1", "1", "10m"]
        );
        assert_eq!(
            json!(record)["clusters"][1],
            json!({ "name": "b", "batch": 2, "state": "InProgress", "policy": "p2" })
        );
    }
}
