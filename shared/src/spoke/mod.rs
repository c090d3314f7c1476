//! Observations of a spoke while its API server answers: Nodes, operators, Machines and certificate requests.
//!
//! Independent of the system that manages the spoke and of the cloud that it runs on.

pub mod fields;
pub mod kinds;

use jiff::Timestamp;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spoke {
    pub nodes: Vec<NodeObservation>,
    pub operators: Vec<OperatorObservation>,
    /// Since when all operators have been well, without a break.
    pub operators_well_since: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeObservation {
    pub name: String,
    /// ID of its instance, from `spec.providerID`.
    pub instance: Option<String>,
    pub ready: bool,
    /// The newest of its Lease's renewTime and its Ready condition's heartbeat, on the kubelet's clock.
    pub sign_of_life: Option<Timestamp>,
    /// Whether Lease or heartbeat have changed since this process's first list in this wake.
    pub moved: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorObservation {
    pub name: String,
    /// The conditions that make it unwell, such as `Progressing=True`.
    pub unwell: Vec<String>,
    /// Whether it renews a Lease, by which it can prove that it is alive.
    pub leased: bool,
    /// The newest of its Leases' renewals and its status writes.
    pub sign_of_life: Option<Timestamp>,
    /// Whether one of its Leases has changed since this process's first list in this wake.
    pub moved: bool,
}

/// Why the spoke could not be observed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SpokeError {
    /// Its kubeconfig is missing, malformed, or asks for what this process will not do.
    #[error("{0}")]
    Kubeconfig(String),
    /// Its API server does not answer.
    #[error("{0}")]
    Unreachable(String),
    /// Its API server answers, but not as it should.
    #[error("{0}")]
    Failed(String),
}

/// The upgrade of a spoke, by its `ClusterVersion`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upgrade {
    Idle,
    /// In the spoke's words.
    Progressing(String),
    /// The spoke could not be observed, and why.
    Unknown(String),
}
