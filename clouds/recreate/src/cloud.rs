//! What the planner asks of a cloud.

use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::io::{self, Write};
use std::sync::Arc;

use fair::Charge;
use jiff::Timestamp;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::ser::{Formatter, Serializer};
use shared::cloud::{CloudError, CloudErrorKind, ClusterRef, Outcome, Priority, Profile, Refusal};
use shared::text::sanitize_to;

use crate::record::{Machine, Record};

/// Entries of a record, by name.
pub type Machines<A> = BTreeMap<String, Machine<A>>;

/// The servers of a cluster, and their images.
pub type ClusterLists<A> = (Vec<Server<A>>, Vec<Image>);

/// What a new server needs to be like the one before it. Opaque to the planner: it stores and compares them.
pub trait Attributes: Clone + Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync {
    /// The cloud's word for the server's size; empty if nothing says it.
    fn machine_type(&self) -> &str;
}

/// How a server that was made of a record differs from that record.
#[derive(Debug)]
pub struct Difference<A> {
    /// Whether it lacks some of it. Additions are ignored.
    pub lacks: bool,
    /// What it cannot get back because others have it now, in the cloud's sanitized words.
    pub lost: Vec<String>,
    /// What the record says of it while it may lack some of that.
    pub recorded: A,
}

/// One account of a cloud that deletes servers to sleep. Every request asks first whether this process may still act.
pub trait Cloud: Send + Sync {
    type Attributes: Attributes;

    /// See [`Driver::domain`](shared::cloud::Driver::domain).
    fn domain(&self) -> Arc<str>;
    /// See [`Driver::profile`](shared::cloud::Driver::profile).
    fn profile(&self, cluster: &ClusterRef) -> Profile;
    /// Compares a server that was made of a record with that record.
    fn compare(&self, has: &Self::Attributes, of: &Self::Attributes) -> Difference<Self::Attributes>;
    /// The machines of another program's record, each with an image; `None` if the text is no such record.
    ///
    /// # Errors
    /// Why a cluster cannot wake by it.
    fn imported(&self, cluster: &ClusterRef, text: &str) -> Option<Result<Machines<Self::Attributes>, String>>;
    /// A sealed record in another program's format, by which that program can wake the cluster.
    fn exported(&self, record: &Record<Self::Attributes>) -> Option<String>;
    /// The status of any image of the account, by the last list.
    fn image(&self, id: &str) -> Option<ImageStatus>;
    /// The part of the memory by this name, for what is built of a cluster's lists or of its record.
    fn charge(&self, part: &str) -> Charge;
    fn now(&self) -> Timestamp;
    /// A unique mark for images and servers, of letters, digits, `-` and `_`.
    fn new_cycle(&self) -> String;
    /// All servers of a cluster, in any state, and all images that the planner had made of them, each of which is
    /// [charged](keep).
    fn list(
        &self,
        cluster: &ClusterRef,
        priority: Priority,
        charge: &mut Charge,
    ) -> impl Future<Output = Result<ClusterLists<Self::Attributes>, CloudError>> + Send;
    /// Sends a request. Success means that the cloud has accepted it: the next list shows the outcome.
    fn send(
        &self,
        cluster: &ClusterRef,
        request: &Request<Self::Attributes>,
    ) -> impl Future<Output = Result<(), Failure>> + Send;
}

/// Most machines of a cluster: tenants own the lists and the record.
const MAX_MACHINES: usize = 2_000;

/// Refuses more than [`MAX_MACHINES`].
pub fn check_size(machines: usize) -> Result<(), CloudError> {
    let message = || format!("the cluster has {machines} machines, more than {MAX_MACHINES}");
    if machines > MAX_MACHINES { Err(CloudError::new(CloudErrorKind::Invalid, message())) } else { Ok(()) }
}

/// Charges a value to the memory, about as the reader counts it: each text and each field name.
pub fn keep<T: Serialize>(value: T, charge: &mut Charge) -> Result<T, CloudError> {
    struct Size(usize);

    impl Formatter for &mut Size {
        fn begin_string<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
            self.0 += 64; // the text itself, its allocation, and its part of a map
            Ok(())
        }

        fn write_string_fragment<W: ?Sized + Write>(&mut self, _: &mut W, text: &str) -> io::Result<()> {
            self.0 += text.len();
            Ok(())
        }
    }

    let mut size = Size(size_of::<T>());
    let _ = value.serialize(&mut Serializer::with_formatter(io::sink(), &mut size));
    spend(charge, size.0)?;
    Ok(value)
}

/// Charges so many bytes.
pub(crate) fn spend(charge: &mut Charge, bytes: usize) -> Result<(), CloudError> {
    charge.spend(bytes).map_err(|full| CloudError::new(CloudErrorKind::Unavailable, full.to_string()))
}

