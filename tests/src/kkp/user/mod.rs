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

use super::options::wait;
use super::registry::{UserCluster, each_tick};
use crate::supervisor::clock::Clock;

/// Begins to play the user cluster's side.
pub(crate) fn play(cluster: &Arc<UserCluster>) -> Vec<JoinHandle<()>> {
    let of = || cluster.clone();
    vec![
        tokio::spawn(each_tick(of(), "kubelets", (), async |cluster, ()| kubelets::tick(cluster).await)),
        tokio::spawn(each_tick(of(), "storage", (), async |cluster, ()| storage::tick(cluster).await)),
        tokio::spawn(each_tick(of(), "kube-controller-manager", (), async |cluster, ()| manager::tick(cluster).await)),
        tokio::spawn(each_tick(of(), "operating-system-manager", Lead::default(), async |cluster, lead| {
            osm::tick(cluster, lead).await
        })),
        tokio::spawn(each_tick(of(), "Pods", pods::Memory::default(), async |cluster, memory| {
            pods::tick(cluster, memory).await
        })),
        tokio::spawn(each_tick(of(), "machine-controller", Memory::default(), async |cluster, memory| {
            machine_controller(cluster, memory).await
        })),
    ]
}

/// How long a leader election takes after the API server was away (row 58).
const LEASE: f64 = 15.0;

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
        let now = Clock::now();
        now - *self.since.get_or_insert(now) >= wait(LEASE)
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
