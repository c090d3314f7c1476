//! Which clients are served: all of them, or those with a certificate of a CA in a file.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use shared::text::sanitize_chain;

use super::managed::StartError;
use super::{Certificates, parse, serving};

/// The CA that signs the certificates of clients, as it was in a file when it was read last.
#[derive(Clone, Debug)]
pub struct ClientCa {
    file: PathBuf,
    text: Vec<u8>,
    pub(super) verifier: Arc<dyn ClientCertVerifier>,
}

impl ClientCa {
    /// Reads the file.
    ///
    /// # Errors
    /// When it cannot be read or holds no CA certificate.
    pub fn read(file: PathBuf) -> Result<Self, StartError> {
        let text = std::fs::read(&file).map_err(|source| StartError::Read { path: file.clone(), source })?;
        let verifier = verifier(&text).map_err(|why| StartError::ClientCa { path: file.clone(), why })?;
        Ok(Self { file, text, verifier })
    }

    /// Reads the file again and again, and has new connections held to what is in it; never ends. A file that holds no
    /// CA keeps the last one in use.
    pub async fn follow(mut self, certificates: Certificates, check: Duration) {
        let mut failed = false;
        loop {
            tokio::time::sleep(check).await;
            match self.reload(&certificates) {
                Ok(()) => failed = false,
                Err(error) if !failed => {
                    failed = true;
                    tracing::error!(error = sanitize_chain(&error), "the last CA of clients stays in use");
                }
                Err(_) => {}
            }
        }
    }

    fn reload(&mut self, certificates: &Certificates) -> Result<(), StartError> {
        let found = Self::read(self.file.clone())?;
        if found.text != self.text {
            let verifier = Arc::clone(&found.verifier);
            let tls = serving::server_config(&certificates.serving, Some(verifier)).map_err(StartError::Tls)?;
            certificates.tls.send_replace(tls);
            tracing::info!(file = %self.file.display(), "CA of clients loaded");
            *self = found;
        }
        Ok(())
    }
}

/// Gives no hints: a client then sends whatever certificate it has, also one of a CA that has just been added.
fn verifier(text: &[u8]) -> Result<Arc<dyn ClientCertVerifier>, String> {
    let mut roots = RootCertStore::empty();
    for certificate in parse::certificates(text).map_err(|error| error.to_string())? {
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).clear_root_hint_subjects();
    verifier.build().map_err(|error| error.to_string())
}
