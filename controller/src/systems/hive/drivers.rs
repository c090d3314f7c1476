//! Which driver works on which target: credentials are read Secret by Secret, when a target needs them.
//!
//! No cloud is named here: what is a platform's own comes with its registration.

use std::sync::Arc;

use cloud_common::Process;
use futures::FutureExt;
use futures::future::BoxFuture;
use kube::ResourceExt;
use shared::cloud::{CloudError, CloudErrorKind, ClusterRef, Driver, Target};
use shared::hive::api::ClusterDeployment;

use crate::cloud::{Cloud, read_all, versions};
use crate::cloud_registry::{CloudFlags, PLATFORMS, api_call, clouds};
use crate::ledger::SecretLedger;
use crate::metrics::{CloudCall, Metrics};
use crate::runtime::Hub;

/// The platform of a cluster that we serve, for labels of metrics.
fn platform(cluster: &ClusterDeployment) -> &'static str {
    let name = cluster.spec.platform.name();
    PLATFORMS.iter().find(|platform| **platform == name).copied().unwrap_or("none")
}

/// Counts a call to the cloud of a cluster.
pub fn called<T>(metrics: &Metrics, cluster: &ClusterDeployment, call: &'static str, result: &Result<T, CloudError>) {
    let cloud = platform(cluster);
    let result = result.as_ref().map_or_else(|error| error.kind.into(), |_| "ok");
    metrics.called(&CloudCall { cloud, call, result }, api_call(cloud, call));
}

/// Finds drivers, and keeps watch on their credentials: what reconciles ask, so that tests can answer without a cloud.
pub trait CloudAccess: Send + Sync {
    /// The cluster as its platform knows it, with its durable record. No request is made.
    ///
    /// # Errors
    /// When the cluster lacks what identifies its machines, or no driver serves its platform.
    fn target(&self, cluster: &ClusterDeployment) -> Result<Target, CloudError>;

    /// The driver for a cluster.
    ///
    /// # Errors
    /// When the cluster does not say where its machines are, or its Secret is missing or refused.
    fn of<'a>(&'a self, cluster: &'a ClusterDeployment) -> BoxFuture<'a, Result<Arc<dyn Driver>, CloudError>>;

    /// The cloud refused what came with the cluster's credentials: they are read again at the next call. Answers their
    /// version.
    fn doubt(&self, cluster: &ClusterDeployment) -> Option<String>;

    /// Whether a cluster's credentials have another version than the one that was refused.
    fn are_new<'a>(&'a self, cluster: &'a ClusterDeployment, refused: &'a str) -> BoxFuture<'a, bool>;
}

/// The drivers at work, on every platform.
pub struct Drivers {
    hub: Hub,
    clouds: Vec<Box<dyn Cloud>>,
}

impl Drivers {
    /// Reads Secrets of this hub.
    pub fn new(hub: Hub, flags: &CloudFlags, process: &Process) -> Self {
        Self { hub, clouds: clouds(flags, process) }
    }

    fn cloud(&self, cluster: &ClusterDeployment) -> Result<&dyn Cloud, CloudError> {
        let name = cluster.spec.platform.name();
        let cloud = self.clouds.iter().find(|cloud| cloud.name() == name).map(|cloud| &**cloud);
        cloud.ok_or_else(|| invalid(format!("platform {name} has no driver")))
    }
}

impl CloudAccess for Drivers {
    fn target(&self, cluster: &ClusterDeployment) -> Result<Target, CloudError> {
        let found = ClusterRef {
            namespace: cluster.namespace().unwrap_or_default(),
            name: cluster.name_any(),
            infra_id: infra_id(cluster)?.to_owned(),
            region: cluster.spec.platform.region().unwrap_or_default().to_owned(),
            ..ClusterRef::default()
        };
        let ledger = SecretLedger::new(&self.hub, cluster, cluster.spec.platform.name());
        Ok(Target { cluster: self.cloud(cluster)?.locate(cluster, found), ledger: Arc::new(ledger) })
    }

    fn of<'a>(&'a self, cluster: &'a ClusterDeployment) -> BoxFuture<'a, Result<Arc<dyn Driver>, CloudError>> {
        async { self.cloud(cluster)?.driver(&self.hub.client, cluster).await }.boxed()
    }

    fn doubt(&self, cluster: &ClusterDeployment) -> Option<String> {
        self.cloud(cluster).ok()?.doubt(cluster)
    }

    fn are_new<'a>(&'a self, cluster: &'a ClusterDeployment, refused: &'a str) -> BoxFuture<'a, bool> {
        let secrets = self.cloud(cluster).map(|cloud| cloud.secrets_of(cluster)).unwrap_or_default();
        async move {
            let secrets = read_all(&self.hub.client, &secrets).await;
            secrets.is_ok_and(|secrets| versions(&secrets).is_some_and(|version| version != refused))
        }
        .boxed()
    }
}

/// What an installed cluster must say of itself. The schema asks for the fields, but allows them to be empty.
fn infra_id(cluster: &ClusterDeployment) -> Result<&str, CloudError> {
    let missing = |field: &str| {
        invalid(format!("spec.clusterMetadata{field} is missing: cannot identify the cluster's machines"))
    };
    let metadata = cluster.spec.cluster_metadata.as_ref().ok_or_else(|| missing(""))?;
    if metadata.infra_id.is_empty() { Err(missing(".infraID")) } else { Ok(&metadata.infra_id) }
}

fn invalid(message: String) -> CloudError {
    CloudError { kind: CloudErrorKind::Invalid, message }
}
