//! A `ClusterDeployment` as the rules see it.
//!
//! [`api::ClusterDeployment`](crate::hive::api::ClusterDeployment) cannot be that type. It has what Hive's definition
//! requires, which the CRD is generated from, so that an object without an infraID fails as a whole; rows V1 and V5 judge
//! such objects. It keeps all metadata, all conditions and each platform's settings, which each write would pay for. And
//! it has parsed times, where an unreadable one must be named by its path. What can be lenient without a change of the
//! definition is shared: a field with a default is not a required one.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::admission::{Change, Denial, Exempts, Meta, Object, Target, annotation_field, metadata};
use crate::annotation::{format, keys};
use crate::hive::api::LocalReference;
use crate::hive::pool::decides;
use crate::read::{lenient, lenient_types};

/// What the rules read of a `ClusterDeployment`. Its parts are boxed: a parser moves what it makes through many hands.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Cluster {
    /// Metadata.
    #[serde(deserialize_with = "metadata")]
    pub metadata: Meta,
    /// Desired state.
    #[serde(default, deserialize_with = "lenient")]
    pub spec: Box<Spec>,
    /// Observed state.
    #[serde(default, deserialize_with = "lenient")]
    pub status: Box<Status>,
}

lenient_types! {
    /// `spec`. A text that is absent is empty.
    Spec {
        /// What the user wants, as it is written.
        power_state: String,
        /// Go duration, as it is written.
        hibernate_after: Option<String>,
        /// Whether the cluster has been installed.
        installed: Option<bool>,
        /// Member names of the platform; the one that is not null is the cluster's.
        platform: BTreeMap<String, Option<IgnoredAny>>,
        /// Identity of the installed cluster.
        cluster_metadata: Option<ClusterMetadata>,
        /// The pool that the cluster came from.
        cluster_pool_ref: PoolReference,
    }

    /// `spec.clusterMetadata`.
    ClusterMetadata {
        /// Tag and prefix of everything that the cluster has in its cloud.
        #[serde(rename = "infraID")]
        infra_id: String,
        /// Secret with the admin kubeconfig.
        admin_kubeconfig_secret_ref: LocalReference,
        /// Identity in the cloud.
        platform: PlatformMetadata,
    }

    /// `spec.clusterMetadata.platform`.
    PlatformMetadata {
        /// Azure's part.
        azure: AzureMetadata,
    }

    /// `spec.clusterMetadata.platform.azure`.
    AzureMetadata {
        /// Resource group that the machines are in.
        resource_group_name: String,
    }

    /// `spec.clusterPoolRef`.
    PoolReference {
        /// Name of the pool.
        pool_name: String,
        /// Who claimed the cluster.
        claim_name: Option<String>,
        /// When it was claimed.
        claimed_timestamp: Option<IgnoredAny>,
    }

    /// `status`.
    Status {
        /// When the installation was done.
        installed_timestamp: String,
        /// Copy of the cluster's own `ClusterVersion` status, if the hub is configured to keep one.
        cluster_version_status: ClusterVersionStatus,
    }

    /// `status.clusterVersionStatus`.
    ClusterVersionStatus {
        /// `Available`, `Progressing`, `Failing` and others.
        conditions: Vec<Condition>,
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
        self.spec.power_state == "Hibernating"
    }

    fn wants_awake(&self) -> bool {
        matches!(self.spec.power_state.as_str(), "" | "Running")
    }
}

impl Cluster {
    /// Whether the cluster has been installed.
    pub fn installed(&self) -> bool {
        self.spec.installed == Some(true)
    }

    /// Name of the platform, empty if none is given.
    pub fn platform(&self) -> &str {
        self.spec.platform.iter().find(|(_, value)| value.is_some()).map_or("", |(name, _)| name)
    }

    /// Name of the pool that still decides about this cluster: it is unclaimed.
    pub fn unclaimed_pool(&self) -> Option<&str> {
        let PoolReference { pool_name, claim_name, claimed_timestamp } = &self.spec.cluster_pool_ref;
        decides(pool_name, claim_name.as_deref(), claimed_timestamp.is_some()).then_some(pool_name)
    }

    /// When the installation was done.
    pub fn installed_at(&self) -> Option<Timestamp> {
        format::time(&self.status.installed_timestamp)
    }

    /// Whether the cluster is being upgraded, as far as the hub knows.
    pub fn upgrading(&self) -> bool {
        let mut conditions = self.status.cluster_version_status.conditions.iter();
        conditions.any(|condition| condition.type_ == "Progressing" && condition.status == "True")
    }
}
