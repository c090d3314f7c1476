//! Virtual machines of a spoke and their states.

use jiff::Timestamp;

/// One virtual machine of a spoke.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Instance {
    /// The cloud's own ID, such as `i-0123456789abcdef0`.
    pub id: String,
    /// State at the last look.
    pub state: InstanceState,
    /// Private DNS name: on AWS this is the Node's name.
    pub private_dns: Option<String>,
    /// When the instance was last started, on the cloud's clock.
    pub launched_at: Option<Timestamp>,
    /// Whether it is of the control plane: such machines start first and stop last.
    pub control_plane: bool,
    /// What kind of spot instance it is, if it is one.
    pub spot: Option<Spot>,
}

impl Instance {
    /// Whether it can only run or be terminated.
    #[must_use]
    pub fn is_one_time_spot(&self) -> bool {
        self.spot == Some(Spot::OneTime)
    }
}

/// What becomes of a spot instance that is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spot {
    /// Its request ends with it: it cannot be stopped, only terminated, and nothing brings it back.
    OneTime,
    /// Its request stays: it can be stopped and started like any other.
    Persistent,
    /// The cloud did not say. It is never terminated.
    Unknown,
}

/// Lifecycle of an instance, in EC2's words; other clouds map theirs onto it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, strum::Display, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum InstanceState {
    /// Being started.
    Pending,
    /// Up, and billed.
    Running,
    /// Being stopped.
    Stopping,
    /// Off, can be started again.
    Stopped,
    /// Being deleted.
    ShuttingDown,
    /// Deleted; still listed for a while.
    Terminated,
}
