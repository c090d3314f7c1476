//! OpenStack as the controller registers it: its Secrets, and its part of a cluster's spec.

use std::sync::{Arc, Weak};

use cloud_common::{Access, Platform, Process, SecretData};
use cloud_recreate::Planner;
use futures::FutureExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;
use serde::Deserialize;
use shared::cloud::{CloudError, CloudErrorKind, ClusterRef, Driver};
use shared::hive::api::{ClusterDeployment, LocalReference};
use shared::text::sanitize_to;

use crate::account::Account;
use crate::clouds_yaml::{self, Cloud};

/// OpenStack has no flags: what it needs is in `clouds.yaml`.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct OpenStackFlags {}

/// The platform `openstack`.
pub struct OpenStack {
    process: Process,
    /// Drivers in use. Only who brings the same credentials, character by character, gets the same one.
    kept: Mutex<Vec<(Cloud, Weak<Planner<crate::driver::Driver>>)>>,
}

/// The entry of `clouds.yaml`, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entry {
    cloud: String,
    namespace: String,
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

    fn new(_flags: &OpenStackFlags, process: &Process) -> Self {
        Self { process: process.clone(), kept: Mutex::default() }
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
        Ok(Access { secrets, account: Entry { cloud, namespace } })
    }

    fn locate(&self, cluster: &ClusterDeployment, found: ClusterRef) -> ClusterRef {
        ClusterRef { cloud: spec(cluster).ok().map(|spec| spec.cloud), ..found }
    }

    fn connect<'a>(
        &'a self,
        account: &'a Entry,
        secrets: &'a [SecretData],
    ) -> BoxFuture<'a, Result<Arc<dyn Driver>, String>> {
        async move { self.driver(account, secrets).map(|driver| driver as Arc<dyn Driver>) }.boxed()
    }
}

impl OpenStack {
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
