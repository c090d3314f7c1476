//! What runs the Pods of the double, and what knows its databases: lives in the supervisor.
//!
//! Pods of any `FoundationDBCluster` are bound to a Node, become Ready, report to their database, and are really gone
//! some time after their DELETE. Their volumes are bound at once and never hold anything but a marker in the database's
//! books.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, ResourceExt as _};
use serde_json::{Value, json};
use tokio::sync::{OnceCell, Semaphore};

use super::KIND;
use super::cluster::node_name;
use super::database::{Database, Log, Process};
use super::options::{POD_END, POD_START, REPORT};
use crate::supervisor::clock::Clock;

/// Namespace and name of a `FoundationDBCluster`.
pub(crate) type Key = (String, String);

/// Everything of one database.
pub(crate) struct Entry {
    pub(crate) database: Database,
    pub(crate) log: Log,
    pub(crate) zones: usize,
    /// Held by its operator: there is one at a time.
    pub(crate) operator: Arc<tokio::sync::Mutex<()>>,
}

/// All databases, and the Pods of their processes.
pub(crate) struct Machines {
    client: Client,
    entries: Mutex<BTreeMap<Key, Entry>>,
    /// UIDs of the Pods that a task handles.
    started: Mutex<HashSet<String>>,
    ending: Mutex<HashSet<String>>,
    /// The Node of each volume.
    places: Mutex<Places>,
    next_address: AtomicU32,
    /// So many calls at once.
    turns: Semaphore,
    /// Port of the kubelet, once there is one.
    pub(crate) kubelet: OnceCell<u16>,
}

#[derive(Default)]
struct Places {
    /// How many Pods of a cluster's class were bound to a Node of their choice.
    bound: HashMap<(Key, String), usize>,
    homes: HashMap<String, usize>,
}

/// The `FoundationDBCluster` that an object belongs to.
fn owner(metadata: &ObjectMeta) -> Option<Key> {
    let owner = metadata.owner_references.iter().flatten().find(|owner| owner.kind == KIND)?;
    Some((metadata.namespace.clone()?, owner.name.clone()))
}

fn variable(pod: &Pod, name: &str) -> Option<String> {
    let containers = &pod.spec.as_ref()?.containers;
    let mut variables = containers.iter().flat_map(|container| container.env.iter().flatten());
    variables.find(|variable| variable.name == name).and_then(|variable| variable.value.clone())
}

fn claim(pod: &Pod) -> Option<String> {
    let volumes = pod.spec.as_ref()?.volumes.iter().flatten();
    volumes.filter_map(|volume| volume.persistent_volume_claim.as_ref()).map(|claim| claim.claim_name.clone()).next()
}

impl Machines {
    pub(crate) fn new(client: Client) -> Arc<Self> {
        Arc::new(Self {
            client,
            entries: Mutex::default(),
            started: Mutex::default(),
            ending: Mutex::default(),
            places: Mutex::default(),
            next_address: AtomicU32::new(1),
            turns: Semaphore::new(16),
            kubelet: OnceCell::new(),
        })
    }

    /// Begins to see to Pods and volumes.
    pub(crate) fn play(self: &Arc<Self>) {
        let (pods, claims) = (self.clone(), self.clone());
        tokio::spawn(async move { pods.watch_pods().await });
        tokio::spawn(async move { claims.watch_claims().await });
    }

    pub(crate) fn entries(&self) -> MutexGuard<'_, BTreeMap<Key, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something with a database.
    pub(crate) fn entry<T>(&self, of: &Key, act: impl FnOnce(&mut Entry) -> T) -> Result<T> {
        let mut entries = self.entries();
        let entry = entries.get_mut(of).with_context(|| format!("no database {}/{}", of.0, of.1))?;
        Ok(act(entry))
    }

    /// Tells a database of something, if it is still there.
    fn with(&self, of: &Key, change: impl FnOnce(&mut Database)) {
        let _ = self.entry(of, |entry| change(&mut entry.database));
    }

