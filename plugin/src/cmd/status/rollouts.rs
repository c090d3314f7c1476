//! `status rollouts` and `status rollout/NAME`: how far a rollout is, and what its targets do.

use futures::future::join_all;
use hub::watch::Place;
use hub::{Resource, name_of};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use shared::annotation::{format, keys};
use shared::kinds::{Kind, POWER_ROLLOUT};
use shared::rollout::api::{PowerRollout, PowerRolloutSpec};
use shared::rollout::status::{GroupStatus, PowerRolloutStatus, RolloutPhase, TargetStatus};
use shared::text::{and_more, quoted};

use super::follow::{self, Shown};
use crate::cli::{HubArgs, StatusArgs};
use crate::cmd::rollout;
use crate::connect::connect;
use crate::error::{Exit, Problem};
use crate::output::age::age;
use crate::output::{self, Color};
use crate::wait;

/// The width of the names in front of the values.
const NAMES: usize = 15;
/// How the group of the remaining targets is called.
const REST: &str = "(remaining)";

/// Runs the command for rollouts.
///
/// # Errors
/// When nothing can be asked at all. Failures of single rollouts are printed and counted.
pub(crate) async fn run(names: &[String], args: &StatusArgs, hub_args: &HubArgs) -> Result<Exit, Problem> {
    let hub = connect(hub_args)?;
    let labels = hub_args.selector.as_deref().unwrap_or_default();
    let found: Vec<(String, Result<Value, Problem>)> = if names.is_empty() {
        let listed = hub.list(Resource::preferred(&POWER_ROLLOUT.kind), None, "", labels).await?.items;
        listed.into_iter().map(|object| (name_of(&object).to_owned(), Ok(object))).collect()
    } else {
        names.iter().cloned().zip(join_all(names.iter().map(|name| rollout::get(&hub, name))).await).collect()
    };
    follow::run::<Record>(&hub, (None, names), found, args, hub_args).await
}

/// One rollout.
#[derive(Clone, Debug)]
struct Record {
    name: String,
    /// Empty while no controller has seen it.
    phase: String,
    requested_by: Option<String>,
    created_at: Option<Timestamp>,
    spec: PowerRolloutSpec,
    status: PowerRolloutStatus,
}

impl PartialEq for Record {
    /// By what is shown.
    fn eq(&self, other: &Self) -> bool {
        self.spec.paused == other.spec.paused && self.documented() == other.documented()
    }
}

impl Record {
    fn new(rollout: PowerRollout) -> Self {
        let PowerRollout { metadata, spec, status } = rollout;
        let mut status = status.unwrap_or_default();
        status.message = status.message.filter(|text| !text.is_empty());
        Self {
            requested_by: metadata.annotations.and_then(|mut notes| notes.remove(keys::REQUESTED_BY)),
            created_at: metadata.creation_timestamp.map(|time| time.0),
            name: metadata.name.unwrap_or_default(),
            phase: status.phase.map(|phase| phase.to_string()).unwrap_or_default(),
            spec,
            status,
        }
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
            return self.status.halt.as_ref().and_then(|_| verb("accept|retry|abort"));
        }
        let waits = self.status.awaits_approval.is_some() || self.is(RolloutPhase::Planned);
        if waits || self.spec.paused && self.is(RolloutPhase::Paused) { verb("resume") } else { None }
    }

    fn count(&self, state: &str) -> u32 {
        self.status.counts.get(state).copied().unwrap_or_default()
    }

    fn color(&self) -> Option<Color> {
        match self.phase.as_str() {
            "Succeeded" => Some(Color::Green),
            "Halted" | "Aborted" | "Finished" => Some(Color::Red),
            "" | "Deleted" => None,
            _ => Some(Color::Yellow),
        }
    }
}

