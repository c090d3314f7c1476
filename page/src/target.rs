//! One target: fields, sleep per day, timeline and YAML.

use askama::Template;
use hub::{HubClient, Resource};
use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::TimeZone;
use serde::Deserialize;
use serde_json::{Value, json};
use shared::annotation::format;
use shared::duration::hours;
use shared::kinds::Key;
use shared::object::text;
use shared::savings::ledger::{DAY, MAX_DAYS};
use shared::text::{is_unsafe, sanitize};
use view::target::TargetState;
use view::{EVENT, times};

use crate::Site;
use crate::cache::key;

/// Events that are shown, the newest first.
const MAX_EVENTS: usize = 50;
/// Bytes of YAML that are shown.
const MAX_YAML: usize = 256 * 1024;

/// Which one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TargetRequest {
    id: String,
}

#[derive(Template)]
#[template(path = "target.html")]
struct Fragment<'a> {
    id: &'a str,
    name: String,
    fields: Vec<(String, String)>,
    days: Vec<Day>,
    /// The latest first.
    timeline: Vec<TimelineEntry>,
    error: String,
    yaml: String,
    read_only: bool,
}

/// A day of the chart: a bar of at most 24 hours.
struct Day {
    x: usize,
    y: u64,
    height: u64,
    date: String,
    hours: String,
}

/// An Event, a request, a change of state, or an upcoming change.
struct TimelineEntry {
    /// None if the Event has no valid time.
    at: Option<Timestamp>,
    title: String,
    text: String,
    /// `failed` of a Warning, `upcoming`, or nothing.
    class: &'static str,
}

impl TimelineEntry {
    fn new(at: Timestamp, now: Timestamp, title: &str, text: &str) -> Self {
        let class = if at > now { "upcoming" } else { "" };
        Self { at: Some(at), title: sanitize(title), text: sanitize(text), class }
    }
}

/// The fragment.
///
/// # Errors
/// When the page does not show such a target.
pub async fn html(site: &Site, request: &TargetRequest, now: Timestamp) -> Result<String, String> {
    let found = key(&request.id).and_then(|key| {
        let objects = site.cache.objects();
        objects.target(&key).cloned().map(|target| (key, target))
    });
    let (key, target) = found.ok_or("it does not exist any more")?;
    let hub = site.hub();
    let (object, events) = tokio::join!(target.object(&hub), events(&hub, target.row.kind.kind, &key));
    let mut errors: Vec<String> = Vec::new();
    let yaml = match object {
        Ok(object) => yaml(object),
        Err(error) => {
            errors.push(sanitize(&error));
            String::new()
        }
    };
    let events = events.unwrap_or_else(|why| {
        errors.push(why);
        Vec::new()
    });
    let history = target.record.sleep_history.as_ref();
    let asleep = history.map(|history| history.days(MAX_DAYS, now)).unwrap_or_default();
    let mut timeline: Vec<TimelineEntry> = recorded(&target, &asleep, now).into_iter().chain(events).collect();
    timeline.sort_by_key(|entry| std::cmp::Reverse(entry.at));
    let fragment = Fragment {
        id: &request.id,
        name: sanitize(&format!("{}/{}", key.0, key.2)),
        fields: fields(&target),
        days: days(&asleep),
        timeline,
        error: errors.join("; "),
        yaml,
        read_only: site.read_only,
    };
    fragment.render().map_err(|error| error.to_string())
}

