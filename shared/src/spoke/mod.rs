//! What is seen of a spoke while its API server answers: Nodes, operators, Machines and certificate requests.
//!
//! This module depends on neither the system that manages the spoke nor the cloud it runs on.

pub mod fields;
pub mod kinds;

use jiff::Timestamp;

/// What the spoke's API server said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spoke {
    /// All Nodes.
    pub nodes: Vec<NodeObservation>,
    /// All ClusterOperators.
    pub operators: Vec<OperatorObservation>,
    /// Since when all of them have been well, without a break.
    pub operators_well_since: Option<Timestamp>,
}

/// One Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeObservation {
    /// Its name.
    pub name: String,
    /// ID of its instance, from `spec.providerID`.
    pub instance: Option<String>,
    /// Condition Ready is True.
    pub ready: bool,
    /// The newest of its Lease's renewTime and its Ready condition's heartbeat, on the kubelet's clock.
    pub sign_of_life: Option<Timestamp>,
    /// Whether Lease or heartbeat changed since this process's first list in this wake.
    pub moved: bool,
}

/// One ClusterOperator: the conditions, by type and status, that make it unwell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperatorObservation {
    /// Its name.
    pub name: String,
    /// Such as `Progressing=True`; empty when it is well.
    pub unwell: Vec<String>,
    /// Whether it keeps a Lease, by which it can prove that it is alive.
    pub leased: bool,
    /// The newest of its Leases' renewals and of the writes of its status.
    pub sign_of_life: Option<Timestamp>,
    /// Whether a Lease of it changed since this process's first list in this wake.
    pub moved: bool,
}

/// Why the spoke could not be asked.
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

/// What the spoke's `ClusterVersion` says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upgrade {
    /// No upgrade is going on.
    Idle,
    /// An upgrade is going on, in the spoke's words.
    Progressing(String),
    /// The spoke could not be asked.
    Unknown,
}
