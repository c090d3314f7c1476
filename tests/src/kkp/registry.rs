//! The user clusters of a world, and what is shared by all of them: KKP itself.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, PersistentVolumeClaim, Pod, Secret};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::DynamicObject;
use kube::runtime::watcher::Event;
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use super::certificates::Certificates;
use super::cloud::Cloud;
use super::control_plane::{ETCD, MEMBERS};
use super::etcd::Etcd;
use super::log::{Log, Rule};
use super::options::{KkpOptions, SeedSettings, Settings};
use super::watched::Watched;
use super::{kubermatic, machinery};
use crate::proxy::Proxy;
use crate::supervisor::children::Children;
use crate::supervisor::clock::Clock;

/// Where a user cluster is.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct KkpInfo {
    /// Name of its Cluster.
    pub id: String,
    /// The namespace of its control plane on the seed.
    pub namespace: String,
    /// Index of its spoke.
    pub spoke: usize,
    /// URL of its API server, which answers only while its control plane runs.
    pub gate: String,
}

/// KKP on one seed.
#[derive(Default)]
pub(crate) struct Kkp {
    clusters: Mutex<BTreeMap<String, Arc<UserCluster>>>,
    settings: Mutex<SeedSettings>,
    /// Spokes that have a user cluster.
    spokes: Mutex<BTreeSet<usize>>,
    /// KKP's webhooks, once there are any.
    pub(crate) webhooks: tokio::sync::OnceCell<(Proxy, String)>,
}

impl Kkp {
    pub(crate) fn clusters(&self) -> MutexGuard<'_, BTreeMap<String, Arc<UserCluster>>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn cluster(&self, id: &str) -> Result<Arc<UserCluster>> {
        self.clusters().get(id).cloned().with_context(|| format!("no user cluster {id}"))
    }

    /// Takes the first spoke that is free of so many.
    pub(crate) fn take_spoke(&self, all: usize) -> Result<usize> {
        let mut taken = self.spokes.lock().unwrap_or_else(PoisonError::into_inner);
        let spoke = (0..all).find(|spoke| !taken.contains(spoke));
        let spoke =
            spoke.context("no free spoke: each takes one user cluster, and `--spokes` says how many there are")?;
        taken.insert(spoke);
        Ok(spoke)
    }

    pub(crate) fn settings(&self) -> SeedSettings {
        self.settings.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn set(&self, settings: SeedSettings) {
        if let Some((webhooks, _)) = self.webhooks.get() {
            webhooks.set_open(!settings.webhooks_down);
        }
        *self.settings.lock().unwrap_or_else(PoisonError::into_inner) = settings;
    }

    /// Clusters that count as being updated: row 10. Those without the condition, too (row 9).
    pub(crate) fn updating(&self) -> usize {
        let clusters: Vec<Arc<UserCluster>> = self.clusters().values().cloned().collect();
        let here = clusters.iter().filter(|one| {
            one.cluster().is_some_and(|cluster| !super::seed::is_true(&cluster, "SeedResourcesUpToDate"))
        });
        here.count() + self.settings().others_updating
    }
}

/// Everything that changes of a user cluster.
#[derive(Default)]
pub(crate) struct State {
    pub(crate) settings: Settings,
    pub(crate) etcd: Etcd,
    pub(crate) cloud: Cloud,
    pub(crate) log: Log,
    pub(crate) certificates: Certificates,
    /// Replicas of the `MachineDeployments`, as an `EtcdRestore` brings them back.
    pub(crate) backup: BTreeMap<String, i64>,
}

/// Caches of the seed.
pub(crate) struct OfSeed {
    pub(crate) clusters: Watched<DynamicObject>,
    pub(crate) deployments: Watched<Deployment>,
    pub(crate) stateful_sets: Watched<StatefulSet>,
    pub(crate) pods: Watched<Pod>,
    pub(crate) claims: Watched<PersistentVolumeClaim>,
    pub(crate) restores: Watched<DynamicObject>,
    pub(crate) secrets: Watched<Secret>,
}

/// Caches of the user cluster.
pub(crate) struct OfUser {
    pub(crate) deployments: Watched<DynamicObject>,
    pub(crate) sets: Watched<DynamicObject>,
    pub(crate) machines: Watched<DynamicObject>,
    pub(crate) nodes: Watched<Node>,
    pub(crate) pods: Watched<Pod>,
    pub(crate) attachments: Watched<VolumeAttachment>,
    pub(crate) secrets: Watched<Secret>,
    pub(crate) leases: Watched<Lease>,
}

