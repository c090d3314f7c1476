//! Starts the controller, and runs it in terms of leadership until it is stopped.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use fair::{FairLimit, MemoryLimit, MemorySizes};
use k8s_openapi::api::coordination::v1::Lease;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::events::Reporter;
use kube::{Api, Client, Config};
use serde::Serialize;
use server::{Warnings, log};
use shared::annotation::keys;
use shared::hive::api::ClusterDeployment;
use shared::kinds::{CLUSTER_DEPLOYMENT, KKP_CLUSTER, Kinds};
use shared::kkp::api::Cluster;
use shared::schedule::api::{ClusterPowerSchedule, PowerSchedule, Schedule};
use shared::text::sanitize_chain;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;
use tower::BoxError;
use tracing::{error, info, warn};

use crate::args::Args;
use crate::fleet::{FleetKind, MemberKind, Watched};
use crate::metrics::Metrics;
use crate::runtime::crash_marks::CrashMarks;
use crate::runtime::events::Events;
use crate::runtime::kind::{Group, Kind};
use crate::runtime::lease::{Claim, Election, Times};
use crate::runtime::readiness::{self, Readiness};
use crate::runtime::{self, Hub, Object, Term, clock, group, panics, watch_backoff};
use crate::spoke::{Network, Threads};
use crate::systems::cgu::index::GovernanceIndex;
use crate::systems::cgu::sleepers::Sleepers;
use crate::systems::cgu::{CguSettings, Upgrades};
use crate::systems::fdb::Fdb;
use crate::systems::hive::{Drivers, Hive, Ownership};
use crate::systems::kkp::Kkp;
use crate::systems::reachability::Reachability;
use crate::systems::rollout::{Rollouts, Turns, trim};
use crate::systems::schedule::{Governance, ScheduledRollouts, Schedules};

/// How many status writes are under way at once. The hub has other users.
const CONCURRENT_WRITES: usize = 32;

/// Why the controller could not start or go on.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("--lease-duration must be longer than --renew-deadline, and that longer than --retry-period")]
    Times,
    #[error("find the hub")]
    Hub(#[source] BoxError),
    #[error("cannot serve on {0}")]
    Serve(std::net::SocketAddr, #[source] std::io::Error),
    #[error("cannot keep state in {0} (--state-dir)")]
    State(std::path::PathBuf, #[source] std::io::Error),
    #[error("cannot start threads")]
    Threads(#[source] std::io::Error),
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
}

/// The program, for these kinds: `members` are watched besides those that its own systems work on.
pub fn run(kinds: Kinds, members: Vec<MemberKind>) -> ExitCode {
    // Before any TLS: two crypto providers in one process panic.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let args = Args::parse();
    log::init(args.log_format, false, LOGGED);
    panics::install_hook();
    match start(args, kinds, members) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            error!(error = sanitize_chain(&failure), "fatal error");
            ExitCode::FAILURE
        }
    }
}

fn start(args: Args, kinds: Kinds, members: Vec<MemberKind>) -> Result<(), Failure> {
    let spokes = Threads::runtime().map_err(Failure::Threads)?;
    let ended = Runtime::new().map_err(Failure::Threads)?.block_on(serve(args, kinds, members, Threads::from(&spokes)));
    spokes.shutdown_background(); // a lookup of a name may last
    ended
}

/// kube's client logs the whole text of an answer that it cannot read, and spokes are untrusted.
const LOGGED: &str = "info,kube=warn,kube_client::client=error";

async fn serve(args: Args, kinds: Kinds, members: Vec<MemberKind>, threads: Threads) -> Result<(), Failure> {
    let times = Times { lease: args.lease_duration, deadline: args.renew_deadline, retry: args.retry_period };
    if !times.are_ordered() {
        return Err(Failure::Times);
    }
    let mut config = config(&args).await.map_err(Failure::Hub)?;
    // Longer than the API server lets a watch live.
    config.read_timeout = Some(Duration::from_secs(320));
    let watches = Client::try_from(config.clone()).map_err(|error| Failure::Hub(error.into()))?;
    let watches = server::hub::bounded(watch_backoff::spaced(watches));
    // Of all requests only a watch may wait long for the next byte.
    config.read_timeout = Some(Duration::from_secs(15));
    let client = server::hub::bounded(Client::try_from(config).map_err(|error| Failure::Hub(error.into()))?);
    let identity = args.identity.clone().unwrap_or_else(identity);
    let metrics = Arc::new(Metrics::default());
    let readiness = Arc::new(Readiness::new(metrics.clone()));
    let leases: Api<Lease> = Api::namespaced(client.clone(), &args.namespace);
    let mut election = Election::new(leases, args.lease.clone(), identity.clone(), times, readiness.clone());
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::Signals)?;
    info!(identity, version = env!("CARGO_PKG_VERSION"), "starting");
    if let Some(variable) = egress_proxy(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty())) {
        warn!(variable, "calls to clouds use this proxy; connections to clusters do not, and need a direct route");
    }

    let marks = match &args.state_dir {
        Some(folder) => CrashMarks::open(folder).map_err(|source| Failure::State(folder.clone(), source))?,
        None => CrashMarks::default(),
    };
    let (listen, network, cgu) = (args.listen, args.network(threads), args.cgu_settings());
    let served = readiness::serve(listen, metrics.clone(), readiness.clone());
    let memory = MemoryLimit::new(MemorySizes::OBJECTS);
    let members = members.into_iter().chain(args.members()).collect();
    let process = Process { args, kinds, members, identity, network, cgu, client, watches, memory, metrics, marks };
    let work = async {
        loop {
            election.win().await;
            process.metrics.leader.set(1);
            let term = Term { hub: process.hub(election.claim()), readiness: readiness.clone() };
            let (members, watches): (Vec<_>, Vec<_>) = process.members.iter().map(|kind| kind.watch(&term)).unzip();
            let shared = Shared { members, ..Shared::default() };
            let watches = [groups(&process, &shared, &term), watches].into_iter().flatten().collect::<Vec<_>>();
            tokio::select! {
                () = runtime::run(&watches, &term.hub) => {}
                () = election.keep() => {}
            }
            process.metrics.leader.set(0);
            process.metrics.forget_all();
            readiness.rest();
        }
    };
    let ended = tokio::select! {
        () = work => Ok(()),
        served = served => served.map_err(|source| Failure::Serve(listen, source)),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    election.release().await;
    ended
}

