//! Starts the controller, and runs it in terms of leadership until it is stopped.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Parser;
use cloud_common::Process;
use fair::{Memory, Sizes};
use k8s_openapi::api::coordination::v1::Lease;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::events::Reporter;
use kube::{Api, Client, Config};
use server::{Warnings, log};
use shared::annotation::keys;
use shared::hive::api::ClusterDeployment;
use shared::kinds::{CLUSTER_DEPLOYMENT, KKP_CLUSTER};
use shared::kkp::api::Cluster;
use shared::text::sanitize_chain;
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::{error, info, warn};

use crate::args::Args;
use crate::metrics::Metrics;
use crate::runtime::events::Events;
use crate::runtime::kind::Group;
use crate::runtime::lease::{Claim, Election, Times};
use crate::runtime::marks::Marks;
use crate::runtime::readiness::Readiness;
use crate::runtime::{self, Hub, PerTerm, Term, admin_server, clock, group, panics, watch_backoff};
use crate::spoke::{Network, Threads};
use crate::systems::cgu::{Governed, Sleepers, Upgrades};
use crate::systems::fdb::Fdb;
use crate::systems::hive::{Drivers, Hive, Ownership};
use crate::systems::kkp::Kkp;
use crate::systems::reachability::Reachability;
use crate::systems::rollout::{FleetKind, Rollouts, Turns, Watched, trim};

/// How many status writes are under way at once. The hub has other users.
const CONCURRENT_WRITES: usize = 32;