    async fn watch_pods(self: Arc<Self>) {
        let events = watcher(Api::<Pod>::all(self.client.clone()), watcher::Config::default()).default_backoff();
        let mut events = std::pin::pin!(events.filter_map(async |event| event.ok()));
        while let Some(event) = events.next().await {
            match event {
                watcher::Event::Apply(pod) | watcher::Event::InitApply(pod) => self.see(pod),
                watcher::Event::Delete(pod) => self.forget(&pod),
                watcher::Event::Init | watcher::Event::InitDone => {}
            }
        }
    }

    async fn watch_claims(self: Arc<Self>) {
        let api = Api::<PersistentVolumeClaim>::all(self.client.clone());
        let events = watcher(api, watcher::Config::default()).default_backoff();
        let mut events = std::pin::pin!(events.into_stream().map_err(drop).filter_map(async |event| event.ok()));
        while let Some(event) = events.next().await {
            if let watcher::Event::Delete(claim) = event
                && let Some(owner) = owner(&claim.metadata)
            {
                let uid = claim.uid().unwrap_or_default();
                self.with(&owner, |database| database.lose(&uid));
            }
        }
    }

    fn see(self: &Arc<Self>, pod: Pod) {
        let Some(owner) = owner(&pod.metadata) else { return };
        let uid = pod.uid().unwrap_or_default();
        let ends = pod.metadata.deletion_timestamp.is_some();
        if ends {
            self.with(&owner, |database| database.fall_silent(&uid));
        }
        if lock(if ends { &self.ending } else { &self.started }).insert(uid) {
            let machines = self.clone();
            tokio::spawn(async move { machines.see_to(&owner, pod).await });
        }
    }

