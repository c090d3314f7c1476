//! The cloud boundary: the product's view of clouds, and what a cloud crate implements.
//!
//! A [`Driver`] lists a cluster's machines and moves them. It follows one of two [`Lifecycle`]s: it stops and starts
//! instances, or it deletes them and makes them again from a durable record, which it keeps in a [`Ledger`]. Decisions
//! see the same [`Inventory`] either way.

mod driver;
mod errors;
mod instance;
mod inventory;
mod ledger;
mod lifecycle;

use std::sync::Arc;

pub use self::driver::{CloudEvent, Driver, Listing, Priority};
pub use self::errors::{CloudError, CloudErrorKind, Outcome, Refusal};
pub use self::instance::{Instance, InstanceState, Spot};
pub use self::inventory::Inventory;
pub use self::ledger::{Entry, Ledger, LedgerError};
pub use self::lifecycle::{Lifecycle, Limits, Profile, ProviderIds, Verb};

/// What a platform needs to find a cluster's machines. A platform reads the fields that it knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct ClusterRef {
    /// Namespace of the target on the hub.
    pub namespace: String,
    /// Name of the target on the hub.
    pub name: String,
    /// Prefix and tag of everything the cluster has in its cloud.
    pub infra_id: String,
    /// Region, such as `us-east-1`; empty on platforms without regions.
    pub region: String,
    /// Project or subscription, where the credentials do not imply it.
    pub project: Option<String>,
    /// Resource group (Azure, IBM Cloud).
    pub resource_group: Option<String>,
    /// Name of the cloud: the entry of `clouds.yaml` (OpenStack), or a sovereign cloud (Azure).
    pub cloud: Option<String>,
    /// Whether local SSDs lose their content in a stop (GCP); `None` if the owner has not said.
    pub discard_local_ssd: Option<bool>,
    /// Whether the owner accepts what only a force overrides (OpenStack: interfaces in another order).
    pub forced: bool,
}

/// A cluster, and where its durable record is kept.
#[derive(Clone)]
pub struct Target {
    /// The cluster.
    pub cluster: ClusterRef,
    /// Its record. Drivers of the stop/start lifecycle never touch it.
    pub ledger: Arc<dyn Ledger>,
}
