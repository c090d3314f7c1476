//! The hub as every system uses it: names for logs, lean objects, writes under our name.

use std::sync::Arc;

use futures::channel::mpsc::UnboundedSender;
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::Value;
use server::Warnings;
use shared::annotation::keys;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::events::Events;
use super::lease::Claim;
use super::marks::Marks;
use super::panics::Panics;
use super::write::{Moved, WriteError, classify, depends_on_version, moved};
use super::{Guarded, Key, Object, Scoped};
use crate::metrics::Metrics;
use crate::spoke::Network;

/// The hub in one term of leadership. Each term has its own: what was decided in an earlier one is never done in a later one.
#[derive(Clone)]
pub struct Hub {
    /// For everything but watches.
    pub client: Client,
    /// For watches, which may wait long for the next byte.
    pub watches: Client,
    /// The right to act.
    pub claim: Claim,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Events.
    pub events: Events,
    /// How spokes are reached.
    pub network: Network,
    /// Rate limit of warnings.
    pub warnings: Warnings,
    /// The targets at work.
    pub marks: Marks,
    /// Turns for status writes.
    pub writes: Arc<Semaphore>,
    /// When this term began. Reconciles of steady targets keep in step from here, so that they share calls.
    pub began: Instant,
    /// The same, as people read it.
    pub began_at: Timestamp,
}

impl Hub {
    /// The API for an object's namespace, or for all objects of a kind without namespaces.
    pub fn api<K: Object>(&self, of: &K) -> Api<K> {
        K::Scope::api(self.client.clone(), &of.namespace().unwrap_or_default())
    }

    /// Applies a JSON patch to the status of an object as it was read, in turn with others.
    ///
    /// # Errors
    /// When nothing was written, or the outcome is unknown.
    pub async fn patch_status<K: Object>(&self, read: &K, patch: Value) -> Result<K, WriteError> {
        let patch: json_patch::Patch = serde_json::from_value(patch)
            .map_err(|error| WriteError::Failed(Box::new(kube::Error::SerdeError(error))))?;
        let _turn = self.writes.acquire().await;
        // Not before: the turn may have been long in coming.
        if !self.claim.holds() {
            return Err(WriteError::NotLeader);
        }
        let api = self.api(read);
        let written = api.patch_status(&read.name_any(), &as_controller(), &Patch::Json::<()>(patch)).await;
        self.judge(&api, read, written).await
    }

    /// Applies a merge patch to an object as it was read: it is refused if another client wrote in between.
    ///
    /// # Errors
    /// When nothing was written, or the outcome is unknown.
    pub async fn patch<K: Object>(&self, read: &K, mut patch: Value) -> Result<K, WriteError> {
        patch["metadata"]["resourceVersion"] = read.resource_version().into();
        if !self.claim.holds() {
            return Err(WriteError::NotLeader);
        }
        let api = self.api(read);
        let written = api.patch(&read.name_any(), &as_controller(), &Patch::Merge(patch)).await;
        self.judge(&api, read, written).await
    }

    async fn judge<K: Object>(&self, api: &Api<K>, read: &K, written: kube::Result<K>) -> Result<K, WriteError> {
        match written {
            Ok(mut written) => {
                slim(&mut written); // as the watch brings it: the two are compared
                Ok(written)
            }
            Err(error) if depends_on_version(&error) => Err(classify(error, moved(api, read).await)),
            Err(error) => Err(classify(error, Moved::Unknown)),
        }
    }
}

/// What one system works with in one term of leadership: the hub, the watched objects, and a way to ask for reconciles.
pub struct Handle<K: Object> {
    /// The hub.
    pub hub: Hub,
    system: &'static str,
    watched: Store<Guarded<K>>,
    triggers: UnboundedSender<Key>,
}

impl<K: Object> Clone for Handle<K> {
    fn clone(&self) -> Self {
        let (hub, system) = (self.hub.clone(), self.system);
        Self { hub, system, watched: self.watched.clone(), triggers: self.triggers.clone() }
    }
}

impl<K: Object> Handle<K> {
    pub(super) fn new(
        hub: Hub,
        system: &'static str,
        watched: Store<Guarded<K>>,
        triggers: UnboundedSender<Key>,
    ) -> Self {
        Self { hub, system, watched, triggers }
    }

    /// Asks for a reconcile of a target, because of something that is not on its object.
    pub fn trigger(&self, key: Key) {
        self.hub.metrics.queue.add(self.system, &key, Instant::now());
        let _ = self.triggers.unbounded_send(key);
    }

    /// The object as the watch has brought it last.
    pub fn newest(&self, key: Key) -> Option<Arc<Guarded<K>>> {
        self.watched.get(&object_ref(key))
    }

    /// All objects as the watch has brought them last.
    pub fn objects(&self) -> Vec<Arc<Guarded<K>>> {
        self.watched.state()
    }

    /// Waits until the first list is complete.
    pub async fn listed(&self) {
        // The writer outlives every system of its watch: if it is gone, this task ends with it.
        let _ = self.watched.wait_until_ready().await;
    }

    /// Contains panics in the name of this system.
    pub fn panics(&self) -> Panics {
        Panics::of(self.system, self.hub.metrics.clone())
    }
}

/// A reference to a watched object.
pub fn object_ref<K: Object>((namespace, name): Key) -> ObjectRef<Guarded<K>> {
    let reference = ObjectRef::new(&name);
    if namespace.is_empty() { reference } else { reference.within(&namespace) }
}

/// `namespace/name`, or the name of an object without a namespace, for logs.
pub fn full_name(object: &impl ResourceExt) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}

/// Namespace and name of an object.
pub fn key_of(object: &impl ResourceExt) -> Key {
    (object.namespace().unwrap_or_default(), object.name_any())
}

/// Which of two versions of an object is the newer one: etcd's revision.
pub fn version(object: &impl ResourceExt) -> Option<u64> {
    object.resource_version()?.parse().ok()
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

/// Names the controller in the audit logs of hub and spokes.
pub fn user_agent() -> (http::HeaderName, http::HeaderValue) {
    let agent = concat!("hibernate-controller/", env!("CARGO_PKG_VERSION"));
    (http::header::USER_AGENT, http::HeaderValue::from_static(agent))
}