impl Shown for Record {
    const LIST: &'static str = "RolloutStatusList";
    const HEAD: &'static [&'static str] =
        &["NAME", "ACTION", "PHASE", "TARGETS", "SUCCEEDED", "FAILED", "REQUESTED BY", "AGE"];

    fn kind() -> &'static Kind {
        &POWER_ROLLOUT.kind
    }

    fn read(object: Value) -> Result<Self, Problem> {
        Ok(Self::new(serde_json::from_value(object).map_err(Problem::unreadable)?))
    }

    fn place(&self) -> Place {
        (String::new(), self.name.clone())
    }

    /// In the form that `-o json` documents. Later versions only add fields.
    fn documented(&self) -> Value {
        let Self { spec, status, .. } = self;
        output::known(json!({
            "name": self.name,
            "action": spec.action,
            "phase": self.phase,
            "message": status.message,
            "requestedBy": self.requested_by,
            "reason": spec.reason,
            "createdAt": self.created_at,
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

    /// The same once it does not exist any more.
    fn gone(mut self) -> Self {
        "Deleted".clone_into(&mut self.phase);
        (self.status.awaits_approval, self.status.halt) = (None, None);
        self
    }

    fn line(&self, now: Timestamp) -> Vec<String> {
        let total = self.status.total.map(|total| total.to_string()).unwrap_or_default();
        vec![
            self.name.clone(),
            self.spec.action.to_string(),
            self.phase.clone(),
            total,
            (self.count("Succeeded") + self.count("AlreadyInState")).to_string(),
            (self.count("Failed") + self.count("TimeOut")).to_string(),
            self.requested_by.clone().unwrap_or_default(),
            self.created_at.map(|at| age(at, now)).unwrap_or_default(),
        ]
    }

    /// A rollout with its groups and targets, sanitized, and with colors if they are on.
    fn full(&self, now: Timestamp, colors: bool) -> Vec<String> {
        let mut lines = follow::described(self, NAMES, &fields(self, now), ("Phase", self.color().filter(|_| colors)));
        if !self.status.groups.is_empty() {
            let group = |group: &GroupStatus| {
                let name = if group.name.is_empty() { REST } else { &group.name };
                vec![name.to_owned(), group.total.to_string()]
            };
            lines.push(String::new());
            lines.extend(output::table(&["GROUP", "TARGETS"], self.status.groups.iter().map(group)));
        }
        if !self.status.targets.is_empty() {
            let target = |target: &TargetStatus| {
                [&target.namespace, &target.name, &target.state, &target.reason].map(String::clone).into()
            };
            lines.push(String::new());
            lines.extend(output::table(
                &["NAMESPACE", "NAME", "STATE", "REASON"],
                self.status.targets.iter().map(target),
            ));
            let total = self.status.total.and_then(|total| usize::try_from(total).ok());
            lines.extend(total.and_then(|total| and_more(total.saturating_sub(self.status.targets.len()))));
        }
        lines
    }
}

fn time(time: Option<&Time>) -> Option<Timestamp> {
    time.map(|time| time.0)
}

/// What is shown, a name and a value each.
fn fields(record: &Record, now: Timestamp) -> [(&'static str, Option<String>); 14] {
    let past = |at: Timestamp| format!("{} ({} ago)", format::seconds(at), age(at, now));
    let ahead = |at: Timestamp| {
        let left = if at > now { format!("in {}", age(now, at)) } else { "passed".to_owned() };
        format!("{} ({left})", format::seconds(at))
    };
    let phase = if record.phase.is_empty() { "no controller has seen it yet".to_owned() } else { record.phase.clone() };
    let Record { spec, status, .. } = record;
    let of = spec.restore_of.as_ref().map(|other| format!(" of {}", other.name)).unwrap_or_default();
    let tally = wait::rollout::tally(status);
    let is_over = status.finished_at.is_some();
    let estimated = time(status.estimated_end.as_ref()).filter(|_| !is_over);
    [
        ("Action", Some(format!("{}{of}", spec.action))),
        ("Phase", Some(phase)),
        ("Message", status.message.clone()),
        ("Targets", Some(tally).filter(|text| !text.is_empty())),
        ("Requested by", record.requested_by.clone()),
        ("Reason", spec.reason.clone()),
        ("Created", record.created_at.map(past)),
        ("Starts from", time(spec.not_before.as_ref()).filter(|at| *at > now).map(ahead)),
        ("Starts until", Some(spec.not_after.0).filter(|_| !is_over).map(ahead)),
        ("Started", time(status.started_at.as_ref()).map(past)),
        ("Estimated end", estimated.map(ahead)),
        ("Ended", time(status.finished_at.as_ref()).map(past)),
        ("Approval", status.awaits_approval.as_ref().map(|group| format!("group {group} is over: approve to go on"))),
        ("Next", record.next()),
    ]
}

#[cfg(test)]
mod tests {
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
        Record::new(serde_json::from_value(object).unwrap())
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
        let lines = record.full(now(), false);
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
        assert_eq!(record.full(now(), true)[2], "  Phase:         \u{1b}[31mHalted\u{1b}[0m");
        assert_eq!(record.line(now()), ["night", "Hibernate", "Halted", "12", "0", "2", "alice\u{1b}[31m", "10m"]);
        assert!(!lines.iter().any(|line| line.contains('\u{1b}')));
    }

    #[test]
    fn a_rollout_that_waits_says_for_what() {
        let text = |status: &Value| record(status).full(now(), false).join("\n");
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
        assert_eq!(record(&json!({})).gone().line(now())[2], "Deleted");
    }

    #[test]
    fn the_documented_form_leaves_out_what_is_unknown() {
        assert_eq!(
            record(&json!({})).documented(),
            json!({
                "name": "night", "action": "Hibernate", "phase": "", "requestedBy": "alice\u{1b}[31m", "reason": "weekend",
                "createdAt": "2026-11-24T17:50:00Z", "notAfter": "2026-11-24T20:00:00Z", "counts": {}, "groups": [], "targets": [],
            })
        );
    }
}
