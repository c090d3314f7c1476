//! Definitions of TALM's kinds, for hubs where TALM was never installed: all of upstream's fields, with its defaults.

use kube::CustomResourceExt as _;
use serde_json::{Value, json};
use shared::cgu::api::ClusterGroupUpgrade;
use shared::cgu::precache::spec::PreCachingConfig;

use crate::names::{CONTROLLER, labels};

/// The definitions.
pub fn definitions() -> Vec<Value> {
    let all = [ClusterGroupUpgrade::crd(), PreCachingConfig::crd()];
    let shaped = all.map(|mut definition| {
        definition.metadata.labels = Some(labels(CONTROLLER));
        let mut definition = json!(definition);
        let schema = &mut definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        as_go(schema);
        if let Some(schema) = schema.as_object_mut() {
            schema.remove("required");
        }
        definition
    });
    shaped.into()
}

/// Removes what Rust's types add to a schema and Go's do not, but for defaults of switches and numbers.
fn as_go(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    fields.retain(|key, value| match key.as_str() {
        "nullable" => false,
        "default" => value.is_boolean() || value.is_number(),
        "format" => value != "int64",
        _ => true,
    });
    for inner in ["items", "additionalProperties"] {
        fields.get_mut(inner).into_iter().for_each(as_go);
    }
    fields
        .get_mut("properties")
        .and_then(Value::as_object_mut)
        .into_iter()
        .flatten()
        .for_each(|(_, field)| as_go(field));
}
