//! Carries out a plan: one merge patch of our own annotations for each object, guarded by the version that was listed.

use std::fmt::Debug;

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use kube::api::Patch;
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use shared::annotation::{format, keys};
use shared::fdb::admission::Kind;
use shared::fdb::api::FoundationDBCluster;
use shared::fdb::suspension::moment;
use shared::record::Format;

use super::Fdb;
use super::decide::{Action, Plan};
use super::observe::{Name, Seen};
use crate::runtime::hub::as_controller;
use crate::runtime::{Hub, Moved, ReconcileError, System, WriteError, classify};

/// Annotations to write; `None` removes one.
type Annotations = Vec<(&'static str, Option<String>)>;

/// Patches that are under way at once for one cluster.
const CONCURRENT_WRITES: usize = 8;

/// What came of a plan.
#[derive(Default)]
pub struct Done {
    /// Actions that were carried out.
    pub written: Vec<Action>,
    /// The first that failed. The others were tried nevertheless: each object stands for itself.
    pub failure: Option<ReconcileError>,
}

/// Carries out a plan.
pub async fn run(fdb: &Fdb, cluster: &FoundationDBCluster, seen: &Seen, now: Timestamp, plan: &Plan) -> Done {
    let namespace = cluster.namespace().unwrap_or_default();
    let namespace = namespace.as_str();
    let writes = plan.actions.iter().cloned().map(|action| async move {
        let written = write(fdb, namespace, seen, now, &action).await;
        (action, written)
    });
    let mut done = Done::default();
    let mut results = futures::stream::iter(writes).buffer_unordered(CONCURRENT_WRITES);
    while let Some((action, result)) = results.next().await {
        match result {
            Ok(()) => done.written.push(action),
            Err(error) => done.failure = done.failure.or(Some(error)),
        }
    }
    done
}

async fn write(fdb: &Fdb, namespace: &str, seen: &Seen, now: Timestamp, action: &Action) -> Result<(), ReconcileError> {
    let (object, name) = (&seen.objects[action.object()], &seen.names[action.object()]);
    let annotations = annotations(action, now);
    let written = match object.kind {
        Kind::Pvc => annotate::<PersistentVolumeClaim>(fdb.hub(), namespace, name, &annotations).await,
        Kind::Service => annotate::<Service>(fdb.hub(), namespace, name, &annotations).await,
    };
    let what = || format!("the stamp of {} {namespace}/{}", object.kind.resource(), name.name);
    written.map_err(|source| ReconcileError::Write(what(), source))
}

/// Writes annotations, if the object still is the one that was listed. A lost race answers 409, so that a 422 is a
/// refusal, and needs no right to read the object again.
async fn annotate<K>(hub: &Hub, namespace: &str, listed: &Name, annotations: &Annotations) -> Result<(), WriteError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
{
    hub.lead()?;
    let values: Value = annotations.iter().map(|(key, value)| ((*key).to_owned(), json!(value))).collect();
    let patch = json!({"metadata": {"resourceVersion": listed.version, "annotations": values}});
    let api: Api<K> = Api::namespaced(hub.client.clone(), namespace);
    let written = api.patch_metadata(&listed.name, &as_controller(), &Patch::Merge(patch)).await;
    written.map(drop).map_err(|error| classify(error, Moved::No))
}

/// What an action makes of our annotations.
fn annotations(action: &Action, now: Timestamp) -> Annotations {
    let now = format::seconds(now);
    match action {
        Action::Stamp { since, record, .. } => vec![
            (keys::SUSPENDED_AT, Some(moment(*since))),
            (keys::SUSPENSION, Some(record.text())),
            (keys::RELEASED_AT, None),
            (keys::WOKEN_AT, None),
        ],
        Action::Release { .. } => vec![(keys::RELEASED_AT, Some(now))],
        Action::Wake { .. } => vec![(keys::WOKEN_AT, Some(now))],
        Action::Clear { .. } => vec![
            (keys::SUSPENDED_AT, None),
            (keys::SUSPENSION, None),
            (keys::RELEASED_AT, None),
            (keys::WOKEN_AT, None),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::testing::MemoryHub;

    #[tokio::test]
    async fn what_has_changed_since_it_was_listed_is_not_written() {
        let (hub, path) = (MemoryHub::default(), "/api/v1/namespaces/db/services/storage-1");
        hub.put(path, json!({"metadata": {"name": "storage-1", "namespace": "db"}}));
        let version = hub.get(path)["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        let (writer, listed) = (hub.term().hub, Name { name: "storage-1".to_owned(), version });
        let release = async |at: &str| {
            let annotations = vec![(keys::RELEASED_AT, Some(at.to_owned()))];
            annotate::<Service>(&writer, "db", &listed, &annotations).await
        };
        release("first").await.unwrap();
        assert!(matches!(release("second").await, Err(WriteError::Conflict(_))));
        assert_eq!(hub.get(path)["metadata"]["annotations"][keys::RELEASED_AT], "first");
    }
}
