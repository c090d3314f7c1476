//! Carries out a plan: one merge patch of our own annotations for each object, guarded by the version that was looked at.

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use kube::api::Patch;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use shared::annotation::{format, keys};
use shared::fdb::admission::Kind;
use shared::fdb::api::FoundationDBCluster;
use shared::fdb::decide::{Action, Facts, Plan};
use shared::fdb::suspension::moment;

use super::observe::Seen;
use super::{Context, LookError};
use crate::hub::as_controller;

/// Patches that are under way at once for one cluster.
const AT_ONCE: usize = 8;

/// What came of a plan.
pub struct Done {
    /// Actions that were carried out.
    pub written: Vec<Action>,
    /// The first that failed. The others were tried nevertheless: each object stands for itself.
    pub failure: Option<LookError>,
}

/// Carries out a plan.
pub async fn run(
    context: &Context,
    cluster: &FoundationDBCluster,
    facts: &Facts<'_>,
    seen: &Seen,
    plan: &Plan,
) -> Done {
    let namespace = cluster.namespace().unwrap_or_default();
    let namespace = namespace.as_str();
    let writes = plan.actions.iter().cloned().map(|action| async move {
        let written = write(context, namespace, facts, seen, &action).await;
        (action, written)
    });
    let mut done = Done { written: vec![], failure: None };
    let mut results = futures::stream::iter(writes).buffer_unordered(AT_ONCE);
    while let Some((action, result)) = results.next().await {
        match result {
            Ok(()) => done.written.push(action),
            Err(error) => done.failure = done.failure.or(Some(error)),
        }
    }
    done
}

async fn write(
    context: &Context,
    namespace: &str,
    facts: &Facts<'_>,
    seen: &Seen,
    action: &Action,
) -> Result<(), LookError> {
    if !context.claim.holds() {
        return Err(LookError::NotLeader);
    }
    let (object, name) = (&facts.objects[action.object()], &seen.names[action.object()]);
    let patch = Patch::Merge(json!({
        "metadata": {"resourceVersion": name.version, "annotations": annotations(action, facts.now)},
    }));
    let client = context.client.clone();
    let written = match object.kind {
        Kind::Pvc => {
            let api: Api<PersistentVolumeClaim> = Api::namespaced(client, namespace);
            api.patch_metadata(&name.name, &as_controller(), &patch).await.map(drop)
        }
        Kind::Service => {
            let api: Api<Service> = Api::namespaced(client, namespace);
            api.patch_metadata(&name.name, &as_controller(), &patch).await.map(drop)
        }
    };
    let what = || format!("{} {namespace}/{}", object.kind.resource(), name.name);
    written.map_err(|source| LookError::Write { what: what(), source: Box::new(source) })
}

/// What an action makes of our annotations.
fn annotations(action: &Action, now: Timestamp) -> Value {
    match action {
        Action::Stamp { since, record, .. } => json!({
            keys::SUSPENDED_AT: moment(*since),
            keys::SUSPENSION: record.text(),
            keys::RELEASED_AT: null,
            keys::WOKEN_AT: null,
        }),
        Action::Release { .. } => json!({keys::RELEASED_AT: format::seconds(now)}),
        Action::Wake { .. } => json!({keys::WOKEN_AT: format::seconds(now)}),
        Action::Clear { .. } => json!({
            keys::SUSPENDED_AT: null,
            keys::SUSPENSION: null,
            keys::RELEASED_AT: null,
            keys::WOKEN_AT: null,
        }),
    }
}
