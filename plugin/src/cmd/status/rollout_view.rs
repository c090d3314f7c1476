//! One rollout as `status` shows it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use shared::annotation::{format, keys};
use shared::rollout::api::PowerRollout;
use shared::rollout::status::{GroupStatus, RolloutPhase, TargetStatus};
use shared::target::POWER_ROLLOUT;
use shared::text::{and_more, quoted};

use crate::output::age::age;
use crate::output::{self, Colour};
use crate::wait;

/// The width of the names in front of the values.
const NAMES: usize = 15;
/// How the group of the remaining targets is called.
const REST: &str = "(remaining)";

/// One rollout in the form that `-o json` documents. Later versions only add fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    pub(super) name: String,
    action: String,
    /// Empty while no controller has seen it.
    phase: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    requested_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    created_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_before: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    not_after: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    estimated_end: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    finished_at: Option<Timestamp>,
    /// The rollout that it undoes.
    #[serde(skip_serializing_if = "Option::is_none")]
    restore_of: Option<String>,
    /// The group after which a person has to approve.
    #[serde(skip_serializing_if = "Option::is_none")]
    awaits_approval: Option<String>,
    /// The group with too many failures; empty for the remaining targets.
    #[serde(skip_serializing_if = "Option::is_none")]
    halted_group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<u32>,
    counts: BTreeMap<String, u32>,
    groups: Vec<GroupStatus>,
    targets: Vec<TargetStatus>,
    /// The counts in words.
    #[serde(skip)]
    tally: String,
    #[serde(skip)]
    is_paused: bool,
}

impl Record {
    pub(super) fn new(rollout: &PowerRollout) -> Self {
        let PowerRollout { metadata, spec, status } = rollout;
        let status = status.clone().unwrap_or_default();
        let note = |key: &str| metadata.annotations.as_ref().and_then(|notes| notes.get(key)).cloned();
        Self {
            name: metadata.name.clone().unwrap_or_default(),
            action: spec.action.to_string(),
            phase: status.phase.map(|phase| phase.to_string()).unwrap_or_default(),
            tally: wait::rollout::tally(&status),
            message: status.message.filter(|text| !text.is_empty()),
            requested_by: note(keys::REQUESTED_BY),
            reason: spec.reason.clone(),
            created_at: metadata.creation_timestamp.as_ref().map(|time| time.0),
            not_before: spec.not_before.as_ref().map(|time| time.0),
            not_after: Some(spec.not_after.0),
            started_at: status.started_at.map(|time| time.0),
            estimated_end: status.estimated_end.map(|time| time.0),
            finished_at: status.finished_at.map(|time| time.0),
            restore_of: spec.restore_of.as_ref().map(|other| other.name.clone()),
            awaits_approval: status.awaits_approval,
            halted_group: status.halt.map(|halt| halt.group),
            total: status.total,
            counts: status.counts,
            groups: status.groups,
            targets: status.targets,
            is_paused: spec.paused,
        }
    }

    /// The same once it does not exist any more.
    pub(super) fn gone(self) -> Self {
        Self { phase: "Deleted".to_owned(), awaits_approval: None, halted_group: None, ..self }
    }

    fn is(&self, phase: RolloutPhase) -> bool {
        self.phase == phase.to_string()
    }

    /// What can be done if it does not go on by itself.
    fn next(&self) -> Option<String> {
        let name = quoted(&self.name);
        let verb = |verbs: &str| Some(format!("kubectl hibernate rollout {verbs} {name}"));
        if self.is(RolloutPhase::Halted) {
            // Of another halt the message says what to correct.
            return self.halted_group.as_ref().and_then(|_| verb("accept|retry|abort"));
        }
        let waits = self.awaits_approval.is_some() || self.is(RolloutPhase::Planned);
        if waits || self.is_paused && self.is(RolloutPhase::Paused) { verb("resume") } else { None }
    }

    fn count(&self, state: &str) -> u32 {
        self.counts.get(state).copied().unwrap_or_default()
    }

    fn colour(&self) -> Option<Colour> {
        match self.phase.as_str() {
            "Succeeded" => Some(Colour::Green),
            "Halted" | "Aborted" | "Finished" => Some(Colour::Red),
            "" | "Deleted" => None,
            _ => Some(Colour::Yellow),
        }
    }
}

