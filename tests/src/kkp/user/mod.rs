//! The user cluster's side: machine-controller, operating-system-manager, the cloud, kubelets, scheduler, CSI driver,
//! and the kube-controller-manager, which is a real one.

pub(crate) mod annotations;
mod eviction;
pub(crate) mod kubelets;
mod machine;
mod manager;
mod osm;
mod pods;
mod sets;
mod storage;

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::registry::{TICK, UserCluster, each_tick};
use crate::supervisor::clock::Clock;

/// Begins to play the user cluster's side.
pub(crate) fn play(cluster: &Arc<UserCluster>) -> Vec<JoinHandle<()>> {
    let of = || cluster.clone();
    let (kubelets, storage, osm, manager, controller, pods) = (of(), of(), of(), of(), of(), of());
    vec![
        each_tick("kubelets", move || {
            let cluster = kubelets.clone();
            async move { kubelets::tick(&cluster).await }
        }),
        each_tick("storage", move || {
            let cluster = storage.clone();
            async move { storage::tick(&cluster).await }
        }),
        each_tick("kube-controller-manager", move || {
            let cluster = manager.clone();
            async move { manager::tick(&cluster).await }
        }),
        tokio::spawn(run(osm, "operating-system-manager", osm::Memory::default(), async |cluster, memory| {
            osm::tick(cluster, memory).await
        })),
        tokio::spawn(run(pods, "Pods", pods::Memory::default(), async |cluster, memory| {
            pods::tick(cluster, memory).await
        })),
        tokio::spawn(run(controller, "machine-controller", Memory::default(), async |cluster, memory| {
            machine_controller(cluster, memory).await
        })),
    ]
}

async fn run<M>(
    cluster: Arc<UserCluster>,
    what: &'static str,
    mut memory: M,
    part: impl AsyncFn(&UserCluster, &mut M) -> anyhow::Result<()>,
) {
    loop {
        if let Err(error) = part(&cluster, &mut memory).await {
            tracing::debug!("{what}: {error:#}");
        }
        tokio::time::sleep(TICK).await;
    }
}

/// A component of the control plane that needs its lease before it acts.
#[derive(Default)]
pub(crate) struct Lead {
    since: Option<f64>,
}

impl Lead {
    /// Whether it acts now. Row 58: after the API server was away, the lease takes 15 s; it exits when it loses it.
    pub(crate) fn holds(&mut self, cluster: &UserCluster, deployment: &str) -> bool {
        if !cluster.answers() || !cluster.runs(deployment) {
            self.since = None;
            return false;
        }
        let settings = cluster.settings();
        let now = Clock::now();
        now - *self.since.get_or_insert(now) >= settings.secs(settings.lease_wait)
    }
}

#[derive(Default)]
struct Memory {
    lead: Lead,
    sets: sets::Memory,
    machines: machine::Memory,
}

/// One round of machine-controller: the cloud does its part whether it runs or not.
async fn machine_controller(cluster: &UserCluster, memory: &mut Memory) -> anyhow::Result<()> {
    if !memory.lead.holds(cluster, "machine-controller") {
        memory.machines = machine::Memory::default();
        memory.sets = sets::Memory::default();
        return Ok(());
    }
    sets::tick(cluster, &mut memory.sets).await?;
    machine::tick(cluster, &mut memory.machines).await
}
