//! Making keys and certificates: ECDSA P-256, nothing else.

use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use shared::annotation::format;

/// How much earlier than now a certificate begins, for clients whose clock is behind.
const BACKDATE: Duration = Duration::from_mins(5);

/// A CA that can sign.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Its own certificate, PEM.
    pub(super) certificate: String,
    /// Its key, PEM.
    pub(super) key: String,
    /// When its certificate expires.
    pub(super) not_after: Timestamp,
}

/// A leaf or a cross certificate, PEM.
pub(super) struct Issued {
    pub(super) certificate: String,
    /// Its key, PEM.
    pub(super) key: String,
}

impl Authority {
    /// A new CA. If there is an old one, the second answer is the new CA's certificate signed by it: sent along with a
    /// leaf of the new CA, it lets a client through that trusts the old CA alone.
    pub(super) fn new(
        now: Timestamp,
        lifetime: Duration,
        old: Option<&Self>,
    ) -> Result<(Self, Option<String>), rcgen::Error> {
        let not_after = end(now, lifetime);
        let key = KeyPair::generate()?;
        let cross = old
            .map(|old| {
                let mut params = parameters(now, not_after.min(old.not_after));
                params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
                params.signed_by(&key, &old.issuer)
            })
            .transpose()?;
        let certificate = parameters(now, not_after).self_signed(&key)?.pem();
        let authority = Self::from_pem(&certificate, key.serialize_pem(), not_after)?;
        Ok((authority, cross.map(|cross| cross.pem())))
    }

    /// A CA that was made before.
    pub(super) fn from_pem(certificate: &str, key: String, not_after: Timestamp) -> Result<Self, rcgen::Error> {
        Ok(Self {
            issuer: Issuer::from_ca_cert_pem(certificate, KeyPair::from_pem(&key)?)?,
            certificate: certificate.to_owned(),
            key,
            not_after,
        })
    }

    /// A serving certificate for these DNS names and IP addresses, which does not outlive its CA.
    pub(super) fn leaf(&self, names: &[String], now: Timestamp, lifetime: Duration) -> Result<Issued, rcgen::Error> {
        let mut params = CertificateParams::new(names)?;
        params.not_before = date_time_ymd(1970, 1, 1) + since_1970(start(now));
        params.not_after = date_time_ymd(1970, 1, 1) + since_1970(end(now, lifetime).min(self.not_after));
        // What clients check is in the alternative names; a common name would only invite to read it.
        params.distinguished_name = DistinguishedName::new();
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        Ok(Issued { certificate: params.signed_by(&key, &self.issuer)?.pem(), key: key.serialize_pem() })
    }
}

/// A key pair's public half, as [`super::parse::Facts`] holds it.
pub(super) fn public_key(key: &str) -> Result<Vec<u8>, rcgen::Error> {
    Ok(KeyPair::from_pem(key)?.public_key_raw().to_vec())
}

/// Parameters of a CA that signs leaves, and one CA below it: the next one, when it is signed across.
fn parameters(now: Timestamp, not_after: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.not_before = date_time_ymd(1970, 1, 1) + since_1970(start(now));
    params.not_after = date_time_ymd(1970, 1, 1) + since_1970(not_after);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(1));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.use_authority_key_identifier_extension = true;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("hibernate-webhook CA of {}", format::seconds(now)));
    params
}

fn start(now: Timestamp) -> Timestamp {
    now.saturating_sub(BACKDATE).unwrap_or(now)
}

fn end(now: Timestamp, lifetime: Duration) -> Timestamp {
    now.saturating_add(lifetime).unwrap_or(now)
}

/// A moment as what is added to 1970, which spares us a direct dependency on the time crate that `rcgen` uses.
fn since_1970(moment: Timestamp) -> Duration {
    Duration::from_secs(u64::try_from(moment.as_second()).unwrap_or_default())
}
