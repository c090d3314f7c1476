//! Kinds of the OpenShift cluster that a wake reads: only the fields we use.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An operator of the cluster's own components; only its status is of interest.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "ClusterOperator",
    shortname = "co",
    status = "ClusterOperatorStatus",
    derive = "Default",
    derive = "PartialEq"
)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct ClusterOperatorSpec {}

/// What an operator says of itself.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct ClusterOperatorStatus {
    /// `Available`, `Progressing`, `Degraded` and others.
    #[serde(default)]
    pub conditions: Vec<ClusterOperatorCondition>,
    /// What belongs to the operator, its namespaces among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub related_objects: Vec<RelatedObject>,
}

/// One thing that belongs to an operator.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct RelatedObject {
    /// API group, empty for the core.
    pub group: String,
    /// Plural of the kind.
    pub resource: String,
    /// Name.
    pub name: String,
}

/// One condition of an operator.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct ClusterOperatorCondition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// When the status last changed.
    pub last_transition_time: Time,
    /// One sentence why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What the cluster runs and is to run; there is one, named `version`.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[kube(
    group = "config.openshift.io",
    version = "v1",
    kind = "ClusterVersion",
    status = "ClusterVersionStatus",
    derive = "Default",
    derive = "PartialEq"
)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct ClusterVersionSpec {}

/// The progress of an upgrade.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct ClusterVersionStatus {
    /// `Available`, `Progressing`, `Failing` and others.
    #[serde(default)]
    pub conditions: Vec<ClusterOperatorCondition>,
}
