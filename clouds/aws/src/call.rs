//! The calls that move instances, and who makes them: what [`crate::moves`] batches and [`crate::account`] sends.

use futures::future::BoxFuture;
use shared::cloud::{CloudError, InstanceState, Priority};

use crate::errors::Failure;

/// The calls that move instances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    Start,
    Stop,
    Terminate,
}

impl Call {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Start => "StartInstances",
            Self::Stop => "StopInstances",
            Self::Terminate => "TerminateInstances",
        }
    }

    pub(crate) fn priority(self) -> Priority {
        match self {
            Self::Start => Priority::Waking,
            Self::Stop | Self::Terminate => Priority::Sleeping,
        }
    }
}

/// Instances with the state that a call answered.
pub(crate) type Moved = Vec<(String, InstanceState)>;

/// Who makes the calls.
pub(crate) trait Sender: Send + Sync + 'static {
    /// How many of these instances a call may move by EC2's limits, once it may move some.
    fn admit(&self, call: Call, instances: usize) -> BoxFuture<'_, usize>;
    /// Returns once EC2's limits leave room for one call.
    fn turn(&self, call: Call) -> BoxFuture<'_, ()>;
    /// One call, whose turn it is.
    fn send<'a>(&'a self, call: Call, ids: &'a [String]) -> BoxFuture<'a, Result<Moved, Failure>>;
    /// What the failure of a whole call means.
    fn failed(&self, call: &str, failure: Failure) -> CloudError;
    /// EC2 says that this instance cannot be stopped because it is a one-time spot instance.
    fn cannot_stop(&self, id: &str);
}
