//! `hive.openshift.io/v1` `ClusterDeployment`: the fields we read or write, with upstream's enums, patterns and
//! required fields.
//!
//! Unknown fields are dropped by these types, which is safe because we never write a whole object.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::annotation::format;
use crate::power::Power;
use crate::read::lenient;

/// Annotation: Hive's controllers do nothing at all with this object.
pub const RECONCILE_PAUSE: &str = "hive.openshift.io/reconcile-pause";
/// Annotation: Hive's hibernation controller leaves the machines alone.
pub const POWERSTATE_PAUSE: &str = "hive.openshift.io/powerstate-pause";
/// Label: a wake does not wait for `ClusterOperator`s.
pub const RESUME_SKIPS_CLUSTER_OPERATORS: &str = "hive.openshift.io/resume-skips-cluster-operators";
/// Annotation on an Azure cluster whose infrastructure was removed on purpose.
pub const INFRA_DISABLED: &str = "hive.openshift.io/infra-disabled";
/// Annotation: no machines exist; states change without a cloud.
pub const FAKE_CLUSTER: &str = "hive.openshift.io/fake-cluster";

/// Desired state of a cluster.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[kube(
    group = "hive.openshift.io",
    version = "v1",
    kind = "ClusterDeployment",
    shortname = "cd",
    status = "ClusterDeploymentStatus",
    derive = "Default",
    derive = "PartialEq",
    namespaced,
    printcolumn = r#"{"name":"InfraID","type":"string","jsonPath":".spec.clusterMetadata.infraID"}"#,
    printcolumn = r#"{"name":"Platform","type":"string","jsonPath":".metadata.labels.hive\\.openshift\\.io/cluster-platform"}"#,
    printcolumn = r#"{"name":"Region","type":"string","jsonPath":".metadata.labels.hive\\.openshift\\.io/cluster-region"}"#,
    printcolumn = r#"{"name":"PowerState","type":"string","jsonPath":".status.powerState"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterDeploymentSpec {
    /// Base domain of the cluster's DNS names.
    pub base_domain: String,
    /// Name by which the cluster is known to its installer.
    pub cluster_name: String,
    /// The cloud and its settings.
    pub platform: Platform,
    /// Identity of the installed cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_metadata: Option<ClusterMetadata>,
    /// The pool that this cluster came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_pool_ref: Option<ClusterPoolReference>,
    /// How its API server is reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_plane_config: Option<ControlPlaneConfig>,
    /// How long the cluster may run before it is put to sleep: a Go duration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$"))]
    pub hibernate_after: Option<String>,
    /// Whether the cluster has been installed.
    #[serde(default)]
    pub installed: bool,
    /// What the user wants: empty and `Running` mean awake, `Hibernating` means asleep.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["", "Running", "Hibernating"]))]
    pub power_state: Option<String>,
}

/// Members of `spec.platform` whose clusters Hive's own hibernation controller can stop and start.
pub const HIVE_PLATFORMS: &[&str] = &["aws", "azure", "gcp", "ibmcloud"];

/// Members of `spec.platform` whose clusters our controller can stop and start: all of Hive's, and more.
pub const SERVED_PLATFORMS: &[&str] = &["aws", "azure", "gcp", "ibmcloud", "openstack"];

/// The cloud that a cluster runs on. Exactly one member is set.
#[derive(Clone, Debug, Default, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Platform {
    /// Amazon Web Services.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aws: Option<AwsPlatform>,
    /// Every other member, by its name.
    #[serde(flatten)]
    #[schemars(skip)]
    pub other: BTreeMap<String, OtherPlatform>,
}

/// Members of `spec.platform` that are read: upstream has eleven.
const MAX_PLATFORMS: usize = 32;

/// Settings of a cluster that is not on AWS: what our drivers read of any of them. A field of another form is absent.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(default, rename_all = "camelCase")]
pub struct OtherPlatform {
    /// Region, such as `westeurope`.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// Secret with the account's credentials, in the cluster's namespace.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<LocalReference>,
    /// OpenStack: Secret with certificates.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub certificates_secret_ref: Option<LocalReference>,
    /// OpenStack: entry of `clouds.yaml`.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub cloud: Option<String>,
    /// Azure: which of Microsoft's clouds.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub cloud_name: Option<String>,
    /// IBM Cloud: the account.
    #[serde(rename = "accountID", deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub account_id: Option<String>,
    /// GCP: whether local SSDs may be lost.
    #[serde(deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub discard_local_ssd_on_hibernate: Option<bool>,
}

