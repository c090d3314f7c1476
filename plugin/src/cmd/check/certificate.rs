//! Whether API servers will trust the webhook: its certificate against the caBundles, now and in a week, by the
//! verification that a TLS client does.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, RootCertStore};
use serde::Deserialize as _;
use serde_json::Value;

use crate::api::answer::certificate;
use crate::run::provider;

/// Why a chain is not trusted.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Distrust {
    /// It ends before that time: when, if it is known.
    Expired(Option<Timestamp>),
    /// Any other reason.
    Other(String),
}

/// Base64 of an object's JSON. Empty if it is none.
pub(super) fn bytes(text: Option<&Value>) -> Vec<u8> {
    text.and_then(|text| ByteString::deserialize(text).ok()).map(|ByteString(bytes)| bytes).unwrap_or_default()
}

/// Verifies a PEM chain for this host at that time by a PEM bundle of CAs.
pub(super) fn verify(bundle: &[u8], chain: &[u8], host: &str, at: Timestamp) -> Result<(), Distrust> {
    let other = |error: &dyn std::fmt::Display| Distrust::Other(error.to_string());
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(bundle) {
        let certificate = certificate.map_err(|error| other(&error))?;
        roots.add(certificate).map_err(|error| other(&error))?;
    }
    let mut chain =
        CertificateDer::pem_slice_iter(chain).collect::<Result<Vec<_>, _>>().map_err(|error| other(&error))?;
    if chain.is_empty() {
        return Err(Distrust::Other("there is no certificate".to_owned()));
    }
    let leaf = chain.remove(0);
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::new(provider()))
        .build()
        .map_err(|error| other(&error))?;
    let name = ServerName::try_from(host).map_err(|error| other(&error))?;
    let at = Duration::from_secs(u64::try_from(at.as_second()).unwrap_or_default());
    match verifier.verify_server_cert(&leaf, &chain, &name, &[], UnixTime::since_unix_epoch(at)) {
        Ok(_) => Ok(()),
        Err(rustls::Error::InvalidCertificate(CertificateError::ExpiredContext { not_after, .. })) => {
            let second = i64::try_from(not_after.as_secs()).ok();
            Err(Distrust::Expired(second.and_then(|second| Timestamp::from_second(second).ok())))
        }
        Err(rustls::Error::InvalidCertificate(CertificateError::Expired)) => Err(Distrust::Expired(None)),
        Err(rustls::Error::InvalidCertificate(error)) => Err(Distrust::Other(certificate(&error))),
        Err(error) => Err(other(&error)),
    }
}