/// What lasts as long as the process.
struct Process {
    args: Args,
    kinds: Kinds,
    members: Vec<MemberKind>,
    identity: String,
    network: Network,
    cgu: Arc<CguSettings>,
    client: Client,
    watches: Client,
    memory: MemoryLimit,
    metrics: Arc<Metrics>,
    marks: CrashMarks,
}

/// What the systems of one term of leadership share.
#[derive(Default)]
struct Shared {
    ownership: Arc<Ownership>,
    clusters: Arc<Watched<ClusterDeployment>>,
    user_clusters: Arc<Watched<Cluster>>,
    sleepers: Arc<Sleepers>,
    governance: Arc<Governance>,
    scheduled: Arc<ScheduledRollouts>,
    /// Kinds that only rollouts work on.
    members: Vec<FleetKind>,
}

/// Every kind that a system of this controller works on, with these systems.
fn groups<'a>(process: &'a Process, shared: &'a Shared, term: &'a Term) -> Vec<Group<'a>> {
    let Process { args, network, .. } = process;
    let hive = move || {
        let (drivers, ownership) = (process.drivers(&term.hub), shared.ownership.clone());
        let new = |handle| Hive::new(handle, drivers, ownership, network.clone(), args.settings(), args.concurrency);
        let mut hive = term.watch().with(new);
        if args.own_unreachable {
            hive = hive.with(|handle| Reachability::new(handle, network.clone()));
        }
        hive = hive.followed_by(shared.clusters.clone());
        if args.cgu {
            hive = hive.followed_by(shared.sleepers.clone());
        }
        hive.followed_by(shared.ownership.clone())
    };
    let rollouts = move || {
        let (watched, turns) = (fleets(args, shared), Arc::new(Turns::new(args.max_rollouts_per_requester)));
        let (network, namespace, queue) = (network.clone(), args.namespace.clone(), turns.clone());
        let governance = shared.governance.clone();
        let new = |handle| Rollouts::new(handle, process.kinds, watched, governance, network, namespace, queue);
        let rollouts = term.watch().with(new);
        rollouts.followed_by(turns).followed_by(shared.scheduled.clone()).trimmed_by(trim)
    };
    let own_schedules =
        move || schedules::<PowerSchedule>(process, shared, term).followed_by(shared.governance.clone());
    let schedules =
        move || schedules::<ClusterPowerSchedule>(process, shared, term).followed_by(shared.governance.clone());
    let fdb = move || term.watch().with(|handle| Fdb::new(handle, args.fdb_minimum_suspension));
    let cgu = move || {
        let (governed, sleepers) = (Arc::<GovernanceIndex>::default(), shared.sleepers.clone());
        let new = |handle| Upgrades::new(handle, governed.clone(), sleepers, process.cgu.clone());
        term.watch().with(new).followed_by(governed)
    };
    let kkp = move || {
        let kkp = term.watch().with(|handle| Kkp::new(handle, network.clone(), args.kkp_settings()));
        kkp.followed_by(shared.user_clusters.clone())
    };
    let on_request = [args.cgu.then(|| group(cgu)), args.kkp.then(|| group(kkp))];
    let always = [group(hive), group(rollouts), group(own_schedules), group(schedules), group(fdb)];
    always.into_iter().chain(on_request.into_iter().flatten()).collect()
}

