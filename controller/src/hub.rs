//! What the work on every system does alike at the hub: names for logs, lean watches, writes under our name, Events.

use std::collections::HashMap;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::sync::{Arc, Mutex};

use k8s_openapi::api::core::v1::ObjectReference;
use kube::api::{DynamicObject, PatchParams};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Resource, ResourceExt};
use shared::annotation::keys;
use tracing::warn;

/// `namespace/name`, for logs.
pub fn full_name(object: &impl ResourceExt) -> String {
    format!("{}/{}", object.namespace().unwrap_or_default(), object.name_any())
}

/// Namespace and name, by which work on an object is kept apart from that on others.
pub fn key_of(object: &impl ResourceExt) -> (String, String) {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// The same of an object that only a reference is left of.
pub fn key_of_ref(gone: &ObjectRef<DynamicObject>) -> (String, String) {
    (gone.namespace.clone().unwrap_or_default(), gone.name.clone())
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

/// Different Events that are remembered.
const REMEMBERED: usize = 1_000;

/// Writes Events.
///
/// Kube's recorder counts Events with one reason about one object as repetitions of the first, whatever they say, and what
/// the later ones say is lost. So each text has a recorder of its own.
#[derive(Clone)]
pub struct Events {
    client: Client,
    reporter: Reporter,
    recorders: Arc<Mutex<HashMap<u64, Recorder>>>,
}

impl Events {
    /// Writes them in the name of this reporter.
    pub fn new(client: Client, reporter: Reporter) -> Self {
        Self { client, reporter, recorders: Arc::default() }
    }

    /// Writes an Event about an action of ours; what cannot be written is logged.
    pub async fn publish(
        &self,
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
        let note: String =
            note.char_indices().take_while(|(at, c)| at + c.len_utf8() <= 1_000).map(|(_, c)| c).collect();
        let recorder = self.recorder((&target.uid, name, reason, &note));
        let event =
            Event { type_, reason: reason.to_owned(), note: Some(note), action: action.to_owned(), secondary: None };
        if let Err(error) = recorder.publish(&event, target).await {
            warn!(cluster = name, error = &error as &dyn std::error::Error, "event not written");
        }
    }

    fn recorder(&self, text: impl Hash) -> Recorder {
        let new = || Recorder::new(self.client.clone(), self.reporter.clone());
        let Ok(mut recorders) = self.recorders.lock() else { return new() };
        if recorders.len() >= REMEMBERED {
            recorders.clear();
        }
        recorders.entry(BuildHasherDefault::<DefaultHasher>::default().hash_one(text)).or_insert_with(new).clone()
    }
}
