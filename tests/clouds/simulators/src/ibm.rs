//! IBM Cloud VPC and IAM, as IBM's SDK describes them.

use serde_json::{Value, json};

use crate::credentials::API_KEY;
use crate::engine::{Effect, Engine, Machine, Moved, Words};
use crate::{Answer, Call};

pub(crate) const WORDS: Words =
    Words { running: "running", starting: "starting", stopping: "stopping", stopped: "stopped" };

/// Where the machines are.
const HOME: &str = "eu-de.iaas.cloud.ibm.com";

/// The regions.
const REGIONS: [&str; 2] = ["us-south", "eu-de"];

pub(crate) fn name(call: &mut Call) {
    let action = serde_json::from_slice::<Value>(&call.body).ok();
    let action = action.and_then(|body| body["type"].as_str().map(str::to_owned));
    let route = call.route();
    let route: Vec<&str> = route.iter().map(String::as_str).collect();
    let (name, machine) = match route[..] {
        ["POST", "identity", "token"] => ("token", ""),
        ["GET", "v1", "regions", _] => ("region", ""),
        ["GET", "v1", "instances"] => ("list", ""),
        ["GET", "v1", "instances", id] => ("get", id),
        ["POST", "v1", "instances", id, "actions"] => match action.as_deref() {
            Some("start") => ("start", id),
            Some("stop") => ("stop", id),
            _ => return,
        },
        _ => return,
    };
    (call.machine, call.name) = (machine.to_owned(), name);
}

pub(crate) fn error(status: u16, code: &str, message: &str) -> Answer {
    let body = json!({"errors": [{"code": code, "message": message}], "trace": "t"});
    Answer::of(status, body)
}

pub(crate) fn answer(engine: &mut Engine, call: &Call, effect: Option<Effect>) -> Answer {
    let field = |name: &str| call.form.get(name).map_or("", String::as_str);
    let host = match call.name {
        "token" => "iam.cloud.ibm.com",
        "region" => "us-south.iaas.cloud.ibm.com",
        _ => HOME,
    };
    if call.cloud_host().is_some_and(|asked| asked != host) {
        return error(404, "not_found", "no such service at this host");
    }
    if call.name == "token" {
        let is_right = field("grant_type") == "urn:ibm:params:oauth:grant-type:apikey" && field("apikey") == API_KEY;
        if is_right {
            return Answer::ok(engine.grant());
        }
        let why = json!({"errorCode": "BXNIM0415E", "errorMessage": "Provided API key could not be found."});
        return Answer::of(400, why);
    }
    if !engine.is_granted(&call.token) {
        return error(401, "not_authorized", "The request is not authorized.");
    }
    if call.parameter("version").len() != 10 || call.parameter("generation") != "2" {
        return error(400, "bad_field", "version and generation=2 are required");
    }
    match (call.name, call.segments().last().copied()) {
        ("region", Some(region)) if REGIONS.contains(&region) => {
            let home = call.cloud_host().map_or_else(|| call.base.clone(), |_| format!("https://{HOME}"));
            let endpoint = if let Some(Effect::ForeignLink { to }) = effect { to } else { home };
            Answer::ok(json!({"name": region, "endpoint": endpoint, "href": call.base, "status": "available"}))
        }
        ("list", _) => list(engine, call, effect.as_ref()),
        ("get", _) => match engine.machines.get(&call.machine) {
            Some(machine) => Answer::ok(shown(machine)),
            None => error(404, "not_found", "Instance not found"),
        },
        ("start" | "stop", _) => match engine.move_to(&call.machine, call.name == "start", effect) {
            Moved::NotFound => error(404, "not_found", "Instance not found"),
            Moved::Busy(word) => error(409, "instance_not_ready", &format!("The instance is {word}")),
            moved @ (Moved::There | Moved::Accepted(_)) => {
                let id = if let Moved::Accepted(id) = moved { id } else { "done".to_owned() };
                let created = "2026-01-01T00:00:00Z";
                let body =
                    json!({"id": id, "href": call.base, "created_at": created, "status": "pending", "type": call.name});
                Answer::of(201, body)
            }
        },
        _ => error(404, "not_found", "no such resource"),
    }
}

fn shown(machine: &Machine) -> Value {
    let word = machine.shown();
    let is_stopped = word == WORDS.stopped;
    let reasons: Vec<Value> = machine
        .reason
        .iter()
        .filter(|_| is_stopped)
        .map(|(code, message)| json!({"code": code, "message": message}))
        .collect();
    json!({"id": machine.id, "name": machine.name, "status": word, "vpc": {"name": machine.vpc}, "status_reasons": reasons,
           "profile": {"name": "bx2-4x16"},
           "startable": !machine.blocked, "lifecycle_state": "stable", "zone": {"name": format!("eu-de-{}", machine.zone)}})
}

fn list(engine: &Engine, call: &Call, effect: Option<&Effect>) -> Answer {
    if effect == Some(&Effect::Partial) && call.query.contains_key("start") {
        return error(503, "service_error", "The zone does not answer.");
    }
    if let Some(unknown) = call.unknown(&["version", "generation", "limit", "start", "name", "vpc.name"]) {
        return error(400, "bad_field", &format!("unknown parameter {unknown}"));
    }
    let is_wanted = |machine: &&Machine| {
        let is = |parameter: &str, value: &str| call.query.get(parameter).is_none_or(|wanted| wanted == value);
        is("name", &machine.name) && is("vpc.name", &machine.vpc)
    };
    let all: Vec<&Machine> = engine.machines.values().filter(is_wanted).collect();
    let limit = call.parameter("limit").parse().unwrap_or(50);
    if !(1..=100).contains(&limit) {
        return error(400, "bad_field", "limit is from 1 to 100");
    }
    let (page, next) = engine.page(&all, call.parameter("start"), limit);
    let link = |start: &str| json!({"href": format!("{}/v1/instances?limit={limit}{start}", call.base)});
    let shown: Vec<Value> = page.iter().map(|machine| shown(machine)).collect();
    let mut body = json!({"first": link(""), "limit": limit, "total_count": all.len(), "instances": shown});
    if let Some(next) = next {
        let base = if let Some(Effect::ForeignLink { to }) = effect { to } else { &call.base };
        body["next"] = json!({"href": format!("{base}/v1/instances?limit={limit}&start={next}")});
    }
    Answer::ok(body)
}
