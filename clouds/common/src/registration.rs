//! What a cloud crate registers with the controller.

use std::collections::BTreeMap;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use futures::future::BoxFuture;
use shared::cloud::{CloudError, ClusterRef, Driver};
use shared::hive::api::ClusterDeployment;

use crate::Dialer;

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
    ///
    /// # Errors
    /// When the cluster does not say so, or may not use what it names.
    fn access(&self, cluster: &ClusterDeployment) -> Result<Access<Self::Account>, CloudError>;

    /// Adds what this platform needs to find the cluster's machines. Names, infraID and region are there.
    fn locate(&self, cluster: &ClusterDeployment, found: ClusterRef) -> ClusterRef {
        let _ = cluster;
        found
    }

    /// The driver for an account, from the content of its [`Access::secrets`]. No request is made yet.
    ///
    /// # Errors
    /// Why the Secrets give no credentials, without any of their content.
    fn connect<'a>(
        &'a self,
        account: &'a Self::Account,
        secrets: &'a [SecretData],
    ) -> BoxFuture<'a, Result<Arc<dyn Driver>, String>>;
}
