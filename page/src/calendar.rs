//! Fourteen days of schedules: when targets sleep, by a pattern and not by a color alone; the same edges as a table.

use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use futures::{StreamExt as _, stream};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use shared::annotation::format;
use shared::duration::{after, before};
use shared::power::Power;
use shared::schedule::api::ScheduledPower;
use shared::schedule::timetable::{Edge, Source, Timetable};
use shared::schedule::zone::zone;
use shared::text::sanitize;
use view::age::local;
use view::calendar::{CalendarNamespace, timetable};
use view::schedule::ScheduleState;
use view::{CONCURRENCY, Item};

use crate::Site;
use crate::cache::id;

const DAYS: u16 = 14;
/// One of them.
const DAY: Duration = Duration::from_hours(24);
/// Units of a day in the drawing.
const WIDTH: i64 = 72;
/// Units of a schedule, and of the head.
const HEIGHT: usize = 26;
/// Edges and holds that are listed.
const MAX_LINES: usize = 500;
/// Schedules that are drawn.
const MAX_ROWS: usize = 100;

#[derive(Template)]
#[template(path = "calendar.html")]
struct Fragment {
    width: i64,
    height: usize,
    days: Vec<Label>,
    rows: Vec<ScheduleRow>,
    edges: Vec<Next>,
    holds: Vec<(String, String)>,
    errors: Vec<String>,
    more: usize,
    read_only: bool,
}

/// A day in the head of the drawing.
struct Label {
    x: i64,
    text: String,
}

/// A schedule.
struct ScheduleRow {
    id: String,
    name: String,
    zone: String,
    suspended: bool,
    y: usize,
    spans: Vec<Span>,
}

/// A bar of the drawing.
struct Span {
    x: i64,
    width: i64,
    /// `sleep`, `exception` (of a calendar or an exception), or `lead`.
    class: &'static str,
    text: String,
}

/// An edge.
struct Next {
    at: Timestamp,
    name: String,
    utc: String,
    local: String,
    power: String,
    source: String,
}

/// The fragment.
///
/// # Errors
/// When it cannot be rendered.
pub async fn html(site: &Site, now: Timestamp) -> Result<String, String> {
    let schedules: Vec<ScheduleState> = {
        let objects = site.cache.objects();
        let schedule = |item: &Item| if let Item::Schedule(state) = item { Some((**state).clone()) } else { None };
        objects.items().filter_map(schedule).collect()
    };
    let holds = {
        let objects = site.cache.objects();
        let hold = |target: &view::target::TargetState| {
            let name = format!("{}/{}", target.record.namespace, target.record.name);
            Some((sanitize(&name), sanitize(&view::times::hold(&target.record, now)?)))
        };
        objects.targets().filter_map(hold).take(MAX_LINES).collect()
    };
    let more = schedules.len().saturating_sub(MAX_ROWS);
    let begin = now.to_zoned(TimeZone::UTC).start_of_day().map_or(now, |day| day.timestamp());
    let end = after(begin, DAY * u32::from(DAYS));
    let (hub, namespace) = (site.hub(), Arc::new(CalendarNamespace::new(None)));
    let read = schedules.into_iter().take(MAX_ROWS).map(move |state| {
        let (hub, namespace) = (hub.clone(), Arc::clone(&namespace));
        async move {
            let timetable = timetable(&hub, &state, &namespace).await;
            (state, timetable)
        }
    });
    let (mut rows, mut edges, mut errors) = (Vec::new(), Vec::new(), Vec::new());
    let read: Vec<_> = stream::iter(read).buffered(CONCURRENCY).collect().await;
    for (state, timetable) in &read {
        match timetable {
            Ok(timetable) => {
                let found = timetable.edges(begin, end);
                rows.push(drawn(state, timetable, &found, (begin, end), HEIGHT * (rows.len() + 1)));
                if !state.spec().suspend {
                    edges.extend(found.iter().filter(|edge| edge.at > now).map(|edge| next(state, timetable, edge)));
                }
            }
            Err(error) => errors.push(sanitize(error)),
        }
    }
    edges.sort_by_key(|edge: &Next| edge.at);
    edges.truncate(MAX_LINES);
    let label = |day: u16| {
        let at = after(begin, DAY * u32::from(day));
        Label { x: i64::from(day) * WIDTH, text: at.strftime("%a %d").to_string() }
    };
    let fragment = Fragment {
        width: i64::from(DAYS) * WIDTH,
        height: HEIGHT * (rows.len() + 1),
        days: (0..DAYS).map(label).collect(),
        rows,
        edges,
        holds,
        errors,
        more,
        read_only: site.read_only,
    };
    fragment.render().map_err(|error| error.to_string())
}

