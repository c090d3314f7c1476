//! What is held of FoundationDB clusters.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use server::metrics::Declare as _;

/// Labels of what is held of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Suspended {
    namespace: String,
    cluster: String,
}

impl Suspended {
    /// Labels of a cluster, by namespace and name.
    pub fn of((namespace, cluster): &(String, String)) -> Self {
        Self { namespace: namespace.clone(), cluster: cluster.clone() }
    }
}

/// What is held of one cluster.
#[derive(Default)]
pub struct Holdings {
    /// Suspended process groups.
    pub groups: usize,
    /// Size of their volumes.
    pub bytes: u64,
    /// Groups whose suspension has expired and that wait for their turn.
    pub waiting: usize,
    /// Released groups that the operator has not deleted yet.
    pub undeleted: usize,
}

/// What is held.
pub struct FdbMetrics {
    groups: Family<Suspended, Gauge>,
    bytes: Family<Suspended, Gauge>,
    waiting: Family<Suspended, Gauge>,
    undeleted: Family<Suspended, Gauge>,
    released: Counter,
}

impl FdbMetrics {
    /// Registers them in a registry with our prefix.
    pub fn new(registry: &mut Registry) -> Self {
        let waiting = "Process groups whose suspension has expired and that wait for their turn to be released";
        let undeleted = "Released process groups that the operator has not deleted yet";
        Self {
            groups: registry.add("fdb_suspended_groups", "Suspended process groups"),
            bytes: registry.add("fdb_suspended_bytes", "Size of the volumes of suspended process groups"),
            waiting: registry.add("fdb_waiting_groups", waiting),
            undeleted: registry.add("fdb_undeleted_groups", undeleted),
            released: registry.add("fdb_released", "Process groups that were released"),
        }
    }

    /// Tells what is held of a cluster.
    pub fn holds(&self, cluster: &Suspended, held: &Holdings) {
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.groups.get_or_create(cluster).set(count(held.groups));
        self.bytes.get_or_create(cluster).set(i64::try_from(held.bytes).unwrap_or(i64::MAX));
        self.waiting.get_or_create(cluster).set(count(held.waiting));
        self.undeleted.get_or_create(cluster).set(count(held.undeleted));
    }

    /// So many groups were released.
    pub fn released(&self, groups: usize) {
        self.released.inc_by(u64::try_from(groups).unwrap_or(u64::MAX));
    }

    /// A cluster is gone.
    pub fn forget(&self, cluster: &Suspended) {
        for family in [&self.groups, &self.bytes, &self.waiting, &self.undeleted] {
            family.remove(cluster);
        }
    }

    /// Leadership was lost.
    pub fn forget_all(&self) {
        for family in [&self.groups, &self.bytes, &self.waiting, &self.undeleted] {
            family.clear();
        }
    }
}
