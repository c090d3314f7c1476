//! Every place of every row against upstream's definition, where that is at hand. `KubeVirt` and Gardener publish none.

use std::fs;
use std::path::Path;

use super::*;
use crate::kinds::sleep_row::{At, Range, Scalar, Seen, Test};

/// Kinds whose fields are those of their source, read by hand.
const NO_DEFINITION: [&str; 3] =
    ["virtualmachines.kubevirt.io", "shoots.core.gardener.cloud", "clusters.postgresql.k8s.enterprisedb.io"];

/// The schema of each version that is served, by its name.
fn schemas(kind: &TargetKind) -> Option<Vec<(String, Value)>> {
    let file = format!("{}.json", kind.kind.resource_name());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/upstream-crds/operators").join(file);
    let definition: Value = serde_json::from_str(&fs::read_to_string(path).ok()?).unwrap();
    let served = definition["spec"]["versions"].as_array().unwrap().iter().filter(|one| one["served"] == true);
    let schema = |one: &Value| (one["name"].as_str().unwrap().to_owned(), one["schema"]["openAPIV3Schema"].clone());
    Some(served.map(schema).collect())
}

/// The schema of a place; none if the definition has no such place.
fn place<'a>(schema: &'a Value, pointer: &str) -> Option<&'a Value> {
    pointer.split('/').skip(1).try_fold(schema, |schema, member| {
        if member.bytes().all(|byte| byte.is_ascii_digit()) {
            schema.get("items")
        } else {
            schema["properties"].get(member)
        }
    })
}

fn is_of_metadata(pointer: &str) -> bool {
    pointer.starts_with("/metadata/")
}

fn places(test: &Test) -> Vec<At> {
    match *test {
        Test::Is(at, _)
        | Test::Begins(at, _)
        | Test::IsTrue(at)
        | Test::Present(at)
        | Test::Absent(at)
        | Test::Zero(at) => {
            vec![at]
        }
        Test::AtLeast(at, other) => vec![at, other],
        Test::AllZero(..) | Test::AllAtLeast(..) | Test::Asked(_) => Vec::new(),
    }
}

#[test]
fn every_place_is_in_upstreams_definition() {
    let mut checked = 0;
    for (kind, row) in rows() {
        let name = kind.kind.resource_name();
        let Some(schemas) = schemas(kind) else {
            let is_known = NO_DEFINITION.contains(&name.as_str());
            let is_here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/upstream-crds/operators").is_dir();
            assert!(is_known || !is_here, "{name} has no definition");
            continue;
        };
        for version in kind.kind.versions {
            assert!(schemas.iter().any(|(served, _)| served == version), "{name}: {version} is not served");
        }
        let (_, schema) = schemas.iter().find(|(served, _)| *served == kind.kind.versions[0]).unwrap();
        for switch in row.switches.iter().filter(|switch| !is_of_metadata(switch.at)) {
            let found = place(schema, switch.at).unwrap_or_else(|| panic!("{name}: no {}", switch.at));
            let type_ = match switch.range {
                Range::Bool => "boolean",
                Range::Count => "integer",
                Range::Numbers => "object",
                Range::Words(_) | Range::NumberText | Range::Nothing => "string",
            };
            assert_eq!(found["type"], type_, "{name}: {}", switch.at);
            let minimum = found["minimum"].as_u64().unwrap_or_default();
            assert!(switch.asleep != Scalar::Number(0) || minimum == 0, "{name}: {} is {minimum} at least", switch.at);
            if let (Some(words), Scalar::Text(word), Range::Words(awake)) =
                (found["enum"].as_array(), switch.asleep, switch.range)
            {
                for word in awake.iter().chain([&word]) {
                    assert!(words.contains(&json!(word)), "{name}: {} has no {word}", switch.at);
                }
            }
            checked += 1;
        }
        let seen = if let Seen::Generation(at) = row.seen { Some(At::Field(at)) } else { None };
        let of_states = row.states.iter().flat_map(|state| state.when.iter().flat_map(places).chain(state.text));
        let of_obstacles = row.obstacles.iter().flat_map(|one| one.when.iter().flat_map(places));
        for at in of_states.chain(of_obstacles).chain(seen) {
            match at {
                At::Field(pointer) if is_of_metadata(pointer) => {}
                At::Field(pointer) => assert!(place(schema, pointer).is_some(), "{name}: no {pointer}"),
                At::Condition(_, member) => {
                    let found = place(schema, &format!("/status/conditions/0/{member}"));
                    assert!(found.is_some(), "{name}: conditions have no {member}");
                }
                At::Constraint(..) => panic!("{name} has no constraints"),
            }
            checked += 1;
        }
    }
    eprintln!("{checked} places");
}
