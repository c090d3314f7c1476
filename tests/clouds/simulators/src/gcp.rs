//! Compute Engine, as its discovery document describes it.

use regex::Regex;
use serde_json::{Map, Value, json};

use crate::credentials::{PROJECT, is_signed};
use crate::engine::{Effect, Engine, Machine, Moved, Words};
use crate::{Answer, Call};

pub(crate) const WORDS: Words =
    Words { running: "RUNNING", starting: "STAGING", stopping: "STOPPING", stopped: "TERMINATED" };

/// What each call may be asked with.
const LIST: &[&str] = &["filter", "fields", "maxResults", "pageToken", "alt", "prettyPrint"];
const STOP: &[&str] = &["requestId", "discardLocalSsd", "alt", "prettyPrint"];
const GET: &[&str] = &["fields", "alt", "prettyPrint"];

pub(crate) fn name(call: &mut Call) {
    let (name, machine) = match call.segments()[..] {
        ["compute", "v1", "projects", _, "aggregated", "instances"] => ("list", ""),
        ["compute", "v1", "projects", _, "zones", _, "instances", machine, "stop"] => ("stop", machine),
        ["compute", "v1", "projects", _, "zones", _, "instances", machine, "start"] => ("start", machine),
        ["compute", "v1", "projects", _, "zones", _, "instances", machine, "resume"] => ("resume", machine),
        ["compute", "v1", "projects", _, "zones", _, "operations", _] => ("operation", ""),
        _ => return,
    };
    (call.machine, call.name) = (machine.to_owned(), name);
}

pub(crate) fn error(status: u16, code: &str, message: &str) -> Answer {
    let errors = json!([{"message": message, "domain": "global", "reason": code}]);
    let body = json!({"error": {"code": status, "message": message, "errors": errors}});
    Answer { status, headers: Vec::new(), body: Some(body) }
}

pub(crate) fn answer(engine: &mut Engine, call: &Call, effect: Option<Effect>) -> Answer {
    let known = match call.name {
        "list" => LIST,
        "stop" | "start" | "resume" => STOP,
        _ => GET,
    };
    if let Some(unknown) = call.query.keys().find(|key| !known.contains(&key.as_str())) {
        return error(400, "invalidParameter", &format!("Invalid JSON payload received. Unknown name {unknown:?}"));
    }
    if !is_signed(&call.token) {
        return error(401, "authError", "Request had invalid authentication credentials.");
    }
    if call.path.get(3).is_none_or(|project| project != PROJECT) {
        return error(403, "forbidden", "Required 'compute.instances.list' permission for the project");
    }
    if !engine.admit("project", 1500.0, 1500.0) {
        return error(403, "rateLimitExceeded", "Quota exceeded for quota metric 'Queries'");
    }
    match (call.name, call.segments().last().copied()) {
        ("list", _) => list(engine, call, effect.as_ref()),
        ("operation", Some(id)) => match engine.operation(id) {
            None => error(404, "notFound", "The resource was not found"),
            Some((false, _)) => Answer::ok(json!({"name": id, "status": "RUNNING"})),
            Some((true, None)) => Answer::ok(json!({"name": id, "status": "DONE"})),
            Some((true, Some((code, message)))) => {
                let errors = json!({"errors": [{"code": code, "message": message}]});
                Answer::ok(json!({"name": id, "status": "DONE", "error": errors, "httpErrorStatusCode": 503}))
            }
        },
        ("start" | "stop" | "resume", _) => change(engine, call, effect),
        _ => error(404, "notFound", "no such method"),
    }
}

