//! One platform: its drivers, kept for a while, and the Secrets that they connect with.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use crate::runtime::Guarded;
use cloud_common::{Access, Platform, SecretData};
use futures::FutureExt;
use futures::future::{BoxFuture, try_join_all};
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use shared::cloud::{CloudError, CloudErrorKind, ClusterRef, Driver};
use tokio::time::Instant;

/// How long a driver is used before its Secret is read again. After a failure it is read again at once.
const DRIVER_TTL: Duration = Duration::from_secs(15);

/// One platform with its drivers, whatever its types are.
pub trait Cloud: Send + Sync {
    /// The platform's name.
    fn name(&self) -> &'static str;
    /// The driver for a cluster.
    fn driver<'a>(
        &'a self,
        client: &'a Client,
        cluster: &'a ClusterRef,
    ) -> BoxFuture<'a, Result<Arc<dyn Driver>, CloudError>>;
    /// Has the cluster's Secret read again, and answers the version that is in doubt.
    fn doubt(&self, cluster: &ClusterRef) -> Option<String>;
    /// Namespace and name of each Secret with the cluster's credentials.
    fn secrets_of(&self, cluster: &ClusterRef) -> Vec<(String, String)>;
}

/// A platform whose drivers are kept for a while.
pub struct Cached<P: Platform> {
    platform: P,
    kept: Mutex<HashMap<Access<P::Account>, CachedDriver>>,
}

struct CachedDriver {
    at: Instant,
    version: Option<String>,
    driver: Arc<dyn Driver>,
}

impl<P: Platform> Cached<P> {
    /// No driver yet.
    pub fn new(platform: P) -> Self {
        Self { platform, kept: Mutex::default() }
    }

    async fn connect(&self, client: &Client, cluster: &ClusterRef) -> Result<Arc<dyn Driver>, CloudError> {
        let access = self.platform.access(cluster)?;
        if let Some(driver) = self.fresh(&access) {
            return Ok(driver);
        }
        let secrets = read_all(client, &access.secrets).await?;
        let version = versions(&secrets);
        if let Some(driver) = self.same_version(&access, version.as_deref()) {
            return Ok(driver);
        }
        let data =
            |secret: Secret| secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect();
        let data: Vec<SecretData> = secrets.into_iter().map(data).collect();
        let driver = self.platform.connect(&access.account, &data).await;
        let driver = driver.map_err(|why| credentials(access.blaming(&why)))?;
        self.keep(access, version, driver.clone());
        Ok(driver)
    }

    fn fresh(&self, access: &Access<P::Account>) -> Option<Arc<dyn Driver>> {
        self.kept.lock().get(access).filter(|kept| kept.at.elapsed() < DRIVER_TTL).map(|kept| kept.driver.clone())
    }

    fn same_version(&self, access: &Access<P::Account>, version: Option<&str>) -> Option<Arc<dyn Driver>> {
        let mut kept = self.kept.lock();
        let kept = kept.get_mut(access).filter(|kept| kept.version.as_deref() == version)?;
        kept.at = Instant::now();
        Some(kept.driver.clone())
    }

    fn keep(&self, access: Access<P::Account>, version: Option<String>, driver: Arc<dyn Driver>) {
        let mut kept = self.kept.lock();
        kept.retain(|_, kept| kept.at.elapsed() < 10 * DRIVER_TTL);
        kept.insert(access, CachedDriver { at: Instant::now(), version, driver });
    }
}

impl<P: Platform> Cloud for Cached<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn driver<'a>(
        &'a self,
        client: &'a Client,
        cluster: &'a ClusterRef,
    ) -> BoxFuture<'a, Result<Arc<dyn Driver>, CloudError>> {
        self.connect(client, cluster).boxed()
    }

    fn doubt(&self, cluster: &ClusterRef) -> Option<String> {
        let access = self.platform.access(cluster).ok()?;
        let mut kept = self.kept.lock();
        let kept = kept.get_mut(&access)?;
        kept.at = Instant::now().checked_sub(DRIVER_TTL).unwrap_or(kept.at);
        kept.version.clone()
    }

    fn secrets_of(&self, cluster: &ClusterRef) -> Vec<(String, String)> {
        self.platform.access(cluster).map(|access| access.secrets).unwrap_or_default()
    }
}

/// Reads Secrets, in this order.
pub async fn read_all(client: &Client, names: &[(String, String)]) -> Result<Vec<Secret>, CloudError> {
    try_join_all(names.iter().map(|(namespace, name)| read(client, namespace, name))).await
}

/// The versions of Secrets, as one text: it changes when any of them does.
pub fn versions(secrets: &[Secret]) -> Option<String> {
    let versions: Vec<String> = secrets.iter().filter_map(ResourceExt::resource_version).collect();
    (!versions.is_empty()).then(|| versions.join("/"))
}

/// Reads a Secret. The error says what to do about it.
async fn read(client: &Client, namespace: &str, name: &str) -> Result<Secret, CloudError> {
    let secrets: Api<Guarded<Secret>> = Api::namespaced(client.clone(), namespace);
    let found = secrets.get(name).await.and_then(|found| found.read().map_err(kube::Error::SerdeError));
    found.map_err(|error| match error {
        kube::Error::Api(status) if status.is_not_found() => {
            credentials(format!("Secret {namespace}/{name} does not exist"))
        }
        kube::Error::Api(status) if status.is_forbidden() => credentials(format!(
            "the controller has no permission to read Secret {namespace}/{name}: {}",
            status.message
        )),
        other => {
            CloudError::new(CloudErrorKind::Unavailable, format!("Secret {namespace}/{name} cannot be read: {other}"))
        }
    })
}

fn credentials(message: String) -> CloudError {
    CloudError::new(CloudErrorKind::Credentials, message)
}
