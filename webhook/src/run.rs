//! The process: both ports, the certificate, and an orderly end.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kube::config::{InferConfigError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use shared::text::sanitize_chain;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::admin_server::{self, Health};
use crate::args::{Args, CertificateArgs};
use crate::certs::{CertificateMetrics, Certificates, ClientCa, StartError};
use crate::fdb;
use crate::metrics::Metrics;
use crate::server::{self, Webhook};

/// How long a watch may be silent. The API server ends every watch earlier.
const WATCH_TIMEOUT: Duration = Duration::from_secs(320);

/// Why the webhook cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// An address is taken, or not ours.
    #[error("cannot listen on {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// The kubeconfig is unusable.
    #[error("cannot use kubeconfig {}", path.display())]
    Kubeconfig {
        /// Its file.
        path: PathBuf,
        /// What is wrong with it.
        source: KubeconfigError,
    },
    /// There is no kubeconfig, and this is no Pod.
    #[error("cannot find the API server")]
    NoKubeconfig(#[source] InferConfigError),
    /// The certificate cannot be had.
    #[error("cannot set up the serving certificate")]
    Certificate(#[source] StartError),
    /// Signals cannot be waited for.
    #[error("cannot listen for signals")]
    Signals(#[source] std::io::Error),
    /// A port stopped working.
    #[error("cannot serve on {address}")]
    Serve {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Serves until SIGTERM or SIGINT: says that it is no longer ready, serves on while API servers may still dial it,
/// finishes what has begun, and ends.
///
/// # Errors
/// When a port, the certificate or the signals cannot be had.
pub async fn run(args: Args) -> Result<(), RunError> {
    let (stopping, stop) = (CancellationToken::new(), CancellationToken::new());
    let metrics = Arc::new(Metrics::default());
    let (settings, limits) = (args.settings(), args.limits());
    let fdb = Arc::new(fdb::Clusters::new(settings.minimum_suspension));
    let webhook = Arc::new(Webhook::new(settings, Arc::clone(&metrics), Arc::clone(&fdb)));
    let ((https, https_at), (admin, admin_at)) = (listener(args.listen)?, listener(args.listen_plain)?);
    tokio::spawn(stop_on_signal(args.shutdown_delay_duration, stopping.clone(), stop.clone())?);
    let clients = args.client_ca.map(ClientCa::read).transpose().map_err(RunError::Certificate)?;
    let measured = metrics.certificate.clone();
    let certificates = certificates(&args.certificate, clients.as_ref(), measured).await?;
    if let Some(clients) = clients {
        tokio::spawn(clients.follow(certificates.clone(), args.certificate.managed.timing.check));
    }
    tokio::spawn(clusters(args.certificate.kubeconfig, Arc::clone(&fdb)));

    let health = Health { certificates: certificates.clone(), fdb, metrics, stopping };
    let admin = tokio::spawn(admin_server::serve(admin, health, stop.clone()));
    tracing::info!(https = %https_at, plain = %admin_at, "serving");
    let served = server::listen(https, certificates.tls(), webhook, limits, stop.clone()).await;
    stop.cancel();
    served.map_err(|source| RunError::Serve { address: https_at, source })?;
    match admin.await {
        Ok(Err(source)) => Err(RunError::Serve { address: admin_at, source }),
        _ => Ok(()),
    }
}

/// The certificate as the flags ask for it. From now on a task keeps it fresh.
async fn certificates(
    args: &CertificateArgs,
    clients: Option<&ClientCa>,
    metrics: CertificateMetrics,
) -> Result<Certificates, RunError> {
    if let (Some(certificate), Some(key)) = (&args.tls_cert, &args.tls_key) {
        let made = Certificates::files(certificate.clone(), key.clone(), args.managed.timing, clients, metrics).await;
        let (certificates, task) = made.map_err(RunError::Certificate)?;
        tokio::spawn(task);
        return Ok(certificates);
    }
    let hub = hub(args.kubeconfig.as_deref()).await?;
    let (certificates, task) =
        Certificates::managed(hub, args.managed.clone(), clients, metrics).map_err(RunError::Certificate)?;
    tokio::spawn(task);
    Ok(certificates)
}

/// Follows the hub's `FoundationDBClusters`. Without a hub nothing is known of them, which is no reason not to serve.
async fn clusters(kubeconfig: Option<PathBuf>, clusters: Arc<fdb::Clusters>) {
    match hub(kubeconfig.as_deref()).await {
        Ok(config) => fdb::follow(config, clusters).await,
        Err(error) => {
            let error = sanitize_chain(&error);
            tracing::info!(error, "cannot watch FoundationDBClusters: no API server is configured");
            clusters.unavailable(fdb::NO_HUB);
        }
    }
}

/// How to reach the API server that holds the certificate, with watches.
async fn hub(kubeconfig: Option<&Path>) -> Result<kube::Config, RunError> {
    let mut config = match kubeconfig {
        None => kube::Config::infer().await.map_err(RunError::NoKubeconfig)?,
        Some(path) => {
            let unusable = |source| RunError::Kubeconfig { path: path.to_owned(), source };
            let kubeconfig = Kubeconfig::read_from(path).map_err(unusable)?;
            let options = KubeConfigOptions::default();
            kube::Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(unusable)?
        }
    };
    // The tasks try again by themselves, and know when that makes sense.
    config.default_retry = false;
    config.read_timeout = Some(WATCH_TIMEOUT);
    Ok(config)
}

/// Binds a port. With port 0 the system chooses one, and the log names it.
fn listener(address: SocketAddr) -> Result<(TcpListener, SocketAddr), RunError> {
    let failed = |source| RunError::Listen { address, source };
    let socket = ::server::bind(address).map_err(failed)?;
    let address = socket.local_addr().map_err(failed)?;
    Ok((socket, address))
}

/// Once SIGTERM or SIGINT arrives, it is `stopping` at once, and the ports are asked to `stop`, after SIGTERM with a
/// delay: the kubelet sends it while the Pod is being removed from the Service. Both are caught from now on.
fn stop_on_signal(
    delay: Duration,
    stopping: CancellationToken,
    stop: CancellationToken,
) -> Result<impl Future<Output = ()>, RunError> {
    let mut terminate = signal(SignalKind::terminate()).map_err(RunError::Signals)?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(RunError::Signals)?;
    Ok(async move {
        let (signal, delay) = tokio::select! {
            _ = terminate.recv() => ("SIGTERM", delay),
            // From a terminal, where no Service leads to it.
            _ = interrupt.recv() => ("SIGINT", Duration::ZERO),
        };
        stopping.cancel();
        tracing::info!(signal, ?delay, "stopping");
        // Another signal ends the delay.
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
    })
}
