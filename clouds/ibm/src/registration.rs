//! IBM Cloud as the controller registers it: its Secret, and its part of a cluster's spec.

use std::sync::Arc;

use cloud_common::{Access, Platform, Process, SecretData, account_word, credentials_secret, region, text};
use cloud_http::{Url, endpoint};
use cloud_stopstart::Accounts;
use shared::cloud::{CloudError, ClusterRef, Driver, PlatformSpec};

use crate::account::Account;

/// Key of the API key in its Secret.
const KEY: &str = "ibmcloud_api_key";

/// The controller's flags for IBM Cloud.
#[derive(Clone, Debug, clap::Args)]
pub struct IbmFlags {
    /// IAM and VPC endpoint to use instead of IBM's
    #[arg(long, value_name = "URL", value_parser = endpoint)]
    pub(crate) ibm_endpoint_url: Option<Url>,
}

/// The platform `ibmcloud`.
pub struct IbmCloud {
    endpoint: Option<Url>,
    accounts: Accounts<Account>,
}

/// What tells two drivers apart: region and account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct IbmAccount {
    region: String,
    account: String,
}

impl Platform for IbmCloud {
    const NAME: &'static str = "ibmcloud";
    type Flags = IbmFlags;
    type Account = IbmAccount;

    fn new(flags: &IbmFlags, process: &Process) -> Self {
        Self { endpoint: flags.ibm_endpoint_url.clone(), accounts: Accounts::new(process) }
    }

    fn access(&self, cluster: &ClusterRef) -> Result<Access<IbmAccount>, CloudError> {
        let secret = credentials_secret(Self::NAME, cluster)?;
        let account = match &cluster.platform {
            PlatformSpec::Ibm { account } if !account.is_empty() => account.clone(),
            _ => format!("{}/{}", secret.0, secret.1),
        };
        let region = region(Self::NAME, &cluster.region, "eu-de")?;
        Ok(Access { secrets: vec![secret], account: IbmAccount { region, account } })
    }

    async fn connect(&self, account: &IbmAccount, secrets: &[SecretData]) -> Result<Arc<dyn Driver>, String> {
        let key = text(secrets.first(), KEY)?.trim();
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("{KEY} is not an API key: it must be printable ASCII without spaces"));
        }
        let word = format!("ibm/{}", account_word(&account.account));
        self.accounts.connect((key, &account.region), word, |(key, region), http| {
            Account::new(key, region, &account.account, http, self.endpoint.as_ref())
        })
    }
}
