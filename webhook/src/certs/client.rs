//! Which clients are served: all of them, or those with a certificate of a CA in a file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use rustls::client::danger::HandshakeSignatureValid;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, RootCertStore, SignatureScheme};
use shared::text::sanitize_chain;

use super::managed::StartError;
use super::parse;

/// The CA that signs the certificates of clients, as it is in a file at this moment.
#[derive(Clone, Debug)]
pub struct ClientCa {
    file: PathBuf,
    current: Arc<RwLock<Loaded>>,
}

#[derive(Debug)]
struct Loaded {
    text: Vec<u8>,
    verifier: Arc<dyn ClientCertVerifier>,
}

impl ClientCa {
    /// Reads the file.
    ///
    /// # Errors
    /// When it cannot be read or holds no CA certificate.
    pub fn read(file: PathBuf) -> Result<Self, StartError> {
        let current = Arc::new(RwLock::new(load(&file)?));
        Ok(Self { file, current })
    }

    /// Reads the file again and again; never ends. A file that holds no CA keeps the last one in use.
    pub async fn follow(self, check: Duration) {
        let mut failed = false;
        loop {
            tokio::time::sleep(check).await;
            match load(&self.file) {
                Ok(loaded) => {
                    failed = false;
                    let mut current = self.current.write();
                    if current.text != loaded.text {
                        tracing::info!(file = %self.file.display(), "CA of clients loaded");
                        *current = loaded;
                    }
                }
                Err(error) if !failed => {
                    failed = true;
                    tracing::error!(error = sanitize_chain(&error), "the last CA of clients stays in use");
                }
                Err(_) => {}
            }
        }
    }

    fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.current.read().verifier)
    }
}

fn load(file: &Path) -> Result<Loaded, StartError> {
    let unusable = |why: String| StartError::ClientCa { path: file.to_owned(), why };
    let text = std::fs::read(file).map_err(|source| StartError::Read { path: file.to_owned(), source })?;
    let mut roots = RootCertStore::empty();
    for certificate in parse::certificates(&text).map_err(|error| unusable(error.to_string()))? {
        roots.add(certificate).map_err(|error| unusable(error.to_string()))?;
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
    Ok(Loaded { text, verifier: verifier.map_err(|error| unusable(error.to_string()))? })
}

impl ClientCertVerifier for ClientCa {
    /// None: a client then sends whatever certificate it has, also one of a CA that has just been added.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, rustls::Error> {
        self.verifier().verify_client_cert(end_entity, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier().verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verifier().verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier().supported_verify_schemes()
    }
}
