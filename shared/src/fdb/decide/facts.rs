//! Everything that a decision may read.

use jiff::Timestamp;

use crate::fdb::admission::Kind;
use crate::fdb::api::{FoundationDBCluster, ProcessGroup};
use crate::fdb::suspension::{Minimum, Stamp};

/// Zone of groups of unknown zone.
const UNKNOWN_ZONE: &str = "foundationdb.org/unknown";

/// Everything that a decision may read.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    pub cluster: &'a FoundationDBCluster,
    /// What is in force for it.
    pub minimum: Minimum,
    pub pods: Vec<Pod>,
    /// Its PVCs and Services.
    pub objects: Vec<Held>,
    /// Whose turn it was, as far as this process remembers.
    pub turn: Option<Turn>,
    /// When this process began to lead: what was released shortly before is not remembered.
    pub began: Timestamp,
    /// Now, on the controller's clock.
    pub now: Timestamp,
}

/// The last release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// Its zone, or its group in mode `ProcessGroup`.
    pub of: String,
    /// When the turn began.
    pub began: Timestamp,
    /// When something was released last.
    pub last: Timestamp,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub group: String,
    /// Whether it is being deleted.
    pub deleting: bool,
}

/// A PVC or a Service of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    pub kind: Kind,
    pub name: String,
    pub version: Option<String>,
    pub uid: String,
    /// ID of its process group; `None` for the cluster's own Service.
    pub group: Option<String>,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Size of the volume in bytes; 0 for a Service.
    pub bytes: u64,
    /// What stands on it.
    pub stamp: Stamp,
    /// When the operator was last woken by touching it.
    pub woken: Option<Timestamp>,
}

impl Facts<'_> {
    /// Whether a Pod of the group is there to stay.
    pub fn has_pod(&self, id: &str) -> bool {
        self.pods.iter().any(|pod| pod.group == id && !pod.deleting)
    }

    /// Zone of a group: of the record, which survives, or else of the status.
    pub fn zone(&self, object: &Held, group: Option<&ProcessGroup>) -> String {
        let recorded = object.stamp.record.as_ref().and_then(|record| record.fault_domain.as_ref());
        let zone = recorded.or_else(|| group?.fault_domain.as_ref()).filter(|zone| !zone.is_empty());
        zone.cloned().unwrap_or_else(|| UNKNOWN_ZONE.to_owned())
    }
}
