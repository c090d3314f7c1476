//! One target: its fields, its last days, its Events, and the object itself.

use askama::Template;
use hub::{HubClient, Resource};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use shared::kinds::Key;
use shared::object::text;
use shared::savings::ledger::{DAY, MAX_DAYS};
use shared::text::{is_unsafe, sanitize};
use view::EVENT;
use view::target::TargetState;

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
    events: Vec<Entry>,
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

struct Entry {
    at: String,
    reason: String,
    text: String,
    is_warning: bool,
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
    let resource = Resource::preferred(&target.row.kind);
    let hub = site.hub();
    let (object, events) = tokio::join!(hub.get(resource, &key.1, &key.2), events(&hub, resource.kind.kind, &key));
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
    let fragment = Fragment {
        id: &request.id,
        name: sanitize(&format!("{}/{}", key.0, key.2)),
        fields: fields(&target),
        days: days(&target, now),
        events,
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

/// The days of the ledger, the newest last; none without one.
fn days(target: &TargetState, now: Timestamp) -> Vec<Day> {
    let Some(history) = &target.record.sleep_history else { return Vec::new() };
    let days = history.days(MAX_DAYS, now);
    let day = |(x, (date, seconds)): (usize, (_, u64))| {
        let height = seconds * 48 / DAY;
        Day { x: x * 20, y: 48 - height, height, date: format!("{date}"), hours: shared::duration::hours(seconds) }
    };
    days.into_iter().enumerate().map(day).collect()
}

/// The newest Events about an object. Those about one without a namespace are in `default`.
async fn events(hub: &HubClient, kind: &str, (_, namespace, name): &Key) -> Result<Vec<Entry>, String> {
    let fields = format!("involvedObject.kind={kind},involvedObject.name={name}");
    let place = if namespace.is_empty() { "default" } else { namespace };
    let found = hub.list(Resource::preferred(&EVENT), Some(place), &fields, "").await;
    let mut found = found.map_err(|error| sanitize(&error))?.items;
    let at = |event: &Value| {
        let times = ["/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
        times.map(|path| text(event, path)).into_iter().find(|text| !text.is_empty()).unwrap_or_default().to_owned()
    };
    found.sort_by_key(|event| std::cmp::Reverse(at(event)));
    let entry = |event: Value| Entry {
        at: sanitize(&at(&event)),
        reason: sanitize(text(&event, "/reason")),
        text: sanitize(text(&event, "/message")),
        is_warning: text(&event, "/type") == "Warning",
    };
    Ok(found.into_iter().take(MAX_EVENTS).map(entry).collect())
}

/// The object, without what only servers need.
fn yaml(mut object: Value) -> String {
    if let Some(metadata) = object.pointer_mut("/metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
    let text = serde_saphyr::to_string(&object).unwrap_or_else(|error| error.to_string());
    let shown = text.chars().map(|c| if is_unsafe(c) && c != '\n' { ' ' } else { c });
    shown
        .scan(0, |bytes, c| {
            *bytes += c.len_utf8();
            (*bytes <= MAX_YAML).then_some(c)
        })
        .collect()
}