/// The schedules of one kind.
fn schedules<S: Schedule + Object + Serialize>(process: &Process, shared: &Shared, term: &Term) -> Kind<S> {
    let (kinds, watched) = (process.kinds, fleets(&process.args, shared));
    let (others, namespace) = ((shared.scheduled.clone(), shared.governance.clone()), process.args.namespace.clone());
    term.watch().with(|handle| Schedules::new(handle, kinds, watched, others, namespace))
}

/// The kinds whose objects rollouts start.
fn fleets(args: &Args, shared: &Shared) -> Vec<FleetKind> {
    let hive = FleetKind::of(&CLUSTER_DEPLOYMENT, shared.clusters.clone());
    let hive = FleetKind { domain: shared.ownership.clone().domains(), upgrades: true, ..hive };
    let kkp = args.kkp.then(|| FleetKind::of(&KKP_CLUSTER, shared.user_clusters.clone()));
    [hive].into_iter().chain(kkp).chain(shared.members.iter().cloned()).collect()
}

impl Process {
    /// The hub in a new term of leadership.
    fn hub(&self, claim: Claim) -> Hub {
        let reporter = Reporter { controller: keys::CONTROLLER.to_owned(), instance: Some(self.identity.clone()) };
        Hub {
            client: self.client.clone(),
            watches: self.watches.clone(),
            memory: self.memory.clone(),
            claim,
            metrics: self.metrics.clone(),
            events: Events::new(self.client.clone(), reporter),
            warnings: Warnings::default(),
            marks: self.marks.clone(),
            writes: FairLimit::new(CONCURRENT_WRITES, CONCURRENT_WRITES),
            began: Instant::now(),
            began_at: clock::now(),
        }
    }

    /// The clouds' drivers in a new term of leadership.
    fn drivers(&self, hub: &Hub) -> Drivers {
        let claim = hub.claim.clone();
        let process = cloud_common::Process {
            identity: self.identity.clone(),
            permit: Arc::new(move || claim.holds()),
            dialer: self.args.cloud_dialer(),
            memory: self.network.memory.clone(),
        };
        Drivers::new(hub.clone(), &self.args.clouds, &process)
    }
}

/// Where the hub is, with calls that end: the default would retry for minutes and wait forever.
async fn config(args: &Args) -> Result<Config, BoxError> {
    let mut config = match &args.kubeconfig {
        None => Config::infer().await?,
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path)?;
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?
        }
    };
    config.connect_timeout = Some(Duration::from_secs(5));
    config.write_timeout = Some(Duration::from_secs(15));
    config.default_retry = false;
    config.headers.push(runtime::hub::user_agent());
    Ok(config)
}

/// The variable that names a proxy for calls to clouds. Its value may hold a password.
fn egress_proxy(is_set: impl Fn(&str) -> bool) -> Option<&'static str> {
    ["HTTPS_PROXY", "https_proxy"].into_iter().find(|name| is_set(name))
}

/// Host name and a random part: unique even when a container restarts under its old name.
fn identity() -> String {
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    format!("{}-{:08x}", host.unwrap_or_else(|| "controller".to_owned()), rand::random::<u32>())
}

#[cfg(test)]
mod tests {
    use super::egress_proxy;

    #[test]
    fn a_proxy_that_clusters_are_not_reached_through_is_warned_of() {
        for (set, warned) in [(&["HTTP_PROXY", "NO_PROXY"][..], None), (&["https_proxy"], Some("https_proxy"))] {
            assert_eq!(egress_proxy(|name| set.contains(&name)), warned);
        }
        assert_eq!(egress_proxy(|_| true), Some("HTTPS_PROXY"), "once");
    }
}
