//! Azure as the controller registers it: its Secret, and its part of a cluster's spec.

use std::sync::Arc;

use cloud_common::{Access, Platform, Process, SecretData, account_word, credentials_secret, text};
use cloud_http::{Url, endpoint};
use cloud_stopstart::Accounts;
use shared::cloud::{CloudError, CloudErrorKind, ClusterRef, Driver, PlatformSpec};

use crate::account::Account;
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
    endpoint: Option<Url>,
    accounts: Accounts<Account>,
}

impl Platform for Azure {
    const NAME: &'static str = "azure";
    type Flags = AzureFlags;
    type Account = Environment;

    fn new(flags: &AzureFlags, process: &Process) -> Self {
        Self { endpoint: flags.azure_endpoint_url.clone(), accounts: Accounts::new(process) }
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
        let account = format!("azure/{}", account_word(&principal.client));
        self.accounts.connect((principal, *environment), account, |(principal, environment), http| {
            Account::new(&principal, environment, http, self.endpoint.as_ref())
        })
    }
}
