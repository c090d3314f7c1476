//! Azure as the controller registers it: its Secret, and its part of a cluster's spec.

use std::sync::Arc;

use cloud_common::{Access, Platform, Pool, Process, SecretData, account_word, credentials_secret, text};
use cloud_http::{Http, Options, Url, endpoint};
use cloud_stopstart::StopStart;
use shared::cloud::{CloudError, CloudErrorKind, ClusterRef, Driver, PlatformSpec};

use crate::account::{Account, RATE};
use crate::principal::{self, Environment, KEY};

/// The controller's flags for Azure.
#[derive(Clone, Debug, clap::Args)]
pub struct AzureFlags {
    /// Azure Resource Manager and Entra endpoint to use instead of Microsoft's
    #[arg(long, value_name = "URL", value_parser = endpoint)]
    pub(crate) azure_endpoint_url: Option<Url>,
}

/// The platform `azure`.
pub struct Azure {
    process: Process,
    endpoint: Option<Url>,
    pool: Pool<StopStart<Account>>,
}

impl Platform for Azure {
    const NAME: &'static str = "azure";
    type Flags = AzureFlags;
    type Account = Environment;

    fn new(flags: &AzureFlags, process: &Process) -> Self {
        Self { process: process.clone(), endpoint: flags.azure_endpoint_url.clone(), pool: Pool::default() }
    }

    fn access(&self, cluster: &ClusterRef) -> Result<Access<Environment>, CloudError> {
        let secret = credentials_secret(Self::NAME, cluster)?;
        let cloud_name = if let PlatformSpec::Azure { cloud_name, .. } = &cluster.platform { cloud_name } else { "" };
        let environment = Environment::of_name(cloud_name).map_err(|why| {
            let message = format!("spec.platform.azure.cloudName is {why}: it has to be AzurePublicCloud, AzureUSGovernmentCloud or AzureChinaCloud");
            CloudError::new(CloudErrorKind::Invalid, message)
        })?;
        Ok(Access { secrets: vec![secret], account: environment })
    }

    async fn connect(&self, environment: &Environment, secrets: &[SecretData]) -> Result<Arc<dyn Driver>, String> {
        let principal = principal::parse(text(secrets.first(), KEY)?)?;
        let driver = self.pool.get((principal, *environment), |(principal, environment)| {
            let account = format!("azure/{}", account_word(&principal.client)).into();
            let process = self.process.clone();
            let options = Options { process, tenant: None, account, authorities: None, rate: RATE };
            let http = Http::new(options)?;
            let account = Account::new(principal, environment, http, self.endpoint.as_ref())?;
            Ok::<_, String>(StopStart::new(account, self.process.permit.clone()))
        })?;
        Ok(driver as Arc<dyn Driver>)
    }
}
