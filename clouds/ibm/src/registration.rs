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

/// A region, and a word for the account.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    region: String,
    account: String,
}

impl Platform for IbmCloud {
    const NAME: &'static str = "ibmcloud";
    type Flags = IbmFlags;
    type Account = Place;

    fn new(flags: &IbmFlags, process: &Process) -> Self {
        Self { endpoint: flags.ibm_endpoint_url.clone(), accounts: Accounts::new(process) }
    }

    fn access(&self, cluster: &ClusterRef) -> Result<Access<Place>, CloudError> {
        let secret = credentials_secret(Self::NAME, cluster)?;
        let account = match &cluster.platform {
            PlatformSpec::Ibm { account } if !account.is_empty() => account.clone(),
            _ => format!("{}/{}", secret.0, secret.1),
        };
        let region = region(Self::NAME, &cluster.region, "eu-de")?;
        Ok(Access { secrets: vec![secret], account: Place { region, account } })
    }

    async fn connect(&self, place: &Place, secrets: &[SecretData]) -> Result<Arc<dyn Driver>, String> {
        let key = text(secrets.first(), KEY)?.trim();
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("{KEY} is no API key"));
        }
        let account = format!("ibm/{}", account_word(&place.account));
        self.accounts.connect((key, &place.region), account, |(key, region), http| {
            Account::new(key, region, &place.account, http, self.endpoint.as_ref())
        })
    }
}
