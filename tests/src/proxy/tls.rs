//! TLS settings of the proxy's two sides, from PEM texts.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore, ServerConfig};

use crate::pki::Identity;

/// The side that clients see. It speaks HTTP/2 and HTTP/1.1.
///
/// # Errors
/// When the PEM texts are not a certificate and its key.
pub fn server(identity: &Identity) -> Result<Arc<ServerConfig>> {
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(identity.certificate.as_bytes())
        .collect::<Result<_, _>>()
        .context("read a certificate")?;
    let key = PrivateKeyDer::from_pem_slice(identity.key.as_bytes()).context("read a private key")?;
    let mut config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).context("use a certificate")?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The side that faces the real server, trusting one authority.
///
/// # Errors
/// When the PEM text is not a certificate.
pub fn client(authority: &str) -> Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
        roots
            .add(certificate.context("read the authority's certificate")?)
            .context("trust the authority's certificate")?;
    }
    Ok(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth())
}
