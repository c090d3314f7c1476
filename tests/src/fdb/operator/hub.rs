//! What the operator of a database works on: the hub's API server, the database in the supervisor, and real time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result};
use fdb_simulator::database::{Command, Database, Delete, UpdateMode};
use fdb_simulator::operator::api::Cluster;
use fdb_simulator::operator::pass::SubStep;
use fdb_simulator::operator::{Conflict, Kind, Observed, Surroundings};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::store::Store;
use crate::fdb::machines::{Key, Machines};
use crate::fdb::{API_VERSION, KIND};
use crate::supervisor::clock::Clock;

/// How many objects are made at once.
const AT_ONCE: usize = 16;

pub(super) struct Hub {
    /// What the operator has seen.
    pub(super) store: Store,
    /// Where its database is.
    pub(super) machines: Arc<Machines>,
    /// Which cluster.
    pub(super) of: Key,
    /// Number of the pass.
    pub(super) pass: u64,
}

fn observed(object: &DynamicObject) -> Observed {
    Observed::new(&object.name_any(), object.metadata.deletion_timestamp.is_some(), &object.data)
}

impl Surroundings for Hub {
    const SPEED: f64 = 20.0;
    const EXCLUSION_RECOVERY: f64 = 0.1;

    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn random(&self) -> u32 {
        rand::random()
    }

    async fn sleep(&self, seconds: f64) {
        tokio::time::sleep(Duration::from_secs_f64(seconds / Self::SPEED)).await;
    }

    async fn begin(&self, _: SubStep) {}

    fn cluster(&self) -> Result<Option<Cluster>> {
        let object = self.store.get(Kind::Cluster, &self.of.1);
        object.map(|object| Cluster::new(serde_json::to_value(&*object)?)).transpose()
    }

    fn observe(&self, kind: Kind, name: &str) -> Option<Observed> {
        self.store.get(kind, name).map(|object| observed(&object))
    }

    fn claims(&self, labels: &BTreeMap<String, String>) -> Vec<Observed> {
        let has_all =
            |claim: &DynamicObject| labels.iter().all(|(name, value)| claim.labels().get(name) == Some(value));
        self.store.all(Kind::Claim).iter().filter(|claim| has_all(claim)).map(|claim| observed(claim)).collect()
    }

    async fn create(&self, kind: Kind, objects: Vec<Value>) -> Result<()> {
        let api = self.store.api(kind);
        let create = async |object: Value| {
            let object: DynamicObject = serde_json::from_value(object)?;
            let made = api.create(&PostParams::default(), &object).await;
            let made = made.with_context(|| format!("create {} {}", kind.name(), object.name_any()))?;
            self.store.put(kind, made);
            anyhow::Ok(())
        };
        stream::iter(objects.into_iter().map(create)).buffer_unordered(AT_ONCE).try_collect().await
    }

    /// Sends a DELETE, and logs it.
    async fn delete(&self, kind: Kind, name: &str) -> Result<()> {
        let at = Clock::now();
        let answer = self.store.api(kind).delete(name, &DeleteParams::default()).await;
        let error = match answer {
            Ok(answer) => {
                match (answer.left(), self.store.get(kind, name)) {
                    (Some(object), _) if object.metadata.deletion_timestamp.is_some() => self.store.put(kind, object),
                    (_, Some(object)) => self.store.remove(kind, &object),
                    _ => {}
                }
                None
            }
            Err(error) => Some(error),
        };
        let delete = Delete {
            at,
            pass: self.pass,
            kind: kind.name().to_owned(),
            name: name.to_owned(),
            error: error.as_ref().map(ToString::to_string),
        };
        self.machines.entry(&self.of, |entry| entry.log.deletes.push(delete))?;
        match error {
            Some(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Some(error) => Err(error).with_context(|| format!("could not delete {} {name}", kind.name())),
            None => Ok(()),
        }
    }

    async fn write_status(&self, cluster: &mut Cluster) -> Result<()> {
        let (api, name) = (self.store.api(Kind::Cluster), cluster.name());
        let status = serde_json::to_value(&cluster.status)?;
        let is_update = self.with_database(|database| database.settings.update_mode)? == UpdateMode::Update;
        let written = if is_update {
            let mut object: DynamicObject = serde_json::from_value(cluster.object.clone())?;
            object.data["status"] = status;
            api.replace_status(name, &PostParams::default(), &object).await
        } else {
            let patch = json!({
                "apiVersion": API_VERSION, "kind": KIND,
                "metadata": {"name": name, "namespace": self.of.0},
                "status": status,
            });
            api.patch_status(name, &PatchParams::apply("fdb-operator").force(), &Patch::Apply(&patch)).await
        };
        let object = match written {
            Err(kube::Error::Api(status)) if status.is_conflict() => return Err(Conflict.into()),
            written => written.with_context(|| format!("write the status of {name}"))?,
        };
        if is_update {
            cluster.object = serde_json::to_value(&object)?;
        }
        self.store.put(Kind::Cluster, object);
        Ok(())
    }

    fn with_database<T>(&self, act: impl FnOnce(&mut Database) -> T) -> Result<T> {
        self.machines.entry(&self.of, |entry| act(&mut entry.database))
    }

    fn log_command(&self, text: String) -> Result<()> {
        let command = Command { at: Clock::now(), by: "operator".to_owned(), text };
        self.machines.entry(&self.of, |entry| entry.log.commands.push(command))
    }
}
