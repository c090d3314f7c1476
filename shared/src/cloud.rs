//! The clouds as the rest of the product sees them: instances, their states, and the [`Driver`] that a cloud crate implements.

use std::fmt;

use futures::future::BoxFuture;
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

/// What a call about several instances did. Calls that fail as a whole answer [`CloudError`] instead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Instances the cloud accepted, with the state it answered.
    pub moved: Vec<(String, InstanceState)>,
    /// Instances the cloud refused, with its words.
    pub refused: Vec<Refusal>,
}

/// One instance that the cloud would not start or stop.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Refusal {
    /// The instance's ID.
    pub id: String,
    /// `Refused`, `InTransit` or `Capacity`.
    pub kind: CloudErrorKind,
    /// The cloud's error code, such as `OperationNotPermitted`.
    pub code: String,
    /// The cloud's message, without request IDs.
    pub message: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.id, self.code, self.message)
    }
}

/// Why a call to a cloud failed as a whole.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CloudError {
    /// What kind of failure it is, which decides how soon to try again.
    pub kind: CloudErrorKind,
    /// The cloud's words, stable between tries (no request IDs, no clock), naming what was asked of what.
    pub message: String,
}

/// The kinds of failure that are handled differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display, strum::IntoStaticStr)]
pub enum CloudErrorKind {
    /// Credentials are missing, malformed or of a form that is refused. Only a change of the Secret helps.
    Credentials,
    /// The cloud says that these credentials may not do this (401, 403).
    Denied,
    /// Too many calls.
    Throttled,
    /// The cloud has no machines of this kind just now.
    Capacity,
    /// 5xx, time-outs, broken connections.
    Unavailable,
    /// The cloud refused some instances and took the others.
    Refused,
    /// The cloud refused only instances that are between two states: their time comes.
    InTransit,
    /// The request itself is wrong, such as an unknown region. Trying the same again will not help.
    Invalid,
    /// This process may no longer act: it is not the leader any more.
    NotLeader,
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