    /// Does what is to be done with a Pod, again and again while the hub does not answer.
    async fn see_to(&self, owner: &Key, mut pod: Pod) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &owner.0);
        let (name, uid, ends) = (pod.name_any(), pod.uid(), pod.metadata.deletion_timestamp.is_some());
        loop {
            let result = if ends { self.end(owner, &pod).await } else { self.run(owner, &pod).await };
            let Err(error) = result else { return };
            tracing::warn!(pod = name, namespace = owner.0, "{error:#}");
            tokio::time::sleep(Duration::from_secs(1)).await;
            match pods.get_opt(&name).await {
                Ok(Some(new)) if new.uid() == uid => pod = new,
                Ok(_) => return,
                Err(_) => {}
            }
        }
    }

    fn forget(&self, pod: &Pod) {
        let Some(owner) = owner(&pod.metadata) else { return };
        let uid = pod.uid().unwrap_or_default();
        lock(&self.started).remove(&uid);
        lock(&self.ending).remove(&uid);
        self.with(&owner, |database| database.fall_silent(&uid));
    }

    /// From a new Pod to a process that reports.
    async fn run(&self, owner: &Key, pod: &Pod) -> Result<()> {
        let (name, uid) = (pod.name_any(), pod.uid().unwrap_or_default());
        let Some(volume) = self.volume(owner, pod, &uid).await? else { return Ok(()) };
        let zone = match pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()) {
            Some(node) => node.to_owned(),
            None => self.bind(owner, pod, volume.as_ref()).await?,
        };
        let running = pod.status.as_ref().and_then(|status| status.pod_ip.clone());
        let address = if let Some(address) = running {
            address
        } else {
            tokio::time::sleep(POD_START).await;
            self.make_ready(owner, &name, volume.as_ref()).await?
        };
        let Some(group) = variable(pod, "FDB_INSTANCE_ID") else { return Ok(()) };
        if let Some(volume) = &volume {
            self.with(owner, |database| database.mount(&volume.0, &volume.1, &group));
        }
        tokio::time::sleep(REPORT).await;
        if !lock(&self.started).contains(&uid) || lock(&self.ending).contains(&uid) {
            return Ok(());
        }
        let process = Process {
            address: variable(pod, "FDB_PUBLIC_IP").unwrap_or(address),
            zone,
            pod: uid,
            volume: volume.map(|(uid, _)| uid),
        };
        self.with(owner, |database| database.report(&group, process));
        Ok(())
    }

    /// UID and name of the Pod's claim, once it is there. None: the Pod is gone.
    async fn volume(&self, owner: &Key, pod: &Pod, uid: &str) -> Result<Option<Option<(String, String)>>> {
        let Some(name) = claim(pod) else { return Ok(Some(None)) };
        let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &owner.0);
        loop {
            if !lock(&self.started).contains(uid) || lock(&self.ending).contains(uid) {
                return Ok(None);
            }
            let turn = self.turns.acquire().await;
            let found = claims.get_opt(&name).await.with_context(|| format!("read claim {name}"))?;
            drop(turn);
            if let Some(claim) = found.filter(|claim| claim.metadata.deletion_timestamp.is_none()) {
                return Ok(Some(Some((claim.uid().unwrap_or_default(), name))));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Chooses the next Node for a Pod of this class, or the one that the volume is on.
    async fn bind(&self, owner: &Key, pod: &Pod, volume: Option<&(String, String)>) -> Result<String> {
        let zones = self.entries().get(owner).map_or(1, |entry| entry.zones).max(1);
        let zone = {
            let mut places = lock(&self.places);
            let home = volume.and_then(|(uid, _)| places.homes.get(uid).copied());
            let zone = home.unwrap_or_else(|| {
                let class = variable(pod, "FDB_PROCESS_CLASS").unwrap_or_default();
                let bound = places.bound.entry((owner.clone(), class)).or_default();
                *bound += 1;
                (*bound - 1) % zones
            });
            if let Some((uid, _)) = volume {
                places.homes.insert(uid.clone(), zone);
            }
            node_name(zone)
        };
        let _turn = self.turns.acquire().await;
        let name = pod.name_any();
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": name, "namespace": owner.0},
            "target": {"apiVersion": "v1", "kind": "Node", "name": zone},
        });
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &owner.0);
        let bound: kube::Result<Value> =
            pods.create_subresource("binding", &name, &PostParams::default(), &binding).await;
        bound.with_context(|| format!("bind Pod {name} to {zone}"))?;
        Ok(zone)
    }

    /// Writes what a kubelet writes of a Pod that runs, and what a provisioner writes of its claim. Answers the Pod's
    /// address.
    async fn make_ready(&self, owner: &Key, name: &str, volume: Option<&(String, String)>) -> Result<String> {
        let _turn = self.turns.acquire().await;
        let number = self.next_address.fetch_add(1, Ordering::Relaxed);
        let [_, high, middle, low] = number.to_be_bytes();
        let address = format!("10.{}.{middle}.{low}", 128 + high);
        let now = Clock::text();
        let condition = |type_: &str| json!({"type": type_, "status": "True", "lastTransitionTime": now});
        let status = json!({"status": {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "hostIP": "127.0.0.1", "startTime": now,
            "conditions": (["Initialized", "Ready", "ContainersReady", "PodScheduled"].map(condition)),
            "containerStatuses": (["foundationdb", "foundationdb-kubernetes-sidecar"].map(|name| json!({
                "name": name, "ready": true, "started": true, "restartCount": 0, "image": name, "imageID": "",
                "state": {"running": {"startedAt": now}},
            }))),
        }});
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &owner.0);
        let written = pods.patch_status(name, &PatchParams::default(), &Patch::Strategic(&status)).await;
        written.with_context(|| format!("make Pod {name} Ready"))?;
        if let Some((_, claim)) = volume {
            let claims: Api<PersistentVolumeClaim> = Api::namespaced(self.client.clone(), &owner.0);
            let status = json!({"status": {"phase": "Bound", "accessModes": ["ReadWriteOnce"]}});
            let written = claims.patch_status(claim, &PatchParams::default(), &Patch::Merge(&status)).await;
            written.with_context(|| format!("bind claim {claim}"))?;
        }
        Ok(address)
    }

    /// Really removes a Pod, some time after its DELETE.
    async fn end(&self, owner: &Key, pod: &Pod) -> Result<()> {
        tokio::time::sleep(POD_END).await;
        let _turn = self.turns.acquire().await;
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &owner.0);
        let now = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: pod.uid(), resource_version: None }),
            ..DeleteParams::default()
        };
        match pods.delete(&pod.name_any(), &now).await {
            Ok(_) => Ok(()),
            Err(kube::Error::Api(status)) if status.is_not_found() || status.is_conflict() => Ok(()),
            Err(error) => Err(error).context("end a Pod"),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
