//! The cloud boundary: the product's view of clouds, and what a cloud crate implements.
//!
//! A [`Driver`] lists a cluster's machines and moves them. It follows one of two [`Lifecycle`]s: it stops and starts
//! instances, or it deletes them and makes them again from a durable record, which it keeps in a [`Ledger`]. Decisions
//! see the same [`Inventory`] either way.

mod cluster;
mod driver;
mod errors;
mod instance;
mod inventory;
mod ledger;
mod lifecycle;

pub use self::cluster::{AwsRole, ClusterRef, PlatformSpec, Target};
pub use self::driver::{CloudEvent, Driver, Listing, Priority};
pub use self::errors::{CloudError, CloudErrorKind, Outcome, Refusal};
pub use self::instance::{Instance, InstanceState, Spot};
pub use self::inventory::Inventory;
pub use self::ledger::{Entry, Ledger, LedgerError};
pub use self::lifecycle::{Lifecycle, Limits, Profile, ProviderIds, Verb};
