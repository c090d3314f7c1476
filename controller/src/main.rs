//! `hibernate-controller`: puts clusters to sleep and wakes them, as their objects on the hub ask for.

mod args;
mod clock;
mod cloud_registry;
mod csr;
mod fdb;
mod hive;
mod hub;
mod lease;
mod ledger;
mod machines;
mod metrics;
mod pace;
mod serve;
mod spoke;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use clap::Parser;
use cloud_common::Process;
use k8s_openapi::api::coordination::v1::Lease;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::events::Reporter;
use kube::{Api, Client, Config};
use shared::annotation::keys;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tracing::{error, info};

use crate::args::{Args, LogFormat};
use crate::hub::Events;
use crate::lease::{Claim, Election, Times};
use crate::metrics::Metrics;

/// Why the controller could not start or go on.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("--lease-duration must be longer than --renew-deadline, and that longer than --retry-period")]
    Times,
    #[error("find the hub")]
    Hub(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("serve on {0}")]
    Serve(std::net::SocketAddr, #[source] std::io::Error),
    #[error("listen for signals")]
    Signals(#[source] std::io::Error),
}

#[tokio::main]
async fn main() -> ExitCode {
    // Before any TLS: two crypto providers in one process panic.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let args = Args::parse();
    log(args.log_format);
    match run(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            error!(error = &failure as &dyn std::error::Error, "cannot go on");
            ExitCode::FAILURE
        }
    }
}

fn log(format: LogFormat) {
    let filter = tracing_subscriber::EnvFilter::try_from_default_env();
    // Of an answer that it cannot read, kube's client warns with the whole text, and spokes are strangers.
    let quiet = "info,kube=warn,kube_client::client=error";
    let filter = filter.unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(quiet));
    let mut builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    if !std::io::stderr().is_terminal() {
        builder = builder.with_ansi(false);
    }
    match format {
        LogFormat::Text => builder.init(),
        LogFormat::Json => builder.json().init(),
    }
}

async fn run(args: Args) -> Result<(), Failure> {
    let times = Times { lease: args.lease_duration, deadline: args.renew_deadline, retry: args.retry_period };
    if !times.are_ordered() {
        return Err(Failure::Times);
    }
    let mut config = hub(&args).await?;
    // Longer than the API server lets a watch live.
    config.read_timeout = Some(Duration::from_secs(320));
    let watch = Client::try_from(config.clone()).map_err(|error| Failure::Hub(error.into()))?;
    let watch = pace::paced(watch);
    // Of all requests only a watch may wait long for the next byte.
    config.read_timeout = Some(Duration::from_secs(15));
    let client = Client::try_from(config).map_err(|error| Failure::Hub(error.into()))?;
    let identity = args.identity.clone().unwrap_or_else(identity);
    let metrics = Arc::new(Metrics::default());
    let leases: Api<Lease> = Api::namespaced(client.clone(), &args.namespace);
    let mut election = Election::new(leases, args.lease.clone(), identity.clone(), times);
    let mut terminate = signal(SignalKind::terminate()).map_err(Failure::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Failure::Signals)?;
    info!(identity, version = env!("CARGO_PKG_VERSION"), "starting");

    let work = async {
        loop {
            election.win().await;
            metrics.leader.set(1);
            let (sender, news) = futures::channel::mpsc::unbounded();
            let context = Arc::new(context(&client, &args, &identity, election.claim(), metrics.clone(), sender));
            let suspensions = suspensions(&client, &args, &identity, election.claim(), metrics.clone());
            let suspensions = Arc::new(suspensions);
            tokio::select! {
                () = hive::run(watch.clone(), context, news, args.concurrency) => {}
                () = fdb::run(watch.clone(), suspensions) => {}
                () = election.keep() => {}
            }
            metrics.leader.set(0);
            metrics.forget_all();
        }
    };
    let ended = tokio::select! {
        () = work => Ok(()),
        served = serve::serve(args.listen, metrics.clone()) => served.map_err(|source| Failure::Serve(args.listen, source)),
        _ = terminate.recv() => Ok(()),
        _ = interrupt.recv() => Ok(()),
    };
    election.release().await;
    ended
}

/// A new context for each time of leading: memory from an earlier one may be out of date.
fn context(
    client: &Client,
    args: &Args,
    identity: &str,
    claim: Claim,
    metrics: Arc<Metrics>,
    news: futures::channel::mpsc::UnboundedSender<hive::Key>,
) -> hive::Context {
    let permit = claim.clone();
    let process = Process { identity: identity.to_owned(), permit: Arc::new(move || permit.holds()) };
    hive::Context {
        client: client.clone(),
        claim,
        drivers: hive::Drivers::new(client.clone(), &args.clouds, &process),
        settings: args.settings(),
        own_unreachable: args.own_unreachable,
        metrics,
        events: events(client, identity),
        memories: Mutex::default(),
        syncs: hive::Syncs::default(),
        news,
        writes: Semaphore::new(hive::WRITES_AT_ONCE),
        watched: OnceLock::new(),
        began: tokio::time::Instant::now(),
    }
}

/// The same for FoundationDB.
fn suspensions(client: &Client, args: &Args, identity: &str, claim: Claim, metrics: Arc<Metrics>) -> fdb::Context {
    fdb::Context {
        client: client.clone(),
        claim,
        minimum: args.fdb_minimum_suspension,
        metrics,
        events: events(client, identity),
        memories: Mutex::default(),
        began: jiff::Timestamp::now(),
    }
}

fn events(client: &Client, identity: &str) -> Events {
    let reporter = Reporter { controller: keys::CONTROLLER.to_owned(), instance: Some(identity.to_owned()) };
    Events::new(client.clone(), reporter)
}

/// Where the hub is, with calls that end: the default would retry for minutes and wait for ever.
async fn hub(args: &Args) -> Result<Config, Failure> {
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
    config.headers.push(user_agent());
    Ok(config)
}

/// Who we are, for the audit logs of hub and spokes.
fn user_agent() -> (http::HeaderName, http::HeaderValue) {
    let agent = concat!("hibernate-controller/", env!("CARGO_PKG_VERSION"));
    (http::header::USER_AGENT, http::HeaderValue::from_static(agent))
}

/// Host name and a random part: unique even when a container restarts under its old name.
fn identity() -> String {
    let host = nix::unistd::gethostname().ok().and_then(|name| name.into_string().ok());
    format!("{}-{:08x}", host.unwrap_or_else(|| "controller".to_owned()), rand::random::<u32>())
}
