//! Which driver works on which target: credentials are read Secret by Secret, when a target needs them.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use shared::cloud::{CloudError, CloudErrorKind, Driver};
use shared::hive::api::{AssumeRole, ClusterDeployment};
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

/// What the controller itself may use beside the Secrets of the targets.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    /// In these namespaces a cluster without a Secret may use the process's own account.
    pub own_credentials_in: Vec<String>,
    /// The Secret with the service provider's credentials, which assume the roles that clusters name: namespace and name.
    pub service_provider: Option<(String, String)>,
}

/// Where a cluster's credentials come from, and for which region.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    /// Namespace and name; `None` for the process's own credentials.
    secret: Option<(String, String)>,
    /// ARN and external ID of the role to assume with them.
    role: Option<(String, Option<String>)>,
    region: String,
}

/// The drivers at work.
pub struct Drivers {
    client: Client,
    aws: aws::Pool,
    grants: Grants,
    kept: Mutex<HashMap<Key, Kept>>,
}

struct Kept {
    at: Instant,
    version: Option<String>,
    driver: Arc<dyn Driver>,
}

impl Drivers {
    /// Reads Secrets through this client.
    #[must_use]
    pub fn new(client: Client, aws: aws::Options, grants: Grants) -> Self {
        Self { client, aws: aws::Pool::new(aws), grants, kept: Mutex::default() }
    }

    /// The driver for a cluster.
    ///
    /// # Errors
    /// When the cluster does not say where its machines are, or its Secret is missing or refused.
    pub async fn of(&self, cluster: &ClusterDeployment) -> Result<Arc<dyn Driver>, CloudError> {
        let key = self.key(cluster)?;
        if let Some(driver) = self.fresh(&key) {
            return Ok(driver);
        }
        let mut version = None;
        let mut source = aws::Source::process();
        if let Some((namespace, name)) = &key.secret {
            let secret = self.secret(namespace, name).await?;
            version = secret.resource_version();
            if let Some(driver) = self.same_version(&key, version.as_deref()) {
                return Ok(driver);
            }
            let data: BTreeMap<_, _> =
                secret.data.unwrap_or_default().into_iter().map(|(key, value)| (key, value.0)).collect();
            source =
                aws::Source::read(&data).map_err(|why| credentials(&format!("Secret {namespace}/{name}: {why}")))?;
        }
        if let Some((arn, external_id)) = &key.role {
            source = source.assume(arn, external_id.as_deref());
        }
        let driver: Arc<dyn Driver> = self.aws.connect(&key.region, source).await;
        self.keep(key, version, driver.clone());
        Ok(driver)
    }

    /// The cloud refused what came with these credentials: the Secret is read again at the next look. Answers its version
    /// that was refused.
    pub fn doubt(&self, cluster: &ClusterDeployment) -> Option<String> {
        let key = self.key(cluster).ok()?;
        let mut kept = self.lock();
        let kept = kept.get_mut(&key)?;
        kept.at = Instant::now().checked_sub(KEEP).unwrap_or(kept.at);
        kept.version.clone()
    }

    /// Whether a cluster's credentials have another version than the one that was refused.
    pub async fn are_new(&self, cluster: &ClusterDeployment, refused: &str) -> bool {
        let Ok(Key { secret: Some((namespace, name)), .. }) = self.key(cluster) else { return false };
        let secret = self.secret(&namespace, &name).await;
        secret.is_ok_and(|secret| secret.resource_version().is_some_and(|version| version != refused))
    }

    /// As Hive chooses: the cluster's own Secret, otherwise a role, otherwise what the process has.
    fn key(&self, cluster: &ClusterDeployment) -> Result<Key, CloudError> {
        let namespace = cluster.namespace().unwrap_or_default();
        let Some(aws) = &cluster.spec.platform.aws else {
            return Err(invalid(format!("platform {} has no driver", cluster.spec.platform.name())));
        };
        let region = aws.region.clone();
        if let Some(secret) = aws.credentials_secret_ref.as_ref().filter(|secret| !secret.name.is_empty()) {
            return Ok(Key { secret: Some((namespace, secret.name.clone())), role: None, region });
        }
        let own = self.grants.own_credentials_in.contains(&namespace);
        match &aws.credentials_assume_role {
            Some(role) => {
                let secret = self.grants.service_provider.clone();
                if secret.is_none() && !own {
                    return Err(credentials(
                        "spec.platform.aws.credentialsAssumeRole needs the service provider's credentials: start the \
                         controller with --aws-service-provider-secret, as HiveConfig names it in \
                         spec.serviceProviderCredentialsConfig.aws.credentialsSecretRef",
                    ));
                }
                Ok(Key { secret, role: Some(arn_and_id(role)?), region })
            }
            None if own => Ok(Key { secret: None, role: None, region }),
            None => Err(credentials(
                "spec.platform.aws.credentialsSecretRef.name is empty; name a Secret with the account's credentials",
            )),
        }
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
        self.lock().get(key).filter(|kept| kept.at.elapsed() < KEEP).map(|kept| kept.driver.clone())
    }

    fn same_version(&self, key: &Key, version: Option<&str>) -> Option<Arc<dyn Driver>> {
        let mut kept = self.lock();
        let kept = kept.get_mut(key).filter(|kept| kept.version.as_deref() == version)?;
        kept.at = Instant::now();
        Some(kept.driver.clone())
    }

    fn keep(&self, key: Key, version: Option<String>, driver: Arc<dyn Driver>) {
        let mut kept = self.lock();
        kept.retain(|_, kept| kept.at.elapsed() < 10 * KEEP);
        kept.insert(key, Kept { at: Instant::now(), version, driver });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn arn_and_id(role: &AssumeRole) -> Result<(String, Option<String>), CloudError> {
    if role.role_arn.is_empty() {
        return Err(credentials("spec.platform.aws.credentialsAssumeRole.roleARN is empty"));
    }
    Ok((role.role_arn.clone(), role.external_id.clone()))
}

fn invalid(message: String) -> CloudError {
    CloudError { kind: CloudErrorKind::Invalid, message }
}

fn credentials(message: &str) -> CloudError {
    CloudError { kind: CloudErrorKind::Credentials, message: message.to_owned() }
}
