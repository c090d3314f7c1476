//! Whether API servers will trust the webhook: its certificate against the caBundles, now and in a week, by the
//! verification that a TLS client does.

use std::sync::Arc;
use std::time::Duration;

use hub::answer::certificate;
use hub::error::HubError;
use hub::provider;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{CertificateError, RootCertStore};
use serde::Deserialize as _;
use serde_json::Value;
use shared::annotation::keys;
use shared::object::{items, text};

use super::facts::{Facts, SECRET};
use super::{CheckOutcome, CheckResult, done};

/// A certificate that ends sooner has not been renewed when it should have been.
const DAYS_LEFT: i64 = 7;

/// Why a chain is not trusted.
#[derive(Debug, PartialEq, Eq)]
enum Distrust {
    /// It ends before that time: when, if it is known.
    Expired(Option<Timestamp>),
    /// It begins after that time: when, if it is known.
    NotYet(Option<Timestamp>),
    /// Any other reason.
    Other(String),
}

/// Base64 of an object's JSON. Empty if it is none.
fn bytes(text: Option<&Value>) -> Vec<u8> {
    text.and_then(|text| ByteString::deserialize(text).ok()).map(|ByteString(bytes)| bytes).unwrap_or_default()
}

/// Verifies a PEM chain for this host at that time by a PEM bundle of CAs.
fn verify(bundle: &[u8], chain: &[u8], host: &str, at: Timestamp) -> Result<(), Distrust> {
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
        Err(rustls::Error::InvalidCertificate(error)) => Err(match error {
            CertificateError::ExpiredContext { not_after, .. } => Distrust::Expired(timestamp(not_after)),
            CertificateError::Expired => Distrust::Expired(None),
            CertificateError::NotValidYetContext { not_before, .. } => Distrust::NotYet(timestamp(not_before)),
            CertificateError::NotValidYet => Distrust::NotYet(None),
            error => Distrust::Other(certificate(&error)),
        }),
        Err(error) => Err(other(&error)),
    }
}

fn timestamp(time: UnixTime) -> Option<Timestamp> {
    Timestamp::from_second(i64::try_from(time.as_secs()).ok()?).ok()
}

/// The host that an entry's certificate must be for.
fn host(entry: &Value) -> String {
    let service = |field: &str| text(entry, &format!("/clientConfig/service/{field}"));
    let url = text(entry, "/clientConfig/url").parse::<http::Uri>().ok();
    match url.as_ref().and_then(http::Uri::host) {
        Some(host) => host.to_owned(),
        None => format!("{}.{}.svc", service("name"), service("namespace")),
    }
}

/// The certificate chain in the Secret; none where another source has it.
fn chain(facts: &Facts) -> Result<Option<Vec<u8>>, &HubError> {
    let elsewhere = facts.is_abandoned() || facts.argument(keys::WEBHOOK, "--tls-cert").is_some();
    let secret = facts.secret.as_ref()?;
    Ok((!elsewhere).then(|| bytes(secret.as_ref().and_then(|secret| secret.pointer("/data/tls.crt")))))
}

pub(super) fn ca_bundle(facts: &Facts) -> CheckOutcome<'_> {
    let secret = format!("Secret {SECRET} in namespace {}", facts.namespace);
    let restart = facts.restart(keys::WEBHOOK);
    let [validating, mutating] = &facts.rules;
    let rules = [validating.as_ref()?, mutating.as_ref()?];
    let Some(chain) = chain(facts)? else { return Ok(None) };
    if matches!(facts.secret, Ok(None)) {
        return facts.reinstall(&format!("{secret} is missing"));
    }
    if chain.is_empty() {
        let detail = format!("{secret} is empty: a running webhook populates it");
        return done(CheckResult::failed(detail, restart));
    }
    for entry in rules.into_iter().flatten().flat_map(|rules| items(rules, "/webhooks")) {
        let bundle = bytes(entry.pointer("/clientConfig/caBundle"));
        match verify(&bundle, &chain, &host(entry), facts.now) {
            // The check of the lifetime names it.
            Ok(()) | Err(Distrust::Expired(_)) => {}
            // A restart changes nothing, and once the clocks are right nothing is left to do.
            Err(Distrust::NotYet(begin)) => {
                let begin = begin.map(|begin| format!(" before {begin}")).unwrap_or_default();
                let detail = format!(
                    "the certificate in {secret} is not valid{begin}: the clock of a webhook was ahead, or this \
                     machine's is behind; with the right time, a running webhook replaces it within a minute"
                );
                return done(CheckResult::failed(detail, ""));
            }
            Err(Distrust::Other(why)) => {
                let name = text(entry, "/name");
                let detail = format!("caBundle of {name} does not match the certificate in {secret}: {why}");
                return done(CheckResult::failed(detail, restart));
            }
        }
    }
    done(CheckResult::ok(format!("every rule trusts the certificate in {secret}")))
}

pub(super) fn lifetime(facts: &Facts) -> CheckOutcome<'_> {
    let chain = chain(facts)?.filter(|chain| !chain.is_empty());
    let (Some(chain), Some(secret)) = (chain, facts.secret.as_ref()?) else { return Ok(None) };
    let authority = bytes(secret.pointer("/data/ca.crt"));
    let Some(Ok(Some(rules))) = facts.rules.iter().find(|rules| matches!(rules, Ok(Some(_)))) else { return Ok(None) };
    let host = host(items(rules, "/webhooks").next().unwrap_or(&Value::Null));
    let Ok(then) = facts.now.checked_add(jiff::SignedDuration::from_hours(24 * DAYS_LEFT)) else { return Ok(None) };
    match verify(&authority, &chain, &host, then) {
        Ok(()) => done(CheckResult::ok(format!("valid for {DAYS_LEFT} days at least"))),
        Err(Distrust::Expired(end)) => {
            let end = end.map(|end| format!(" at {end}")).unwrap_or_default();
            let detail = format!("the webhook's certificate expires{end}: a running webhook renews it earlier");
            done(CheckResult::failed(detail, facts.restart(keys::WEBHOOK)))
        }
        // The check of the bundles names it.
        Err(Distrust::NotYet(_) | Distrust::Other(_)) => Ok(None),
    }
}
