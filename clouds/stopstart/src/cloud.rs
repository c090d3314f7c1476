//! What a cloud's crate implements.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cloud_common::{ChargedValue, Key};
use cloud_http::CallError;
use shared::cloud::{CloudError, CloudErrorKind, ClusterRef, Instance, InstanceState, Priority, Profile, Refusal};
use shared::text::sanitize_to;

/// A machine, and where the cloud has it.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// As the controller sees it. Its first node name is the cloud's name for it.
    pub instance: Instance,
    /// What a call needs besides the name: a zone, a group, an ID.
    pub at: String,
    /// Why its last start was given up, from a cloud that says so in lists.
    pub given_up: Option<Reason>,
    /// Why it cannot be started at all, from a cloud that says so in lists.
    pub blocked: Option<Reason>,
}

/// Why a machine is not moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// `Refused`, `InTransit` or `Capacity`.
    pub kind: CloudErrorKind,
    /// The cloud's code.
    pub code: String,
    /// The cloud's words.
    pub message: String,
}

impl Reason {
    /// `code` and `message` are the cloud's own, sanitized.
    pub fn new(kind: CloudErrorKind, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { kind, code: code.into(), message: message.into() }
    }

    /// Of a call that the cloud has given up: for want of capacity, or for another reason.
    pub fn given_up(is_full: bool, code: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(if is_full { CloudErrorKind::Capacity } else { CloudErrorKind::Refused }, code, message)
    }

    pub(crate) fn of(self, id: &str) -> Refusal {
        Refusal { id: id.to_owned(), kind: self.kind, code: self.code, message: self.message }
    }
}

/// Longest name that is shown, in characters.
const MAX_NAME: usize = 80;

impl Machine {
    /// A machine whose Node has its name, with the cloud's word for its state.
    pub fn new(name: &str, at: &str, state: InstanceState, word: &str) -> Self {
        let instance = Instance::new(sanitize_to(name, MAX_NAME), state).in_words(word);
        let instance = Instance { node_names: vec![name.to_owned()], ..instance };
        Self { instance, at: at.to_owned(), given_up: None, blocked: None }
    }

    /// The same of this type, as the cloud names it.
    pub fn of_type(self, machine_type: &str) -> Self {
        Self { instance: self.instance.of_type(machine_type), ..self }
    }

    /// The cloud's name for it.
    pub fn name(&self) -> &str {
        self.instance.node_names.first().map_or("", String::as_str)
    }
}

/// The machines of several clusters, or why those of one are not known. A cluster that is missing has none.
pub type MachinesByKey<K> = BTreeMap<K, Result<Arc<[Machine]>, CloudError>>;

/// A list of several clusters, and what it is charged.
pub type ListResult<K> = Result<ChargedValue<MachinesByKey<K>>, CloudError>;

/// The progress of an accepted call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    InProgress,
    Done,
    /// The cloud has given it up.
    GivenUp(Reason),
}

/// Why a call about one machine was not accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// This machine alone.
    Machine(Reason),
    /// The whole account, such as its credentials.
    Account(CloudError),
}

impl Failure {
    /// A rejection of another class than "not these credentials", "too many" or "broken" is about the machine.
    /// `machine_kind` knows the codes and words that the cloud has for one machine alone: no capacity, or busy.
    pub fn of(error: CallError, machine_kind: impl Fn(&str, &str) -> Option<CloudErrorKind>) -> Self {
        let CallError::Rejected(rejection) = error else { return Self::Account(error.into()) };
        let kind = match (rejection.kind, rejection.status.as_u16()) {
            _ if let Some(kind) = machine_kind(&rejection.code, &rejection.message) => kind,
            // It is being deleted, or another operation works on it.
            (CloudErrorKind::Invalid, 404 | 409 | 410 | 412) => CloudErrorKind::InTransit,
            (CloudErrorKind::Invalid, _) => CloudErrorKind::Refused,
            _ => return Self::Account(CallError::Rejected(rejection).into()),
        };
        let code = if rejection.code.is_empty() { rejection.status.as_u16().to_string() } else { rejection.code };
        Self::Machine(Reason::new(kind, code, rejection.message))
    }
}

/// Where a machine is to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    Start,
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
    /// Calls at once, and calls a second, of an account.
    const RATE: (u32, u32);
    /// How many clusters share a list. A list begins a second after the last one, unless it is full: it costs as much
    /// for one cluster as for all.
    const MAX_CLUSTERS_PER_LIST: usize;
    /// How often a machine may be started in a minute, and stopped.
    const MAX_CALLS_PER_MINUTE: usize = usize::MAX;

    /// See [`shared::cloud::Driver::domain`].
    fn domain(&self) -> Arc<str>;
    /// See [`shared::cloud::Driver::profile`].
    fn profile(&self, cluster: &ClusterRef) -> Profile;
    /// The part of a list that is this cluster's.
    fn key(&self, cluster: &ClusterRef) -> Result<Self::Key, CloudError>;
    /// All machines of these clusters, every page, and what they are charged. A part of the cloud that does not answer is
    /// an error of every cluster that may have machines there.
    fn list(
        self: Arc<Self>,
        wanted: BTreeSet<Self::Key>,
        priority: Priority,
    ) -> impl Future<Output = ListResult<Self::Key>> + Send;
    /// Starts or stops a machine. Returns the cloud's handle of the operation, if there is one.
    fn send(
        &self,
        cluster: &ClusterRef,
        to: Move,
        machine: &Machine,
    ) -> impl Future<Output = Result<Option<String>, Failure>> + Send;
    /// The progress of an accepted call.
    fn progress(&self, operation: &str) -> impl Future<Output = Result<Progress, CallError>> + Send {
        let _ = operation;
        async { Ok(Progress::Done) }
    }
}