/// A server. Its ID is new each time it is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Server<A> {
    /// The cloud's ID.
    pub id: String,
    /// Name of the machine, which outlives the server.
    pub machine: String,
    pub status: Status,
    /// The cloud's own word for it.
    pub word: String,
    /// The planner's mark: in which cycle it was made.
    pub cycle: Option<String>,
    /// What `spec.providerID` of its Machine has to be, where that follows from its ID.
    pub provider_id: Option<String>,
    /// When it was made, on the cloud's clock.
    pub created: Timestamp,
    /// Whether it has ever run: only what has not can be replaced without a loss.
    pub has_run: bool,
    /// Why it failed, in the cloud's sanitized words.
    pub fault: Option<String>,
    /// Why it cannot be made again as it is: such a server is never put to sleep.
    pub obstacle: Option<Obstacle>,
    /// What a new server needs to be like this one.
    pub attributes: A,
}

/// What a server is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Status {
    /// On its way up.
    Starting,
    /// Runs, and nothing is being done to it.
    Active,
    /// Paused, suspended or off: it can be imaged.
    Halted,
    /// On its way down, or an image of it is being made.
    Stopping,
    /// It could not be made, or broke.
    Failed,
    Deleting,
    /// Deleted by someone, and kept for a while: it holds its place and its ports until a second delete.
    SoftDeleted,
    /// Anything else.
    Unknown,
}

impl Status {
    /// Whether such a server will not run again by itself: it is deleted, or broke.
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Deleting | Self::SoftDeleted | Self::Failed)
    }
}

/// What keeps a server from being made again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Obstacle {
    /// One word, such as `BootFromVolume`.
    pub code: String,
    /// The attribute, its value, and what would be right.
    pub message: String,
}

impl Obstacle {
    /// The code of what a server is doing, whatever it was made of.
    pub const STATUS: &str = "Status";
    /// The code of a task of the cloud that is not ours, and ends by itself.
    pub const BUSY: &str = "Busy";

    /// An obstacle, with a message that may be a stranger's.
    pub fn new(code: &str, message: &str) -> Self {
        Self { code: code.to_owned(), message: sanitize_to(message, 400) }
    }

    /// Several servers have the name of a machine.
    pub fn several() -> Self {
        Self::new("SeveralServers", "several servers have its name: delete or rename those that are not the machine")
    }

    /// The refusal to move a machine.
    pub fn refusal(self, machine: &str, kind: CloudErrorKind) -> Refusal {
        Refusal { id: machine.to_owned(), kind, code: self.code, message: self.message }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)
    }
}

/// An image that the planner had made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Image {
    /// The cloud's ID.
    pub id: String,
    /// ID of the server that it is of.
    pub server: String,
    pub machine: String,
    /// The cycle in which it was begun.
    pub cycle: String,
    pub status: ImageStatus,
    /// Whether it has the tag by which a deprovision of its cluster finds it.
    pub is_tagged: bool,
    /// The copy of its machine's entry that it carries.
    pub copy: Option<String>,
}

/// How far an image is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum ImageStatus {
    Saving,
    /// Usable.
    Active,
    /// It exists, and its owner or the cloud has deactivated it.
    Withheld,
    /// It could not be made, or was deleted.
    Failed,
}

/// One request. What has no name is the ID of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request<A> {
    Pause(String),
    /// Makes a halted server run, whichever way it was halted.
    Run(String),
    /// The image carries machine, server and cycle from its first moment.
    CreateImage {
        server: String,
        machine: String,
        cycle: String,
    },
    /// Gives an image its tag, what it is of, and a copy of its machine's entry.
    Describe(Image, String),
    /// By the ID of the image.
    DeleteImage(String),
    /// The server carries its cycle from its first moment.
    CreateServer {
        machine: String,
        image: String,
        cycle: String,
        attributes: A,
    },
    /// For good, even if the cloud keeps deleted servers for a while.
    DeleteServer(String),
    /// Gives an active server the attributes that it lacks. A port that it lost is detached and attached.
    Restore(String, A),
    /// Removes the planner's mark.
    Unmark(String),
}

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There is no such thing.
    Gone,
    /// Not in this state, or in use: the next list shows why.
    Conflict,
    /// Not this one. The next ones may still succeed.
    Refused(Obstacle),
    /// The cloud has no capacity or no quota for this one.
    NoCapacity(Obstacle),
    /// Nothing was done, and nothing is under way: it was not sent, or the service itself has answered with an error.
    NotDone(CloudError),
    /// There is no answer, or not by the service itself: it may be under way.
    Unknown(CloudError),
}

impl Failure {
    /// Adds a machine that was refused to an outcome. One in transit, or gone, is none: the next list shows its state.
    pub fn note(self, machine: &str, outcome: &mut Outcome) -> Result<(), CloudError> {
        match self {
            Self::Gone | Self::Conflict => {}
            Self::Refused(why) => outcome.refused.push(why.refusal(machine, CloudErrorKind::Refused)),
            Self::NoCapacity(why) => outcome.refused.push(why.refusal(machine, CloudErrorKind::Capacity)),
            Self::NotDone(error) | Self::Unknown(error) => return Err(error),
        }
        Ok(())
    }
}
