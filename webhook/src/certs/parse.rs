//! Reading certificates: PEM, validity, names, and which key belongs to which.

use std::collections::BTreeSet;
use std::net::IpAddr;

use jiff::Timestamp;
use rustls::client::verify_server_cert_signed_by_trust_anchor;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, pki_types};
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// Why a certificate and a key cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum PairError {
    /// No certificates, or not PEM.
    #[error("read the certificates as PEM")]
    Certificates(#[source] pki_types::pem::Error),
    /// No key, or not PEM.
    #[error("read the private key as PEM")]
    Key(#[source] pki_types::pem::Error),
    /// The text holds no certificate at all.
    #[error("there is no certificate in it")]
    Empty,
    /// The key is of an unknown kind, or belongs to another certificate.
    #[error("use the certificate with its key")]
    Pair(#[source] rustls::Error),
    /// The certificate is not X.509.
    #[error("read the certificate: {0}")]
    Certificate(String),
}

/// A chain with its key, and what its leaf says of itself.
#[derive(Clone, Debug)]
pub(super) struct Pair {
    pub(super) key: std::sync::Arc<CertifiedKey>,
    pub(super) leaf: Facts,
}

/// What a certificate says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) not_before: Timestamp,
    pub(super) not_after: Timestamp,
    /// DNS names and IP addresses, as people write them.
    pub(super) names: BTreeSet<String>,
    /// Its public key as its key pair would print it.
    pub(super) public_key: Vec<u8>,
}

impl Facts {
    /// Whether the certificate is valid at this moment.
    pub(super) fn valid(&self, now: Timestamp) -> bool {
        self.not_before <= now && now < self.not_after
    }

    pub(super) fn of(certificate: &CertificateDer<'_>) -> Result<Self, PairError> {
        let (_, parsed) =
            X509Certificate::from_der(certificate).map_err(|error| PairError::Certificate(error.to_string()))?;
        let validity = parsed.validity();
        let names = parsed
            .subject_alternative_name()
            .map_err(|error| PairError::Certificate(error.to_string()))?
            .map(|extension| extension.value.general_names.iter().filter_map(name).collect());
        Ok(Self {
            not_before: timestamp(validity.not_before.timestamp()),
            not_after: timestamp(validity.not_after.timestamp()),
            names: names.unwrap_or_default(),
            public_key: parsed.public_key().subject_public_key.data.to_vec(),
        })
    }
}

fn name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(dns) => Some((*dns).to_owned()),
        GeneralName::IPAddress(octets) => {
            let v4 = <[u8; 4]>::try_from(*octets).map(IpAddr::from);
            let address = v4.or_else(|_| <[u8; 16]>::try_from(*octets).map(IpAddr::from));
            address.ok().map(|address| address.to_string())
        }
        _ => None,
    }
}

/// A certificate's second as a timestamp. Beyond jiff's last year it is its last moment, which is as good as never.
fn timestamp(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap_or(if second < 0 { Timestamp::MIN } else { Timestamp::MAX })
}

/// Every certificate in a PEM text.
pub(super) fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, PairError> {
    let certificates =
        CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>().map_err(PairError::Certificates)?;
    if certificates.is_empty() { Err(PairError::Empty) } else { Ok(certificates) }
}

/// A chain and its key, if they belong together.
pub(super) fn pair(chain: &[u8], key: &[u8]) -> Result<Pair, PairError> {
    let chain = certificates(chain)?;
    let key = PrivateKeyDer::from_pem_slice(key).map_err(PairError::Key)?;
    let leaf = chain.first().ok_or(PairError::Empty).and_then(Facts::of)?;
    let key = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()).map_err(PairError::Pair)?;
    Ok(Pair { key: key.into(), leaf })
}

/// One certificate of a PEM text.
pub(super) struct Block {
    /// Its part of the text.
    pub(super) pem: String,
    pub(super) der: CertificateDer<'static>,
    pub(super) facts: Facts,
}

/// Every certificate in a PEM text, each with its text.
pub(super) fn blocks(pem: &str) -> Result<Vec<Block>, PairError> {
    const END: &str = "-----END CERTIFICATE-----";
    let block = |text: &str| {
        let pem = format!("{}{END}\n", text.trim_start());
        let der = certificates(pem.as_bytes())?.into_iter().next().ok_or(PairError::Empty)?;
        Ok(Block { facts: Facts::of(&der)?, pem, der })
    };
    pem.split(END).filter(|text| !text.trim().is_empty()).map(block).collect()
}

/// Certificates as clients trust them.
pub(super) fn roots(certificates: impl IntoIterator<Item = CertificateDer<'static>>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(certificates);
    roots
}

/// Whether a client that trusts `roots` accepts this chain at this moment, whatever name it calls it by.
pub(super) fn is_trusted(
    chain: &[CertificateDer<'static>],
    roots: &RootCertStore,
    now: Timestamp,
) -> Result<(), rustls::Error> {
    let (leaf, intermediates) = chain.split_first().ok_or(rustls::Error::NoCertificatesPresented)?;
    let seconds = u64::try_from(now.as_second()).unwrap_or_default();
    verify_server_cert_signed_by_trust_anchor(
        &ParsedCertificate::try_from(leaf)?,
        roots,
        intermediates,
        UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)),
        aws_lc_rs::default_provider().signature_verification_algorithms.all,
    )
}
