//! The observed state of a preflight, before it is judged.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::webhooks::WebhookObservation;

/// What the cluster's own API server said.
#[derive(Clone, Debug, PartialEq)]
pub enum SpokePreflight {
    /// It was not asked, because the cluster is not awake.
    NotAwake,
    /// It could not be asked, and why.
    NotAsked(String),
    /// It answered.
    Looked(Box<SpokeObservation>),
}

/// One part of it: `None` if the cluster has no such kind, an error if it could not be read.
pub type Part<T> = Result<Option<T>, String>;

/// What there was to see.
#[derive(Clone, Debug, PartialEq)]
pub struct SpokeObservation {
    /// The version, and whether it is changing.
    pub version: Part<VersionObservation>,
    /// Certificates of the control plane.
    pub certificates: Part<Vec<Certificate>>,
    /// Undecided certificate requests.
    pub pending_requests: Part<usize>,
    /// Validating and mutating webhooks.
    pub webhooks: Part<Vec<WebhookObservation>>,
    /// Labels of the namespace kube-system, by which webhooks may leave it out.
    pub kube_system: BTreeMap<String, String>,
    /// Disruption budgets that allow no disruption, as `namespace/name`.
    pub budgets: Part<Vec<String>>,
}

/// A `ClusterVersion`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VersionObservation {
    /// Condition Progressing is True.
    pub progressing: bool,
    /// The last version that was reached.
    pub from: Option<String>,
    /// The version that is wanted.
    pub to: Option<String>,
}

/// A certificate and its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// Where it is, as `namespace/name` of its Secret.
    pub name: String,
    /// Until when it is valid.
    pub not_after: Timestamp,
}
