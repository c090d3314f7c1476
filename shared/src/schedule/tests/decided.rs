//! Which edge is due.

use std::time::Duration;

use super::*;
use crate::duration::after;
use crate::rollout::api::TargetName;
use crate::schedule::api::{LastEdge, ScheduleStatus, ScheduledPower};
use crate::schedule::decide::{By, Decision, Facts, Hold, decide};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

fn acted(text: &str) -> ScheduleStatus {
    let edge = LastEdge {
        at: Time(at(text)),
        power: ScheduledPower::Sleep,
        source: String::new(),
        rollout: None,
        outcome: None,
        pending: None,
    };
    ScheduleStatus { last_edge: Some(edge), ..ScheduleStatus::default() }
}

fn decided(spec: &ScheduleSpec, status: Option<&ScheduleStatus>, written: &str, now: &str) -> Decision {
    decide(&facts(spec, &timetable(spec), status, written, now))
}

fn facts<'a>(
    spec: &'a ScheduleSpec,
    timetable: &'a Timetable,
    status: Option<&'a ScheduleStatus>,
    written: &str,
    now: &str,
) -> Facts<'a> {
    Facts { spec, timetable, status, written: at(written), holds: &[], wakes_only: false, now: at(now) }
}

#[test]
fn without_a_calendar_nothing_falls_asleep_and_wakes_go_on() {
    let spec = office(&json!({}));
    let timetable = timetable(&spec);
    for (now, expected) in [
        ("2026-11-27T17:00:00Z", None),
        ("2026-11-30T06:30:00Z", Some("2026-11-30T06:30Z Awake")),
        ("2026-11-30T17:00:00Z", None),
    ] {
        let facts = facts(&spec, &timetable, None, "2026-11-20T00:00:00Z", now);
        let due = decide(&Facts { wakes_only: true, ..facts }).due.map(|due| text(&due.edge));
        assert_eq!(due.as_deref(), expected, "{now}");
    }
}

#[test]
fn the_last_edge_is_due_once_and_until_the_next() {
    let spec = office(&json!({}));
    let monday = "2026-11-30T06:30:00Z";
    let due = |status: Option<&str>, written: &str, now: &str| {
        let status = status.map(acted);
        decided(&spec, status.as_ref(), written, now).due.map(|due| (text(&due.edge), due.by))
    };
    let sleep = |until: &str| Some(("2026-11-27T17:00Z Sleep".to_owned(), By::Rollout(at(until))));
    for (what, status, written, now, expected) in [
        ("on time", None, "2026-11-20T00:00:00Z", "2026-11-27T17:00:00Z", sleep(monday)),
        ("a second before", None, "2026-11-27T12:00:00Z", "2026-11-27T16:59:59Z", None),
        ("late, over three edges, the last alone", None, "2026-11-20T00:00:00Z", "2026-11-29T12:00:00Z", sleep(monday)),
        ("once", Some("2026-11-27T17:00:00Z"), "2026-11-20T00:00:00Z", "2026-11-27T17:00:01Z", None),
        (
            "not twice when the clock is set back",
            Some("2026-11-27T17:00:00Z"),
            "2026-11-20T00:00:00Z",
            "2026-11-27T12:00:00Z",
            None,
        ),
        ("a new schedule begins at its next edge", None, "2026-11-27T17:00:01Z", "2026-11-29T12:00:00Z", None),
        (
            "no sleep that is over soon",
            None,
            "2026-11-20T00:00:00Z",
            "2026-11-30T06:10:00Z",
            Some(("2026-11-27T17:00Z Sleep".to_owned(), By::TooShort(at(monday)))),
        ),
    ] {
        assert_eq!(due(status, written, now), expected, "{what}");
    }
}

