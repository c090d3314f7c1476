//! A Service for a Pod that has lost its own, made like its siblings.

use kube::ResourceExt;
use serde_json::{Map, Value, json};

use super::facts::Facts;
use super::object::{deleted_at, label};
use super::presence::Unrecoverable;
use super::record::{Held, Record};

/// Fields of a sibling's spec that are about the Service as such and not about that one.
const COMMON: &[&str] =
    &["type", "publishNotReadyAddresses", "ipFamilies", "ipFamilyPolicy", "sessionAffinity", "internalTrafficPolicy"];

/// R7: the Services that are missing. The operator would make them after the Pods, and cannot make the Pods without
/// them.
pub(super) fn missing(facts: &Facts<'_>, record: &Record) -> Result<Vec<Value>, Unrecoverable> {
    if !facts.cluster.has_services() {
        return Ok(Vec::new());
    }
    let lost = record.groups.iter().filter(|held| facts.service_of(&held.pod).is_none());
    lost.map(|held| like_its_siblings(facts, held)).collect()
}

fn like_its_siblings(facts: &Facts<'_>, held: &Held) -> Result<Value, Unrecoverable> {
    let (ids, classes) = (facts.cluster.group_labels(), facts.cluster.class_labels());
    let of_pod = |service: &&Value| ids.first().is_some_and(|key| label(service, key).is_some());
    let siblings = || facts.services.iter().filter(of_pod).filter(|service| deleted_at(service).is_none());
    let same_class = |service: &&Value| classes.first().is_some_and(|key| label(service, key) == Some(&held.class));
    let Some(sibling) = siblings().find(same_class).or_else(|| siblings().next()) else {
        return Err(Unrecoverable::NoSibling { group: held.group.clone(), service: held.pod.clone() });
    };
    let own = |path: &str| {
        let mut map = sibling.pointer(path).and_then(Value::as_object).cloned().unwrap_or_else(Map::new);
        for (keys, value) in [(&ids, &held.group), (&classes, &held.class)] {
            for key in keys {
                if let Some(old) = map.get_mut(*key) {
                    *old = json!(value);
                }
            }
        }
        map
    };
    let common =
        COMMON.iter().filter_map(|field| Some(((*field).to_owned(), sibling.get("spec")?.get(field)?.clone())));
    let mut spec: Map<String, Value> = common.collect();
    spec.insert("selector".to_owned(), Value::Object(own("/spec/selector")));
    spec.insert("ports".to_owned(), ports(sibling));
    if sibling.pointer("/spec/clusterIP").and_then(Value::as_str) == Some("None") {
        spec.insert("clusterIP".to_owned(), json!("None"));
    }
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": held.pod,
            "namespace": facts.cluster.namespace().unwrap_or_default(),
            "labels": own("/metadata/labels"),
            "ownerReferences": sibling.pointer("/metadata/ownerReferences").cloned().unwrap_or_else(|| json!([])),
        },
        "spec": spec,
    }))
}

/// Ports without what the API server gave to the sibling alone.
fn ports(sibling: &Value) -> Value {
    let mut ports = sibling.pointer("/spec/ports").and_then(Value::as_array).cloned().unwrap_or_default();
    for port in ports.iter_mut().filter_map(Value::as_object_mut) {
        port.remove("nodePort");
    }
    Value::Array(ports)
}