/// One user cluster and what plays it.
pub(crate) struct UserCluster {
    pub(crate) info: KkpInfo,
    /// The seed's API server.
    pub(crate) seed: Client,
    /// The user cluster's API server, past its gate.
    pub(crate) user: Client,
    pub(crate) gate: Proxy,
    /// The webhooks that guard `MachineDeployments`, by the Deployment behind each (row 52).
    pub(crate) webhooks: Vec<(&'static str, Proxy)>,
    pub(crate) authority: String,
    pub(crate) of_seed: OfSeed,
    pub(crate) of_user: OfUser,
    pub(crate) manager: Manager,
    state: Arc<Mutex<State>>,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// The user cluster's own kube-controller-manager: a process that lives while its Deployment is ready.
pub(crate) struct Manager {
    pub(crate) children: Children,
    pub(crate) executable: PathBuf,
    pub(crate) folder: PathBuf,
}

impl UserCluster {
    pub(crate) fn new(
        info: KkpInfo,
        options: &KkpOptions,
        (seed, user): (Client, Client),
        gate: Proxy,
        webhooks: Vec<(&'static str, Proxy)>,
        authority: String,
        manager: Manager,
    ) -> Result<Arc<Self>> {
        let backup = options.machine_deployments.iter().map(|one| (one.name.clone(), i64::from(one.replicas)));
        let state = State {
            settings: options.settings.clone(),
            certificates: Certificates::new(&info.id)?,
            backup: backup.collect(),
            ..State::default()
        };
        let state = Arc::new(Mutex::new(state));
        let of = |kind: &str| {
            let kind = machinery(kind);
            Watched::quiet(Api::namespaced_with(user.clone(), "kube-system", &kind), kind)
        };
        let of_user = OfUser {
            deployments: super::user::annotations::watch(&user, &state),
            sets: of("MachineSet"),
            machines: of("Machine"),
            nodes: Watched::quiet(Api::all(user.clone()), ()),
            pods: Watched::quiet(Api::all(user.clone()), ()),
            attachments: Watched::quiet(Api::all(user.clone()), ()),
            secrets: Watched::quiet(Api::namespaced(user.clone(), "cloud-init-settings"), ()),
            leases: Watched::quiet(Api::namespaced(user.clone(), "kube-node-lease"), ()),
        };
        let of_seed = OfSeed::watch(&seed, &info.namespace, &state);
        Ok(Arc::new(Self {
            info,
            seed,
            user,
            gate,
            webhooks,
            authority,
            of_seed,
            of_user,
            manager,
            state,
            tasks: Mutex::default(),
        }))
    }

    /// Begins to play it.
    pub(crate) fn play(self: &Arc<Self>, kkp: &Arc<Kkp>) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.extend(super::seed::play(self, kkp));
        tasks.extend(super::user::play(self));
    }

    /// Ends all that plays it.
    pub(crate) fn end(&self) {
        for task in self.tasks.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            task.abort();
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn settings(&self) -> Settings {
        self.state().settings.clone()
    }

    /// Notes what a part did.
    pub(crate) fn call(&self, by: &str, text: impl Into<String>) {
        self.state().log.call(Clock::now(), by, text);
    }

    pub(crate) fn violation(&self, rule: Rule, text: impl Into<String>) {
        self.state().log.violation(Clock::now(), rule, text);
    }

    /// The Cluster as KKP's cache has it.
    pub(crate) fn cluster(&self) -> Option<Arc<DynamicObject>> {
        self.of_seed.clusters.named(&self.info.id)
    }

    /// Whether a Deployment of the control plane has a Pod that is Ready.
    pub(crate) fn runs(&self, name: &str) -> bool {
        let found = self.of_seed.deployments.named(name);
        let wanted = found.as_ref().and_then(|one| one.spec.as_ref()?.replicas).unwrap_or_default();
        wanted > 0 && found.and_then(|one| one.status.as_ref()?.ready_replicas).unwrap_or_default() > 0
    }

    /// Whether the user cluster's API server answers.
    pub(crate) fn answers(&self) -> bool {
        *self.gate.opened().borrow()
    }

    /// Clusters of this seed, to write.
    pub(crate) fn clusters(&self) -> Api<DynamicObject> {
        Api::all_with(self.seed.clone(), &kubermatic("Cluster"))
    }
}

impl OfSeed {
    fn watch(seed: &Client, namespace: &str, state: &Arc<Mutex<State>>) -> Self {
        let kind = kubermatic("Cluster");
        let restore = kubermatic("EtcdRestore");
        let counts = state.clone();
        let see = move |event: &Event<StatefulSet>| {
            let (Event::Apply(set) | Event::InitApply(set)) = event else { return };
            if set.metadata.name.as_deref() == Some(ETCD) {
                let replicas = set.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
                let mut state = counts.lock().unwrap_or_else(PoisonError::into_inner);
                state.log.etcd_at(Clock::now(), i64::from(replicas), MEMBERS);
            }
        };
        Self {
            clusters: Watched::quiet(Api::all_with(seed.clone(), &kind), kind.clone()),
            deployments: Watched::quiet(Api::namespaced(seed.clone(), namespace), ()),
            stateful_sets: Watched::start(Api::namespaced(seed.clone(), namespace), (), see),
            pods: Watched::quiet(Api::namespaced(seed.clone(), namespace), ()),
            claims: Watched::quiet(Api::namespaced(seed.clone(), namespace), ()),
            restores: Watched::quiet(Api::namespaced_with(seed.clone(), namespace, &restore), restore.clone()),
            secrets: Watched::quiet(Api::namespaced(seed.clone(), namespace), ()),
        }
    }
}

/// Runs a part of the double until the world ends, by its memory. What fails is tried again at the next tick.
pub(crate) async fn each_tick<M>(
    cluster: Arc<UserCluster>,
    what: &'static str,
    mut memory: M,
    part: impl AsyncFn(&Arc<UserCluster>, &mut M) -> Result<()>,
) {
    loop {
        if let Err(error) = part(&cluster, &mut memory).await {
            tracing::debug!("{what}: {error:#}");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Replicas that a list of a kind wants.
pub(crate) fn replicas_of(object: &DynamicObject) -> i64 {
    object.data.pointer("/spec/replicas").and_then(serde_json::Value::as_i64).unwrap_or(1)
}