/// The headers of the list.
pub(super) fn head() -> Vec<String> {
    ["NAME", "ACTION", "PHASE", "TARGETS", "SUCCEEDED", "FAILED", "REQUESTED BY", "AGE"].map(str::to_owned).into()
}

/// A line of the list.
pub(super) fn line(record: &Record, now: Timestamp) -> Vec<String> {
    // An empty cell would shift the columns for scripts that split at spaces.
    let cell = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let total = record.total.map(|total| total.to_string()).unwrap_or_default();
    vec![
        cell(record.name.clone()),
        cell(record.action.clone()),
        cell(record.phase.clone()),
        cell(total),
        (record.count("Succeeded") + record.count("AlreadyInState")).to_string(),
        (record.count("Failed") + record.count("TimeOut")).to_string(),
        cell(record.requested_by.clone().unwrap_or_default()),
        cell(record.created_at.map(|at| age(at, now)).unwrap_or_default()),
    ]
}

/// A rollout with its groups and targets, sanitized, and with colours if they are on.
pub(super) fn full(record: &Record, now: Timestamp, colours: bool) -> Vec<String> {
    let mut lines = vec![output::one_line(&POWER_ROLLOUT.kind.full_name(&record.name))];
    for (name, value) in fields(record, now) {
        let value = output::one_line(&value);
        let value = match record.colour().filter(|_| name == "Phase") {
            Some(colour) => colour.paint(&value, colours),
            None => value,
        };
        lines.push(format!("  {:<NAMES$}{value}", format!("{name}:")));
    }
    if !record.groups.is_empty() {
        let group = |group: &GroupStatus| {
            let name = if group.name.is_empty() { REST } else { &group.name };
            vec![name.to_owned(), group.total.to_string()]
        };
        lines.push(String::new());
        lines.extend(table(&["GROUP", "TARGETS"], record.groups.iter().map(group)));
    }
    if !record.targets.is_empty() {
        let target = |target: &TargetStatus| {
            let reason = if target.reason.is_empty() { "-" } else { &target.reason };
            [&target.namespace, &target.name, &target.state, reason].map(str::to_owned).into()
        };
        lines.push(String::new());
        lines.extend(table(&["NAMESPACE", "NAME", "STATE", "REASON"], record.targets.iter().map(target)));
        let total = record.total.and_then(|total| usize::try_from(total).ok());
        lines.extend(total.and_then(|total| and_more(total.saturating_sub(record.targets.len()))));
    }
    lines
}

fn table(headers: &[&str], rows: impl Iterator<Item = Vec<String>>) -> Vec<String> {
    let head: Vec<String> = headers.iter().map(|&header| header.to_owned()).collect();
    output::aligned(&std::iter::once(head).chain(rows).collect::<Vec<_>>())
}

