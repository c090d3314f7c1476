//! Carries out a plan: one merge patch of our own annotations for each object, guarded by the version that was listed.

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Service};
use kube::ResourceExt;
use shared::annotation::format;
use shared::annotation::keys;
use shared::fdb::admission::Kind;
use shared::fdb::api::FoundationDBCluster;
use shared::fdb::decide::{Action, Plan};
use shared::fdb::suspension::moment;

use super::observe::Seen;
use super::{Fdb, FdbError};
use crate::runtime::steps::{Annotations, Place, record};
use crate::runtime::{System, WriteError};

/// Patches that are under way at once for one cluster.
const CONCURRENT_WRITES: usize = 8;

/// What came of a plan.
#[derive(Default)]
pub struct Done {
    /// Actions that were carried out.
    pub written: Vec<Action>,
    /// The first that failed. The others were tried nevertheless: each object stands for itself.
    pub failure: Option<FdbError>,
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

async fn write(fdb: &Fdb, namespace: &str, seen: &Seen, now: Timestamp, action: &Action) -> Result<(), FdbError> {
    let (object, name) = (&seen.objects[action.object()], &seen.names[action.object()]);
    let place = Place { namespace, name: &name.name, version: name.version.as_deref() };
    let step = annotations(action, now);
    let written = match object.kind {
        Kind::Pvc => record::<PersistentVolumeClaim>(fdb.hub(), &place, &step).await,
        Kind::Service => record::<Service>(fdb.hub(), &place, &step).await,
    };
    written.map_err(|source| match source {
        WriteError::NotLeader => FdbError::NotLeader,
        source => FdbError::Write { what: format!("{} {namespace}/{}", object.kind.resource(), name.name), source },
    })
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
