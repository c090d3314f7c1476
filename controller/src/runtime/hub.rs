//! The hub as every system uses it: names for logs, lean objects, writes under our name.

use std::fmt::Debug;
use std::sync::Arc;

use fair::{FairLimit, MemoryLimit};
use futures::channel::mpsc::UnboundedSender;
use jiff::Timestamp;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request as Requests;
use kube::runtime::events::EventType;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use server::{Warnings, tenant};
use shared::annotation::keys;
use tokio::time::Instant;

use super::crash_marks::CrashMarks;
use super::events::Events;
use super::lease::Claim;
use super::panics::Panics;
use super::write::{WriteError, classify, moved};
use super::{Guarded, Key, Object};
use crate::metrics::Metrics;

/// The hub in one term of leadership. Each term has its own: what was decided in an earlier one is never done in a
/// later one.
#[derive(Clone)]
pub struct Hub {
    /// For everything but watches.
    pub client: Client,
    /// For watches, which may wait long for the next byte.
    pub watches: Client,
    /// For what is kept of objects.
    pub memory: MemoryLimit,
    /// The right to act.
    pub claim: Claim,
    /// Counts.
    pub metrics: Arc<Metrics>,
    /// Events.
    pub events: Events,
    /// Rate limit of warnings.
    pub warnings: Warnings,
    /// The targets at work.
    pub marks: CrashMarks,
    /// Status writes at once: tenants take turns.
    pub writes: Arc<FairLimit>,
    /// When this term began. Reconciles of steady targets keep in step from here, so that they share calls.
    pub began: Instant,
    /// The same, as people read it.
    pub began_at: Timestamp,
}

impl Hub {
    /// The API for an object's namespace, or for all objects of a kind without namespaces.
    pub fn api<K: Object>(&self, of: &K) -> Api<Guarded<K>> {
        K::Scope::api(self.client.clone(), &of.namespace().unwrap_or_default())
    }

    /// Reads the object that has this one's name, if there is one.
    pub async fn find<K: Object>(&self, named: &K) -> kube::Result<Option<K>> {
        server::hub::get(&self.api(named), &named.name_any()).await
    }

    /// Applies a JSON patch to the status of an object as it was read, in turn with others.
    ///
    /// # Errors
    /// When nothing was written, or the outcome is unknown.
    pub async fn patch_status<K: Object>(&self, read: &K, patch: Value) -> Result<K, WriteError> {
        let patch: json_patch::Patch = serde_json::from_value(patch)
            .map_err(|error| WriteError::Failed(Box::new(kube::Error::SerdeError(error))))?;
        self.write_status(read, &Patch::Json::<()>(patch)).await
    }

    /// Applies a merge patch to the status of an object as it was read, in turn with others.
    ///
    /// # Errors
    /// When nothing was written, or the outcome is unknown.
    pub async fn merge_status<K: Object>(&self, read: &K, mut patch: Value) -> Result<K, WriteError> {
        patch["metadata"]["resourceVersion"] = read.resource_version().into();
        self.write_status(read, &Patch::Merge(patch)).await
    }

    async fn write_status<K: Object, P>(&self, read: &K, patch: &Patch<P>) -> Result<K, WriteError>
    where
        P: Serialize + Debug + Send + Sync,
    {
        let _turn = self.writes.acquire(tenant(read.meta())).await;
        self.lead()?; // not before: the turn may have been long in coming
        let api = self.api(read);
        let written = api.patch_status(&read.name_any(), &as_controller(), patch).await;
        self.judge(&api, read, written).await
    }

    /// Applies a merge patch to an object as it was read: it is refused if another client wrote in between.
    ///
    /// # Errors
    /// When nothing was written, or the outcome is unknown.
    pub async fn patch<K: Object>(&self, read: &K, patch: Value) -> Result<K, WriteError> {
        self.patch_with(read, patch, &as_controller()).await
    }

    /// Patches as [`Self::patch`] does, with these parameters.
    ///
    /// # Errors
    /// As [`Self::patch`].
    pub async fn patch_with<K: Object>(
        &self,
        read: &K,
        mut patch: Value,
        params: &PatchParams,
    ) -> Result<K, WriteError> {
        patch["metadata"]["resourceVersion"] = read.resource_version().into();
        self.lead()?;
        let api = self.api(read);
        let written = api.patch(&read.name_any(), params, &Patch::Merge(patch)).await;
        self.judge(&api, read, written).await
    }

