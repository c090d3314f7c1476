//! What the work on every system does alike at the hub: names for logs, lean watches, writes under our name, Events.

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::PatchParams;
use kube::runtime::events::{Event, EventType, Recorder};
use kube::{Resource, ResourceExt};
use shared::keys;
use tracing::warn;

/// `namespace/name`, for logs.
pub fn full_name(object: &impl ResourceExt) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// Namespace and name, by which work on an object is kept apart from that on others.
pub fn key_of(object: &impl ResourceExt) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// Drops what no decision needs, so that ten thousand clusters fit into little memory.
pub fn slim(object: &mut impl Resource) {
    object.meta_mut().managed_fields = None;
    if let Some(annotations) = &mut object.meta_mut().annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}

/// Parameters of a write under our field manager, here and on spokes.
pub fn as_controller() -> PatchParams {
    PatchParams { field_manager: Some(keys::CONTROLLER.to_owned()), ..PatchParams::default() }
}

/// Writes an Event about an action of ours; what cannot be written is logged.
pub async fn publish(
    recorder: &Recorder,
    target: &ObjectReference,
    name: &str,
    type_: EventType,
    (action, reason): (&str, &str),
    note: &str,
) {
    if reason.is_empty() {
        return;
    }
    // The API server takes notes of up to 1,024 bytes.
    let note = note.char_indices().take_while(|(at, c)| at + c.len_utf8() <= 1_000).map(|(_, c)| c).collect();
    let event =
        Event { type_, reason: reason.to_owned(), note: Some(note), action: action.to_owned(), secondary: None };
    if let Err(error) = recorder.publish(&event, target).await {
        warn!(cluster = name, error = &error as &dyn std::error::Error, "event not written");
    }
}
