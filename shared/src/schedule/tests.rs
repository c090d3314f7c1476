//! Schedules against what a person would say, and against a naive oracle.

mod decided;
mod edges;
mod governed;
mod oracle;
mod properties;
mod workloads;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::api::ScheduleSpec;
use super::timetable::{Edge, Timetable};
use crate::power::Power;

/// A spec of Berlin, with these fields.
fn spec(fields: &Value) -> ScheduleSpec {
    let mut spec = json!({ "timeZone": "Europe/Berlin", "targets": { "all": true } });
    json_patch::merge(&mut spec, fields);
    serde_json::from_value(spec).expect("a spec")
}

/// Awake from Monday to Friday, from 07:30 to 18:00, with these fields.
fn office(fields: &Value) -> ScheduleSpec {
    let mut all = json!({ "awake": [{ "days": ["Mon-Fri"], "from": "07:30", "to": "18:00" }] });
    json_patch::merge(&mut all, fields);
    spec(&all)
}

fn timetable(spec: &ScheduleSpec) -> Timetable {
    Timetable::of(spec, &[]).unwrap_or_else(|faults| panic!("{faults:?}"))
}

fn at(text: &str) -> Timestamp {
    text.parse().expect("a time")
}

/// `2026-11-27T17:00Z Sleep`.
fn text(edge: &Edge) -> String {
    let power = if edge.power == Power::Running { "Awake" } else { "Sleep" };
    format!("{} {power}", edge.at.strftime("%Y-%m-%dT%H:%MZ"))
}

fn texts(edges: &[Edge]) -> Vec<String> {
    edges.iter().map(text).collect()
}