impl<'de> Deserialize<'de> for Platform {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Members;

        impl<'de> Visitor<'de> for Members {
            type Value = Platform;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a platform")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<Platform, M::Error> {
                let mut platform = Platform::default();
                while let Some(name) = members.next_key::<String>()? {
                    if name == "aws" {
                        platform.aws = members.next_value()?;
                    } else if platform.other.len() >= MAX_PLATFORMS {
                        members.next_value::<IgnoredAny>()?;
                    } else if let Some(other) = members.next_value()? {
                        platform.other.insert(name, other);
                    }
                }
                Ok(platform)
            }
        }

        deserializer.deserialize_map(Members)
    }
}

/// AWS settings of a cluster.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AwsPlatform {
    /// Region, such as `us-east-1`.
    pub region: String,
    /// Secret with the account's credentials, in the cluster's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_secret_ref: Option<LocalReference>,
    /// Role to assume with the service provider's credentials.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credentials_assume_role: Option<AssumeRole>,
}

/// A role of another account.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct AssumeRole {
    /// ARN of the role.
    #[serde(rename = "roleARN")]
    pub role_arn: String,
    /// External ID that the role's trust policy asks for.
    #[serde(default, rename = "externalID", skip_serializing_if = "Option::is_none")]
    pub external_id: Option<String>,
}

/// The name of an object in the same namespace.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct LocalReference {
    /// Name; upstream allows it to be empty, which names nothing.
    #[serde(default, deserialize_with = "lenient")]
    pub name: String,
}

/// Identity of an installed cluster.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterMetadata {
    /// Secret with the cluster administrator's kubeconfig.
    pub admin_kubeconfig_secret_ref: LocalReference,
    /// Globally unique ID of the cluster.
    #[serde(rename = "clusterID")]
    pub cluster_id: String,
    /// Prefix and tag of everything the cluster has in its cloud.
    #[serde(rename = "infraID")]
    pub infra_id: String,
    /// What only one platform says of its clusters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<PlatformMetadata>,
}

/// Identity of an installed cluster on platforms where the infraID does not say it all.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct PlatformMetadata {
    /// Microsoft Azure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub azure: Option<AzureMetadata>,
}

/// Identity of an installed cluster on Azure.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct AzureMetadata {
    /// The resource group with all its machines.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required)]
    pub resource_group_name: Option<String>,
}

/// How a cluster's API server is reached, where that differs from what its kubeconfig says.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
pub struct ControlPlaneConfig {
    /// Its URL.
    #[serde(default, rename = "apiURLOverride", skip_serializing_if = "Option::is_none")]
    pub api_url_override: Option<String>,
    /// The address that is connected to in place of the one that the URL's host has.
    #[serde(default, rename = "apiServerIPOverride", skip_serializing_if = "Option::is_none")]
    pub api_server_ip_override: Option<String>,
}

/// The pool that a cluster came from, and who claimed it.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterPoolReference {
    /// Namespace of the pool.
    pub namespace: String,
    /// Name of the pool.
    pub pool_name: String,
    /// Name of the claim, once claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// When it was claimed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claimed_timestamp: Option<Time>,
}

/// Observed state of a cluster.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterDeploymentStatus {
    /// Observed conditions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Version that was installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub install_version: Option<String>,
    /// When the cluster was installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub installed_timestamp: Option<Time>,
    /// Observed power state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_state: Option<String>,
}

/// One observed condition of a `ClusterDeployment`. These are all of upstream's fields.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// When anything of the condition last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_probe_time: Option<Time>,
    /// When the status last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Time>,
    /// One word why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// One sentence why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// How far a cluster's `SyncSet`s have been applied, by Hive's clustersync controller. Same namespace and name as the
/// cluster.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[kube(
    group = "hiveinternal.openshift.io",
    version = "v1alpha1",
    kind = "ClusterSync",
    shortname = "csync",
    status = "ClusterSyncStatus",
    derive = "Default",
    derive = "PartialEq",
    namespaced
)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct ClusterSyncSpec {}