    /// Writes an object that is ours alone, such as a record: over the version that it names, or as a new one if it
    /// names none. Of two writers one loses, and reads it again in its next reconcile. What the object leaves out stays
    /// as it is.
    ///
    /// # Errors
    /// When nothing was written, or the outcome is unknown.
    pub async fn store<K: Object + Serialize>(&self, object: &K) -> Result<K, WriteError> {
        self.lead()?;
        let api = self.api(object);
        let written = if object.resource_version().is_some() {
            api.patch(&object.name_any(), &as_controller(), &Patch::Merge(object)).await
        } else {
            self.create(api.resource_url(), object).await
        };
        self.judge(&api, object, written).await
    }

    /// Posts an object to this path, and reads the answer as a `T`.
    ///
    /// # Errors
    /// When it is not created, or the outcome is unknown.
    pub async fn create<T: DeserializeOwned>(&self, path: &str, object: &(impl Serialize + Sync)) -> kube::Result<T> {
        let params = PostParams { field_manager: as_controller().field_manager, ..PostParams::default() };
        let text = serde_json::to_vec(object).map_err(kube::Error::SerdeError)?;
        let request = Requests::new(path).create(&params, text).map_err(kube::Error::BuildRequest)?;
        self.client.request(request).await
    }

    /// Deletes an object as it was read: one of another UID or version stays. That it is gone already is no error.
    ///
    /// # Errors
    /// When it is not deleted, or the outcome is unknown.
    pub async fn delete<K: Object>(&self, read: &K) -> Result<(), WriteError> {
        self.lead()?;
        let preconditions = Some(Preconditions { uid: read.uid(), resource_version: read.resource_version() });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        let api = self.api(read);
        let Err(error) = api.delete(&read.name_any(), &params).await else { return Ok(()) };
        match classify(error, moved(&api, read)).await {
            WriteError::Gone(_) => Ok(()),
            error => Err(error),
        }
    }

    /// Nothing is written without the claim to lead.
    pub fn lead(&self) -> Result<(), WriteError> {
        if self.claim.holds() { Ok(()) } else { Err(WriteError::NotLeader) }
    }

    async fn judge<K: Object>(
        &self,
        api: &Api<Guarded<K>>,
        read: &K,
        written: kube::Result<Guarded<K>>,
    ) -> Result<K, WriteError> {
        match written.and_then(read_back) {
            Ok(mut written) => {
                slim(&mut written); // as the watch brings it: the two are compared
                Ok(written)
            }
            Err(error) => Err(classify(error, moved(api, read)).await),
        }
    }
}

/// An object as a write has returned it.
fn read_back<K>(written: Guarded<K>) -> kube::Result<K> {
    written.read().map_err(kube::Error::SerdeError)
}

/// How objects of a scope are reached.
pub trait Scoped<K>: Sized {
    /// The API of a namespace, which is empty for kinds without one.
    fn api(client: Client, namespace: &str) -> Api<Guarded<K>>;
}

impl<K: Resource<DynamicType = (), Scope = Self>> Scoped<K> for NamespaceResourceScope {
    fn api(client: Client, namespace: &str) -> Api<Guarded<K>> {
        Api::namespaced(client, namespace)
    }
}

impl<K: Resource<DynamicType = (), Scope = Self>> Scoped<K> for ClusterResourceScope {
    fn api(client: Client, _: &str) -> Api<Guarded<K>> {
        Api::all(client)
    }
}

/// What one system works with in one term of leadership: the hub, the watched objects, and a way to ask for reconciles.
#[derive(Clone)]
pub struct Handle<K: Object> {
    /// The hub.
    pub hub: Hub,
    pub(super) system: &'static str,
    pub(super) action: &'static str,
    pub(super) watched: Store<Guarded<K>>,
    pub(super) triggers: UnboundedSender<Key>,
}

impl<K: Object> Handle<K> {
    /// Asks for a reconcile of a target, because of something that is not on its object.
    pub fn trigger(&self, key: Key) {
        self.hub.metrics.queue.add(self.system, &key, Instant::now());
        let _ = self.triggers.unbounded_send(key);
    }

    /// Writes an Event about an object and this system's action. Whether it is written.
    pub async fn publish(
        &self,
        object: &(impl Resource<DynamicType = ()> + Sync),
        type_: EventType,
        reason: &str,
        note: &str,
    ) -> bool {
        self.hub.events.publish(&object.object_ref(&()), type_, (self.action, reason), note).await
    }

    /// The object as the watch has brought it last.
    pub fn newest(&self, key: Key) -> Option<Arc<Guarded<K>>> {
        self.watched.get(&object_ref(key))
    }

    /// All objects as the watch has brought them last.
    pub fn objects(&self) -> Vec<Arc<Guarded<K>>> {
        self.watched.state()
    }

