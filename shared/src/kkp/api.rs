//! `kubermatic.k8c.io/v1` `Cluster`: the fields we read or write.
//!
//! KKP drops fields that it does not know without a word (rows 24 and 25), so intent is an annotation, and
//! `status.conditions` takes our condition: a map whose keys are free.

use std::collections::BTreeMap;

use jiff::Timestamp;
use kube::{CustomResource, ResourceExt};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::keys;
use crate::annotation::format;
use crate::power::Power;
use crate::read::lenient;

/// What a user cluster is to be.
#[derive(CustomResource, Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[kube(
    group = "kubermatic.k8c.io",
    version = "v1",
    kind = "Cluster",
    plural = "clusters",
    status = "ClusterStatus",
    derive = "Default",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct ClusterSpec {
    /// The name that users see.
    pub human_readable_name: String,
    /// Kubernetes version.
    pub version: String,
    /// The cloud.
    pub cloud: Cloud,
    /// Whether KKP's controllers leave the cluster alone.
    #[serde(default)]
    pub pause: bool,
    /// Why, for the dashboard. KKP keeps it when it clears `pause` (row 13).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause_reason: Option<String>,
}

/// The cloud of a user cluster.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct Cloud {
    /// The datacenter, a key of the Seed.
    pub dc: String,
    /// Provider, such as `aws` or `kubevirt`.
    #[serde(default)]
    pub provider_name: String,
}

/// What KKP says of a user cluster. Frozen while it is paused (row 6).
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct ClusterStatus {
    /// The namespace of its control plane, `cluster-ID`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub namespace_name: String,
    /// `Creating`, `Updating`, `Running` or `Terminating`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Conditions by type.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub conditions: BTreeMap<String, Condition>,
    /// What the cluster takes of its project's quota, in the Enterprise edition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resource_usage: Option<ResourceUsage>,
    /// Encryption at rest, where it is or was configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encryption: Option<Encryption>,
}

/// How far KKP has come with encryption at rest.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct Encryption {
    /// `Pending`, `EncryptionNeeded`, `Active` or `Failed`.
    #[serde(default, deserialize_with = "lenient", skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
}

impl Encryption {
    /// The field of [`Self::phase`].
    pub const FIELD: &str = "status.encryption.phase";

    /// Why a cluster in this phase must not sleep (row 65).
    pub fn under_way(phase: Option<&str>) -> Option<String> {
        let phase = phase.filter(|phase| ["Pending", "EncryptionNeeded"].contains(phase))?;
        let why = "KKP applies encryption at rest, and its Job fails for good without the API server";
        Some(format!("found {phase:?}, must be \"Active\": {why}"))
    }
}

/// A condition of KKP's form.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The KKP that wrote it.
    pub kubermatic_version: String,
    /// When status, reason or message changed; no sign of life (row 7).
    pub last_heartbeat_time: String,
    /// When the status changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    /// One word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// A sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Quantities, as KKP writes them.
#[derive(Clone, Debug, Default, Deserialize, Serialize, JsonSchema, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub struct ResourceUsage {
    /// CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu: Option<String>,
    /// Memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Storage of the machines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<String>,
}

/// What the names of all control plane namespaces begin with.
pub const NAMESPACE_PREFIX: &str = "cluster-";

/// A request for a state: on the Cluster, or on its record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// What is wanted.
    pub desired: Power,
    /// When it was requested. One without a time is older than any other.
    pub at: Option<Timestamp>,
}

impl Request {
    /// The request in these annotations; `None` if there is none, or one that is no state.
    pub fn of<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> Option<Self> {
        let desired = annotation(keys::POWER_STATE)?.parse().ok()?;
        Some(Self { desired, at: annotation(keys::POWER_STATE_AT).and_then(format::time) })
    }