fn drawn(
    state: &ScheduleState,
    timetable: &Timetable,
    edges: &[Edge],
    (begin, end): (Timestamp, Timestamp),
    y: usize,
) -> ScheduleRow {
    let x = |at: Timestamp| (at.as_second() - begin.as_second()) * WIDTH / 86_400;
    let class = |source: Source| if matches!(source, Source::Override(_)) { "exception" } else { "sleep" };
    let mut asleep = (timetable.state(begin) == Some(Power::Hibernating)).then_some((begin, "sleep"));
    let mut spans = Vec::new();
    let mut add = |(from, class): (Timestamp, &'static str), to: Timestamp| {
        let zone = &state.spec().time_zone;
        let text = format!("asleep from {} to {}", local(from, zone), local(to, zone));
        spans.push(Span { x: x(from), width: (x(to) - x(from)).max(1), class, text });
    };
    for edge in edges {
        match (edge.power, asleep) {
            (Power::Hibernating, None) => asleep = Some((edge.at, class(edge.source))),
            (Power::Running, Some(since)) => {
                add(since, edge.at);
                asleep = None;
            }
            _ => {}
        }
    }
    if let Some(since) = asleep {
        add(since, end);
    }
    // A lead of a day at most may have begun before the first one.
    let early = timetable.edges(before(begin, DAY), begin);
    for edge in early.iter().filter(|edge| edge.nominal > begin).chain(edges) {
        if let Some(text) = ready(state, edge) {
            let from = edge.at.max(begin);
            let width = (x(edge.nominal.min(end)) - x(from)).max(1);
            spans.push(Span { x: x(from), width, class: "lead", text });
        }
    }
    let key = Item::Schedule(Box::new(state.clone())).key();
    ScheduleRow {
        id: id(&key),
        name: name(state),
        zone: sanitize(&state.spec().time_zone),
        suspended: state.spec().suspend,
        y,
        spans,
    }
}

fn next(state: &ScheduleState, timetable: &Timetable, edge: &Edge) -> Next {
    let ready = ready(state, edge).map(|text| format!(", {text}")).unwrap_or_default();
    let day = zone(&state.spec().time_zone).map(|zone| edge.at.to_zoned(zone).strftime("%a ").to_string());
    Next {
        at: edge.at,
        name: name(state),
        utc: format::seconds(edge.at),
        local: day.unwrap_or_default() + &local(edge.at, &state.spec().time_zone),
        power: ScheduledPower::from(edge.power).to_string() + &ready,
        source: sanitize(&timetable.describe(edge.source, state.spec())),
    }
}

/// `ready at 07:30` of a wake that begins earlier.
fn ready(state: &ScheduleState, edge: &Edge) -> Option<String> {
    (edge.nominal > edge.at).then(|| format!("ready at {}", local(edge.nominal, &state.spec().time_zone)))
}

fn name(state: &ScheduleState) -> String {
    let slash = if state.namespace().is_empty() { "" } else { "/" };
    sanitize(&format!("{}{slash}{}", state.namespace(), state.name()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::kinds::SCHEDULE;

    use super::*;

    #[test]
    fn a_lead_is_drawn_as_far_as_it_is_in_the_days() {
        let object = json!({
            "metadata": { "name": "night", "namespace": "team" },
            "spec": {
                "timeZone": "UTC", "targets": { "all": true }, "awake": [{ "from": "01:00", "to": "18:00" }], "lead": "2h",
            },
        });
        let state = ScheduleState::read(&SCHEDULE, object).unwrap();
        let timetable = Timetable::of(state.spec(), &[]).unwrap();
        let begin: Timestamp = "2026-11-27T00:00:00Z".parse().unwrap();
        let end = after(begin, DAY * 2);
        let row = drawn(&state, &timetable, &timetable.edges(begin, end), (begin, end), 0);
        let spans: Vec<_> = row.spans.iter().map(|span| (span.class, span.x, span.width)).collect();
        let expected = [("sleep", 54, 15), ("sleep", 126, 15), ("lead", 0, 3), ("lead", 69, 6), ("lead", 141, 3)];
        assert_eq!(spans, expected);
    }
}