    /// Waits until the first list is complete. For the task of the watch alone: of two tasks that wait one is not woken.
    pub async fn listed(&self) {
        // The writer outlives every system of its watch: if it is gone, this task ends with it.
        let _ = self.watched.wait_until_ready().await;
    }

    /// Contains panics in the name of this system.
    pub fn panics(&self) -> Panics {
        Panics::of(self.system, self.hub.metrics.clone())
    }
}

/// An object of ours in a version, without content.
pub fn named<K: Object + Default>(namespace: &str, name: &str, version: Option<String>) -> K {
    let mut object = K::default();
    let meta = object.meta_mut();
    (meta.namespace, meta.name) = (Some(namespace.to_owned()), Some(name.to_owned()));
    meta.resource_version = version;
    object
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

#[cfg(test)]
mod tests {
    use http::Method;
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;
    use crate::runtime::testing::MemoryHub;

    const PATH: &str = "/api/v1/namespaces/ns/configmaps/record";

    fn record(text: &str, version: Option<String>) -> ConfigMap {
        ConfigMap { data: Some([("key".to_owned(), text.to_owned())].into()), ..named("ns", "record", version) }
    }

    #[tokio::test]
    async fn of_two_writers_of_a_record_one_loses_and_nothing_of_others_is_lost() {
        let memory = MemoryHub::default();
        let hub = memory.term().hub;
        let first = hub.store(&record("a", None)).await.unwrap();
        let second = hub.store(&record("b", None)).await.unwrap_err();
        assert!(matches!(second, WriteError::Conflict(_)), "there is one: {second}");

        memory.edit(PATH, |object| object["metadata"]["annotations"] = json!({ "note": "others" }));
        let stale = record("c", first.resource_version());
        for lost in [hub.store(&stale).await.map(drop), hub.delete(&stale).await] {
            assert!(matches!(lost, Err(WriteError::Conflict(_))), "{lost:?}");
        }
        assert_eq!(memory.get(PATH)["data"]["key"], "a");

        let version = memory.get(PATH)["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        let written = hub.store(&record("d", version)).await.unwrap();
        assert_eq!(memory.get(PATH)["data"]["key"], "d");
        assert_eq!(memory.get(PATH)["metadata"]["annotations"]["note"], "others");

        hub.delete(&written).await.unwrap();
        assert_eq!(memory.get(PATH), Value::Null);
        hub.delete(&written).await.unwrap();
        let gone = hub.store(&written).await.unwrap_err();
        assert!(matches!(gone, WriteError::Gone(_)), "never made anew by mistake: {gone}");
    }

    /// The code is the webhook's, such as that of a Secret that it has not found.
    #[tokio::test]
    async fn what_a_webhook_denies_is_refused_whatever_its_code() {
        let memory = MemoryHub::default();
        let hub = memory.term().hub;
        let read = hub.store(&record("a", None)).await.unwrap();
        let new: ConfigMap = named("ns", "new", None);
        for code in [404, 409, 422] {
            memory.inject(move |method, _, _| (*method != Method::GET).then_some(code));
            for denied in [
                hub.patch(&read, json!({ "data": { "key": "b" } })).await.map(drop),
                hub.merge_status(&read, json!({ "status": {} })).await.map(drop),
                hub.store(&read).await.map(drop),
                hub.store(&new).await.map(drop),
                hub.delete(&read).await,
            ] {
                let words = denied.as_ref().err().and_then(WriteError::refusal);
                assert_eq!(words.as_deref(), Some("an injected fault"), "{code}: {denied:?}");
            }
            memory.inject(move |method, _, _| Some(if *method == Method::GET { 500 } else { code }));
            let unknown = hub.patch(&read, json!({})).await;
            assert!(matches!(unknown, Err(WriteError::Failed(_))), "{code}: {unknown:?}");
        }
        memory.heal();
        memory.remove(PATH);
        let gone = hub.patch(&read, json!({})).await;
        assert!(matches!(gone, Err(WriteError::Gone(_))), "{gone:?}");
    }

    #[tokio::test]
    async fn no_record_is_written_without_the_claim_to_lead() {
        let memory = MemoryHub::default();
        let hub = Hub { claim: Claim::default(), ..memory.term().hub };
        let one = record("a", Some("1".to_owned()));
        for refused in
            [hub.store(&record("a", None)).await.map(drop), hub.store(&one).await.map(drop), hub.delete(&one).await]
        {
            assert!(matches!(refused, Err(WriteError::NotLeader)), "{refused:?}");
        }
        assert_eq!(memory.requests(|method, _| *method != Method::GET), 0);
    }
}
