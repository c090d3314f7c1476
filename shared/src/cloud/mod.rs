//! The clouds as the rest of the product sees them: instances, their states, and the [`Driver`] that a cloud crate implements.

mod errors;
mod instance;
mod inventory;

use futures::future::BoxFuture;

pub use self::errors::{CloudError, CloudErrorKind, Outcome, Refusal};
pub use self::instance::{Instance, InstanceState, Spot};
pub use self::inventory::Inventory;

/// How urgent a call is when a cloud's limit makes calls wait. The most urgent first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Priority {
    /// Somebody waits for a cluster to come up.
    Waking,
    /// A cluster is on its way to sleep.
    Sleeping,
    /// A cluster is where it should be; somebody only makes sure.
    Idle,
}

/// The code that talks to one cloud, for one account and region.
///
/// A driver never decides: it lists, and it does what it is told to exactly the instances it is told.
pub trait Driver: Send + Sync {
    /// How this driver finds the instances of a cluster, for messages: `tag kubernetes.io/cluster/demo-x7k2p=owned in us-east-1`.
    fn selector(&self, infra_id: &str) -> String;
    /// All instances of the cluster, every page, in any state. Lists that are asked for at the same time may share calls.
    fn list<'a>(&'a self, infra_id: &'a str, priority: Priority) -> BoxFuture<'a, Result<Vec<Instance>, CloudError>>;
    /// Stops the instances. Each must be running.
    fn stop<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Outcome, CloudError>>;
    /// Starts the instances. Each must be stopped.
    fn start<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Outcome, CloudError>>;
    /// Deletes the instances for good. Each must be a one-time spot instance.
    fn terminate<'a>(&'a self, ids: &'a [String]) -> BoxFuture<'a, Result<Outcome, CloudError>>;
}
