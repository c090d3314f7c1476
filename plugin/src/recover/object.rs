//! Reading PVCs, Services and Pods as the API server sends them.

use std::collections::BTreeMap;

use hub::text;
use jiff::Timestamp;
use serde_json::Value;
use shared::annotation::format;

pub(crate) use hub::name_of as name;

/// Its uid.
pub fn uid(object: &Value) -> &str {
    text(object, "/metadata/uid")
}

/// Its resourceVersion.
pub fn version(object: &Value) -> &str {
    text(object, "/metadata/resourceVersion")
}

/// When it was deleted, if it was: it stays while finalizers or a Pod hold it.
pub fn deleted_at(object: &Value) -> Option<&str> {
    Some(text(object, "/metadata/deletionTimestamp")).filter(|text| !text.is_empty())
}

/// When it was created.
pub fn created_at(object: &Value) -> Option<Timestamp> {
    format::time(text(object, "/metadata/creationTimestamp"))
}

/// One of its labels.
pub fn label<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("labels")?.get(key)?.as_str()
}

/// Whether it has all of these labels.
pub fn labels_match(object: &Value, labels: &BTreeMap<String, String>) -> bool {
    labels.iter().all(|(key, value)| label(object, key) == Some(value))
}

/// A Pod's phase; `Pending` while it has none.
pub fn phase(pod: &Value) -> &str {
    Some(text(pod, "/status/phase")).filter(|phase| !phase.is_empty()).unwrap_or("Pending")
}

/// Whether one of a Pod's volumes is this claim.
pub fn mounts(pod: &Value, claim: &str) -> bool {
    let volumes = pod.pointer("/spec/volumes").and_then(Value::as_array);
    volumes
        .is_some_and(|volumes| volumes.iter().any(|volume| text(volume, "/persistentVolumeClaim/claimName") == claim))
}

/// Why a Pod does not run, in the scheduler's or the kubelet's words.
pub fn why_not_running(pod: &Value) -> Option<String> {
    let list = |path: &str| pod.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let unscheduled = list("/status/conditions")
        .iter()
        .find(|condition| text(condition, "/type") == "PodScheduled" && text(condition, "/status") == "False")
        .map(|condition| format!("{}: {}", text(condition, "/reason"), text(condition, "/message")));
    let waiting = list("/status/containerStatuses")
        .iter()
        .find(|status| !text(status, "/state/waiting/reason").is_empty())
        .map(|status| {
            let message = text(status, "/state/waiting/message");
            format!("container {}: {} {message}", text(status, "/name"), text(status, "/state/waiting/reason"))
        });
    unscheduled.or(waiting).map(|why| why.trim_end_matches([' ', ':']).to_owned())
}

/// Whether a command can be run in a Pod.
pub fn is_ready(pod: &Value) -> bool {
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array);
    let ready = |condition: &Value| text(condition, "/type") == "Ready" && text(condition, "/status") == "True";
    phase(pod) == "Running" && deleted_at(pod).is_none() && conditions.is_some_and(|all| all.iter().any(ready))
}

/// Where the data of a claim that goes may still be.
pub fn volume(claim: &Value) -> String {
    match text(claim, "/spec/volumeName") {
        "" => "it was bound to no volume".to_owned(),
        volume => format!("its PersistentVolume {volume} keeps the data only if its reclaim policy is Retain"),
    }
}

/// How large a claim's volume is, as Kubernetes writes it.
pub fn size(claim: &Value) -> &str {
    let actual = text(claim, "/status/capacity/storage");
    if actual.is_empty() { text(claim, "/spec/resources/requests/storage") } else { actual }
}
