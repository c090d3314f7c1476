//! GCP as the controller registers it: its Secret, and its part of a cluster's spec.

use std::sync::Arc;

use cloud_common::{Access, Platform, Process, SecretData, account_word, credentials_secret, text};
use cloud_http::{Url, endpoint};
use cloud_stopstart::Accounts;
use shared::cloud::{CloudError, ClusterRef, Driver};

use crate::account::Account;
use crate::key::{self, KEY};

/// The controller's flags for GCP.
#[derive(Clone, Debug, clap::Args)]
pub struct GcpFlags {
    /// Compute Engine endpoint to use instead of Google's
    #[arg(long, value_name = "URL", value_parser = endpoint, default_value = "https://compute.googleapis.com")]
    pub(crate) gcp_endpoint_url: Url,
}

/// The platform `gcp`.
pub struct Gcp {
    endpoint: Url,
    accounts: Accounts<Account>,
}

impl Platform for Gcp {
    const NAME: &'static str = "gcp";
    type Flags = GcpFlags;
    type Account = ();

    fn new(flags: &GcpFlags, process: &Process) -> Self {
        Self { endpoint: flags.gcp_endpoint_url.clone(), accounts: Accounts::new(process) }
    }

    fn access(&self, cluster: &ClusterRef) -> Result<Access<()>, CloudError> {
        Ok(Access { secrets: vec![credentials_secret(Self::NAME, cluster)?], account: () })
    }

    async fn connect(&self, (): &(), secrets: &[SecretData]) -> Result<Arc<dyn Driver>, String> {
        let key = key::parse(text(secrets.first(), KEY)?)?;
        let account = format!("gcp/{}", account_word(&key.email));
        self.accounts.connect(key, account, |key, http| Ok(Account::new(key, http, &self.endpoint)))
    }
}
