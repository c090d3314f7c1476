//! EC2's states in ours.

use aws_sdk_ec2::types::InstanceStateName;
use shared::cloud::InstanceState;

/// EC2's word for a state in ours. One that did not exist when this was written is unknown: the machine must not seem
/// to be gone.
pub(crate) fn state(name: &InstanceStateName) -> InstanceState {
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