/// Why the controller could not start or go on.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("--lease-duration must be longer than --renew-deadline, and that longer than --retry-period")]
    Times,
    #[error("find the hub")]
    Hub(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("cannot serve on {0}")]
    Serve(std::net::SocketAddr, #[source] std::io::Error),
    #[error("cannot keep state in {0} (--state-dir)")]
    State(std::path::PathBuf, #[source] std::io::Error),
    #[error("cannot start threads")]
    Threads(#[source] std::io::Error),
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
}

/// The program.
pub fn main() -> ExitCode {
    // Before any TLS: two crypto providers in one process panic.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let args = Args::parse();
    log::init(args.log_format, false, LOGGED);
    panics::install_hook();
    match start(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            error!(error = sanitize_chain(&failure), "fatal error");
            ExitCode::FAILURE
        }
    }
}

fn start(args: Args) -> Result<(), Failure> {
    let spokes = Threads::runtime().map_err(Failure::Threads)?;
    let ended = Runtime::new().map_err(Failure::Threads)?.block_on(run(args, Threads::from(&spokes)));
    spokes.shutdown_background(); // a lookup of a name may last
    ended
}

/// kube's client logs the whole text of an answer that it cannot read, and spokes are untrusted.
const LOGGED: &str = "info,kube=warn,kube_client::client=error";

async fn run(args: Args, threads: Threads) -> Result<(), Failure> {
    let times = Times { lease: args.lease_duration, deadline: args.renew_deadline, retry: args.retry_period };
    if !times.are_ordered() {
        return Err(Failure::Times);
    }
    let mut config = config(&args).await?;
    // Longer than the API server lets a watch live.
    config.read_timeout = Some(Duration::from_secs(320));
    let watches = Client::try_from(config.clone()).map_err(|error| Failure::Hub(error.into()))?;
    let watches = server::hub::bounded(watch_backoff::spaced(watches));
    // Of all requests only a watch may wait long for the next byte.
    config.read_timeout = Some(Duration::from_secs(15));
    let client = server::hub::bounded(Client::try_from(config).map_err(|error| Failure::Hub(error.into()))?);
    let memory = Memory::new(Sizes::OBJECTS);
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

    let marks = args
        .state_dir
        .as_ref()
        .map(|folder| Marks::open(folder).map_err(|source| Failure::State(folder.clone(), source)));
    let marks = marks.transpose()?.unwrap_or_default();
    let (listen, network) = (args.listen, args.network(threads));
    let served = admin_server::serve(listen, metrics.clone(), readiness.clone());
    let systems = systems(&Arc::new(args), &identity, &network);
    let work = async {
        loop {
            election.win().await;
            metrics.leader.set(1);
            let hub = hub(&client, &watches, &identity, election.claim(), metrics.clone());
            let hub = Hub { marks: marks.clone(), memory: memory.clone(), ..hub };
            tokio::select! {
                () = runtime::run(&systems, Term { hub, readiness: readiness.clone() }) => {}
                () = election.keep() => {}
            }
            metrics.leader.set(0);
            metrics.forget_all();
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

/// Every system that this controller works on, one line each.
fn systems(args: &Arc<Args>, identity: &str, network: &Network) -> Vec<Group> {
    let (own, identity, dialed) = (args.clone(), identity.to_owned(), network.clone());
    let hive = move |handle: runtime::Handle<_>, ownership| {
        let drivers = drivers(&own, &identity, &handle.hub, &dialed);
        Hive::new(handle, drivers, ownership, dialed.clone(), own.settings(), own.concurrency)
    };
    let (own_unreachable, minimum) = (args.own_unreachable, args.fdb_minimum_suspension);
    let owners = Arc::new(PerTerm::<Ownership>::default());
    let clusters = Arc::new(PerTerm::<Watched<ClusterDeployment>>::default());
    let user_clusters = Arc::new(PerTerm::<Watched<Cluster>>::default());
    let (followed, own, has_kkp) = (clusters.clone(), owners.clone(), args.kkp);
    let sleepers = Arc::new(PerTerm::<Sleepers>::default());
    let (asleep, has_cgu) = (sleepers.clone(), args.cgu);
    let kkp_followed = user_clusters.clone();
    let (probed, checked) = (network.clone(), network.clone());
    let (namespace, most) = (args.namespace.clone(), args.max_rollouts_per_requester);
    let mut groups = vec![
        group(move |term| {
            let ownership = own.of(&term.hub);
            let hive = term.watch(|handle| hive(handle, ownership.clone()));
            let hive = hive.with(own_unreachable.then_some(|handle| Reachability::new(handle, probed.clone())));
            let hive = hive.followed_by(followed.of(&term.hub));
            let hive = if has_cgu { hive.followed_by(asleep.of(&term.hub)) } else { hive };
            hive.followed_by(ownership)
        }),
        group(move |term| {
            let (ownership, turns) = (owners.of(&term.hub), Arc::new(Turns::new(most)));
            let hive = FleetKind {
                row: &CLUSTER_DEPLOYMENT,
                fleet: clusters.of(&term.hub),
                domain: Box::new(move |item| {
                    let (key, uid) = item.identity();
                    ownership.domain(&key, &uid)
                }),
                upgrades: true,
            };
            let kkp = has_kkp.then(|| FleetKind {
                row: &KKP_CLUSTER,
                fleet: user_clusters.of(&term.hub),
                domain: Box::new(|item| item.view.obstacles.domain.as_deref().map(Arc::from)),
                upgrades: false,
            });
            let kinds = [hive].into_iter().chain(kkp).collect();
            let (network, namespace) = (checked.clone(), namespace.clone());
            let rollouts = term.watch(|handle| Rollouts::new(handle, kinds, network, namespace, turns.clone()));
            rollouts.followed_by(turns).trimmed_by(trim)
        }),
        group(move |term| term.watch(|handle| Fdb::new(handle, minimum))),
    ];
    let cgu = args.cgu_settings();
    groups.extend(args.cgu.then(|| {
        group(move |term| {
            let governed = Arc::new(Governed::default());
            let (known, asleep) = (governed.clone(), sleepers.of(&term.hub));
            let upgrades = term.watch(|handle| Upgrades::new(handle, known, asleep, cgu.clone()));
            upgrades.followed_by(governed)
        })
    }));
    let (kkp, network) = (args.kkp_settings(), network.clone());
    groups.extend(args.kkp.then(|| {
        group(move |term| {
            let kkp = term.watch(|handle| Kkp::new(handle, network.clone(), kkp.clone()));
            kkp.followed_by(kkp_followed.of(&term.hub))
        })
    }));
    groups
}

/// The hub in a new term of leadership.
fn hub(client: &Client, watches: &Client, identity: &str, claim: Claim, metrics: Arc<Metrics>) -> Hub {
    let reporter = Reporter { controller: keys::CONTROLLER.to_owned(), instance: Some(identity.to_owned()) };
    Hub {
        client: client.clone(),
        watches: watches.clone(),
        memory: Memory::default(),
        claim,
        metrics,
        events: Events::new(client.clone(), reporter),
        warnings: Warnings::default(),
        marks: Marks::default(),
        writes: Arc::new(Semaphore::new(CONCURRENT_WRITES)),
        began: Instant::now(),
        began_at: clock::now(),
    }
}

/// The clouds' drivers in a new term of leadership.
fn drivers(args: &Args, identity: &str, hub: &Hub, spokes: &Network) -> Drivers {
    let permit = hub.claim.clone();
    let identity = identity.to_owned();
    let (permit, memory) = (Arc::new(move || permit.holds()), spokes.memory.clone());
    let process = Process { identity, permit, dialer: args.cloud_dialer(), memory };
    Drivers::new(hub.clone(), &args.clouds, &process)
}

/// Where the hub is, with calls that end: the default would retry for minutes and wait forever.
async fn config(args: &Args) -> Result<Config, Failure> {
    let mut config = match &args.kubeconfig {
        None => Config::infer().await.map_err(|error| Failure::Hub(error.into()))?,
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path).map_err(|error| Failure::Hub(error.into()))?;
            let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
            config.map_err(|error| Failure::Hub(error.into()))?
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
