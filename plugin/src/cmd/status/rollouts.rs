//! Rollouts as a person reads them.

use jiff::Timestamp;
use shared::annotation::format;
use shared::kinds::POWER_ROLLOUT;
use shared::rollout::status::RolloutPhase;
use shared::text::{and_more, quoted};
use view::age::age;
use view::lines::{GROUPS, MEMBERS, groups, members};
use view::rollout::{RolloutState, time};

use super::{Render, Style, described, table_below};
use crate::output::Color;
use crate::wait;

/// The width of the names in front of the values.
const NAMES: usize = 15;

impl Render for RolloutState {
    /// A rollout with its groups and targets, sanitized, and with colors if they are on.
    fn full(&self, style: &Style) -> Vec<String> {
        let color = color(self).filter(|_| style.colors);
        let name = POWER_ROLLOUT.kind.full_name(&self.name);
        let mut lines = described(&name, NAMES, &fields(self, style.now), ("Phase", color));
        lines.extend(table_below(&GROUPS, groups(self).map(Vec::from)));
        lines.extend(table_below(&MEMBERS, members(self).map(Vec::from)));
        if !self.status.targets.is_empty() {
            let total = self.status.total.and_then(|total| usize::try_from(total).ok());
            lines.extend(total.and_then(|total| and_more(total.saturating_sub(self.status.targets.len()))));
        }
        lines
    }
}

/// What is shown, a name and a value each.
fn fields(record: &RolloutState, now: Timestamp) -> [(&'static str, Option<String>); 14] {
    let past = |at: Timestamp| format!("{} ({} ago)", format::seconds(at), age(at, now));
    let ahead = |at: Timestamp| {
        let left = if at > now { format!("in {}", age(now, at)) } else { "passed".to_owned() };
        format!("{} ({left})", format::seconds(at))
    };
    let phase = if record.phase.is_empty() { "no controller has seen it yet".to_owned() } else { record.phase.clone() };
    let RolloutState { spec, status, .. } = record;
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
        ("Next", next(record)),
    ]
}

/// What can be done if it does not go on by itself.
fn next(rollout: &RolloutState) -> Option<String> {
    let name = quoted(&rollout.name);
    let verb = |verbs: &str| Some(format!("kubectl hibernate rollout {verbs} {name}"));
    let is = |phase: RolloutPhase| rollout.phase == phase.to_string();
    if is(RolloutPhase::Halted) {
        // Of another halt the message says what to correct.
        return rollout.status.halt.as_ref().and_then(|_| verb("accept|retry|abort"));
    }
    let waits = rollout.status.awaits_approval.is_some() || is(RolloutPhase::Planned);
    if waits || rollout.spec.paused && is(RolloutPhase::Paused) { verb("resume") } else { None }
}

fn color(rollout: &RolloutState) -> Option<Color> {
    match rollout.phase.as_str() {
        "Succeeded" => Some(Color::Green),
        "Halted" | "Aborted" | "Finished" => Some(Color::Red),
        "" | "Deleted" => None,
        _ => Some(Color::Yellow),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use view::{Item, lines};

    use super::*;

    fn record(status: &Value) -> RolloutState {
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
        RolloutState::read(object).unwrap()
    }

    fn now() -> Timestamp {
        "2026-11-24T18:00:00Z".parse().unwrap()
    }

    fn line(rollout: RolloutState) -> Vec<String> {
        lines::line(&Item::Rollout(Box::new(rollout)), now()).unwrap()
    }

    fn style(colors: bool) -> Style {
        Style { now: now(), colors, headers: true, wide: false }
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
        let lines = record.full(&style(false));
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
        assert_eq!(record.full(&style(true))[2], "  Phase:         \u{1b}[31mHalted\u{1b}[0m");
        assert_eq!(line(record.clone()), ["night", "Hibernate", "Halted", "12", "0", "2", "alice\u{1b}[31m", "10m"]);
        assert!(!lines.iter().any(|line| line.contains('\u{1b}')));
    }

    #[test]
    fn a_rollout_that_waits_says_for_what() {
        let text = |status: &Value| record(status).full(&style(false)).join("\n");
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
        let Item::Rollout(gone) = Item::Rollout(Box::new(record(&json!({})))).deleted() else { panic!("a rollout") };
        assert_eq!(line(*gone)[2], "Deleted");
    }
}
