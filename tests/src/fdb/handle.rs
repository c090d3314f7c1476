//! One database in the hands of a test.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use fdb_simulator::operator::api::{Cluster, Group, Status};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod, Service};
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::cluster::FdbInfo;
use super::database::{Database, Delete, Log};
use super::options::{FdbOptions, Settings};
use super::resource;
use super::server::NewFdb;
use crate::world::World;

/// One database of a world. Copies are the same database. Its operator ends with the last copy. Its client belongs to
/// the runtime that it was made in.
#[derive(Clone)]
pub struct FdbCluster {
    world: World,
    info: FdbInfo,
    hub: Client,
    /// The request that the supervisor runs the operator for.
    operator: Arc<Mutex<JoinSet<Result<Value>>>>,
}

impl World {
    /// Makes a `FoundationDBCluster` in a namespace of its own (`options.namespace`, or its name and some random
    /// characters), with its operator, and waits until the operator calls it reconciled.
    pub async fn fdb(&self, name: &str, options: FdbOptions) -> Result<FdbCluster> {
        let new = NewFdb { name: name.to_owned(), options };
        let info = self.supervisor().post("/fdb", &new).await;
        let info = info.with_context(|| format!("make FoundationDBCluster {name}"))?;
        let hub = self.hub().await?;
        let cluster = FdbCluster { world: self.clone(), info, hub, operator: Arc::default() };
        cluster.restart_operator().await?;
        cluster.wait_reconciled(Duration::from_mins(2)).await?;
        Ok(cluster)
    }
}

impl FdbCluster {
    /// Its namespace.
    pub fn namespace(&self) -> &str {
        &self.info.namespace
    }

    /// Name of its `FoundationDBCluster`.
    pub fn name(&self) -> &str {
        &self.info.name
    }

    /// Its `FoundationDBCluster`, with every field that it has.
    pub async fn get(&self) -> Result<DynamicObject> {
        let found = self.api().get(&self.info.name).await;
        found.with_context(|| format!("read FoundationDBCluster {}/{}", self.info.namespace, self.info.name))
    }

    /// The same as the operator reads it.
    pub async fn cluster(&self) -> Result<Cluster> {
        Cluster::new(serde_json::to_value(self.get().await?)?)
    }

    /// Its status.
    pub async fn status(&self) -> Result<Status> {
        Ok(self.cluster().await?.status)
    }

    /// Its process groups.
    pub async fn groups(&self) -> Result<Vec<Group>> {
        Ok(self.status().await?.process_groups)
    }

    /// A process group, if it is in the status.
    pub async fn group(&self, id: &str) -> Result<Option<Group>> {
        Ok(self.groups().await?.into_iter().find(|group| group.id == id))
    }

    /// IDs of a class that are not to go, in order.
    pub async fn ids(&self, class: &str) -> Result<Vec<String>> {
        let groups =
            self.groups().await?.into_iter().filter(|group| group.process_class == class && !group.is_marked());
        let mut ids: Vec<String> = groups.map(|group| group.id).collect();
        ids.sort();
        Ok(ids)
    }

    /// Name of a group's Pod and Service.
    pub fn pod_name(&self, id: &str) -> String {
        let (rest, number) = id.rsplit_once('-').unwrap_or(("", id));
        // A prefix may hold dashes, a class does not.
        let class = rest.rsplit('-').next().unwrap_or(rest);
        format!("{}-{}-{number}", self.info.name, class.replace('_', "-"))
    }

    /// A group's Pod, if there is one.
    pub async fn pod(&self, id: &str) -> Result<Option<Pod>> {
        Ok(self.api_of::<Pod>().get_opt(&self.pod_name(id)).await?)
    }

    /// A group's volume claim, if there is one.
    pub async fn pvc(&self, id: &str) -> Result<Option<PersistentVolumeClaim>> {
        let name = format!("{}-data", self.pod_name(id));
        Ok(self.api_of::<PersistentVolumeClaim>().get_opt(&name).await?)
    }

    /// A group's own Service, if there is one.
    pub async fn service(&self, id: &str) -> Result<Option<Service>> {
        Ok(self.api_of::<Service>().get_opt(&self.pod_name(id)).await?)
    }

    /// What is on the volume that a group has now: the same text means the same data.
    pub async fn marker(&self, id: &str) -> Result<Option<String>> {
        let Some(uid) = self.pvc(id).await?.and_then(|claim| claim.metadata.uid) else { return Ok(None) };
        Ok(self.database().await?.volumes.get(&uid).map(|volume| volume.marker.clone()))
    }

