//! Every place of every row against upstream's definition, where that is at hand. `KubeVirt` and Gardener publish none.

use std::fs;
use std::path::Path;

use super::*;
use crate::kinds::schema::misfits;

/// Kinds whose fields are those of their source, read by hand.
const NO_DEFINITION: [&str; 3] =
    ["virtualmachines.kubevirt.io", "shoots.core.gardener.cloud", "clusters.postgresql.k8s.enterprisedb.io"];

fn definition(kind: &TargetKind) -> Option<Value> {
    let file = format!("{}.json", kind.kind.resource_name());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/upstream-crds/operators").join(file);
    Some(serde_json::from_str(&fs::read_to_string(path).ok()?).unwrap())
}

#[test]
fn every_place_is_in_upstreams_definition() {
    let is_here = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/upstream-crds/operators").is_dir();
    for (kind, _) in rows() {
        let name = kind.kind.resource_name();
        let Some(definition) = definition(kind) else {
            assert!(NO_DEFINITION.contains(&name.as_str()) || !is_here, "{name} has no definition");
            continue;
        };
        let served = definition["spec"]["versions"].as_array().unwrap().iter().filter(|one| one["served"] == true);
        let served: Vec<&str> = served.map(|one| one["name"].as_str().unwrap()).collect();
        assert!(kind.kind.versions.iter().all(|version| served.contains(version)), "{name}: {served:?}");
        assert_eq!(misfits(kind, &definition), [""; 0], "{name}");
    }
}

#[test]
fn what_does_not_fit_is_named() {
    let of = |spec: Value, version: &str| {
        let schema = json!({ "openAPIV3Schema": { "properties": {
            "spec": { "properties": spec },
            "status": { "properties": {
                "instances": { "type": "integer" },
                "conditions": { "items": { "properties": { "type": {}, "status": {}, "message": {} } } },
            } },
        } } });
        json!({ "spec": { "versions": [{ "name": version, "served": true, "schema": schema }] } })
    };
    let instances = |minimum: u64| json!({ "instances": { "type": "integer", "minimum": minimum } });
    for (definition, expected) in [
        (of(instances(0), "v1"), ""),
        (of(instances(1), "v1"), "/spec/instances: found minimum 1, a sleep writes 0"),
        (of(json!({ "instances": { "type": "string" } }), "v1"), r#"found type "string", the row writes type integer"#),
        (of(json!({ "instances": { "x-kubernetes-preserve-unknown-fields": true } }), "v1"), ""),
        (of(json!({}), "v1"), "/spec/instances: the definition has no such field"),
        (of(instances(0), "v2"), "versions: found v2, the row has v1"),
    ] {
        let found = misfits(&CNPG_POOLER, &definition);
        assert_eq!(found.is_empty(), expected.is_empty(), "{found:?}");
        assert!(found.concat().contains(expected), "{found:?}");
    }
    let of_ray = misfits(&RAY_CLUSTER, &of(json!({}), "v1"));
    assert!(of_ray.iter().any(|text| text.starts_with("/spec/suspend")), "{of_ray:?}");
}
