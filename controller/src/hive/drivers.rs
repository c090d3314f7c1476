//! Which driver works on which target: credentials are read Secret by Secret, when a target needs them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use shared::cloud::{CloudError, CloudErrorKind, Driver};
use shared::hive::api::{AwsPlatform, ClusterDeployment};
use tokio::time::Instant;

/// Platforms that drivers of ours serve.
pub const PLATFORMS: &[&str] = &["aws"];

/// The platform of a cluster that we serve, for labels of metrics.
pub fn platform(cluster: &ClusterDeployment) -> &'static str {
    let name = cluster.spec.platform.name();
    PLATFORMS.iter().find(|platform| **platform == name).copied().unwrap_or("none")
}

/// How long a driver is used before its Secret is read again. After a failure it is read again at once.
const KEEP: Duration = Duration::from_secs(15);

/// Account and region: everything a driver depends on.
type Key = (String, String, String);

/// The drivers at work.
pub struct Drivers {
    client: Client,
    aws: aws::Options,
    own_credentials_in: Vec<String>,
    kept: Mutex<HashMap<Key, Kept>>,
}

struct Kept {
    at: Instant,
    version: Option<String>,
    driver: Arc<dyn Driver>,
}

impl Drivers {
    /// Reads Secrets through this client. In the namespaces named, a cluster without a Secret may use the process's own account.
    #[must_use]
    pub fn new(client: Client, aws: aws::Options, own_credentials_in: Vec<String>) -> Self {
        Self { client, aws, own_credentials_in, kept: Mutex::default() }
    }

    /// The driver for a cluster.
    ///
    /// # Errors
    /// When the cluster does not say where its machines are, or its Secret is missing or refused.
    pub async fn of(&self, cluster: &ClusterDeployment) -> Result<Arc<dyn Driver>, CloudError> {
        let namespace = cluster.namespace().unwrap_or_default();
        let Some(aws) = &cluster.spec.platform.aws else {
            return Err(invalid(format!("platform {} has no driver", cluster.spec.platform.name())));
        };
        let name = aws.credentials_secret_ref.as_ref().map(|secret| secret.name.as_str()).unwrap_or_default();
        let key = (namespace.clone(), name.to_owned(), aws.region.clone());
        if let Some(driver) = self.fresh(&key) {
            return Ok(driver);
        }
        if name.is_empty() {
            let driver = self.own(&namespace, aws).await?;
            self.keep(key, None, driver.clone());
            return Ok(driver);
        }
        let secret = self.secret(&namespace, name).await?;
        let version = secret.resource_version();
        if let Some(driver) = self.same_version(&key, version.as_deref()) {
            return Ok(driver);
        }
        let data: BTreeMap<_, _> =
            secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect();
        let driver = aws::connect(&aws.region, &data, &self.aws).await.map_err(|error| CloudError {
            message: format!("Secret {namespace}/{name}: {}", error.message),
            ..error
        })?;
        let driver: Arc<dyn Driver> = Arc::new(driver);
        self.keep(key, version, driver.clone());
        Ok(driver)
    }

    /// After a failure that new credentials may end: the Secret is read again at the next look.
    pub fn doubt(&self, cluster: &ClusterDeployment) {
        let namespace = cluster.namespace().unwrap_or_default();
        if let Ok(mut kept) = self.kept.lock() {
            for (_, kept) in kept.iter_mut().filter(|((ns, _, _), _)| *ns == namespace) {
                kept.at = Instant::now().checked_sub(KEEP).unwrap_or(kept.at);
            }
        }
    }

    async fn own(&self, namespace: &str, platform: &AwsPlatform) -> Result<Arc<dyn Driver>, CloudError> {
        if platform.credentials_assume_role.is_some() {
            return Err(credentials(
                "spec.platform.aws.credentialsAssumeRole is not supported yet; use credentialsSecretRef",
            ));
        }
        if !self.own_credentials_in.iter().any(|allowed| allowed == namespace) {
            return Err(credentials(
                "spec.platform.aws.credentialsSecretRef.name is empty; name a Secret with the account's credentials",
            ));
        }
        Ok(Arc::new(aws::connect_with_own_credentials(&platform.region, &self.aws).await))
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<Secret, CloudError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), namespace);
        secrets.get(name).await.map_err(|error| match error {
            kube::Error::Api(status) if status.is_not_found() => {
                credentials(&format!("Secret {namespace}/{name} does not exist"))
            }
            kube::Error::Api(status) if status.is_forbidden() => {
                credentials(&format!("Secret {namespace}/{name} may not be read by the controller: {}", status.message))
            }
            other => CloudError {
                kind: CloudErrorKind::Unavailable,
                message: format!("Secret {namespace}/{name} cannot be read: {other}"),
            },
        })
    }

    fn fresh(&self, key: &Key) -> Option<Arc<dyn Driver>> {
        let kept = self.kept.lock().ok()?;
        kept.get(key).filter(|kept| kept.at.elapsed() < KEEP).map(|kept| kept.driver.clone())
    }

    fn same_version(&self, key: &Key, version: Option<&str>) -> Option<Arc<dyn Driver>> {
        let mut kept = self.kept.lock().ok()?;
        let kept = kept.get_mut(key).filter(|kept| kept.version.as_deref() == version)?;
        kept.at = Instant::now();
        Some(kept.driver.clone())
    }

    fn keep(&self, key: Key, version: Option<String>, driver: Arc<dyn Driver>) {
        if let Ok(mut kept) = self.kept.lock() {
            kept.retain(|_, kept| kept.at.elapsed() < 10 * KEEP);
            kept.insert(key, Kept { at: Instant::now(), version, driver });
        }
    }
}

fn invalid(message: String) -> CloudError {
    CloudError { kind: CloudErrorKind::Invalid, message }
}

fn credentials(message: &str) -> CloudError {
    CloudError { kind: CloudErrorKind::Credentials, message: message.to_owned() }
}
