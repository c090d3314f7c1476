//! What is computed: definitions from Rust's types, and the policy of rollouts, which unrolls its checks.

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::CustomResourceExt as _;
use serde_json::{Value, json};
use shared::annotation::keys::{CONTROLLER, PLUGIN};
use shared::cgu::api::ClusterGroupUpgrade;
use shared::cgu::precache::spec::PreCachingConfig;
use shared::rollout::admission::POLICY;
use shared::rollout::api::PowerRollout;

/// Labels of every object that belongs to one program.
pub(crate) fn labels(program: &str) -> BTreeMap<String, String> {
    [("app.kubernetes.io/name", program), ("app.kubernetes.io/part-of", PLUGIN)]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// The same of an object whose version matters to clients: `kubectl hibernate check` compares it.
pub(crate) fn versioned(program: &str) -> BTreeMap<String, String> {
    let mut labels = labels(program);
    labels.insert("app.kubernetes.io/version".to_owned(), env!("CARGO_PKG_VERSION").to_owned());
    labels
}

/// The definition of rollouts.
pub(crate) fn rollout_definitions() -> Vec<Value> {
    let mut definition = PowerRollout::crd();
    definition.metadata.labels = Some(versioned(CONTROLLER));
    let mut definition = json!(definition);
    without_unsigned(&mut definition);
    vec![definition]
}

/// Removes the formats that only Rust has: API servers warn of each. The bounds say the same.
fn without_unsigned(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.retain(|key, value| {
                key != "format" || !value.as_str().is_some_and(|format| format.starts_with("uint"))
            });
            fields.values_mut().for_each(without_unsigned);
        }
        Value::Array(items) => items.iter_mut().for_each(without_unsigned),
        _ => {}
    }
}

/// The policy that says who may let targets start, and its binding.
pub(crate) fn rollout_policy() -> Vec<Value> {
    let deny = shared::rollout::admission::policy();
    let metadata =
        || ObjectMeta { name: Some(POLICY.to_owned()), labels: Some(labels(CONTROLLER)), ..ObjectMeta::default() };
    vec![
        json!(ValidatingAdmissionPolicy { metadata: metadata(), spec: Some(deny.policy()), status: None }),
        json!(ValidatingAdmissionPolicyBinding { metadata: metadata(), spec: deny.binding() }),
    ]
}

/// The definitions of TALM's kinds, for a hub where TALM was never installed: all of upstream's fields, with its
/// defaults.
pub fn cgu_definitions() -> Vec<Value> {
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
    let properties = fields.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flatten().for_each(|(_, field)| as_go(field));
}
