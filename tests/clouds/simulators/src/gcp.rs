//! Compute Engine, as its discovery document describes it.

use jiff::Timestamp;
use regex::Regex;
use serde_json::{Map, Value, json};

use crate::credentials::{PROJECT, is_signed};
use crate::engine::{Disks, Effect, Engine, Machine, Moved, Words};
use crate::{Answer, Call};

pub(crate) const WORDS: Words =
    Words { running: "RUNNING", starting: "STAGING", stopping: "STOPPING", stopped: "TERMINATED" };

/// What each call may be asked with.
const LIST: &[&str] = &["filter", "fields", "maxResults", "pageToken", "alt", "prettyPrint"];
const STOP: &[&str] = &["discardLocalSsd", "alt", "prettyPrint"];
const OTHER: &[&str] = &["fields", "alt", "prettyPrint"];

pub(crate) fn name(call: &mut Call) {
    let route = call.route();
    let route: Vec<&str> = route.iter().map(String::as_str).collect();
    let (name, machine) = match route[..] {
        ["GET", "compute", "v1", "projects", _, "aggregated", "instances"] => ("list", ""),
        ["GET", "compute", "v1", "projects", _, "zones", _, "operations", _] => ("operation", ""),
        ["POST", "compute", "v1", "projects", _, "zones", _, "instances", machine, verb] => match verb {
            "stop" => ("stop", machine),
            "start" => ("start", machine),
            "resume" => ("resume", machine),
            _ => return,
        },
        _ => return,
    };
    (call.machine, call.name) = (machine.to_owned(), name);
}

pub(crate) fn error(status: u16, code: &str, message: &str) -> Answer {
    let errors = json!([{"message": message, "domain": "global", "reason": code}]);
    let body = json!({"error": {"code": status, "message": message, "errors": errors}});
    Answer::of(status, body)
}

pub(crate) fn answer(engine: &mut Engine, call: &Call, effect: Option<Effect>) -> Answer {
    let known = match call.name {
        "list" => LIST,
        "stop" => STOP,
        _ => OTHER,
    };
    if let Some(unknown) = call.unknown(known) {
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
    if call.name == "stop"
        && machine.is_some_and(|m| m.disks == Disks::LocalSsd)
        && !call.query.contains_key("discardLocalSsd")
    {
        let message = "VM has a Local SSD attached but an undefined value for `discard-local-ssd`";
        return error(400, "badRequest", message);
    }
    if (call.name == "resume") != (is_suspended && call.name != "stop") {
        let message = format!("Instance {} is not in a state for {}", call.machine, call.name);
        return error(400, "resourceNotReady", &message);
    }
    match engine.move_to(&call.machine, call.name != "stop", effect) {
        Moved::NotFound => error(404, "notFound", "The resource was not found"),
        Moved::There => Answer::empty(304),
        Moved::Busy(word) => error(400, "resourceNotReady", &format!("The resource is not ready: {word}")),
        Moved::Accepted(id) => {
            Answer::ok(json!({"kind": "compute#operation", "name": id, "status": "PENDING", "zone": zone}))
        }
    }
}

/// What `fields` asks for.
struct Mask<'a>(&'a str);

impl<'a> Mask<'a> {
    fn has(&self, path: &str) -> bool {
        self.0.is_empty() || self.0.split([',', '(', ')']).any(|field| field == path)
    }

    fn of_instance(&self) -> Option<Vec<&'a str>> {
        let (_, fields) = self.0.split_once("items/*/instances(")?;
        Some(fields.split(')').next()?.split(',').map(|field| field.split('/').next().unwrap_or(field)).collect())
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
    let mask = Mask(call.parameter("fields"));
    // A zone that does not answer is named in one of two ways.
    let (by_warning, by_list) = (is_partial && next.is_some(), is_partial && next.is_none());
    let mut items = Map::new();
    for zone in ["a", "b", "c"] {
        let of_zone = page.iter().filter(|m| m.zone == zone);
        let of_zone: Vec<Value> = of_zone.map(|m| shown(m, call, mask.of_instance().as_deref())).collect();
        let mut scope = json!({});
        if by_warning && zone == "b" {
            scope["warning"] = json!({"code": "UNREACHABLE", "message": "not reachable"});
        } else if of_zone.is_empty() {
            scope["warning"] = json!({"code": "NO_RESULTS_ON_PAGE", "message": "no results"});
        } else {
            scope["instances"] = json!(of_zone);
            if let Some(Effect::Warning { code }) = effect {
                scope["warning"] = json!({"code": code, "message": "a warning"});
            }
        }
        if let Some(scope) = scope.as_object_mut() {
            scope.retain(|field, _| mask.has(&format!("items/*/{field}")));
        }
        items.insert(format!("zones/us-east1-{zone}"), scope);
    }
    let mut body = json!({"items": items});
    if by_list {
        body["unreachables"] = json!(["zones/us-east1-b"]);
    }
    if let Some(next) = next {
        body["nextPageToken"] = next.to_string().into();
    }
    if let Some(body) = body.as_object_mut() {
        body.retain(|field, _| field == "items" || mask.has(field));
    }
    Answer::ok(body)
}

#[expect(clippy::cast_possible_truncation, reason = "whole seconds")]
fn started(machine: &Machine) -> String {
    match machine.started as i64 {
        0 => "2026-01-01T00:00:00.000-08:00".to_owned(),
        seconds => Timestamp::from_second(seconds).map(|at| at.to_string()).unwrap_or_default(),
    }
}

/// An instance, with the fields that were asked for.
fn shown(machine: &Machine, call: &Call, wanted: Option<&[&str]>) -> Value {
    let zone = format!("{}/compute/v1/projects/{PROJECT}/zones/{}", call.base, zone_of(machine));
    let mut shown = json!({"id": "1", "name": machine.name, "zone": zone, "status": machine.shown(),
                           "creationTimestamp": "2026-01-01T00:00:00.000-08:00",
                           "lastStartTimestamp": started(machine),
                           "machineType": format!("{zone}/machineTypes/e2-standard-4"),
                           "lastStopTimestamp": format!("2026-01-02T00:{:02}:00.000-08:00", machine.stops.min(59))});
    let scratch = (machine.disks == Disks::LocalSsd).then(|| json!({"type": "SCRATCH", "index": 1}));
    shown["disks"] = [json!({"type": "PERSISTENT", "index": 0, "boot": true})].into_iter().chain(scratch).collect();
    if !machine.owner.is_empty() {
        shown["labels"] = json!({format!("kubernetes-io-cluster-{}", machine.owner): "owned"});
    }
    if let (Some(wanted), Some(fields)) = (wanted, shown.as_object_mut()) {
        fields.retain(|field, _| wanted.contains(&field.as_str()));
    }
    shown
}