    /// The newest of the requests on the Cluster and on its record; that of the Cluster if both are of the same time.
    ///
    /// On a record only a request to run counts: a stamp names who made it, but no admission rule guards a `ConfigMap`.
    pub fn newest(on_cluster: Option<Self>, on_record: Option<Self>) -> Self {
        let on_record = on_record.filter(|request| request.desired == Power::Running);
        match (on_cluster, on_record) {
            (Some(cluster), Some(record)) if record.at > cluster.at => record,
            (Some(request), _) | (None, Some(request)) => request,
            (None, None) => Self::default(),
        }
    }
}

impl Cluster {
    /// The namespace of the control plane. A status that names one without KKP's prefix is ignored: everything in that
    /// namespace would be scaled to 0.
    pub fn control_plane_namespace(&self) -> String {
        let name = self.status.as_ref().map(|status| status.namespace_name.as_str());
        let name = name.filter(|name| name.starts_with(NAMESPACE_PREFIX));
        name.map_or_else(|| format!("{NAMESPACE_PREFIX}{}", self.name_any()), str::to_owned)
    }

    /// Where the record of a sleep is, for people.
    pub fn record_place(&self) -> String {
        let (name, key) = keys::RECORD;
        format!("ConfigMap {}/{name}, key {key}", self.control_plane_namespace())
    }

    /// Its UID; empty for one that no API server has stored.
    pub fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }

    /// An annotation.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// `status.phase`; empty without one.
    pub fn phase(&self) -> &str {
        self.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
    }

    /// Why it must not sleep while KKP applies encryption at rest.
    pub fn encryption_under_way(&self) -> Option<String> {
        let phase = self.status.as_ref()?.encryption.as_ref()?.phase.as_deref();
        Some(format!("{}: {}", Encryption::FIELD, Encryption::under_way(phase)?))
    }

    /// Why another client has paused it, for people.
    pub fn pause_reason(&self) -> &str {
        self.spec.pause_reason.as_deref().filter(|why| !why.is_empty()).unwrap_or("no reason given")
    }

    /// A condition of KKP.
    pub fn condition(&self, name: &str) -> Option<&Condition> {
        self.status.as_ref()?.conditions.get(name)
    }

    /// What was not ready of its control plane as its wake ended, and is not since.
    pub fn lacks(&self) -> Option<&str> {
        self.condition(keys::AWAKE)?.message.as_deref()
    }

    /// Whether a condition is True.
    pub fn is_true(&self, name: &str) -> bool {
        self.condition(name).is_some_and(|condition| condition.status == "True")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_request_wins_and_without_a_time_that_of_the_cluster() {
        let request =
            |state: &str, at: &str| Request::of(|key| Some(if key == keys::POWER_STATE { state } else { at }));
        let (early, late) = ("2026-11-22T10:00:00Z", "2026-11-22T11:00:00Z");
        let (asleep, awake) = (Power::Hibernating, Power::Running);
        for (on_cluster, on_record, desired) in [
            (None, None, awake),
            (request("Hibernating", early), None, asleep),
            (None, request("Hibernating", early), awake),
            (request("Running", early), request("Hibernating", late), awake),
            (request("Hibernating", early), request("Running", late), awake),
            (request("Hibernating", late), request("Running", early), asleep),
            (request("Hibernating", early), request("Running", early), asleep),
            (request("Hibernating", ""), request("Running", early), awake),
            (request("Hibernating", "yesterday"), request("Running", ""), asleep),
            (request("asleep", late), request("Hibernating", early), awake),
            (request("asleep", late), request("Running", early), awake),
        ] {
            assert_eq!(Request::newest(on_cluster, on_record).desired, desired, "{on_cluster:?} {on_record:?}");
        }
    }

    #[test]
    fn the_namespace_is_the_one_that_kkp_reports_if_it_is_one_of_a_control_plane() {
        let mut cluster = Cluster::new("abc", ClusterSpec::default());
        assert_eq!(cluster.control_plane_namespace(), "cluster-abc");
        for (reported, used) in [("cluster-old", "cluster-old"), ("kube-system", "cluster-abc"), ("", "cluster-abc")] {
            cluster.status = Some(ClusterStatus { namespace_name: reported.into(), ..ClusterStatus::default() });
            assert_eq!(cluster.control_plane_namespace(), used);
        }
    }
}
