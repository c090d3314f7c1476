//! One user cluster in the hands of a test.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DynamicObject, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use shared::kkp::keys;

use super::log::Log;
use super::options::{KkpOptions, SeedSettings, Settings};
use super::registry::KkpInfo;
use super::server::{Act, Inspection, NewKkp};
use super::{kubermatic, machinery, text};
use crate::supervisor::clock::Clock;
use crate::world::World;
use crate::world::helpers::eventually;

/// One user cluster of a world. Copies are the same cluster. Its clients belong to the runtime that they were made in.
#[derive(Clone)]
pub struct KkpCluster {
    world: World,
    info: KkpInfo,
    seed: Client,
    user: Client,
}

impl World {
    /// Makes a user cluster on a spoke of its own, and waits until it is up with all its machines and workloads.
    ///
    /// # Errors
    /// When an API server refuses something, no spoke is free, or it takes longer than two minutes.
    pub async fn kkp(&self, id: &str, options: KkpOptions) -> Result<KkpCluster> {
        let new = NewKkp { id: id.to_owned(), options };
        let info: KkpInfo =
            self.supervisor().post("/kkp", &new).await.with_context(|| format!("make user cluster {id}"))?;
        let (seed, user) = (self.hub().await?, self.spoke(info.spoke).await?);
        Ok(KkpCluster { world: self.clone(), info, seed, user })
    }

    /// Turns knobs of KKP itself: a merge patch over [`SeedSettings`], such as `{"datacenters": []}`.
    ///
    /// # Errors
    /// When there is no such knob.
    pub async fn turn_kkp(&self, change: &Value) -> Result<SeedSettings> {
        self.supervisor().patch("/kkp-seed", change).await
    }
}

impl KkpCluster {
    /// Where it is.
    pub fn info(&self) -> &KkpInfo {
        &self.info
    }

    /// Its world.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Its Cluster, with every field that it has.
    ///
    /// # Errors
    /// When it cannot be read.
    pub async fn get(&self) -> Result<DynamicObject> {
        Ok(self.clusters().get(&self.info.id).await?)
    }

    /// Merge-patches its Cluster as the administrator.
    ///
    /// # Errors
    /// When the seed refuses; the error is a [`kube::Error`].
    pub async fn patch(&self, patch: &Value) -> Result<DynamicObject> {
        Ok(self.clusters().patch(&self.info.id, &PatchParams::default(), &Patch::Merge(patch)).await?)
    }

    /// Asks for sleep.
    ///
    /// # Errors
    /// As [`KkpCluster::patch`].
    pub async fn sleep(&self) -> Result<DynamicObject> {
        self.request("Hibernating").await
    }

    /// Asks for waking.
    ///
    /// # Errors
    /// As [`KkpCluster::patch`].
    pub async fn wake(&self) -> Result<DynamicObject> {
        self.request("Running").await
    }

    async fn request(&self, state: &str) -> Result<DynamicObject> {
        let at = Clock::text();
        self.patch(&json!({ "metadata": { "annotations": { keys::POWER_STATE: state, keys::POWER_STATE_AT: at } } }))
            .await
    }

    /// Reason and message of our condition; `None` if there is none.
    ///
    /// # Errors
    /// When the Cluster cannot be read.
    pub async fn phase(&self) -> Result<Option<(String, String)>> {
        Ok(phase(&self.get().await?))
    }

    /// Waits until our condition has this reason; `None`: until it is gone. The error shows how things stand.
    ///
    /// # Errors
    /// When it is not in time.
    pub async fn wait_for_phase(&self, reason: Option<&str>, within: Duration) -> Result<DynamicObject> {
        let what = reason.map_or_else(|| "end of the wake".to_owned(), |reason| format!("phase {reason}"));
        let result = eventually(within, &what, async || {
            let found = self.get().await?;
            let phase = phase(&found);
            ensure!(phase.as_ref().map(|(reason, _)| reason.as_str()) == reason, "{phase:?}");
            Ok(found)
        })
        .await;
        match result {
            Err(error) => Err(error.context(self.describe().await)),
            found => found,
        }
    }

    /// Waits until something holds of its Cluster.
    ///
    /// # Errors
    /// When it does not in time.
    pub async fn wait_for(
        &self,
        what: &str,
        within: Duration,
        wanted: impl Fn(&DynamicObject) -> bool,
    ) -> Result<DynamicObject> {
        eventually(within, what, async || {
            let found = self.get().await?;
            ensure!(wanted(&found), "{}", found.data);
            Ok(found)
        })
        .await
    }

    /// Replicas of the Deployments and `StatefulSets` of its control plane.
    ///
    /// # Errors
    /// When the seed does not answer.
    pub async fn replicas(&self) -> Result<BTreeMap<String, i32>> {
        let (seed, all) = (self.seed(), ListParams::default());
        let deployments: Api<Deployment> = Api::namespaced(seed.clone(), &self.info.namespace);
        let sets: Api<StatefulSet> = Api::namespaced(seed, &self.info.namespace);
        let deployments = deployments.list(&all).await?.items.into_iter();
        let counts = deployments.map(|one| (one.name_any(), one.spec.and_then(|spec| spec.replicas).unwrap_or(1)));
        let sets = sets.list(&all).await?.items.into_iter();
        let of_sets = sets.map(|one| (one.name_any(), one.spec.and_then(|spec| spec.replicas).unwrap_or(1)));
        Ok(counts.chain(of_sets).collect())
    }

