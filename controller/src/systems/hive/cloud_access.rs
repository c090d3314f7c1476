//! The way to the clouds' drivers, as reconciles need it: three questions, so that tests can answer them without a
//! cloud.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;
use shared::cloud::{CloudError, Driver, Target};
use shared::hive::api::ClusterDeployment;

use super::Drivers;

/// Finds drivers, and keeps watch on their credentials.
pub trait CloudAccess: Send + Sync {
    /// The cluster as its platform knows it, with its durable record. No request is made.
    ///
    /// # Errors
    /// When the object does not say what its machines are, or no driver serves its platform.
    fn target(&self, cluster: &ClusterDeployment) -> Result<Target, CloudError>;

    /// The driver for a cluster.
    fn of<'a>(&'a self, cluster: &'a ClusterDeployment) -> BoxFuture<'a, Result<Arc<dyn Driver>, CloudError>>;

    /// The cloud refused what came with the cluster's credentials: they are read again at the next call. Answers their
    /// version.
    fn doubt(&self, cluster: &ClusterDeployment) -> Option<String>;

    /// Whether a cluster's credentials have another version than the one that was refused.
    fn are_new<'a>(&'a self, cluster: &'a ClusterDeployment, refused: &'a str) -> BoxFuture<'a, bool>;
}

impl CloudAccess for Drivers {
    fn target(&self, cluster: &ClusterDeployment) -> Result<Target, CloudError> {
        Self::target(self, cluster)
    }

    fn of<'a>(&'a self, cluster: &'a ClusterDeployment) -> BoxFuture<'a, Result<Arc<dyn Driver>, CloudError>> {
        Self::of(self, cluster).boxed()
    }

    fn doubt(&self, cluster: &ClusterDeployment) -> Option<String> {
        Self::doubt(self, cluster)
    }

    fn are_new<'a>(&'a self, cluster: &'a ClusterDeployment, refused: &'a str) -> BoxFuture<'a, bool> {
        Self::are_new(self, cluster, refused).boxed()
    }
}