/// What is known, a name and a value each.
fn fields(record: &Record, now: Timestamp) -> Vec<(&'static str, String)> {
    let past = |at: Timestamp| format!("{} ({} ago)", format::seconds(at), age(at, now));
    let ahead = |at: Timestamp| {
        let left = if at > now { format!("in {}", age(now, at)) } else { "passed".to_owned() };
        format!("{} ({left})", format::seconds(at))
    };
    let phase = if record.phase.is_empty() { "no controller has seen it yet".to_owned() } else { record.phase.clone() };
    let of = record.restore_of.as_ref().map(|other| format!(" of {other}")).unwrap_or_default();
    let by = record.requested_by.clone();
    let estimated = record.estimated_end.filter(|_| record.finished_at.is_none());
    [
        ("Action", Some(format!("{}{of}", record.action))),
        ("Phase", Some(phase)),
        ("Message", record.message.clone()),
        ("Targets", Some(record.tally.clone()).filter(|text| !text.is_empty())),
        ("Requested by", by),
        ("Reason", record.reason.clone()),
        ("Created", record.created_at.map(past)),
        ("Starts from", record.not_before.filter(|at| *at > now).map(ahead)),
        ("Starts until", record.not_after.filter(|_| record.finished_at.is_none()).map(ahead)),
        ("Started", record.started_at.map(past)),
        ("Estimated end", estimated.map(ahead)),
        ("Ended", record.finished_at.map(past)),
        ("Approval", record.awaits_approval.as_ref().map(|group| format!("group {group} is over: approve to go on"))),
        ("Next", record.next()),
    ]
    .into_iter()
    .filter_map(|(name, value)| Some((name, value?)))
    .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn record(status: &Value) -> Record {
        let object = json!({
            "metadata": {
                "name": "night", "creationTimestamp": "2026-11-24T17:50:00Z",
                "annotations": { "hibernate.sh/requested-by": "alice\u{1b}[31m" },
            },
            "spec": {
                "action": "Hibernate", "maxTargets": 12, "notAfter": "2026-11-24T20:00:00Z", "targets": { "all": true },
                "reason": "weekend",
            },
            "status": status,
        });
        Record::new(&serde_json::from_value(object).unwrap())
    }

    fn now() -> Timestamp {
        "2026-11-24T18:00:00Z".parse().unwrap()
    }

    #[test]
    fn a_rollout_is_shown_with_its_groups_and_targets() {
        let status = json!({
            "phase": "Halted", "message": "2 failures in group canary", "total": 12, "startedAt": "2026-11-24T17:51:00Z",
            "estimatedEnd": "2026-11-24T18:20:00Z",
            "halt": { "group": "canary", "at": "2026-11-24T17:59:00Z", "acceptFailures": 0, "retryFailed": 0 },
            "groups": [{ "name": "canary", "total": 2 }, { "name": "", "total": 10 }],
            "counts": { "Pending": 10, "Failed": 1, "TimeOut": 1 },
            "targets": [
                { "namespace": "a", "name": "demo", "state": "Failed", "reason": "refused\u{1b}[2J credentials" },
                { "namespace": "b", "name": "web", "state": "TimeOut" },
            ],
        });
        let record = record(&status);
        let lines = full(&record, now(), false);
        insta::assert_snapshot!(lines.join("\n"), @r"
        powerrollout.hibernate.sh/night
          Action:        Hibernate
          Phase:         Halted
          Message:       2 failures in group canary
          Targets:       12 targets: 10 Pending, 1 Failed, 1 TimeOut
          Requested by:  alice [31m
          Reason:        weekend
          Created:       2026-11-24T17:50:00Z (10m ago)
          Starts until:  2026-11-24T20:00:00Z (in 120m)
          Started:       2026-11-24T17:51:00Z (9m ago)
          Estimated end: 2026-11-24T18:20:00Z (in 20m)
          Next:          kubectl hibernate rollout accept|retry|abort night

        GROUP         TARGETS
        canary        2
        (remaining)   10

        NAMESPACE   NAME   STATE     REASON
        a           demo   Failed    refused [2J credentials
        b           web    TimeOut   -
        and 10 more
        ");
        assert_eq!(full(&record, now(), true)[2], "  Phase:         \u{1b}[31mHalted\u{1b}[0m");
        assert_eq!(line(&record, now()), ["night", "Hibernate", "Halted", "12", "0", "2", "alice\u{1b}[31m", "10m"]);
        assert!(!lines.iter().any(|line| line.contains('\u{1b}')));
    }

    #[test]
    fn a_rollout_that_waits_says_for_what() {
        let text = |status: &Value| full(&record(status), now(), false).join("\n");
        let unseen = text(&json!({}));
        assert!(unseen.contains("no controller has seen it yet") && !unseen.contains("Next:"), "{unseen}");
        let approval = text(&json!({ "phase": "Paused", "awaitsApproval": "canary" }));
        assert!(approval.contains("group canary is over") && approval.contains("rollout resume night"), "{approval}");
        let over = text(
            &json!({ "phase": "Succeeded", "finishedAt": "2026-11-24T17:59:00Z", "estimatedEnd": "2026-11-24T18:20:00Z" }),
        );
        assert!(
            over.contains("Ended:         2026-11-24T17:59:00Z (60s ago)") && !over.contains("Estimated"),
            "{over}"
        );
        assert_eq!(line(&record(&json!({})).gone(), now())[2], "Deleted");
    }

    #[test]
    fn the_documented_form_leaves_out_what_is_unknown() {
        assert_eq!(
            json!(record(&json!({}))),
            json!({
                "name": "night", "action": "Hibernate", "phase": "", "requestedBy": "alice\u{1b}[31m", "reason": "weekend",
                "createdAt": "2026-11-24T17:50:00Z", "notAfter": "2026-11-24T20:00:00Z", "counts": {}, "groups": [], "targets": [],
            })
        );
    }
}