    /// Scales a Deployment or `StatefulSet` of its control plane, as `kubectl scale` does.
    ///
    /// # Errors
    /// When the seed refuses.
    pub async fn scale(&self, name: &str, replicas: i32) -> Result<()> {
        let (seed, scale) = (self.seed(), Patch::Merge(json!({ "spec": { "replicas": replicas } })));
        if matches!(name, "etcd" | "prometheus") {
            let sets: Api<StatefulSet> = Api::namespaced(seed, &self.info.namespace);
            sets.patch_scale(name, &PatchParams::default(), &scale).await?;
        } else {
            let deployments: Api<Deployment> = Api::namespaced(seed, &self.info.namespace);
            deployments.patch_scale(name, &PatchParams::default(), &scale).await?;
        }
        Ok(())
    }

    /// The record of the sleep, if there is one.
    ///
    /// # Errors
    /// When it is no JSON.
    pub async fn record(&self) -> Result<Option<Value>> {
        let records: Api<ConfigMap> = Api::namespaced(self.seed(), &self.info.namespace);
        let found = records.get_opt(keys::RECORD.0).await?;
        let text = found.and_then(|found| found.data?.remove(keys::RECORD.1));
        Ok(text.map(|text| serde_json::from_str(&text)).transpose()?)
    }

    /// A client of the seed.
    pub fn seed(&self) -> Client {
        self.seed.clone()
    }

    /// A client of the user cluster, past its gate: it answers also while the cluster sleeps.
    pub fn user(&self) -> Client {
        self.user.clone()
    }

    /// Objects of a kind of machine-controller, by name.
    ///
    /// # Errors
    /// When the user cluster does not answer.
    pub async fn machinery(&self, kind: &str) -> Result<Vec<DynamicObject>> {
        let api: Api<DynamicObject> = Api::namespaced_with(self.user(), "kube-system", &machinery(kind));
        Ok(api.list(&ListParams::default()).await?.items)
    }

    /// Merge-patches a `MachineDeployment`.
    ///
    /// # Errors
    /// When the user cluster refuses.
    pub async fn patch_machines(&self, name: &str, patch: &Value) -> Result<DynamicObject> {
        let kind = machinery("MachineDeployment");
        let api: Api<DynamicObject> = Api::namespaced_with(self.user(), "kube-system", &kind);
        Ok(api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await?)
    }

    /// etcd, cloud and gate as they are now.
    ///
    /// # Errors
    /// When the supervisor does not answer.
    pub async fn inspect(&self) -> Result<Inspection> {
        self.world.supervisor().get(&self.path("")).await
    }

    /// What was seen of it.
    ///
    /// # Errors
    /// When the supervisor does not answer.
    pub async fn log(&self) -> Result<Log> {
        self.world.supervisor().get(&self.path("/log")).await
    }

    /// Forgets what was seen of it.
    ///
    /// # Errors
    /// When the supervisor does not answer.
    pub async fn clear_log(&self) -> Result<()> {
        self.world.supervisor().delete(&self.path("/log")).await
    }

    /// Turns knobs: a merge patch over [`Settings`], such as `{"apiSilent": true}`.
    ///
    /// # Errors
    /// When there is no such knob.
    pub async fn turn(&self, change: &Value) -> Result<Settings> {
        self.world.supervisor().patch(&self.path("/settings"), change).await
    }

    /// Makes something happen.
    ///
    /// # Errors
    /// When it cannot.
    pub async fn act(&self, act: &Act) -> Result<()> {
        self.world.supervisor().post::<Value>(&self.path("/act"), act).await.map(drop)
    }

    fn path(&self, rest: &str) -> String {
        format!("/kkp/{}{rest}", self.info.id)
    }

    fn clusters(&self) -> Api<DynamicObject> {
        Api::all_with(self.seed(), &kubermatic("Cluster"))
    }

    /// How things stand, for the error of a wait.
    pub async fn describe(&self) -> String {
        let cluster = self.get().await.map(|object| {
            let paused = object.data.pointer("/spec/pause").cloned().unwrap_or_default();
            format!("phase {}, paused {paused}", text(&object, "/status/phase"))
        });
        let names = |found: Result<Vec<DynamicObject>>| {
            let one = |one: &DynamicObject| {
                let going = if one.metadata.deletion_timestamp.is_some() { " (deleted)" } else { "" };
                format!("{}{going}", one.name_any())
            };
            found.map(|all| all.iter().map(one).collect::<Vec<_>>())
        };
        format!(
            "cluster: {cluster:?}\nreplicas: {:?}\nrecord: {:?}\nMachines: {:?}\ninspection: {:?}\nviolations: {:?}",
            self.replicas().await,
            self.record().await,
            names(self.machinery("Machine").await),
            self.inspect().await.map(|found| (found.open, found.etcd, found.cloud.instances)),
            self.log().await.map(|log| log.violations),
        )
    }
}

fn phase(cluster: &DynamicObject) -> Option<(String, String)> {
    let condition = cluster.data.pointer(&format!("/status/conditions/{}", keys::DEHYDRATED))?;
    let detail = |key: &str| condition[key].as_str().unwrap_or_default().to_owned();
    Some((detail("reason"), detail("message")))
}
