//! The supervisor: one process that owns all others of a world and plays its machines.

pub(crate) mod answer;
pub mod children;
pub mod clock;
mod clusters;
pub mod control;
mod fdb;
mod hub;
mod kkp;
pub mod programs;
mod seed;
mod startup;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use kube::Client;
use rustls::ServerConfig;
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use self::children::Children;
use self::clock::Clock;
use self::clusters::Entry;
use self::programs::Programs;
use crate::cluster::ClusterInfo;
use crate::cluster::certificates::Issuance;
use crate::controlplane::server::Cluster;
use crate::ec2::Ec2;
use crate::ec2::client::Snapshot;
use crate::fdb::machines::Machines;
use crate::kkp::registry::Kkp;
use crate::openstack;
use crate::options::Options;
use crate::pki::Identity;
use crate::process::{Rank, Record};
use crate::proxy::Proxy;
use crate::simulated;
use crate::world_file::{Control, Ec2Address, Hub, Server, WorldFile};

/// What `testbed up` hands over to the supervisor, as `DIR/plan.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// What to start.
    pub options: Options,
    /// Folder with our programs.
    pub programs: BTreeMap<String, PathBuf>,
}

/// File names in a world's folder.
pub mod files {
    /// What to start.
    pub const PLAN: &str = "plan.json";
    /// What has been done so far, a line each, for who waits.
    pub const PROGRESS: &str = "progress";
    /// Why the start has failed.
    pub const FAILED: &str = "failed";
    /// Records of processes.
    pub const PIDS: &str = "pids";
    /// Logs.
    pub const LOGS: &str = "logs";
}

/// A running world.
pub(crate) struct World {
    dir: PathBuf,
    options: Options,
    clock: Clock,
    children: Children,
    authority: String,
    gate_tls: Arc<ServerConfig>,
    hub: Hub,
    pub(crate) hub_client: Client,
    hub_proxy: Proxy,
    spokes: Vec<Spoke>,
    ec2: Ec2,
    ec2_address: Ec2Address,
    openstack: Option<openstack::Server>,
    clouds: simulated::Clouds,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    clusters: Mutex<BTreeMap<String, Entry>>,
    programs: Programs,
    /// Pods and databases of the FoundationDB double.
    pub(crate) machines: Arc<Machines>,
    /// User clusters of the KKP double.
    pub(crate) kkp: Arc<Kkp>,
    kubelet_tls: Identity,
    control: Control,
}

pub(crate) struct Spoke {
    server: Cluster,
    client: Client,
    issuance: Issuance,
}

/// Runs a world until it receives SIGTERM, or the process that it belongs to has ended.
///
/// # Errors
/// When the world does not start; the reason is in `DIR/failed` then, too.
pub async fn run(dir: &Path) -> Result<()> {
    let plan =
        std::fs::read(dir.join(files::PLAN)).with_context(|| format!("read {}", dir.join(files::PLAN).display()))?;
    let plan: Plan = serde_json::from_slice(&plan).context("read plan.json")?;
    let pids = dir.join(files::PIDS);
    let own = Record::of("supervisor", std::process::id(), Rank::Supervisor)?;
    own.save(&pids)?;
    let children = Children::new(&pids, &dir.join(files::LOGS))?;
    let owner = plan.options.while_pid;
    let mut orphaned = false;
    let result = tokio::select! {
        result = live(dir, plan, &children) => result,
        () = told_to_end() => Ok(()),
        () = ended(owner) => {
            orphaned = true;
            Ok(())
        }
    };
    if let Err(error) = &result {
        tracing::error!("{error:#}");
        let _ = std::fs::write(dir.join(files::FAILED), format!("{error:#}\n"));
    }
    children.end().await;
    let _ = std::fs::remove_file(dir.join(crate::world_file::NAME));
    own.forget(&pids);
    if orphaned {
        // Nobody comes back for its logs.
        let _ = std::fs::remove_dir_all(dir);
    }
    result
}

async fn live(dir: &Path, plan: Plan, children: &Children) -> Result<()> {
    let world = startup::start(dir, plan, children).await?;
    std::future::pending::<()>().await;
    drop(world);
    Ok(())
}

async fn told_to_end() {
    let (Ok(mut term), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt())) else {
        return std::future::pending().await;
    };
    tokio::select! {
        _ = term.recv() => {}
        _ = interrupt.recv() => {}
    }
}

async fn ended(owner: Option<i32>) {
    let Some(pid) = owner else { return std::future::pending().await };
    let Some(record) = u32::try_from(pid).ok().and_then(|pid| Record::of("owner", pid, Rank::Program).ok()) else {
        return;
    };
    while record.is_alive() {
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

impl World {
    /// The world as it is now.
    fn file(&self) -> WorldFile {
        WorldFile {
            hub: self.hub.clone(),
            spokes: self
                .spokes
                .iter()
                .map(|spoke| Server { kubeconfig: spoke.server.kubeconfig.clone(), url: spoke.server.url.clone() })
                .collect(),
            ec2: self.ec2_address.clone(),
            openstack: self.openstack.as_ref().map(|openstack| openstack.client.keystone().to_owned()),
            simulators: self.clouds.endpoints(),
            webhook: self.programs.webhook(),
            controller: self.programs.controller(),
            clusters: self.clusters_by_age(),
            control: self.control.clone(),
            logs: self.dir.join(files::LOGS),
            authority: self.dir.join("ca.crt"),
            pids: self
                .children
                .records()
                .into_iter()
                .map(|record| (record.name, record.pid))
                .chain([("supervisor".to_owned(), std::process::id().cast_signed())])
                .collect(),
        }
    }

    /// Writes the current world to its file. One writer at a time, because clusters change concurrently.
    fn publish(&self) -> Result<WorldFile> {
        static TURN: Mutex<()> = Mutex::new(());
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let file = self.file();
        file.write(&self.dir)?;
        Ok(file)
    }

    fn clusters_by_age(&self) -> Vec<ClusterInfo> {
        let entries = self.entries();
        let mut all: Vec<&Entry> = entries.values().collect();
        all.sort_by_key(|entry| entry.made);
        all.into_iter().map(|entry| entry.info.clone()).collect()
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
