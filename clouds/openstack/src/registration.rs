//! OpenStack as the controller registers it: its Secrets, and its part of a cluster's spec.

use std::sync::{Arc, Weak};

use clap::ValueEnum as _;
use cloud_common::{Access, Platform, Process, SecretData};
use cloud_recreate::Planner;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::Deserialize;
use shared::annotation::keys;
use shared::cloud::{CloudError, CloudErrorKind, ClusterRef, Driver};
use shared::hive::api::{ClusterDeployment, LocalReference};
use shared::power::Power;
use shared::text::sanitize_to;

use crate::account::Account;
use crate::clouds_yaml::{self, Cloud};
use crate::modes::{Mode, Modes};

/// What is not in `clouds.yaml`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OpenStackFlags {
    /// How clusters on OpenStack sleep that have no annotation hibernate.sh/openstack-mode
    #[arg(long, value_enum, default_value_t, value_name = "MODE")]
    openstack_mode: Mode,
}

/// The platform `openstack`.
pub struct OpenStack {
    process: Process,
    mode: Mode,
    /// Drivers in use. Only who brings the same credentials, character by character, gets the same one.
    kept: Mutex<Vec<(Cloud, Weak<Planner<crate::driver::Driver>>)>>,
}

/// The entry of `clouds.yaml`, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    cloud: String,
    namespace: String,
    mode: Mode,
}

/// `spec.platform.openstack`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    cloud: String,
    credentials_secret_ref: LocalReference,
    certificates_secret_ref: Option<LocalReference>,
}

fn spec(cluster: &ClusterDeployment) -> Result<Spec, CloudError> {
    let spec = cluster.spec.platform.other.get(OpenStack::NAME);
    let spec = spec.and_then(|spec| serde_json::from_value(spec.clone()).ok());
    spec.ok_or_else(|| CloudError::new(CloudErrorKind::Invalid, "spec.platform.openstack is missing or malformed"))
}

impl Platform for OpenStack {
    const NAME: &'static str = "openstack";
    type Flags = OpenStackFlags;
    type Account = Entry;

    fn new(flags: &OpenStackFlags, process: &Process) -> Self {
        Self { process: process.clone(), mode: flags.openstack_mode, kept: Mutex::default() }
    }

    fn access(&self, cluster: &ClusterDeployment) -> Result<Access<Entry>, CloudError> {
        let Spec { cloud, credentials_secret_ref, certificates_secret_ref } = spec(cluster)?;
        let namespace = cluster.metadata.namespace.clone().unwrap_or_default();
        let missing = |field: &str| {
            let message = format!("spec.platform.openstack.{field} is empty");
            Err(CloudError::new(CloudErrorKind::Credentials, message))
        };
        if credentials_secret_ref.name.is_empty() {
            return missing("credentialsSecretRef.name");
        }
        if cloud.is_empty() {
            return missing("cloud");
        }
        let certificates = certificates_secret_ref.filter(|secret| !secret.name.is_empty());
        let secrets = [Some(credentials_secret_ref), certificates].into_iter().flatten();
        let secrets = secrets.map(|secret| (namespace.clone(), secret.name)).collect();
        Ok(Access { secrets, account: Entry { cloud, namespace, mode: self.mode(cluster)? } })
    }

    fn locate(&self, cluster: &ClusterDeployment, found: ClusterRef) -> ClusterRef {
        ClusterRef { cloud: spec(cluster).ok().map(|spec| spec.cloud), ..found }
    }

    fn connect<'a>(
        &'a self,
        account: &'a Entry,
        secrets: &'a [SecretData],
    ) -> BoxFuture<'a, Result<Arc<dyn Driver>, String>> {
        async move {
            let planner = self.driver(account, secrets)?;
            Ok(Arc::new(Modes::new(planner, account.mode)) as Arc<dyn Driver>)
        }
        .boxed()
    }
}

impl OpenStack {
    /// How a cluster sleeps next. A word that is none is no reason not to wake it.
    fn mode(&self, cluster: &ClusterDeployment) -> Result<Mode, CloudError> {
        let Some(word) = cluster.metadata.annotations.as_ref().and_then(|all| all.get(keys::OPENSTACK_MODE)) else {
            return Ok(self.mode);
        };
        match Mode::from_str(word, false) {
            Ok(mode) => Ok(mode),
            Err(_) if cluster.desired() == Power::Running => Ok(self.mode),
            Err(_) => {
                let word = sanitize_to(word, 40);
                let message =
                    format!("annotation {} is {word:?}: it has to be snapshot or shelve", keys::OPENSTACK_MODE);
                Err(CloudError::new(CloudErrorKind::Invalid, message))
            }
        }
    }

    fn driver(&self, entry: &Entry, secrets: &[SecretData]) -> Result<Arc<Planner<crate::driver::Driver>>, String> {
        let credentials = secrets.first().ok_or("there is no Secret")?;
        let cloud = clouds_yaml::parse(credentials, &entry.cloud, secrets.get(1))?;
        let mut kept = self.kept.lock();
        kept.retain(|(_, driver)| driver.strong_count() > 0);
        if let Some(driver) = kept.iter().find(|(of, _)| *of == cloud).and_then(|(_, driver)| driver.upgrade()) {
            return Ok(driver);
        }
        let region = cloud.region.as_deref().map_or_else(|| "-".to_owned(), |region| sanitize_to(region, 40));
        let domain = format!("openstack/{region}/{}", cloud.word()).into();
        let account = Account::new(cloud.clone(), self.process.clone(), entry.namespace.as_str().into())?;
        let driver = Arc::new(Planner::new(crate::driver::Driver::new(account, domain)));
        kept.push((cloud, Arc::downgrade(&driver)));
        Ok(driver)
    }
}
