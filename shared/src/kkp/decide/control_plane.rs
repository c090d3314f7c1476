//! Deployments and `StatefulSets` of a control plane, and their counts.

use crate::kkp::record::{Record, Workload};

/// A workload of the control plane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// Which one.
    pub workload: Workload,
    /// `spec.replicas`.
    pub wanted: u32,
    /// How many are ready; 0 while the status is about an older spec.
    pub ready: u32,
    /// Whether Pods of it are left.
    pub running: bool,
    /// Our copy of its count, if it carries one.
    pub copy: Option<u32>,
    /// Whether its volume claims are deleted with its replicas.
    pub deletes_volumes: bool,
}

impl Replicas {
    pub(super) fn is_etcd(&self) -> bool {
        self.workload.name == "etcd"
    }

    pub(super) fn is_apiserver(&self) -> bool {
        self.workload.name == "apiserver"
    }

    /// Whether it is the API server of the user cluster, and not scaled down yet.
    pub fn is_apiserver_up(&self) -> bool {
        self.wanted > 0 && self.is_apiserver()
    }

    /// Whether as many are ready as KKP calls Up: of etcd a quorum, of the others one (row 64).
    pub fn serves(&self) -> bool {
        self.ready > if self.is_etcd() { self.wanted / 2 } else { 0 }
    }

    /// How many are ready, if not all are.
    pub(super) fn lacks(&self) -> Option<String> {
        let (name, ready, wanted) = (&self.workload.name, self.ready, self.wanted);
        (ready < wanted).then(|| format!("{name} ({ready} of {wanted})"))
    }

    /// What a sleep has to give back. A copy may be left of an earlier one, and the count have been raised since.
    pub(super) fn count(&self) -> u32 {
        self.copy.unwrap_or_default().max(self.wanted)
    }

    /// Its count before the sleep. The copy was written with the 0, on an object that only those write who may scale
    /// it. A count that stands on the record alone counts for one at 0 that a wake cannot do without.
    pub(super) fn before(&self, record: &Record) -> u32 {
        let recorded = || record.control_plane.get(&self.workload).copied().filter(|_| is_needed(&self.workload.name));
        let own = [self.copy.unwrap_or_default(), self.wanted].into_iter().find(|count| *count > 0);
        own.or_else(recorded).unwrap_or_default()
    }
}

/// What a wake needs of the control plane.
pub(super) fn is_needed(name: &str) -> bool {
    matches!(name, "etcd" | "apiserver" | "controller-manager" | "scheduler")
        || ["machine-controller", "operating-system-manager", "usercluster-"]
            .iter()
            .any(|start| name.starts_with(start))
}
