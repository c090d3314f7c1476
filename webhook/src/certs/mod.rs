//! The serving certificate: where it comes from, and that it is renewed in time and served without a restart.
//!
//! Either the webhook is its own authority ([`Certificates::managed`]): CA and leaf live in one Secret, which all
//! replicas watch and any replica fills and renews by compare-and-swap, and the CA bundle is kept in the two webhook
//! configurations. Or another authority issues it ([`Certificates::files`]), and the webhook reloads two files when
//! they change.
//!
//! ```no_run
//! # use webhook::certs::{CertificateMetrics, Certificates, Managed};
//! # async fn start(config: kube::Config, managed: Managed, stop: impl Future<Output = ()> + Send) -> Result<(), Box<dyn std::error::Error>> {
//! let (certificates, task) = Certificates::managed(config, managed, None, CertificateMetrics::default())?;
//! let tls: tokio::sync::watch::Receiver<std::sync::Arc<rustls::ServerConfig>> = certificates.tls();
//! tokio::select! { () = task => {}, () = stop => {} }
//! # drop(tls);
//! # Ok(())
//! # }
//! ```

mod bundle;
mod client;
mod files;
mod issue;
mod managed;
mod material;
mod options;
mod parse;
mod secret;
mod serving;

use std::path::PathBuf;
use std::sync::Arc;

use jiff::Timestamp;
use rustls::ServerConfig;
use tokio::sync::watch;

pub use client::ClientCa;
pub use managed::StartError;
pub use options::{Managed, Timing};
pub use parse::PairError;
pub use secret::SECRET_TYPE;
use serving::Serving;
pub use serving::{CertificateMetrics, NotReady};

/// The certificate that is served now, and whether clients will trust it.
///
/// Cheap to clone; all clones are the same certificate.
#[derive(Clone, Debug)]
pub struct Certificates {
    serving: Arc<Serving>,
    tls: Arc<watch::Sender<Arc<ServerConfig>>>,
}

impl Certificates {
    /// Certificates that the webhook issues itself. Nothing is served until the returned task has run; it never ends.
    ///
    /// `config`: with a read time-out that is long enough for watches, and without retries, which are the task's.
    ///
    /// # Errors
    /// When no client can be made of the configuration, or the lifetimes do not fit together.
    pub fn managed(
        config: kube::Config,
        managed: Managed,
        clients: Option<&ClientCa>,
        metrics: CertificateMetrics,
    ) -> Result<(Self, impl Future<Output = ()> + Send + use<>), StartError> {
        let certificates = Self::new(Serving::new(&bundle::KINDS, metrics), clients)?;
        let task = managed::run(config, managed, Arc::clone(&certificates.serving))?;
        Ok((certificates, task))
    }

    /// The pair in two PEM files, and a task that reloads them and never ends.
    ///
    /// # Errors
    /// When the files cannot be read or are no pair. Later trouble with them keeps the old pair; see [`Self::trouble`].
    pub async fn files(
        certificate: PathBuf,
        key: PathBuf,
        timing: Timing,
        clients: Option<&ClientCa>,
        metrics: CertificateMetrics,
    ) -> Result<(Self, impl Future<Output = ()> + Send + use<>), StartError> {
        let certificates = Self::new(Serving::new(&[], metrics), clients)?;
        let task = files::run(certificate, key, timing, Arc::clone(&certificates.serving)).await?;
        Ok((certificates, task))
    }

    fn new(serving: Serving, clients: Option<&ClientCa>) -> Result<Self, StartError> {
        let serving = Arc::new(serving);
        let clients = clients.map(|clients| Arc::clone(&clients.verifier));
        let tls = serving::server_config(&serving, clients).map_err(StartError::Tls)?;
        Ok(Self { serving, tls: Arc::new(watch::Sender::new(tls)) })
    }

    /// Configuration for the HTTPS server. Each new handshake gets the newest certificate, and is held to the newest CA
    /// of clients.
    pub fn tls(&self) -> watch::Receiver<Arc<ServerConfig>> {
        self.tls.subscribe()
    }

    /// Whether clients will accept what is served, by the clock of this moment.
    ///
    /// # Errors
    /// Says what is missing.
    pub fn ready(&self) -> Result<(), NotReady> {
        self.serving.ready(Timestamp::now())
    }

    /// What went wrong last, until it has gone right again.
    pub fn trouble(&self) -> Option<String> {
        self.serving.trouble()
    }
}
