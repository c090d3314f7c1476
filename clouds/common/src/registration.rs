//! What a cloud crate registers with the controller.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use shared::cloud::{CloudError, CloudErrorKind, ClusterRef, Driver};
use shared::text::sanitize_to;

use crate::{Dialer, MemoryLimit};

/// Asked before every request that leaves this process, retries included: may it still act?
pub type Permit = Arc<dyn Fn() -> bool + Send + Sync>;

/// The content of a Secret, by key.
pub type SecretData = BTreeMap<String, Vec<u8>>;

/// What all drivers of this process have in common.
#[derive(Clone)]
pub struct Process {
    /// Sent with every request, so that a cloud's log of calls proves which controller made them.
    pub identity: String,
    /// Whether this process may act.
    pub permit: Permit,
    /// Which addresses may be dialed, where tenants choose them.
    pub dialer: Dialer,
    /// For what clouds answer: shared with the spokes.
    pub memory: MemoryLimit,
}

/// Where a cluster's credentials come from, and what they open.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Access<A> {
    /// Namespace and name of each Secret, in the order in which `connect` gets them; none for the process's own
    /// credentials.
    pub secrets: Vec<(String, String)>,
    /// What else decides which driver it is: the region, a role. Never a secret.
    pub account: A,
}

impl<A> Access<A> {
    /// An error about the content of the Secrets, which names them.
    pub fn blaming(&self, why: &str) -> String {
        let names: Vec<String> = self.secrets.iter().map(|(namespace, name)| format!("{namespace}/{name}")).collect();
        match names.as_slice() {
            [] => why.to_owned(),
            [name] => format!("Secret {name}: {why}"),
            names => format!("Secrets {}: {why}", names.join(" and ")),
        }
    }
}

/// One platform. Only it reads its part of a cluster's spec, its flags and its Secrets.
pub trait Platform: Send + Sync + Sized + 'static {
    /// As the spec of a cluster spells it. Also the label of metrics.
    const NAME: &'static str;
    /// The controller's flags for this platform. Every struct needs its own name.
    type Flags: clap::Args + Clone + fmt::Debug + Send + Sync;
    /// See [`Access::account`].
    type Account: Clone + Eq + Hash + Send + Sync + 'static;

    /// The API's own name of a call (`list`, `start`, `stop`, `terminate` or `settle`) on a platform whose calls Hive
    /// counts: label of `hive_aws_api_calls_total`.
    fn api_call(call: &'static str) -> Option<&'static str> {
        let _ = call;
        None
    }

    /// No request is made yet.
    fn new(flags: &Self::Flags, process: &Process) -> Self;

    /// Which credentials open the account with this cluster's machines.
    fn access(&self, cluster: &ClusterRef) -> Result<Access<Self::Account>, CloudError>;

    /// The driver for an account, from the content of its [`Access::secrets`]. No request is made yet.
    ///
    /// # Errors
    /// Why the Secrets give no credentials, without any of their content.
    fn connect(
        &self,
        account: &Self::Account,
        secrets: &[SecretData],
    ) -> impl Future<Output = Result<Arc<dyn Driver>, String>> + Send;
}

/// Namespace and name of the Secret with a cluster's credentials.
pub fn credentials_secret(platform: &str, cluster: &ClusterRef) -> Result<(String, String), CloudError> {
    if cluster.credentials.is_empty() {
        let message = format!("spec.platform.{platform}.credentialsSecretRef.name is empty");
        return Err(CloudError::new(CloudErrorKind::Credentials, message));
    }
    Ok((cluster.namespace.clone(), cluster.credentials.clone()))
}

/// Largest value of a key of a Secret with credentials, in bytes.
pub const MAX_CREDENTIALS: usize = 64 << 10;

/// The text under a key of a Secret.
///
/// # Errors
/// When there is none, without any of its content.
pub fn text<'a>(secret: Option<&'a SecretData>, key: &str) -> Result<&'a str, String> {
    let bytes = secret.and_then(|secret| secret.get(key)).ok_or_else(|| format!("it has no key {key}"))?;
    let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= MAX_CREDENTIALS);
    text.ok_or_else(|| format!("{key} is not text of at most {} KiB", MAX_CREDENTIALS >> 10))
}

/// An opaque word for an account, of what identifies it and is not secret.
pub fn account_word(account: &str) -> String {
    let start = Sha256::digest(account).first_chunk().copied().map_or(0, u64::from_be_bytes);
    format!("{start:016x}")
}

/// Longest region that may be one.
const MAX_REGION: usize = 32;

/// The region of a platform, if its form is one. It becomes a part of host names and URLs: anything else could lead to
/// another host, or be a second spelling of a region by which two clusters seem to have different machines.
pub fn region(platform: &str, region: &str, example: &str) -> Result<String, CloudError> {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if (1..=MAX_REGION).contains(&region.len()) && region.chars().all(is_letter) {
        return Ok(region.to_owned());
    }
    let found = sanitize_to(region, MAX_REGION);
    let message = format!(
        "spec.platform.{platform}.region is {found:?}: a region has lowercase letters, digits and hyphens, such as {example}"
    );
    Err(CloudError::new(CloudErrorKind::Invalid, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_names_the_secret_with_its_credentials() {
        let cluster = ClusterRef { namespace: "ns".into(), credentials: "creds".into(), ..ClusterRef::default() };
        assert_eq!(credentials_secret("gcp", &cluster), Ok(("ns".to_owned(), "creds".to_owned())));
        let error = credentials_secret("gcp", &ClusterRef::default()).unwrap_err();
        assert_eq!(error.message, "spec.platform.gcp.credentialsSecretRef.name is empty");
    }
}
