//! A row against the definition of its kind on a hub: what it reads and writes must be there, with the types that it means.

use serde_json::Value;

use super::row::{Reader, TargetKind};
use super::sleep_row::{At, Range, Scalar, Seen, SleepRow, Switch, Test};
use crate::object::items;

/// What of a row does not fit this `CustomResourceDefinition`, each as a sentence. Nothing for kinds that are no rows.
pub fn misfits(kind: &TargetKind, definition: &Value) -> Vec<String> {
    let Reader::Row(row) = kind.reader else { return Vec::new() };
    let served: Vec<&Value> = items(definition, "/spec/versions").filter(|one| one["served"] == true).collect();
    let Some(schema) = kind.kind.versions.iter().find_map(|version| {
        served.iter().find(|one| one["name"] == *version).map(|one| &one["schema"]["openAPIV3Schema"])
    }) else {
        let found: Vec<&str> = served.iter().filter_map(|one| one["name"].as_str()).collect();
        let wanted = kind.kind.versions.join(", ");
        return vec![format!("versions: found {}, the row has {wanted}", found.join(", "))];
    };
    let switches = row.switches.iter().filter(|switch| !is_of_metadata(switch.at));
    let mut found: Vec<String> = switches.filter_map(|switch| misfit(schema, switch)).collect();
    let absent = |at: &At| (!has(schema, *at)).then(|| format!("{}: the definition has no such field", shown(*at)));
    found.extend(places(row).iter().filter_map(absent));
    found
}

/// Every place that a row reads besides its switches.
fn places(row: &SleepRow) -> Vec<At> {
    let of = |test: &Test| match *test {
        Test::Is(at, _)
        | Test::Begins(at, _)
        | Test::IsTrue(at)
        | Test::Present(at)
        | Test::Absent(at)
        | Test::Zero(at) => vec![at],
        Test::AtLeast(at, other) => vec![at, other],
        Test::AllZero(list, _) => vec![At::Field(list)],
        Test::AllAtLeast((list, _), (wanted, _)) => vec![At::Field(list), At::Field(wanted)],
        Test::Asked(_) => Vec::new(),
    };
    let states = row.states.iter().flat_map(|state| state.when.iter().flat_map(of).chain(state.text));
    let obstacles = row.obstacles.iter().flat_map(|one| one.when.iter().flat_map(of));
    let seen = if let Seen::Generation(at) = row.seen { Some(At::Field(at)) } else { None };
    states.chain(obstacles).chain(seen).collect()
}

fn misfit(schema: &Value, switch: &Switch) -> Option<String> {
    let at = switch.at;
    let Some(found) = place(schema, at) else { return Some(format!("{at}: the definition has no such field")) };
    if keeps_unknown(found) {
        return None;
    }
    let type_ = match switch.range {
        Range::Bool => "boolean",
        Range::Count => "integer",
        Range::Numbers => "object",
        Range::Words(_) | Range::NumberText | Range::Nothing => "string",
    };
    if found["type"] != type_ {
        return Some(format!("{at}: found type {}, the row writes type {type_}", found["type"]));
    }
    if let Some(minimum) = found["minimum"].as_u64().filter(|least| *least > 0 && switch.asleep == Scalar::Number(0)) {
        return Some(format!("{at}: found minimum {minimum}, a sleep writes 0"));
    }
    let (Some(allowed), Scalar::Text(word), Range::Words(awake)) =
        (found["enum"].as_array(), switch.asleep, switch.range)
    else {
        return None;
    };
    let missing = awake.iter().chain([&word]).find(|word| !allowed.contains(&Value::from(**word)))?;
    Some(format!("{at}: the definition does not allow {missing:?}"))
}

/// The schema of a place. Elements of a list have numbers.
fn place<'a>(schema: &'a Value, pointer: &str) -> Option<&'a Value> {
    pointer.split('/').skip(1).try_fold(schema, |schema, member| match schema.get("items") {
        Some(items) if member.bytes().all(|byte| byte.is_ascii_digit()) => Some(items),
        _ => schema["properties"].get(member).or_else(|| keeps_unknown(schema).then_some(schema)),
    })
}

/// Whether the definition says nothing of the fields of an object, and keeps them.
fn keeps_unknown(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true
}

fn has(schema: &Value, at: At) -> bool {
    match at {
        At::Field(pointer) => is_of_metadata(pointer) || place(schema, pointer).is_some(),
        At::Condition(_, member) => place(schema, &format!("/status/conditions/0/{member}")).is_some(),
        At::Constraint(_, member) => place(schema, &format!("/status/constraints/0/{member}")).is_some(),
    }
}

fn shown(at: At) -> String {
    match at {
        At::Field(pointer) => pointer.to_owned(),
        At::Condition(kind, member) => format!("{member} of condition {kind}"),
        At::Constraint(kind, member) => format!("{member} of constraint {kind}"),
    }
}

fn is_of_metadata(pointer: &str) -> bool {
    pointer.starts_with("/metadata/")
}
