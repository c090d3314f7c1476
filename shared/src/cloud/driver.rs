//! What a cloud crate implements.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::{CloudError, ClusterRef, Instance, Outcome, Priority, Profile, Refusal, Target, Verb};

/// What a driver found of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listing {
    /// Every machine: those that the cloud has, in any state, and those that only the durable record still names.
    pub instances: Vec<Instance>,
    /// Calls that the cloud accepted and has given up since: starts without capacity. A driver that moves machines
    /// [one by one](Profile::one_by_one) lists stops instead if the list was asked for as
    /// [`Sleeping`](Priority::Sleeping).
    pub failed: Vec<Refusal>,
    /// Whether [`Driver::settle`] has something to do once the cluster is where it should be.
    pub owed: bool,
    /// What its owner should know.
    pub event: Option<CloudEvent>,
}

/// An Event about a cluster's machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloudEvent {
    pub reason: &'static str,
    pub message: String,
}

/// The answer of a driver.
pub type CloudFuture<'a, T> = BoxFuture<'a, Result<T, CloudError>>;

/// The code that talks to one cloud, for one account and region.
///
/// A driver never decides: it lists, and it moves exactly the machines in the request. It keeps nothing in the process
/// that a restart may not lose. Every request asks first whether this process may still act.
pub trait Driver: Send + Sync {
    /// What shares this driver's limits: platform, region and account, such as `aws/us-east-1/3f9c2b7a51d0e846`. The
    /// account is opaque, and never a part of a credential: people read it.
    fn domain(&self) -> Arc<str>;
    /// What is known of the platform and this cluster without a call.
    fn profile(&self, cluster: &ClusterRef) -> Profile;
    /// All machines of the cluster, every page, in any state. Lists that are asked for at the same time may share
    /// calls. A part of the cloud that does not answer is an error: a machine must not seem to be gone.
    fn list<'a>(&'a self, target: &'a Target, priority: Priority) -> CloudFuture<'a, Listing>;
    /// Makes the next short, idempotent step of each machine towards `verb`. Where one step is not enough, the next
    /// list shows the machine as [`due`](Instance::due). Terminates only one-time spot instances.
    fn advance<'a>(&'a self, target: &'a Target, verb: Verb, ids: &'a [String]) -> CloudFuture<'a, Outcome>;
    /// Removes what a transition left behind, once its end was reported. Called only while a list says that something
    /// is owed.
    fn settle<'a>(&'a self, target: &'a Target) -> CloudFuture<'a, ()> {
        let _ = target;
        async { Ok(()) }.boxed()
    }
}
