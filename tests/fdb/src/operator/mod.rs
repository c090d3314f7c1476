//! The operator: the sub-steps of a pass in their order, and what they need of the outside.

pub mod api;
mod choose;
mod coordinate;
mod create;
mod exclude;
mod objects;
pub mod pass;
mod removal;
mod status;

use std::collections::BTreeMap;

use anyhow::Result;
use jiff::Timestamp;
use serde_json::Value;

use self::api::Cluster;
use self::pass::{Ended, SubStep};
use crate::KIND;
use crate::database::Database;

/// Kinds that the operator watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// `FoundationDBCluster`.
    Cluster,
    /// `Pod`.
    Pod,
    /// `PersistentVolumeClaim`.
    Claim,
    /// `Service`.
    Service,
}

impl Kind {
    /// As in an object's `kind`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cluster => KIND,
            Self::Pod => "Pod",
            Self::Claim => "PersistentVolumeClaim",
            Self::Service => "Service",
        }
    }
}

/// What the operator reads of a Pod, volume claim or Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    pub name: String,
    pub is_terminating: bool,
    /// Of a Pod.
    pub phase: Option<String>,
    /// Of a Pod or a Service.
    pub ip: Option<String>,
}

impl Observed {
    /// From what an object has besides its metadata.
    pub fn new(name: &str, is_terminating: bool, data: &Value) -> Self {
        let text = |pointer: &str| data.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
        let ip = text("/status/podIP").or_else(|| text("/spec/clusterIP"));
        Self { name: name.to_owned(), is_terminating, phase: text("/status/phase"), ip }
    }
}

/// Another client has written first.
#[derive(Debug, thiserror::Error)]
#[error("the object has been modified")]
pub struct Conflict;

/// What the operator of one cluster works on: an API server, a database and a clock.
#[expect(async_fn_in_trait, reason = "each implementation is known where its futures must be Send")]
pub trait Surroundings {
    /// The operator's waits are divided by this, the seconds of `spec.automationOptions` among them.
    const SPEED: f64;
    /// How old the last recovery must be, in seconds, before anything is excluded:
    /// `--minimum-recovery-time-for-exclusion`, 120 s. That for an inclusion, 600 s, is 0 here.
    const EXCLUSION_RECOVERY: f64;

    fn now(&self) -> Timestamp;

    fn random(&self) -> u32;

    /// Time passes, in the operator's seconds.
    async fn sleep(&self, seconds: f64);

    /// A sub-step begins: it may take its time.
    async fn begin(&self, step: SubStep);

    /// The cluster, if there is one.
    fn cluster(&self) -> Result<Option<Cluster>>;

    /// Another object, if there is one.
    fn observe(&self, kind: Kind, name: &str) -> Option<Observed>;

    /// The volume claims with these labels.
    fn claims(&self, labels: &BTreeMap<String, String>) -> Vec<Observed>;

    async fn create(&self, kind: Kind, objects: Vec<Value>) -> Result<()>;

    /// Deletes an object; one that is gone already is fine.
    async fn delete(&self, kind: Kind, name: &str) -> Result<()>;

    /// Writes the status as the settings say: an update takes in the new resourceVersion, and fails with [`Conflict`].
    async fn write_status(&self, cluster: &mut Cluster) -> Result<()>;

    /// Does something with the database.
    fn with_database<T>(&self, act: impl FnOnce(&mut Database) -> T) -> Result<T>;

    /// Logs a command of the operator for the database, as fdbcli writes it.
    fn log_command(&self, text: String) -> Result<()>;
}

/// When the operator comes by itself.
#[derive(Debug, Default)]
pub struct Queue {
    failures: u32,
    due: Option<f64>,
}

/// Longest that an error waits: controller-runtime's 1000 s.
const LONGEST: f64 = 1_000.0;

impl Queue {
    /// When the next pass is due, seconds since 1970.
    pub fn due(&self) -> Option<f64> {
        self.due
    }

    /// Whether a pass is due, which is then taken out.
    pub fn take(&mut self, now: f64) -> bool {
        self.due.take_if(|due| *due <= now).is_some()
    }

    /// Puts the cluster in again after a pass. Errors wait ever longer. Of several times the queue keeps the earliest.
    pub fn put(&mut self, ended: Result<Ended>, now: f64) -> Ended {
        let ended = match ended {
            Ok(ended) => {
                self.failures = 0;
                ended
            }
            Err(error) => {
                let again = Some((0.005 * f64::from(1_u32 << self.failures.min(20))).min(LONGEST));
                self.failures += 1;
                Ended { result: format!("{error:#}"), again }
            }
        };
        self.due = self.due.into_iter().chain(ended.again.map(|after| now + after)).reduce(f64::min);
        ended
    }
}
