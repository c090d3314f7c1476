//! GCP as the controller registers it: its Secret, and its part of a cluster's spec.

use std::sync::Arc;

use cloud_common::{Access, Platform, Pool, Process, SecretData, account_word, credentials_secret, text};
use cloud_http::{Http, Options, Url, endpoint};
use cloud_stopstart::StopStart;
use shared::cloud::{CloudError, ClusterRef, Driver};

use crate::account::{Account, RATE};
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
    process: Process,
    endpoint: Url,
    pool: Pool<StopStart<Account>>,
}

impl Platform for Gcp {
    const NAME: &'static str = "gcp";
    type Flags = GcpFlags;
    type Account = ();

    fn new(flags: &GcpFlags, process: &Process) -> Self {
        Self { process: process.clone(), endpoint: flags.gcp_endpoint_url.clone(), pool: Pool::default() }
    }

    fn access(&self, cluster: &ClusterRef) -> Result<Access<()>, CloudError> {
        Ok(Access { secrets: vec![credentials_secret(Self::NAME, cluster)?], account: () })
    }

    async fn connect(&self, (): &(), secrets: &[SecretData]) -> Result<Arc<dyn Driver>, String> {
        let key = key::parse(text(secrets.first(), KEY)?)?;
        let driver = self.pool.get(key, |key| {
            let account = format!("gcp/{}", account_word(&key.email)).into();
            let process = self.process.clone();
            let options = Options { process, tenant: None, account, authorities: None, rate: RATE };
            let http = Http::new(options)?;
            let account = Account::new(key, http, &self.endpoint);
            Ok::<_, String>(StopStart::new(account, self.process.permit.clone()))
        })?;
        Ok(driver as Arc<dyn Driver>)
    }
}
