//! The calls that start, stop and terminate instances, and the trait that [`crate::moves`] makes them through.

use aws_sdk_ec2::types::InstanceStateName;
use futures::future::BoxFuture;
use shared::cloud::{CloudError, InstanceState, Verb};

use crate::errors::Failure;

/// EC2's call for a verb.
pub(crate) fn api_name(verb: Verb) -> &'static str {
    match verb {
        Verb::Start => "StartInstances",
        Verb::Stop => "StopInstances",
        Verb::Terminate => "TerminateInstances",
    }
}

/// EC2's word for a state in ours. One that did not exist when this was written is unknown: the machine must not seem
/// to be gone.
pub(crate) fn instance_state(name: &InstanceStateName) -> InstanceState {
    match name {
        InstanceStateName::Pending => InstanceState::Pending,
        InstanceStateName::Running => InstanceState::Running,
        InstanceStateName::Stopping => InstanceState::Stopping,
        InstanceStateName::Stopped => InstanceState::Stopped,
        InstanceStateName::ShuttingDown => InstanceState::ShuttingDown,
        InstanceStateName::Terminated => InstanceState::Terminated,
        _ => InstanceState::Unknown,
    }
}

/// Instances with the state that a call answered.
pub(crate) type StateChanges = Vec<(String, InstanceState)>;

/// Makes the calls.
pub(crate) trait Ec2Api: Send + Sync + 'static {
    /// How many of these instances a call may move by EC2's limits, once it may move some.
    fn admit(&self, call: Verb, instances: usize) -> BoxFuture<'_, usize>;
    /// Returns once EC2's limits leave room for one call.
    fn turn(&self, call: Verb) -> BoxFuture<'_, ()>;
    /// Sends one call. Wait for [`Self::turn`] first.
    fn send<'a>(&'a self, call: Verb, ids: &'a [String]) -> BoxFuture<'a, Result<StateChanges, Failure>>;
    /// Turns the failure of a whole call into the error that is reported.
    fn failed(&self, call: &str, failure: Failure) -> CloudError;
    /// EC2 says that this instance cannot be stopped because it is a one-time spot instance.
    fn cannot_stop(&self, id: &str);
}