    /// Merge-patches the `FoundationDBCluster` as the administrator.
    pub async fn patch(&self, patch: &Value) -> Result<DynamicObject> {
        Ok(self.api().patch(&self.info.name, &PatchParams::default(), &Patch::Merge(patch)).await?)
    }

    /// Adds IDs to `spec.processGroupsToRemove`.
    pub async fn remove(&self, ids: &[&str]) -> Result<()> {
        self.add_to("processGroupsToRemove", ids).await
    }

    /// Adds IDs to `spec.processGroupsToRemoveWithoutExclusion`.
    pub async fn remove_without_exclusion(&self, ids: &[&str]) -> Result<()> {
        self.add_to("processGroupsToRemoveWithoutExclusion", ids).await
    }

    async fn add_to(&self, list: &str, ids: &[&str]) -> Result<()> {
        let mut all: Vec<Value> = self.get().await?.data["spec"][list].as_array().cloned().unwrap_or_default();
        all.extend(ids.iter().map(|id| json!(id)));
        self.patch(&json!({"spec": {list: all}})).await.map(drop)
    }

    /// Edits the groups in the status. Refused with 409 if another client has written in between.
    pub async fn edit_groups(&self, edit: impl FnOnce(&mut Vec<Group>)) -> Result<DynamicObject> {
        let Cluster { object, mut status } = self.cluster().await?;
        let version = &object["metadata"]["resourceVersion"];
        edit(&mut status.process_groups);
        let patch =
            json!({"metadata": {"resourceVersion": version}, "status": {"processGroups": status.process_groups}});
        Ok(self.api().patch_status(&self.info.name, &PatchParams::default(), &Patch::Merge(&patch)).await?)
    }

    /// Wakes the operator by an annotation of the cluster.
    pub async fn wake(&self) -> Result<()> {
        let value = format!("{:08x}", rand::random::<u32>());
        self.patch(&json!({"metadata": {"annotations": {"testbed.hibernate.sh/wake": value}}})).await.map(drop)
    }

    /// The database as it is now.
    pub async fn database(&self) -> Result<Database> {
        self.world.supervisor().get(&self.info.path()).await
    }

    /// Everything that the database was asked, and what its operator did.
    pub async fn log(&self) -> Result<Log> {
        self.world.supervisor().get(&format!("{}/log", self.info.path())).await
    }

    /// The DELETEs that the operator has sent for an object, such as a Pod's name and `-data`.
    pub async fn deletes(&self, kind: &str, name: &str) -> Result<Vec<Delete>> {
        let all = self.log().await?.deletes.into_iter();
        Ok(all.filter(|delete| delete.kind == kind && delete.name == name).collect())
    }

    /// The DELETEs that the operator has sent for a group's volume claim.
    pub async fn pvc_deletes(&self, id: &str) -> Result<Vec<Delete>> {
        self.deletes("PersistentVolumeClaim", &format!("{}-data", self.pod_name(id))).await
    }

    /// Turns knobs: a merge patch over [`Settings`], such as `{"available": false}`.
    pub async fn turn(&self, change: &Value) -> Result<Settings> {
        self.world.supervisor().patch(&format!("{}/settings", self.info.path()), change).await
    }

    /// Makes the database answer, or not.
    pub async fn set_available(&self, available: bool) -> Result<()> {
        self.turn(&json!({"available": available})).await.map(drop)
    }

    /// Ends the operator in the middle of what it does.
    pub async fn kill_operator(&self) -> Result<()> {
        *self.operator.lock().unwrap_or_else(PoisonError::into_inner) = JoinSet::new();
        self.world.supervisor().delete(&format!("{}/operator", self.info.path())).await
    }

    /// Starts the operator, again if it runs already.
    pub async fn restart_operator(&self) -> Result<()> {
        self.kill_operator().await?;
        let (supervisor, path) = (self.world.supervisor().clone(), format!("{}/operator", self.info.path()));
        let mut operator = self.operator.lock().unwrap_or_else(PoisonError::into_inner);
        operator.spawn(async move { supervisor.get(&path).await });
        Ok(())
    }

    /// Removes it with everything that it has, as its owner would: by deleting the namespace.
    pub async fn remove_all(self) -> Result<()> {
        self.kill_operator().await?;
        self.world.supervisor().delete(&self.info.path()).await
    }

    fn api(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.hub.clone(), &self.info.namespace, &resource())
    }

    fn api_of<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.hub.clone(), &self.info.namespace)
    }
}