/// Observed state of a `ClusterSync`.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
pub struct ClusterSyncStatus {
    /// When every matching `SyncSet` had been applied for the first time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_success_time: Option<Time>,
}

impl ClusterDeployment {
    /// What the user wants of this cluster.
    pub fn desired(&self) -> Power {
        self.spec.power_state.as_deref().and_then(|state| state.parse().ok()).unwrap_or_default()
    }

    /// Whether an annotation is true, as Go's `ParseBool` reads it: Hive does.
    pub fn annotation_is_true(&self, key: &str) -> bool {
        self.annotations().get(key).is_some_and(|value| go_bool(value))
    }

    /// Whether a label is true, as Go's `ParseBool` reads it.
    pub fn label_is_true(&self, key: &str) -> bool {
        self.labels().get(key).is_some_and(|value| go_bool(value))
    }

    /// Condition of this type, if the object has it.
    pub fn condition(&self, type_: &str) -> Option<&Condition> {
        self.status.as_ref()?.conditions.iter().find(|condition| condition.type_ == type_)
    }

    /// Whether the condition of this type is `True`.
    pub fn is_true(&self, type_: &str) -> bool {
        self.condition(type_).is_some_and(|condition| condition.status == "True")
    }

    /// Reason of a condition, empty if the object does not have it.
    pub fn reason(&self, type_: &str) -> &str {
        self.condition(type_).and_then(|condition| condition.reason.as_deref()).unwrap_or_default()
    }

    /// Message of a condition, empty if the object does not have it.
    pub fn message(&self, type_: &str) -> &str {
        self.condition(type_).and_then(|condition| condition.message.as_deref()).unwrap_or_default()
    }

    /// When anything of a condition last changed.
    pub fn probed_at(&self, type_: &str) -> Option<Timestamp> {
        Some(self.condition(type_)?.last_probe_time.as_ref()?.0)
    }

    /// When the status of a condition last changed.
    pub fn changed_at(&self, type_: &str) -> Option<Timestamp> {
        Some(self.condition(type_)?.last_transition_time.as_ref()?.0)
    }

    /// Since when a condition has been `True`; `None` if it is not.
    pub fn true_since(&self, type_: &str) -> Option<Timestamp> {
        self.changed_at(type_).filter(|_| self.is_true(type_))
    }

    /// A moment that an annotation holds, if it is there and well-formed.
    pub fn moment(&self, key: &str) -> Option<Timestamp> {
        format::time(self.annotations().get(key)?)
    }

    /// When the cluster was installed.
    pub fn installed_at(&self) -> Option<Timestamp> {
        Some(self.status.as_ref()?.installed_timestamp.as_ref()?.0)
    }

    /// Observed power state, empty if none was written yet.
    pub fn power_state(&self) -> &str {
        self.status.as_ref().and_then(|status| status.power_state.as_deref()).unwrap_or_default()
    }
}

impl Platform {
    /// The platform's name as the spec spells it (`aws`, `azure`, `none`, ...), or `""` if no member is set.
    pub fn name(&self) -> &str {
        if self.aws.is_some() {
            return "aws";
        }
        self.other.keys().next().map_or("", String::as_str)
    }

    /// Region of the platform, where it has one.
    pub fn region(&self) -> Option<&str> {
        match &self.aws {
            Some(aws) => Some(&aws.region),
            None => self.other.get(self.name())?.region.as_deref(),
        }
    }
}

/// `controlPlaneConfig.apiURLOverride`, if it is set.
pub fn url_override(cluster: &ClusterDeployment) -> Option<&str> {
    let config = cluster.spec.control_plane_config.as_ref()?;
    config.api_url_override.as_deref().filter(|url| !url.is_empty())
}

/// `controlPlaneConfig.apiServerIPOverride`, if it is set.
pub fn ip_override(cluster: &ClusterDeployment) -> Option<&str> {
    let config = cluster.spec.control_plane_config.as_ref()?;
    config.api_server_ip_override.as_deref().filter(|ip| !ip.is_empty())
}

/// Go's `strconv.ParseBool`, with everything it refuses read as false.
pub fn go_bool(value: &str) -> bool {
    matches!(value, "1" | "t" | "T" | "true" | "True" | "TRUE")
}
