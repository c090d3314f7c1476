//! A Cluster as the rules see it.

use serde::Deserialize;

use crate::admission::bounded::{short, short_if_any};
use crate::admission::{Meta, Object, from_map};
use crate::kkp::phase::Phase;

/// What the rules read of a Cluster.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Cluster {
    /// Metadata.
    #[serde(deserialize_with = "from_map")]
    pub metadata: Meta,
    /// Desired state.
    #[serde(default)]
    pub spec: Option<Spec>,
    /// Observed state.
    #[serde(default)]
    pub status: Option<Status>,
}

/// `spec`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    /// Whether KKP leaves the cluster alone.
    pub pause: Option<bool>,
    /// Kubernetes version.
    #[serde(deserialize_with = "short_if_any")]
    pub version: Option<String>,
    /// The cloud.
    pub cloud: Option<Cloud>,
}

/// `spec.cloud`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cloud {
    /// The datacenter.
    #[serde(deserialize_with = "short_if_any")]
    pub dc: Option<String>,
    /// Provider, such as `aws`.
    #[serde(deserialize_with = "short_if_any")]
    pub provider_name: Option<String>,
}

/// `status`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    /// `Creating`, `Updating`, `Running` or `Terminating`.
    #[serde(deserialize_with = "short_if_any")]
    pub phase: Option<String>,
    /// Conditions by type.
    pub conditions: Option<Conditions>,
}

/// The conditions that the rules read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// KKP has applied everything.
    #[serde(rename = "SeedResourcesUpToDate")]
    pub up_to_date: Option<Condition>,
    /// Ours.
    #[serde(rename = "ClusterDehydrated")]
    pub dehydrated: Option<Condition>,
}

/// A condition.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Condition {
    /// `True`, `False` or `Unknown`.
    #[serde(deserialize_with = "short")]
    pub status: String,
    /// One word.
    #[serde(deserialize_with = "short_if_any")]
    pub reason: Option<String>,
}

/// What the operator of the webhook decides about Clusters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Our controller, which alone ends the pause of a sleeping cluster.
    pub controller: String,
}

impl Object for Cluster {
    type Settings = Settings;

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

impl Cluster {
    /// `spec.pause`.
    #[must_use]
    pub fn paused(&self) -> bool {
        self.spec.as_ref().and_then(|spec| spec.pause).unwrap_or_default()
    }

    /// `spec.cloud.providerName`.
    #[must_use]
    pub fn provider(&self) -> &str {
        let cloud = self.spec.as_ref().and_then(|spec| spec.cloud.as_ref());
        cloud.and_then(|cloud| cloud.provider_name.as_deref()).unwrap_or_default()
    }

    /// Version and datacenter.
    #[must_use]
    pub fn version_and_datacenter(&self) -> (Option<&str>, Option<&str>) {
        let spec = self.spec.as_ref();
        let dc = spec.and_then(|spec| spec.cloud.as_ref()?.dc.as_deref());
        (spec.and_then(|spec| spec.version.as_deref()), dc)
    }

    /// `status.phase`.
    #[must_use]
    pub fn phase(&self) -> &str {
        self.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
    }

    /// Whether KKP has applied everything.
    #[must_use]
    pub fn is_up_to_date(&self) -> bool {
        let conditions = self.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.and_then(|all| all.up_to_date.as_ref()).is_some_and(|condition| condition.status == "True")
    }

    /// Whether our condition says that the control plane is paused by us, or about to be.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        let conditions = self.status.as_ref().and_then(|status| status.conditions.as_ref());
        let phase = conditions.and_then(|all| all.dehydrated.as_ref()?.reason.as_deref()?.parse().ok());
        phase.is_some_and(|phase| matches!(phase, Phase::Pausing | Phase::ScalingDownControlPlane | Phase::Dehydrated))
    }
}
