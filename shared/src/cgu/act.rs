//! What an upgrade does to other objects.

use jiff::SignedDuration;

use super::api::Reference;
use super::precache::workload::Step;
use super::view::{InstallPlan, ViewRequest};

/// An action that has not approved its `InstallPlan` by then is created again.
pub const APPROVE_AGAIN: SignedDuration = SignedDuration::from_mins(1);

/// Something that happens to other objects. Each can be done twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// The Placement for a policy exists, selects nothing, and is bound.
    Prepare(Reference),
    /// That Placement is still bound: bindings are not watched.
    Bind(Reference),
    /// The Placement for a policy selects these clusters, too.
    Enforce(Reference, Vec<String>),
    /// No Placement of the upgrade selects a cluster.
    Release,
    /// Labels and annotations of a `ManagedCluster`: those of the start, or (true) of its completion.
    Change(String, bool),
    /// A view asks for an object of a cluster.
    View(ViewRequest),
    /// An action approves an `InstallPlan`.
    Approve(Approval),
    /// A cluster pulls images.
    Pull(Pull),
    /// The views of a cluster go, and (true) its actions.
    Forget(String, bool),
    /// Placements and bindings go.
    DeleteObjects,
}

/// A step of a pull of images: writes to the views and actions of a cluster, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pull {
    /// The cluster.
    pub cluster: String,
    /// The writes.
    pub steps: Vec<Step>,
    /// The cluster may not have carried them out yet: within [`APPROVE_AGAIN`] they are not repeated.
    pub repeats: bool,
}

/// An approval, as an action carries it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// The cluster.
    pub cluster: String,
    /// Name of the `InstallPlan`.
    pub name: String,
    /// Its namespace on the cluster.
    pub namespace: String,
    /// The plan.
    pub plan: InstallPlan,
}
