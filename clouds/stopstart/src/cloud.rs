//! What a cloud's crate implements.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cloud_common::{ChargedValue, Key};
use cloud_http::CallError;
use shared::cloud::{CloudError, CloudErrorKind, ClusterRef, Instance, Priority, Profile};

use crate::sent::Reason;

/// A machine, and where the cloud has it.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// As everybody sees it. Its first node name is its own, which tells whether it is of the control plane.
    pub instance: Instance,
    /// Where the cloud has it, as its crate needs it for a call: a zone, a group, an ID.
    pub at: String,
    /// Kind, code and message of why its last start was given up, from a cloud that says so in lists.
    pub given_up: Option<(CloudErrorKind, String, String)>,
    /// Code and message of why it cannot be started at all, from a cloud that says so in lists.
    pub blocked: Option<(String, String)>,
}

impl Machine {
    /// Code and message of why its last start was given up.
    pub(crate) fn reason(&self) -> Reason {
        self.given_up.as_ref().map(|(_, code, message)| (code.clone(), message.clone()))
    }
}

/// The machines of several clusters, or why those of one are not known. A cluster that is missing has none.
pub type MachinesByKey<K> = BTreeMap<K, Result<Arc<[Machine]>, CloudError>>;

/// What has become of a call that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The cloud is at it.
    UnderWay,
    /// It is done.
    Done,
    /// The cloud has given it up.
    GivenUp {
        /// `Capacity` or `Refused`.
        kind: CloudErrorKind,
        /// The cloud's code.
        code: String,
        /// The cloud's words.
        message: String,
    },
}

/// Why a call about one machine was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// This machine is to blame, or there is no capacity for it.
    Machine {
        /// `Refused`, `InTransit` or `Capacity`.
        kind: CloudErrorKind,
        /// The cloud's code.
        code: String,
        /// The cloud's words.
        message: String,
    },
    /// Something else is, such as the credentials.
    Account(CloudError),
}

/// Where a machine is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    /// Up.
    Start,
    /// Down.
    Stop,
}

impl Move {
    /// How urgent its calls are.
    pub fn priority(self) -> Priority {
        match self {
            Self::Start => Priority::Waking,
            Self::Stop => Priority::Sleeping,
        }
    }
}

/// One account of a cloud.
pub trait Cloud: Send + Sync + 'static {
    /// What a list is asked for: what tells clusters apart.
    type Key: Key;
    /// How many clusters share a list. A list begins a second after the last one, unless it is full: it costs as much
    /// for one cluster as for all.
    const TOGETHER: usize;
    /// How often a machine may be started in a minute, and stopped.
    const PER_MINUTE: usize = usize::MAX;

    /// See [`shared::cloud::Driver::domain`].
    fn domain(&self) -> Arc<str>;
    /// See [`shared::cloud::Driver::profile`].
    fn profile(&self, cluster: &ClusterRef) -> Profile;
    /// What the list of a cluster is asked for.
    ///
    /// # Errors
    /// When the cluster lacks what identifies its machines.
    fn key(&self, cluster: &ClusterRef) -> Result<Self::Key, CloudError>;
    /// All machines of these clusters, every page, and what they are charged. A part of the cloud that does not answer is
    /// an error of every cluster that may have machines there.
    fn list(
        self: Arc<Self>,
        wanted: BTreeSet<Self::Key>,
        priority: Priority,
    ) -> impl Future<Output = Result<ChargedValue<MachinesByKey<Self::Key>>, CloudError>> + Send;
    /// Starts or stops a machine. Answers what the call is read back by, if there is something.
    fn send(
        &self,
        cluster: &ClusterRef,
        to: Move,
        machine: &Machine,
    ) -> impl Future<Output = Result<Option<String>, Failure>> + Send;
    /// What has become of a call that was accepted.
    fn progress(&self, operation: &str) -> impl Future<Output = Result<Progress, CallError>> + Send {
        let _ = operation;
        async { Ok(Progress::Done) }
    }
}

/// Whom a failed call is to be blamed on: a rejection of another class than "not these credentials", "too many" or
/// "broken" is about the machine. `known` are the codes and words that the cloud has for the machine alone: no
/// capacity, or busy.
pub fn failed(error: CallError, known: impl Fn(&str, &str) -> Option<CloudErrorKind>) -> Failure {
    let CallError::Rejected(rejection) = error else { return Failure::Account(error.into()) };
    let kind = match (rejection.kind, rejection.status.as_u16()) {
        _ if let Some(kind) = known(&rejection.code, &rejection.message) => kind,
        // It is being deleted, or another operation works on it.
        (CloudErrorKind::Invalid, 404 | 409 | 410 | 412) => CloudErrorKind::InTransit,
        (CloudErrorKind::Invalid, _) => CloudErrorKind::Refused,
        _ => return Failure::Account(CallError::Rejected(rejection).into()),
    };
    let code = if rejection.code.is_empty() { rejection.status.as_u16().to_string() } else { rejection.code };
    Failure::Machine { kind, code, message: rejection.message }
}