#[test]
fn an_edge_of_which_something_is_pending_stays_due_until_the_next() {
    let spec = office(&json!({ "applyAt": "2026-11-28T12:00:00Z", "minimumSleep": "12h" }));
    let due = |edge: &str, written: &str, now: &str| {
        let mut status = acted(edge);
        status.last_edge.as_mut().unwrap().pending = Some(2);
        let due = decided(&spec, Some(&status), written, now).due?;
        Some(due.by.until().map_or_else(|why| why, |_| text(&due.edge)))
    };
    let (evening, applied) = ("2026-11-27T17:00:00Z", "2026-11-28T12:00:00Z");
    for (what, edge, written, now, expected) in [
        ("at once", evening, "2026-11-20T00:00:00Z", "2026-11-27T17:00:01Z", Some("2026-11-27T17:00Z Sleep")),
        ("later", evening, "2026-11-20T00:00:00Z", "2026-11-28T11:00:00Z", Some("2026-11-27T17:00Z Sleep")),
        ("asked for", applied, "2026-11-28T12:00:01Z", "2026-11-28T13:00:00Z", Some("2026-11-28T12:00Z Sleep")),
        ("the next", applied, "2026-11-28T12:00:01Z", "2026-11-30T07:00:00Z", Some("2026-11-30T06:30Z Awake")),
        (
            "with less than the shortest sleep before the wake",
            "2026-11-30T17:00:00Z",
            "2026-11-20T00:00:00Z",
            "2026-12-01T06:20:00Z",
            Some("2026-11-30T17:00Z Sleep"),
        ),
        ("of a schedule that was edited since", evening, "2026-12-20T17:30:00Z", "2026-12-20T18:00:00Z", None),
    ] {
        assert_eq!(due(edge, written, now).as_deref(), expected, "{what}");
    }
}

#[test]
fn no_edge_changes_targets_while_they_are_left_as_they_are() {
    let days = json!([{ "from": "2026-12-24", "to": "2026-12-27", "power": "Unchanged" }]);
    let spec = office(&json!({ "exceptions": days }));
    let skipped: Result<Timestamp, String> = Err("skipped: unchanged until 2026-12-27T23:00:00Z".to_owned());
    for (now, expected) in [
        ("2026-12-23T17:00:00Z", Ok(at("2026-12-23T23:00:00Z"))),
        ("2026-12-23T23:00:00Z", skipped.clone()),
        ("2026-12-24T08:00:00Z", skipped),
        ("2026-12-27T23:00:00Z", Ok(at("2026-12-28T06:30:00Z"))),
    ] {
        let due = decided(&spec, None, "2026-12-20T00:00:00Z", now).due.expect("an edge");
        assert_eq!((text(&due.edge).as_str(), due.by.until()), ("2026-12-23T17:00Z Sleep", expected), "{now}");
    }
}

#[test]
fn a_suspended_schedule_does_nothing() {
    let spec = office(&json!({ "suspend": true }));
    let decision = decided(&spec, None, "2026-11-20T00:00:00Z", "2026-11-27T17:00:00Z");
    assert_eq!(decision, Decision { due: None, next: vec![], state: None, other_at: None });
}

#[test]
fn the_state_of_now_is_applied_once() {
    let spec = office(&json!({ "applyAt": "2026-11-28T12:00:00Z" }));
    let due = |status: Option<&str>, written: &str, now: &str| {
        let status = status.map(acted);
        decided(&spec, status.as_ref(), written, now).due.map(|due| text(&due.edge))
    };
    let (written, sleep) = ("2026-11-28T12:00:01Z", Some("2026-11-28T12:00Z Sleep".to_owned()));
    assert_eq!(due(Some("2026-11-27T17:00:00Z"), written, "2026-11-28T12:00:02Z"), sleep);
    assert_eq!(due(Some("2026-11-28T12:00:00Z"), written, "2026-11-28T12:00:02Z"), None, "once");
    assert_eq!(due(None, "2026-12-05T12:00:00Z", "2026-12-05T12:00:02Z"), None, "from an old file");
    let early = decided(&spec, None, written, "2026-11-28T11:59:59Z");
    assert_eq!((early.due, early.other_at), (None, Some(at("2026-11-28T12:00:00Z"))), "by a clock that is behind");
    assert_eq!(
        due(None, written, "2026-11-30T07:00:00Z").as_deref(),
        Some("2026-11-30T06:30Z Awake"),
        "a later edge wins"
    );
}

