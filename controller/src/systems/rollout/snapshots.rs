//! The members of the rollouts that have started, each in a `ConfigMap` of the controller's namespace: written once for
//! a generation of the spec, before the status says that the rollout has started, and read once in a term of
//! leadership.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use parking_lot::Mutex;
use shared::rollout::api::PowerRollout;
use shared::rollout::snapshot::{Snapshot, SnapshotError};
use tracing::info;

use super::uid_of;
use crate::runtime::hub::named;
use crate::runtime::{Class, Hub, ReconcileError, Reconciled, WriteError};

/// The generation of the spec, and the members that it selected.
type Known = (i64, Arc<Snapshot>);

/// The snapshots of one term, by the UID of their rollout, with the generation that they were made of.
#[derive(Debug)]
pub struct Snapshots {
    namespace: String,
    known: Mutex<HashMap<String, Known>>,
}

impl Snapshots {
    /// Keeps them in this namespace.
    pub fn new(namespace: String) -> Self {
        Self { namespace, known: Mutex::default() }
    }

    /// What was read or written of a rollout in this term, and still counts.
    pub fn known(&self, rollout: &PowerRollout) -> Option<Arc<Snapshot>> {
        let known = self.known.lock().get(uid_of(rollout)).cloned();
        known.filter(|(generation, _)| *generation == Snapshot::generation(rollout)).map(|(_, snapshot)| snapshot)
    }

    /// The members of a rollout that has started, or why they are not known.
    pub async fn read(&self, hub: &Hub, rollout: &PowerRollout) -> Reconciled<Result<Arc<Snapshot>, String>> {
        if let Some(known) = self.known(rollout) {
            return Ok(Ok(known));
        }
        let (uid, generation) = (uid_of(rollout), Snapshot::generation(rollout));
        let name = Snapshot::name(uid, generation);
        let found = hub.find(&named::<ConfigMap>(&self.namespace, &name, None)).await;
        let found = found.map_err(ReconcileError::read("the members"))?;
        let read = found.ok_or(SnapshotError::Missing).and_then(|found| Snapshot::read(&found, uid)).map(Arc::new);
        if let Ok(snapshot) = &read {
            self.known.lock().insert(uid.to_owned(), (generation, snapshot.clone()));
        }
        Ok(read.map_err(|error| {
            format!("members unknown: ConfigMap {}/{name}: {error}: abort, and create another rollout", self.namespace)
        }))
    }

    /// Records the members of a rollout that starts. What an earlier leader has recorded of this spec stays: then the
    /// next plan is about those.
    pub async fn record(&self, hub: &Hub, rollout: &PowerRollout, snapshot: Snapshot) -> Reconciled<()> {
        if self.known(rollout).is_some() {
            return Ok(());
        }
        let mut object = snapshot.config_map(rollout);
        object.metadata.namespace = Some(self.namespace.clone());
        match hub.store(&object).await {
            Ok(_) => {
                info!(rollout = rollout.name_any(), "members recorded");
                let known = (Snapshot::generation(rollout), Arc::new(snapshot));
                self.known.lock().insert(uid_of(rollout).to_owned(), known);
                Ok(())
            }
            Err(WriteError::Conflict(_)) => Err(match self.read(hub, rollout).await? {
                Ok(_) => ReconcileError::new("Recorded", Class::Outdated, "the members are recorded"),
                Err(why) => ReconcileError::new("Unrecorded", Class::Failed, format!("record the members: {why}")),
            }),
            Err(error) => Err(ReconcileError::of_other("Record", "write the record")(error)),
        }
    }

    /// A rollout is over.
    pub fn forget(&self, uid: &str) {
        self.known.lock().remove(uid);
    }

    /// Only those of these rollouts are needed any more.
    pub fn retain(&self, is_needed: impl Fn(&str) -> bool) {
        self.known.lock().retain(|uid, _| is_needed(uid));
    }
}
