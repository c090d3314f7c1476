//! A `ClusterDeployment` as the rules see it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::admission::{Change, Denial, Exempts, Meta, Object, Target, annotation_field, metadata};
use crate::annotation::{format, keys};
use crate::hive::pool::decides;
use crate::power::Power;
use crate::read::{lenient, lenient_types};

/// What the rules read of a `ClusterDeployment`. Every field is optional: rows V1 and V5 are about objects that
/// [`super::super::api::ClusterDeployment`] cannot express. Its parts are boxed: a parser moves what it makes through many
/// hands.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Cluster {
    /// Metadata.
    #[serde(deserialize_with = "metadata")]
    pub metadata: Meta,
    /// Desired state.
    #[serde(default, deserialize_with = "lenient")]
    pub spec: Option<Box<Spec>>,
    /// Observed state.
    #[serde(default, deserialize_with = "lenient")]
    pub status: Option<Box<Status>>,
}

lenient_types! {
    /// `spec`.
    Spec {
        /// What the user wants, as it is written.
        power_state: Option<String>,
        /// Go duration, as it is written.
        hibernate_after: Option<String>,
        /// Whether the cluster has been installed.
        installed: Option<bool>,
        /// Member names of the platform; the one that is not null is the cluster's.
        platform: Option<BTreeMap<String, Option<IgnoredAny>>>,
        /// Identity of the installed cluster.
        cluster_metadata: Option<ClusterMetadata>,
        /// The pool that the cluster came from.
        cluster_pool_ref: Option<PoolReference>,
    }

    /// `spec.clusterMetadata`.
    ClusterMetadata {
        /// Tag and prefix of everything that the cluster has in its cloud.
        #[serde(rename = "infraID")]
        infra_id: Option<String>,
        /// Secret with the admin kubeconfig.
        admin_kubeconfig_secret_ref: Option<Reference>,
        /// Identity in the cloud.
        platform: Option<PlatformMetadata>,
    }

    /// The name of an object in the same namespace.
    Reference {
        /// Its name.
        name: Option<String>,
    }

    /// `spec.clusterMetadata.platform`.
    PlatformMetadata {
        /// Azure's part.
        azure: Option<AzureMetadata>,
    }

    /// `spec.clusterMetadata.platform.azure`.
    AzureMetadata {
        /// Resource group that the machines are in.
        resource_group_name: Option<String>,
    }

    /// `spec.clusterPoolRef`.
    PoolReference {
        /// Name of the pool.
        pool_name: Option<String>,
        /// Who claimed the cluster.
        claim_name: Option<String>,
        /// When it was claimed.
        claimed_timestamp: Option<IgnoredAny>,
    }

    /// `status`.
    Status {
        /// When the installation was done.
        installed_timestamp: Option<String>,
        /// Copy of the cluster's own `ClusterVersion` status, if the hub is configured to keep one.
        cluster_version_status: Option<ClusterVersionStatus>,
    }

    /// `status.clusterVersionStatus`.
    ClusterVersionStatus {
        /// `Available`, `Progressing`, `Failing` and others.
        conditions: Option<Vec<Condition>>,
    }
}

/// One condition of the `ClusterVersion`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
}

impl Object for Cluster {
    fn meta(&self) -> &Meta {
        &self.metadata
    }

    fn must_be_whole(change: &Change<'_, Self>) -> bool {
        change.goes_to_sleep()
    }

    /// V11
    fn wakes(change: &Change<'_, Self>) -> bool {
        change.wakes()
    }

    /// The claim of a rollout is written by users on the list alone (V10).
    fn exempts(denial: &Denial) -> Exempts {
        if denial.field == annotation_field(keys::ROLLOUT) { Exempts::Users } else { Exempts::UsersAndGroups }
    }
}

impl Target for Cluster {
    const INTENT: &'static str = "powerState";

    const INTENT_PATH: &'static [&'static str] = &["spec", "powerState"];

    fn wants_sleep(&self) -> bool {
        self.desired() == Power::Hibernating
    }

    fn wants_awake(&self) -> bool {
        matches!(self.power_state(), "" | "Running")
    }
}

impl Cluster {
    /// `spec.powerState`, empty if absent.
    pub fn power_state(&self) -> &str {
        self.spec.as_ref().and_then(|spec| spec.power_state.as_deref()).unwrap_or_default()
    }

    /// What the user wants.
    pub fn desired(&self) -> Power {
        self.power_state().parse().unwrap_or_default()
    }

    /// `spec.hibernateAfter`.
    pub fn hibernate_after(&self) -> Option<&str> {
        self.spec.as_ref()?.hibernate_after.as_deref()
    }

    /// Whether the cluster has been installed.
    pub fn installed(&self) -> bool {
        self.spec.as_ref().and_then(|spec| spec.installed).unwrap_or_default()
    }

    /// Name of the platform, empty if none is given.
    pub fn platform(&self) -> &str {
        let members = self.spec.as_ref().and_then(|spec| spec.platform.as_ref());
        members.and_then(|members| members.iter().find(|(_, value)| value.is_some())).map_or("", |(name, _)| name)
    }

    /// Identity of the installed cluster.
    pub fn identity(&self) -> Option<&ClusterMetadata> {
        self.spec.as_ref()?.cluster_metadata.as_ref()
    }

    /// Name of the pool that still decides about this cluster: it is unclaimed.
    pub fn unclaimed_pool(&self) -> Option<&str> {
        let pool = self.spec.as_ref()?.cluster_pool_ref.as_ref()?;
        let (claim, has_time) = (pool.claim_name.as_deref(), pool.claimed_timestamp.is_some());
        pool.pool_name.as_deref().filter(|name| decides(name, claim, has_time))
    }

    /// When the installation was done.
    pub fn installed_at(&self) -> Option<Timestamp> {
        format::time(self.status.as_ref()?.installed_timestamp.as_ref()?)
    }

    /// Whether the cluster is being upgraded, as far as the hub knows.
    pub fn upgrading(&self) -> bool {
        let version = self.status.as_ref().and_then(|status| status.cluster_version_status.as_ref());
        let conditions = version.and_then(|version| version.conditions.as_deref()).unwrap_or_default();
        conditions.iter().any(|condition| condition.type_ == "Progressing" && condition.status == "True")
    }
}