fn change(engine: &mut Engine, call: &Call, effect: Option<Effect>) -> Answer {
    let machine = engine.machines.get(&call.machine);
    let is_suspended = machine.is_some_and(|machine| machine.word == "SUSPENDED");
    let zone = call.path.get(5).map_or("", String::as_str);
    if machine.is_none_or(|machine| zone_of(machine) != zone) {
        return error(404, "notFound", &format!("The resource '{}' was not found in {zone}", call.machine));
    }
    if call.name == "stop" && machine.is_some_and(|m| m.local_ssd) && !call.query.contains_key("discardLocalSsd") {
        let message = "VM has a Local SSD attached but an undefined value for `discard-local-ssd`";
        return error(400, "badRequest", message);
    }
    if (call.name == "resume") != (is_suspended && call.name != "stop") {
        let message = format!("Instance {} is not in a state for {}", call.machine, call.name);
        return error(400, "resourceNotReady", &message);
    }
    match engine.move_to(&call.machine, call.name != "stop", effect) {
        Moved::NotFound => error(404, "notFound", "The resource was not found"),
        Moved::Busy(word) => error(400, "resourceNotReady", &format!("The resource is not ready: {word}")),
        Moved::Accepted(id) => {
            Answer::ok(json!({"kind": "compute#operation", "name": id, "status": "PENDING", "zone": zone}))
        }
    }
}

fn zone_of(machine: &Machine) -> String {
    format!("us-east1-{}", machine.zone)
}

fn list(engine: &Engine, call: &Call, effect: Option<&Effect>) -> Answer {
    let filter = call.parameter("filter");
    let pattern = filter.strip_prefix("name eq \"").and_then(|rest| rest.strip_suffix('"'));
    let regex = pattern.map_or_else(|| Regex::new(".*"), |pattern| Regex::new(&format!("^(?:{pattern})$")));
    let (Ok(regex), true) = (regex, filter.is_empty() || pattern.is_some()) else {
        return error(400, "invalid", &format!("Invalid value for field 'filter': {filter:?}"));
    };
    let is_partial = effect == Some(&Effect::Partial);
    let is_silent = |machine: &Machine| is_partial && machine.zone == "b";
    let all: Vec<&Machine> = engine.machines.values().filter(|m| regex.is_match(&m.name) && !is_silent(m)).collect();
    let most = call.parameter("maxResults").parse().unwrap_or(500);
    let (page, next) = engine.page(&all, call.parameter("pageToken"), most);
    let fields = call.parameter("fields");
    let wanted = fields.split_once("instances(").and_then(|(_, rest)| rest.split(')').next());
    let mut items = Map::new();
    for zone in ["a", "b", "c"] {
        let of_zone: Vec<Value> = page.iter().filter(|m| m.zone == zone).map(|m| shown(m, call, wanted)).collect();
        let none = json!({"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "no results"}});
        let silent = json!({"warning": {"code": "UNREACHABLE", "message": "not reachable"}});
        let scope = match () {
            () if is_partial && zone == "b" => silent,
            () if of_zone.is_empty() => none,
            () => json!({"instances": of_zone}),
        };
        items.insert(format!("zones/us-east1-{zone}"), scope);
    }
    let mut body = json!({"items": items});
    if let Some(next) = next {
        body["nextPageToken"] = next.to_string().into();
    }
    Answer::ok(body)
}

/// An instance, with the fields that were asked for.
fn shown(machine: &Machine, call: &Call, wanted: Option<&str>) -> Value {
    let zone = format!("{}/compute/v1/projects/{PROJECT}/zones/{}", call.base, zone_of(machine));
    let mut shown = json!({"id": "1", "name": machine.name, "zone": zone, "status": machine.word,
                           "creationTimestamp": "2026-01-01T00:00:00.000-08:00",
                           "lastStartTimestamp": format!("2026-01-01T00:{:02}:00.000-08:00", machine.starts.min(59)),
                           "lastStopTimestamp": format!("2026-01-02T00:{:02}:00.000-08:00", machine.stops.min(59))});
    if !machine.owner.is_empty() {
        shown["labels"] = json!({format!("kubernetes-io-cluster-{}", machine.owner): "owned"});
    }
    if let (Some(wanted), Some(fields)) = (wanted, shown.as_object_mut()) {
        fields.retain(|field, _| wanted.split(',').any(|wanted| wanted == field));
    }
    shown
}