/// The fields of `status -o json`.
fn fields(target: &TargetState) -> Vec<(String, String)> {
    let shown = |value: &Value| match value {
        Value::String(text) => sanitize(text),
        Value::Object(fields) => {
            let of = |(name, value): (&String, &Value)| {
                format!("{name}: {}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))
            };
            sanitize(&fields.iter().map(of).collect::<Vec<_>>().join(", "))
        }
        other => sanitize(other),
    };
    let record = json!(target.record);
    record.as_object().into_iter().flatten().map(|(name, value)| (name.clone(), shown(value))).collect()
}

/// The bars of days and their seconds asleep.
fn days(asleep: &[(Date, u64)]) -> Vec<Day> {
    let day = |(x, &(date, seconds)): (usize, &(Date, u64))| {
        let height = seconds * 48 / DAY;
        Day { x: x * 20, y: 48 - height, height, date: format!("{date}"), hours: hours(seconds) }
    };
    asleep.iter().enumerate().map(day).collect()
}

/// What the record of a target, its ledger and its schedule add to the timeline.
fn recorded(target: &TargetState, asleep: &[(Date, u64)], now: Timestamp) -> Vec<TimelineEntry> {
    let record = &target.record;
    let by = |name: &Option<String>| name.as_deref().map(|name| format!("by {name}")).unwrap_or_default();
    let request = [by(&record.requested_by), record.reason.clone().unwrap_or_default()];
    let request = request.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join(": ");
    let requested_at = record.requested_at.as_deref().and_then(format::time);
    let created = record.sleep_history.as_ref().map(|history| history.created);
    let due = |title: &str, at: Option<Timestamp>| {
        let is_due = at.is_some_and(|at| at <= now);
        if is_due { format!("{title} is due") } else { title.to_owned() }
    };
    let entries = [
        (created, "Created".to_owned(), String::new()),
        (requested_at, format!("{} requested", record.desired), request),
        (record.since, record.observed.clone(), String::new()),
        (record.fires_at, due("Sleep", record.fires_at), "by hibernateAfter".to_owned()),
        (times::wake_at(record), due("Wake", times::wake_at(record)), "by wake-at".to_owned()),
        (times::held_until(record, now), "Hold ends".to_owned(), by(&record.hold_awake_by)),
    ];
    let edges = record.schedule.iter().flat_map(|schedule| &schedule.next).filter(|edge| edge.at > now);
    let edges = edges.map(|edge| (Some(edge.at), edge.power.clone(), format!("by schedule {}", times::name(record))));
    let step = record.step.as_ref().map(|step| {
        let title = if step.reason.is_empty() { "In progress" } else { &step.reason };
        let class = if step.failed { "failed" } else { "" };
        TimelineEntry { class, ..TimelineEntry::new(now, now, title, &step.message) }
    });
    let asleep = asleep.iter().filter(|(_, seconds)| *seconds > 0).filter_map(|&(date, seconds)| {
        let begin = date.to_zoned(TimeZone::UTC).ok()?.timestamp();
        Some(TimelineEntry::new(begin, now, &format!("Asleep {}", hours(seconds)), "on this day (UTC)"))
    });
    let all = entries.into_iter().chain(edges);
    let all = all.filter_map(|(at, title, text)| Some(TimelineEntry::new(at?, now, &title, &text)));
    all.chain(step).chain(asleep).collect()
}

/// The newest Events about an object. Those about one without a namespace are in `default`.
async fn events(hub: &HubClient, kind: &str, (_, namespace, name): &Key) -> Result<Vec<TimelineEntry>, String> {
    let fields = format!("involvedObject.kind={kind},involvedObject.name={name}");
    let place = if namespace.is_empty() { "default" } else { namespace };
    let found = hub.list(Resource::preferred(&EVENT), Some(place), &fields, "").await;
    let mut found = found.map_err(|error| sanitize(&error))?.items;
    let at = |event: &Value| {
        let times = ["/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
        times.map(|path| text(event, path)).into_iter().find(|text| !text.is_empty()).unwrap_or_default().to_owned()
    };
    found.sort_by_key(|event| std::cmp::Reverse(at(event)));
    let entry = |event: Value| TimelineEntry {
        at: format::time(&at(&event)),
        title: sanitize(text(&event, "/reason")),
        text: sanitize(text(&event, "/message")),
        class: if text(&event, "/type") == "Warning" { "failed" } else { "" },
    };
    Ok(found.into_iter().take(MAX_EVENTS).map(entry).collect())
}

/// The object, without what only servers need.
fn yaml(mut object: Value) -> String {
    if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    let text = serde_saphyr::to_string(&object).unwrap_or_else(|error| error.to_string());
    let mut shown: String = text.chars().map(|c| if is_unsafe(c) && c != '\n' { ' ' } else { c }).collect();
    shown.truncate(shown.floor_char_boundary(MAX_YAML));
    shown
}

#[cfg(test)]
mod tests {
    use shared::kinds::{CLUSTER_DEPLOYMENT, StepRecord};
    use view::target::Target;

    use super::*;

    #[test]
    fn the_timeline_has_requests_progress_sleep_and_upcoming_changes() {
        let object = json!({
            "metadata": { "namespace": "a", "name": "one", "creationTimestamp": "2026-11-01T00:00:00Z", "annotations": {
                "hibernate.sh/requested-by": "alice", "hibernate.sh/requested-at": "2026-11-20T18:00:00Z",
                "hibernate.sh/reason": "night\u{202e}", "hibernate.sh/wake-at": "2026-11-23T08:00:00Z",
                "hibernate.sh/hold-awake-until": "2026-11-19T00:00:00Z",
            } },
            "spec": { "clusterName": "one", "baseDomain": "example.org", "platform": { "aws": { "region": "r" } }, "powerState": "Hibernating" },
        });
        let mut target = Target::new(&CLUSTER_DEPLOYMENT, "v1", object).state().unwrap();
        target.record.step = Some(StepRecord::waiting("for one machine".to_owned()));
        target.record.sleep_history.as_mut().unwrap().asleep_since = Some("2026-11-20T12:00:00Z".parse().unwrap());
        let now = "2026-11-21T00:00:00Z".parse().unwrap();
        let asleep = target.record.sleep_history.as_ref().unwrap().days(MAX_DAYS, now);
        let timeline = recorded(&target, &asleep, now);
        let line = |entry: &TimelineEntry| format!("{} {} {}", entry.class, entry.title, entry.text);
        let lines: Vec<String> = timeline.iter().map(line).collect();
        for expected in [
            " Hibernating requested by alice: night",
            " In progress for one machine",
            " Asleep 12h on this day (UTC)",
            "upcoming Wake by wake-at",
        ] {
            assert!(lines.iter().any(|line| line == expected), "{expected}: {lines:?}");
        }
        assert!(!lines.iter().any(|line| line.contains("Hold")), "a hold that has passed: {lines:?}");
    }
}
