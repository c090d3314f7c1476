//! The world's certificate authority. Everything that speaks TLS in a world has a certificate from it.

use anyhow::{Context as _, Result};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};

/// A certificate and its key, both PEM.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Certificate.
    pub certificate: String,
    /// Private key, PKCS #8.
    pub key: String,
}

/// A certificate authority that lives as long as its world.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// Makes a new one.
    ///
    /// # Errors
    /// When the key cannot be made.
    pub fn new(name: &str) -> Result<Self> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate()?)
            .context("make the world's certificate authority")?;
        Ok(Self { issuer })
    }

    /// Its certificate, PEM.
    pub fn certificate(&self) -> String {
        self.issuer.pem()
    }

    /// Its private key, PEM: the controller managers sign kubelets' certificates with it.
    pub fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A serving certificate for 127.0.0.1 and localhost.
    ///
    /// # Errors
    /// When the key cannot be made.
    pub fn server(&self, name: &str) -> Result<Identity> {
        self.sign(name, CertificateParams::new(["127.0.0.1", "localhost"].map(str::to_owned))?)
    }

    /// A certificate with which a client shows who it is.
    ///
    /// # Errors
    /// When the key cannot be made.
    pub fn client(&self, name: &str) -> Result<Identity> {
        let mut params = CertificateParams::new(Vec::new())?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.sign(name, params)
    }

    /// A certificate that ends when this day begins.
    ///
    /// # Errors
    /// When the key cannot be made.
    pub fn expiring(&self, name: &str, day: jiff::civil::Date) -> Result<Identity> {
        let date = |day: jiff::civil::Date| {
            rcgen::date_time_ymd(i32::from(day.year()), day.month().unsigned_abs(), day.day().unsigned_abs())
        };
        let mut params = CertificateParams::new(vec![name.to_owned()])?;
        (params.not_before, params.not_after) = (date(day.saturating_sub(jiff::Span::new().days(400))), date(day));
        self.sign(name, params)
    }

    fn sign(&self, name: &str, mut params: CertificateParams) -> Result<Identity> {
        params.distinguished_name.push(DnType::CommonName, name);
        if params.extended_key_usages.is_empty() {
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate()?;
        let certificate =
            params.signed_by(&key, &self.issuer).with_context(|| format!("sign the certificate of {name}"))?;
        Ok(Identity { certificate: certificate.pem(), key: key.serialize_pem() })
    }
}

/// A key pair that signs service account tokens: private and public key, PEM.
///
/// # Errors
/// When the key cannot be made.
pub fn signing_key() -> Result<(String, String)> {
    let key = KeyPair::generate()?;
    Ok((key.serialize_pem(), key.public_key_pem()))
}