#[test]
fn what_was_held_awake_sleeps_again_when_its_hold_ends() {
    let (spec, status) = (office(&json!({})), acted("2026-11-27T17:00:00Z"));
    let target = |name: &str| TargetName { namespace: "team".to_owned(), name: name.to_owned() };
    let hold = |name: &str, requested: &str, until: &str| Hold {
        target: target(name),
        until: at(until),
        requested: at(requested),
    };
    let (ten, noon, one) = ("2026-11-28T10:00:00Z", "2026-11-28T12:00:00Z", "2026-11-28T13:00:00Z");
    let holds = [
        hold("second", ten, noon),
        hold("first", ten, one),
        hold("later", ten, "2026-11-28T15:00:00Z"),
        hold("woken-again", one, noon),
        hold("before-the-edge", "2026-11-27T16:00:00Z", noon),
    ];
    let at_time = |now: &str, written: &str| {
        let timetable = timetable(&spec);
        let facts = facts(&spec, &timetable, Some(&status), written, now);
        let Decision { due, other_at, .. } = decide(&Facts { holds: &holds, ..facts });
        (due.map(|due| (text(&due.edge), due.targets)), other_at)
    };
    let written = "2026-11-20T00:00:00Z";
    assert_eq!(at_time("2026-11-28T11:00:00Z", written), (None, Some(at(noon))));
    let both = Some(("2026-11-28T13:00Z Sleep".to_owned(), vec![target("first"), target("second")]));
    assert_eq!(at_time("2026-11-28T13:00:00Z", written), (both, Some(at("2026-11-28T15:00:00Z"))));
    let first = Some(vec![target("first")]);
    let edited = at_time("2026-11-28T13:00:00Z", "2026-11-28T12:30:00Z").0.map(|(_, targets)| targets);
    assert_eq!(edited, first, "an edited schedule begins at its next edge, which may be the end of a hold");
    assert_eq!(
        at_time("2026-11-30T07:00:00Z", written).0.map(|(edge, _)| edge).as_deref(),
        Some("2026-11-30T06:30Z Awake")
    );
}

#[test]
fn a_hold_that_was_over_before_the_sleep_ends_nothing_however_long_that_is() {
    let events = json!([{ "cron": "0 18 1 * *", "power": "Sleep" }, { "cron": "0 7 20 * *", "power": "Awake" }]);
    let unchanged = json!([{ "from": "2026-10-30", "to": "2026-11-03", "power": "Unchanged" }]);
    let status = acted("2026-11-01T17:00:00Z");
    for (what, exceptions, requested, is_over) in [
        ("before the sleep", json!([]), "2026-10-31T10:00:00Z", false),
        ("in the sleep", json!([]), "2026-11-02T10:00:00Z", true),
        ("in an exception without the sleep", unchanged, "2026-11-02T10:00:00Z", false),
    ] {
        let spec = spec(&json!({ "events": events, "exceptions": exceptions }));
        let timetable = timetable(&spec);
        let target = TargetName { namespace: "team".to_owned(), name: "demo".to_owned() };
        let requested = at(requested);
        let holds = [Hold { target, until: after(requested, Duration::from_hours(2)), requested }];
        let facts = facts(&spec, &timetable, Some(&status), "2026-10-01T00:00:00Z", "2026-11-12T00:00:00Z");
        let Decision { due, state, .. } = decide(&Facts { holds: &holds, ..facts });
        assert_eq!((due.is_some(), state), (is_over, Some(Power::Hibernating)), "{what}");
    }
}
