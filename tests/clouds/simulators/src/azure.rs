//! Azure Resource Manager and Entra, as Microsoft's SDK describes them.

use serde_json::{Value, json};

use crate::credentials::{CLIENT, SECRET, SUBSCRIPTION, TENANT};
use crate::engine::{Disks, Effect, Engine, Machine, Moved, Words};
use crate::{Answer, Call};

pub(crate) const WORDS: Words =
    Words { running: "running", starting: "starting", stopping: "deallocating", stopped: "deallocated" };

/// Who has machines.
const PROVIDER: &str = "Microsoft.Compute";

/// Hosts of the public cloud.
const HOSTS: [&str; 2] = ["login.microsoftonline.com", "management.azure.com"];

pub(crate) fn name(call: &mut Call) {
    let route = call.route();
    let route: Vec<&str> = route.iter().map(String::as_str).collect();
    let (name, machine) = match route[..] {
        ["POST", _, "oauth2", "v2.0", "token"] => ("token", ""),
        ["GET", "subscriptions", _, "providers", PROVIDER, "virtualMachines"] => {
            (if call.parameter("statusOnly") == "true" { "list" } else { "models" }, "")
        }
        ["GET", "subscriptions", _, "providers", PROVIDER, "locations", _, "operations", _] => ("operation", ""),
        ["GET", "subscriptions", _, "providers", PROVIDER, "locations", _, "results", _] => ("result", ""),
        [method, "subscriptions", _, "resourceGroups", _, "providers", PROVIDER, "virtualMachines", machine, verb] => {
            match (method, verb) {
                ("POST", "start") => ("start", machine),
                ("POST", "deallocate") => ("stop", machine),
                ("GET", "instanceView") => ("get", machine),
                _ => return,
            }
        }
        _ => return,
    };
    (call.machine, call.name) = (machine.to_owned(), name);
}

pub(crate) fn error(status: u16, code: &str, message: &str) -> Answer {
    Answer::of(status, json!({"error": {"code": code, "message": message}}))
}

pub(crate) fn answer(engine: &mut Engine, call: &Call, effect: Option<Effect>) -> Answer {
    let host = HOSTS[usize::from(call.name != "token")];
    if call.cloud_host().is_some_and(|asked| asked != host) {
        return error(404, "NotFound", "no such service at this host");
    }
    if call.name == "token" {
        return token(engine, call);
    }
    if !engine.is_granted(&call.token) {
        return error(401, "InvalidAuthenticationToken", "The access token is invalid.");
    }
    if call.parameter("api-version").is_empty() {
        return error(400, "MissingApiVersionParameter", "The api-version query parameter (?api-version=) is required");
    }
    if call.path.get(1).is_none_or(|subscription| subscription != SUBSCRIPTION) {
        return error(404, "SubscriptionNotFound", "The subscription could not be found.");
    }
    // For one principal: 250 reads, and 25 a second; 200 writes, and 10 a second.
    let (bucket, burst, a_minute) =
        if call.method == "GET" { ("reads", 250.0, 1500.0) } else { ("writes", 200.0, 600.0) };
    if !engine.admit(bucket, burst, a_minute) {
        return throttled();
    }
    match (call.name, call.segments().last().copied()) {
        ("list" | "models", _) => list(engine, call, effect.as_ref()),
        ("get", _) => match engine.machines.get(&call.machine) {
            Some(machine) => Answer::ok(view(machine.shown())),
            None => error(404, "ResourceNotFound", "The machine was not found."),
        },
        ("result", Some(id)) => match engine.operation(id) {
            None => error(404, "NotFound", "The operation was not found."),
            Some((false, _)) => Answer::empty(202),
            Some((true, None)) => Answer::empty(200),
            Some((true, Some((code, message)))) => error(409, &code, &message),
        },
        ("operation", Some(id)) => match engine.operation(id) {
            None => error(404, "NotFound", "The operation was not found."),
            Some((false, _)) => Answer::ok(json!({"name": id, "status": "InProgress"})),
            Some((true, None)) => Answer::ok(json!({"name": id, "status": "Succeeded"})),
            Some((true, Some((code, message)))) => {
                Answer::ok(json!({"name": id, "status": "Failed", "error": {"code": code, "message": message}}))
            }
        },
        ("start" | "stop", _) => change(engine, call, effect),
        _ => error(404, "InvalidResourceType", "no such call"),
    }
}

fn token(engine: &mut Engine, call: &Call) -> Answer {
    let field = |name: &str| call.form.get(name).map_or("", String::as_str);
    let refused = |status, code: &str, why: &str| {
        let body = json!({"error": code, "error_description": why, "error_codes": [7_000_215]});
        Answer::of(status, body)
    };
    if call.path.first().is_none_or(|tenant| tenant != TENANT) {
        return refused(400, "invalid_request", "AADSTS90002: Tenant not found.");
    }
    if field("grant_type") != "client_credentials" || field("scope") != "https://management.azure.com/.default" {
        return refused(
            400,
            "invalid_request",
            "AADSTS900144: The request body must contain a grant_type and a scope.",
        );
    }
    if field("client_id") != CLIENT || field("client_secret") != SECRET {
        return refused(401, "invalid_client", "AADSTS7000215: Invalid client secret provided.");
    }
    Answer::ok(engine.grant())
}

