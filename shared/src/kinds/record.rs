//! What `status` shows of a target, in the form that `-o json` documents.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Serialize;
use serde_json::Value;

use super::kind::Kind;
use super::view::{StepRecord, View};
use crate::savings::history::SleepHistory;

/// The state of a target. Later versions only add fields; fields without a value are left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// `clusterdeployment.hive.openshift.io`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Namespace; kinds that are cluster-scoped have none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
    /// `Running` or `Hibernating`.
    pub desired: String,
    /// In the words of the target's own system; empty if it has said nothing yet.
    pub observed: String,
    /// When the observed state began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
    /// Who asked for the desired state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_by: Option<String>,
    /// When it was asked for, as it is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requested_at: Option<String>,
    /// Why it was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The step under way, or what is being waited for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<StepRecord>,
    /// Instances of a cluster.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub instances: Option<Instances>,
    /// Cloud platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// Region of the platform.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// `spec.hibernateAfter`, as it is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hibernate_after: Option<String>,
    /// When `hibernateAfter` puts the cluster to sleep, if nothing changes until then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fires_at: Option<Timestamp>,
    /// When the cluster is to wake again, as it is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub wake_at: Option<String>,
    /// Until when the cluster must stay awake, as it is written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_awake_until: Option<String>,
    /// Who holds the cluster awake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hold_awake_by: Option<String>,
    /// Replicas of a workload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<u32>,
    /// Replicas that the workload had before its sleep, as they are written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded_replicas: Option<String>,
    /// Whether the target is protected from sleep.
    pub protected: bool,
    /// The schedule that governs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Governed>,
    /// Its sleep history; none for kinds without a ledger.
    #[serde(skip)]
    pub sleep_history: Option<SleepHistory>,
    /// What only one kind has: further fields of the same object.
    #[serde(flatten)]
    pub more: BTreeMap<&'static str, Value>,
}

/// The schedule that governs a target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Governed {
    /// `powerschedule.hibernate.sh`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Namespace; a cluster-wide schedule has none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    pub name: String,
    /// Whether it does nothing for now.
    pub suspended: bool,
    /// Its next edges, as its controller computed them.
    pub next: Vec<ScheduledChange>,
}

/// An edge to come.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ScheduledChange {
    /// When.
    pub at: Timestamp,
    /// `Sleep` or `Awake`.
    pub power: String,
}

/// Instances of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Instances {
    /// All of them; only hibernate-controller reports it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<usize>,
    /// Those that are not yet in the desired state.
    pub awaited: usize,
}

/// What makes two records the same target: type, namespace and name.
pub type Key = (String, String, String);

impl Record {
    /// What the view of an object of this kind says.
    pub fn of(kind: &Kind, view: View) -> Self {
        let View { identity, desired, observed, .. } = view;
        Self {
            kind: kind.type_name(),
            namespace: identity.namespace,
            name: identity.name,
            desired: desired.power.to_string(),
            observed: observed.state,
            since: observed.since,
            requested_by: desired.requested_by,
            requested_at: desired.requested_at,
            reason: desired.reason,
            step: observed.step,
            wake_at: desired.wake_at,
            hold_awake_until: desired.hold_awake_until,
            hold_awake_by: desired.hold_awake_by,
            protected: desired.protected,
            ..Self::default()
        }
    }

    /// What identifies the target.
    pub fn key(&self) -> Key {
        (self.kind.clone(), self.namespace.clone(), self.name.clone())
    }
}
