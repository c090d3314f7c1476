//! Schedules as a person reads them.

use shared::annotation::format;
use shared::schedule::api::{LastEdge, NextEdge};
use shared::text::quoted;
use view::age::{age, local};
use view::schedule::ScheduleState;

use super::{Render, Style, described, table_below};

/// The width of the names in front of the values.
const NAMES: usize = 12;

impl Render for ScheduleState {
    /// A schedule with its edges, sanitized.
    fn full(&self, style: &Style) -> Vec<String> {
        let (spec, status) = (self.spec(), self.status().cloned().unwrap_or_default());
        let state = match (self.state(), status.observed_generation) {
            (state, _) if !state.is_empty() => state,
            (_, None) => "no controller has seen it yet".to_owned(),
            _ => "none: it asks for no state now".to_owned(),
        };
        let of_edge = |edge: &LastEdge| {
            let (at, age) = (local(edge.at.0, &spec.time_zone), age(edge.at.0, style.now));
            format!("{} at {at} ({age} ago): {}", edge.power, edge.source)
        };
        let last = status.last_edge.as_ref();
        let name = quoted(&format!("{}/{}", self.row.word, self.name()));
        let mut fields = vec![
            ("Zone", Some(spec.time_zone.clone())),
            ("State", Some(state)),
            ("Suspended", spec.suspend.then(|| format!("yes: kubectl hibernate schedule resume {name}"))),
            ("Targets", status.targets.map(|targets| targets.to_string())),
            ("Last edge", last.map(of_edge)),
            ("Rollout", last.and_then(|edge| edge.rollout.clone())),
            ("Outcome", last.and_then(|edge| edge.outcome.clone())),
        ];
        let unmet = status.conditions.iter().filter(|condition| condition.status == "False");
        fields.extend(unmet.map(|one| ("Condition", Some(format!("{} is False: {}", one.type_, one.message)))));
        let mut lines = described(&self.full_name(), NAMES, &fields, ("", None));
        let edge = |edge: &NextEdge| {
            let times = [local(edge.at.0, &spec.time_zone), format::seconds(edge.at.0)];
            [edge.power.to_string()].into_iter().chain(times).chain([edge.source.clone()]).collect()
        };
        lines.extend(table_below(&["NEXT", "AT", "UTC", "SOURCE"], status.next.iter().map(edge)));
        lines
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use shared::kinds::{CLUSTER_SCHEDULE, SCHEDULE};
    use view::{Item, lines};

    use super::*;

    fn state(status: &Value) -> ScheduleState {
        let object = json!({
            "metadata": { "name": "night", "namespace": "team" },
            "spec": {
                "timeZone": "Europe/Berlin", "suspend": true, "targets": { "all": true },
                "awake": [{ "days": ["Mon-Fri"], "from": "07:30", "to": "18:00" }],
            },
            "status": status,
        });
        ScheduleState::read(&SCHEDULE, object).unwrap()
    }

    fn style() -> Style {
        Style { now: "2026-11-27T18:00:00Z".parse().unwrap(), colors: false, headers: true, wide: false }
    }

    #[test]
    fn a_schedule_is_shown_with_its_edges() {
        let condition = |kind: &str, status: &str| {
            json!({
                "type": kind, "status": status, "reason": "x", "message": "no ConfigMap\u{1b}[2J",
                "lastTransitionTime": "2026-11-24T17:50:00Z",
            })
        };
        let state = state(&json!({
            "observedGeneration": 1, "state": "Sleep", "targets": 12,
            "next": [{ "at": "2026-11-30T06:30:00Z", "power": "Awake", "source": "awake Mon-Fri 07:30-18:00" }],
            "lastEdge": {
                "at": "2026-11-27T17:00:00Z", "power": "Sleep", "source": "awake Mon-Fri 07:30-18:00",
                "rollout": "night-1", "outcome": "Succeeded",
            },
            "conditions": [condition("Valid", "False"), condition("Ready", "True")],
        }));
        insta::assert_snapshot!(state.full(&style()).join("\n"), @r"
        powerschedule.hibernate.sh/night
          Zone:       Europe/Berlin
          State:      Sleep
          Suspended:  yes: kubectl hibernate schedule resume schedule/night
          Targets:    12
          Last edge:  Sleep at 2026-11-27T18:00+01:00 (60m ago): awake Mon-Fri 07:30-18:00
          Rollout:    night-1
          Outcome:    Succeeded
          Condition:  Valid is False: no ConfigMap [2J

        NEXT    AT                       UTC                    SOURCE
        Awake   2026-11-30T07:30+01:00   2026-11-30T06:30:00Z   awake Mon-Fri 07:30-18:00
        ");
        let line =
            ["team", "night", "Europe/Berlin", "Sleep", "Awake", "2026-11-30T07:30+01:00", "12", "night-1", "true"];
        assert_eq!(lines::line(&Item::Schedule(Box::new(state)), style().now).unwrap(), line);
    }

    #[test]
    fn what_is_not_known_yet_is_said() {
        let text = |status: &Value| state(status).full(&style()).join("\n");
        assert!(text(&Value::Null).contains("State:      no controller has seen it yet"));
        assert!(text(&json!({ "observedGeneration": 1 })).contains("State:      none: it asks for no state now"));
        let gone = Item::Schedule(Box::new(state(&Value::Null))).deleted();
        assert_eq!(lines::line(&gone, style().now).unwrap()[3], "Deleted");
        let everywhere = ScheduleState::read(&CLUSTER_SCHEDULE, json!(state(&Value::Null).schedule)).unwrap();
        assert!(everywhere.full(&style())[3].ends_with("resume cpsch/night"));
    }
}
