//! The next edges and the state of 10,000 schedules, from their JSON on: processor time and memory. Half have windows, half
//! have events; each has its own times, a zone of many, an exception and a calendar of 20 days.

use std::time::Duration;

use anyhow::Result;
use jiff::Timestamp;
use nix::time::{ClockId, clock_gettime};
use serde_json::json;
use shared::schedule::api::PowerSchedule;
use shared::schedule::calendar::parse;
use shared::schedule::timetable::Timetable;
use testbed::bench::table::Table;
use testbed::process;

const SCHEDULES: usize = 10_000;
const ZONES: [&str; 8] = [
    "Europe/Berlin",
    "America/New_York",
    "America/Los_Angeles",
    "Asia/Kolkata",
    "Asia/Tokyo",
    "Australia/Sydney",
    "America/Sao_Paulo",
    "UTC",
];

fn object(number: usize) -> String {
    let (hour, minute) = (5 + number % 5, number % 60);
    let times = if number.is_multiple_of(2) {
        json!({ "awake": [
            { "days": ["Mon-Fri"], "from": format!("{hour:02}:{minute:02}"), "to": "18:00" },
            { "days": ["Sat"], "from": "10:00", "to": "14:00" },
        ] })
    } else {
        json!({ "events": [
            { "cron": format!("{minute} {hour} * * 1-5"), "power": "Awake" },
            { "cron": format!("{minute} 19 * * *"), "power": "Sleep" },
        ] })
    };
    let mut object = json!({
        "apiVersion": "hibernate.sh/v1alpha1", "kind": "PowerSchedule",
        "metadata": { "name": format!("schedule-{number}"), "namespace": format!("team-{}", number % 100) },
        "spec": {
            "timeZone": ZONES[number % ZONES.len()], "targets": { "selector": { "matchLabels": { "env": "dev" } } },
            "exceptions": [{ "from": "2026-12-24", "to": "2027-01-02", "power": "Sleep", "reason": "Christmas" }],
            "calendars": [{ "configMap": "holidays", "key": "days", "power": "Sleep" }],
        },
    });
    if let Some((spec, times)) = object["spec"].as_object_mut().zip(times.as_object()) {
        spec.extend(times.clone());
    }
    object.to_string()
}

fn processor() -> Result<Duration> {
    Ok(clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID)?.into())
}

/// Reads them all, and keeps them ready to answer.
pub fn run(table: &mut Table) -> Result<()> {
    let texts: Vec<String> = (0..SCHEDULES).map(object).collect();
    let days: Vec<String> = (1..=20).map(|day| format!("2027-{:02}-{day:02} day {day}", 1 + day % 12)).collect();
    let days = days.join("\n");
    let now: Timestamp = "2026-11-27T12:00:00Z".parse()?;
    let own = i32::try_from(std::process::id())?;
    let memory = || process::memory(own).map(|[_, now, _]| now);
    let (before, begun) = (memory()?, processor()?);
    let mut kept = Vec::with_capacity(SCHEDULES);
    let mut edges = 0;
    for text in &texts {
        let schedule: PowerSchedule = serde_json::from_str(text)?;
        let timetable = Timetable::of(&schedule.spec.0, &[parse(&days)?])
            .map_err(|faults| anyhow::anyhow!("{}: {faults:?}", schedule.metadata.name.unwrap_or_default()))?;
        edges += timetable.next(now, 3).len() + usize::from(timetable.state(now).is_some());
        kept.push(timetable);
    }
    let (took, grew) = (processor()?.saturating_sub(begun), memory()? - before);
    eprintln!("bench: {edges} edges and states of {} schedules", kept.len());
    table.add("cold", "seconds of one core, 10,000 schedules", None, Some(1.0), took.as_secs_f64());
    table.add("cold", "MB of the timetables", None, Some(30.0), grew);
    Ok(())
}