/// The status of a machine. An empty word is no power state.
fn view(word: &str) -> Value {
    let status = |kind: &str, word: &str| json!({"code": format!("{kind}/{word}")});
    match word {
        "" => json!({"statuses": [status("ProvisioningState", "succeeded")]}),
        "creating" | "deleting" => json!({"statuses": [status("ProvisioningState", word)]}),
        word => json!({"statuses": [status("ProvisioningState", "succeeded"), status("PowerState", word)]}),
    }
}

fn list(engine: &Engine, call: &Call, effect: Option<&Effect>) -> Answer {
    let with_states = call.name == "list";
    if effect == Some(&Effect::Partial) && call.query.contains_key("page") {
        return error(503, "ServerTimeout", "The request timed out.");
    }
    let all: Vec<&Machine> = engine.machines.values().collect();
    let (page, next) = engine.page(&all, call.parameter("page"), usize::MAX);
    let is_hidden = effect == Some(&Effect::NoPower);
    let word = |machine: &Machine| if is_hidden { String::new() } else { machine.shown().to_owned() };
    let shown = page.iter().map(|machine| {
        let provider = "providers/Microsoft.Compute/virtualMachines";
        let id = format!(
            "/subscriptions/{SUBSCRIPTION}/resourceGroups/{}/{provider}/{}",
            machine.group.to_uppercase(),
            machine.name
        );
        let mut disk = json!({"osType": "Linux", "createOption": "FromImage"});
        if machine.disks == Disks::EphemeralOs {
            disk["diffDiskSettings"] = json!({"option": "Local"});
        }
        let made_of = json!({
            "storageProfile": {"osDisk": disk}, "hardwareProfile": {"vmSize": "Standard_D4s_v5"},
            "provisioningState": "Succeeded",
        });
        let properties = if with_states { json!({"instanceView": view(&word(machine))}) } else { made_of };
        json!({"id": id, "name": machine.name, "location": "eastus", "properties": properties})
    });
    let mut body = json!({"value": shown.collect::<Vec<_>>()});
    if let Some(next) = next {
        let base = if let Some(Effect::ForeignLink { to }) = effect { to } else { &call.base };
        let version = call.parameter("api-version");
        let path = call.path.join("/");
        let states = if with_states { "&statusOnly=true" } else { "" };
        body["nextLink"] = format!("{base}/{path}?api-version={version}{states}&page={next}").into();
    }
    Answer::ok(body)
}

fn change(engine: &mut Engine, call: &Call, effect: Option<Effect>) -> Answer {
    let group = call.path.get(3).map_or("", String::as_str);
    if engine.machines.get(&call.machine).is_none_or(|machine| !machine.group.eq_ignore_ascii_case(group)) {
        return error(
            404,
            "ResourceNotFound",
            &format!("The Resource '{}' in group '{group}' was not found.", call.machine),
        );
    }
    let (machine, verb) = (format!("{} {}", call.name, call.machine), call.name.to_owned());
    if !engine.admit(&verb, 1500.0, 500.0) || !engine.admit(&machine, 12.0, 4.0) {
        return throttled();
    }
    if call.name == "stop"
        && engine.machines.get(&call.machine).is_some_and(|machine| machine.disks == Disks::EphemeralOs)
    {
        let message = "Operation 'deallocate' is not supported on VMs using an ephemeral OS disk.";
        return error(409, "OperationNotAllowed", message);
    }
    let base = if let Some(Effect::ForeignLink { to }) = &effect { to.clone() } else { call.base.clone() };
    match engine.move_to(&call.machine, call.name == "start", effect) {
        Moved::NotFound => error(404, "ResourceNotFound", "The Resource was not found."),
        Moved::There => Answer::empty(200),
        Moved::Busy(word) => error(409, "OperationNotAllowed", &format!("The machine is {word}.")),
        Moved::Accepted(id) => {
            let path = format!("{base}/subscriptions/{SUBSCRIPTION}/providers/{PROVIDER}/locations/eastus");
            let link = |kind: &str| format!("{path}/{kind}/{id}?api-version={}", call.parameter("api-version"));
            let mut headers = vec![("location", link("results")), ("retry-after", "0".to_owned())];
            if !engine.only_location {
                headers.push(("azure-asyncoperation", link("operations")));
            }
            Answer { status: 202, headers, body: None }
        }
    }
}

fn throttled() -> Answer {
    let mut answer = error(429, "OperationNotAllowed", "Too many requests have been received.");
    answer.headers.push(("retry-after", "10".to_owned()));
    answer
}
