//! What is served at this moment, and whether it is trusted by who calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use prometheus_client::metrics::gauge::Gauge;
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use tokio::sync::watch;

use super::bundle::Published;
use super::parse::{self, Pair};

/// Protocols offered to clients, best first.
const ALPN: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// Why clients would not accept what is served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotReady {
    /// Nothing has been made or read yet.
    #[error("there is no serving certificate yet")]
    NoCertificate,
    /// The certificate is not valid at this moment.
    #[error("the serving certificate is valid from {not_before} to {not_after}, not now")]
    NotValidNow {
        /// Its first moment.
        not_before: Timestamp,
        /// Its last moment.
        not_after: Timestamp,
    },
    /// A configuration has not been read yet, or does not exist.
    #[error("there is no {0}: apply the manifests")]
    NoConfiguration(&'static str),
    /// An entry of a configuration has no caBundle, or one that the certificate is not signed under.
    #[error("the caBundle of entry {entry} in the {kind} does not trust the serving certificate")]
    NotTrusted {
        /// Kind of the configuration.
        kind: &'static str,
        /// Name of the entry.
        entry: String,
    },
}

/// What is measured of the serving certificate.
#[derive(Clone, Debug, Default)]
pub struct CertificateMetrics {
    /// When it expires, in seconds since 1970; 0 while there is none.
    pub expiry: Gauge,
    /// How often one could not be made, read or published.
    pub failures: Gauge,
}

/// The cell that the server reads and the task writes.
#[derive(Debug)]
pub(super) struct Serving {
    pair: watch::Sender<Option<Pair>>,
    /// For each configuration that must trust us: its kind, and what it holds. Empty with files: there others see to
    /// it.
    published: Vec<(&'static str, watch::Sender<Option<Published>>)>,
    metrics: CertificateMetrics,
    /// What is wrong, by what was being done: the watches, the Secret and the bundle can fail at once.
    trouble: watch::Sender<BTreeMap<String, String>>,
}

impl Serving {
    /// `kinds`: the configurations that must trust us; none with files, where others see to it.
    pub(super) fn new(kinds: &[&'static str], metrics: CertificateMetrics) -> Self {
        Self {
            pair: watch::Sender::new(None),
            published: kinds.iter().map(|&kind| (kind, watch::Sender::new(None))).collect(),
            metrics,
            trouble: watch::Sender::default(),
        }
    }

    /// Serves this pair from the next handshake on. Says so once per certificate.
    pub(super) fn serve(&self, pair: Pair) {
        let expires = pair.leaf.not_after;
        let news = self.pair.send_if_modified(|current| {
            let news = current.as_ref().is_none_or(|current| current.key.cert != pair.key.cert);
            if news {
                *current = Some(pair);
            }
            news
        });
        if news {
            self.metrics.expiry.set(expires.as_second());
            tracing::info!(%expires, "serving certificate loaded");
        }
    }

    /// Remembers what a configuration holds; `None` if there is none.
    pub(super) fn published(&self, kind: &'static str, observed: Option<Published>) {
        if let Some((_, cell)) = self.published.iter().find(|(known, _)| *known == kind) {
            cell.send_replace(observed);
        }
    }

    /// What a configuration held at the last read.
    pub(super) fn seen(&self, kind: &'static str) -> Option<Published> {
        let (_, cell) = self.published.iter().find(|(known, _)| *known == kind)?;
        cell.borrow().clone()
    }

    /// Counts a failure, and logs it unless the same has been logged since all was well.
    pub(super) fn failed(&self, what: &dyn std::error::Error) {
        let doing = what.to_string();
        let mut whole = doing.clone();
        for cause in std::iter::successors(what.source(), |cause| cause.source()).map(ToString::to_string) {
            // Some errors print their causes themselves.
            if !whole.contains(&cause) {
                whole = format!("{whole}: {cause}");
            }
        }
        self.metrics.failures.inc();
        self.trouble.send_modify(|known| {
            if known.get(&doing) != Some(&whole) {
                tracing::error!("{whole}");
                known.insert(doing, whole);
            }
        });
    }

    /// All is well again.
    pub(super) fn recovered(&self) {
        self.trouble.send_modify(BTreeMap::clear);
    }

    pub(super) fn trouble(&self) -> Option<String> {
        let known = self.trouble.borrow();
        let texts: Vec<&str> = known.values().map(String::as_str).collect();
        (!texts.is_empty()).then(|| texts.join("; "))
    }

    /// Whether clients accept what is served at this moment.
    pub(super) fn ready(&self, now: Timestamp) -> Result<(), NotReady> {
        let pair = self.pair.borrow().clone().ok_or(NotReady::NoCertificate)?;
        if !pair.leaf.valid(now) {
            let parse::Facts { not_before, not_after, .. } = pair.leaf;
            return Err(NotReady::NotValidNow { not_before, not_after });
        }
        for (kind, cell) in &self.published {
            let observed = cell.borrow().clone().ok_or(NotReady::NoConfiguration(kind))?;
            for (entry, bundle) in observed.entries {
                let roots = parse::roots(parse::certificates(&bundle).unwrap_or_default());
                parse::is_trusted(&pair.key.cert, &roots, now).map_err(|_| NotReady::NotTrusted { kind, entry })?;
            }
        }
        Ok(())
    }
}

impl ResolvesServerCert for Serving {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.pair.borrow().as_ref().map(|pair| Arc::clone(&pair.key))
    }
}

/// TLS 1.2 and 1.3 with whatever certificate is newest when a client shakes hands, for every client or for those of a
/// CA.
pub(super) fn server_config(
    serving: &Arc<Serving>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<Arc<ServerConfig>, rustls::Error> {
    let authenticates = clients.is_some();
    let clients = clients.unwrap_or_else(WebPkiClientVerifier::no_client_auth);
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(clients)
        .with_cert_resolver(Arc::clone(serving) as Arc<dyn ResolvesServerCert>);
    if authenticates {
        // A session that is resumed is one of a CA that may be gone since.
        config.session_storage = Arc::new(NoServerSessionStorage {});
    }
    config.alpn_protocols = ALPN.iter().map(|protocol| protocol.to_vec()).collect();
    Ok(Arc::new(config))
}
