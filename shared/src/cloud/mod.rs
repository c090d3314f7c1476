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

pub use self::driver::{CloudEvent, CloudFuture, Driver, Listing};
pub use self::errors::{CloudError, CloudErrorKind, Outcome, Refusal};
pub use self::instance::{Instance, InstanceState, MAX_PRICE_KEY, MAX_TYPE, Spot, UNKNOWN_TYPE};
pub use self::inventory::Inventory;
pub use self::ledger::{Entry, Ledger, LedgerError, LedgerFuture};
pub use self::lifecycle::{Lifecycle, Limits, Priority, Profile, ProviderIds, Verb};

use crate::power::Power;

/// A cluster, and what its spec says of its cloud.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterRef {
    /// Namespace of the target on the hub.
    pub namespace: String,
    /// Name of the target on the hub.
    pub name: String,
    /// Prefix and tag of everything the cluster has in its cloud.
    pub infra_id: String,
    /// What its owner wants: a spec that only a sleep cannot follow is no reason not to wake it.
    pub desired: Power,
    /// Region, such as `us-east-1`; empty on platforms without regions.
    pub region: String,
    /// Name of the Secret with its credentials, in its namespace; empty if the spec names none.
    pub credentials: String,
    /// What only its platform asks for.
    pub platform: PlatformSpec,
}

/// The part of a cluster's spec that only one platform has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum PlatformSpec {
    /// A platform that asks for nothing more.
    #[default]
    Plain,
    /// Amazon Web Services.
    Aws {
        /// The role to assume with the service provider's credentials.
        role: Option<AwsRole>,
    },
    /// Microsoft Azure.
    Azure {
        /// Which of Microsoft's clouds, such as `AzurePublicCloud`; empty for that one.
        cloud_name: String,
        /// Resource group of the cluster's machines; empty if the cluster does not say.
        resource_group: String,
    },
    /// Google Cloud.
    Gcp {
        /// Whether local SSDs lose their content in a stop; `None` if the owner has not said.
        discard_local_ssd: Option<bool>,
    },
    /// IBM Cloud.
    Ibm {
        /// ID of the account; empty if the cluster does not say.
        account: String,
    },
    /// OpenStack.
    OpenStack {
        /// The entry of `clouds.yaml`.
        cloud: String,
        /// Name of the Secret with certificates; empty if the spec names none.
        certificates: String,
        /// How it is to sleep, in the owner's word.
        mode: Option<String>,
        /// Whether the owner accepts what only a force overrides: interfaces in another order.
        forced: bool,
    },
}

/// A role of another account on AWS.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AwsRole {
    /// Its ARN.
    pub arn: String,
    /// The external ID that its trust policy asks for.
    pub external_id: Option<String>,
}

/// A cluster, and where its durable record is kept.
#[derive(Clone)]
pub struct Target {
    pub cluster: ClusterRef,
    /// Its record. Drivers of the stop/start lifecycle never touch it.
    pub ledger: Arc<dyn Ledger>,
}
