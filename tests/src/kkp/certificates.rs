//! The certificates of a control plane: Secrets with real X.509, and a kubeconfig that stops working when its own has
//! expired.
//!
//! Row 15: KKP renews below 30 days, within seconds of the end of a pause, before it touches any Deployment. A day here
//! is a day.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use jiff::civil::Date;
use jiff::{ToSpan as _, Zoned};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use x509_parser::pem::parse_x509_pem;

use crate::pki::{Authority, Identity};

/// Days that a new certificate is valid.
const LIFE: i64 = 365;
/// Days before its end at which it is renewed.
const RENEWED: i64 = 30;

/// Secrets with their certificate and its key: those that etcd needs first.
pub const SECRETS: &[(&str, &str, &str)] = &[
    ("etcd-tls-certificate", "etcd-tls.crt", "etcd-tls.key"),
    ("apiserver-etcd-client-certificate", "apiserver-etcd-client.crt", "apiserver-etcd-client.key"),
    ("apiserver-tls", "apiserver-tls.crt", "apiserver-tls.key"),
];

/// The Secret whose expiry ends etcd's quorum (row 44).
pub const ETCD: &str = SECRETS[0].0;

/// The authority of one user cluster.
#[derive(Default)]
pub(crate) struct Certificates {
    authority: Option<Authority>,
    /// How many kubeconfigs there were.
    pub(crate) kubeconfigs: u32,
    /// When the client certificate of the kubeconfig expires.
    pub(crate) kubeconfig_until: Option<Date>,
}

impl Certificates {
    pub(crate) fn new(id: &str) -> Result<Self> {
        let authority = Authority::new(&format!("root-ca.{id}"))?;
        Ok(Self { authority: Some(authority), ..Self::default() })
    }

    /// A certificate that is valid for so many days from now; fewer than 0: it has expired.
    pub(crate) fn issue(&self, name: &str, days: i64) -> Result<Identity> {
        let date = in_days(days);
        self.authority.as_ref().context("no authority")?.expiring(name, date)
    }

    /// The Secret's data.
    pub(crate) fn data(&self, of: &(&str, &str, &str), days: i64) -> Result<BTreeMap<String, ByteString>> {
        let identity = self.issue(of.0, days)?;
        let pair = [(of.1, identity.certificate), (of.2, identity.key)];
        Ok(pair.map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes()))).into())
    }
}

/// The day in so many days.
pub(crate) fn in_days(days: i64) -> Date {
    let today = Zoned::now().date();
    today.checked_add(days.days()).unwrap_or(today)
}

/// Days that the certificate in a Secret is still valid; `None` if there is none.
pub fn days_left(secret: &Secret, key: &str) -> Option<i64> {
    let text = &secret.data.as_ref()?.get(key)?.0;
    let (_, pem) = parse_x509_pem(text).ok()?;
    let ends = pem.parse_x509().ok()?.validity().not_after.timestamp();
    Some((ends - jiff::Timestamp::now().as_second()).div_euclid(24 * 3600))
}

/// Whether KKP makes the certificate of this Secret anew.
pub(crate) fn is_due(secret: Option<&Secret>, key: &str) -> bool {
    secret.and_then(|secret| days_left(secret, key)).is_none_or(|days| days < RENEWED)
}

/// Days that a new one is valid.
pub(crate) fn life() -> i64 {
    LIFE
}

/// Whether KKP makes the kubeconfig anew.
pub(crate) fn kubeconfig_is_due(until: Option<Date>) -> bool {
    until.is_none_or(|until| until < in_days(RENEWED))
}
