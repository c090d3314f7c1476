//! Carries out a plan: one merge patch of our own annotations for each object, guarded by the version that was listed.

use std::fmt::Debug;

use futures::StreamExt;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use kube::api::{ListParams, Patch};
use kube::{Api, Resource, ResourceExt};
use serde_json::{Value, json};
use server::hub::names;
use shared::fdb::admission::Kind;
use shared::fdb::decide::{Action, Facts, Held, Plan};
use shared::guarded::Named;

use super::Fdb;
use crate::runtime::hub::as_controller;
use crate::runtime::{Guarded, Hub, Moved, ReconcileError, Reconciled, WriteError, classify};

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
pub async fn run(fdb: &Fdb, facts: &Facts<'_>, plan: &Plan) -> Done {
    let writes = plan.actions.iter().cloned().map(|action| async move {
        let written = write(fdb, facts, &action).await;
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

async fn write(fdb: &Fdb, facts: &Facts<'_>, action: &Action) -> Reconciled<()> {
    let (object, namespace) = (&facts.objects[action.object], facts.cluster.namespace().unwrap_or_default());
    let annotations = action.change.annotations(facts.now);
    let written = match object.kind {
        Kind::Pvc => annotate::<PersistentVolumeClaim>(&fdb.handle.hub, &namespace, object, &annotations).await,
        Kind::Service => annotate::<Service>(&fdb.handle.hub, &namespace, object, &annotations).await,
    };
    let what = || format!("the stamp of {} {namespace}/{}", object.kind.resource(), object.name);
    written.map_err(|source| ReconcileError::write(what())(source))
}

/// Writes annotations, if the object still is the one that was listed.
async fn annotate<K>(hub: &Hub, namespace: &str, listed: &Held, annotations: &Value) -> Result<(), WriteError>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug,
{
    hub.lead()?;
    let patch = json!({"metadata": {"resourceVersion": listed.version, "annotations": annotations}});
    let api: Api<Guarded<Named<K>>> = Api::namespaced(hub.client.clone(), namespace);
    let Err(error) = api.patch(&listed.name, &as_controller(), &Patch::Merge(patch)).await else { return Ok(()) };
    Err(classify(error, moved::<K>(hub, namespace, listed)).await)
}

/// Whether an object has moved since it was listed. There is no right to get one: it is listed again alone.
async fn moved<K>(hub: &Hub, namespace: &str, listed: &Held) -> Moved
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug,
{
    let params = ListParams::default().fields(&format!("metadata.name={}", listed.name));
    let is_it = |one: &Guarded<Named<K>>| one.name_any() == listed.name;
    let version = |one: Guarded<Named<K>>| Ok(is_it(&one).then(|| one.resource_version().unwrap_or_default()));
    let found = names::<K, _>(&hub.client, Some(namespace), &params, version).await;
    Moved::since(listed.version.as_deref(), found.map(|found| found.into_iter().flatten().next()))
}

#[cfg(test)]
mod tests {
    use shared::annotation::keys;
    use shared::fdb::suspension::Stamp;

    use super::*;
    use crate::runtime::testing::MemoryHub;

    #[tokio::test]
    async fn what_has_changed_since_it_was_listed_is_not_written_and_a_denial_is_no_lost_race() {
        let (hub, path) = (MemoryHub::default(), "/api/v1/namespaces/db/services/storage-1");
        hub.put(path, json!({"metadata": {"name": "storage-1", "namespace": "db"}}));
        let version = || hub.get(path)["metadata"]["resourceVersion"].as_str().map(str::to_owned);
        let listed = Held {
            kind: Kind::Service,
            name: "storage-1".to_owned(),
            version: version(),
            uid: String::new(),
            group: None,
            deleting: false,
            bytes: 0,
            stamp: Stamp::default(),
            woken: None,
        };
        let writer = hub.term().hub;
        let release = async |listed: &Held, at: &str| {
            annotate::<Service>(&writer, "db", listed, &json!({ keys::RELEASED_AT: at })).await
        };
        release(&listed, "first").await.unwrap();
        assert!(matches!(release(&listed, "second").await, Err(WriteError::Conflict(_))));
        assert_eq!(hub.get(path)["metadata"]["annotations"][keys::RELEASED_AT], "first");
        let listed = Held { version: version(), ..listed };
        for code in [404, 409, 422] {
            hub.inject(move |method, _, _| (*method == "PATCH").then_some(code));
            let denied = release(&listed, "third").await;
            assert!(matches!(denied, Err(WriteError::Refused(_))), "{code}: {denied:?}");
        }
        hub.heal();
        hub.remove(path);
        assert!(matches!(release(&listed, "fourth").await, Err(WriteError::Gone(_))));
    }
}
