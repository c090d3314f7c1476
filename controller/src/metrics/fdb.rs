//! Suspended process groups of FoundationDB clusters.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use server::metrics::Declare as _;
use shared::fdb::decide::Plan;

use super::Label;
use crate::runtime::Key;

pub struct FdbMetrics {
    groups: Family<[Label<String>; 2], Gauge>,
    bytes: Family<[Label<String>; 2], Gauge>,
    waiting: Family<[Label<String>; 2], Gauge>,
    undeleted: Family<[Label<String>; 2], Gauge>,
    released: Counter,
}

impl FdbMetrics {
    /// `registry` has our prefix.
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

    pub fn set(&self, cluster: &Key, plan: &Plan) {
        let cluster = &labels(cluster);
        let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        self.groups.get_or_create(cluster).set(count(plan.held));
        self.bytes.get_or_create(cluster).set(i64::try_from(plan.held_bytes).unwrap_or(i64::MAX));
        self.waiting.get_or_create(cluster).set(count(plan.waiting));
        self.undeleted.get_or_create(cluster).set(count(plan.released));
    }

    pub fn released(&self, groups: usize) {
        self.released.inc_by(u64::try_from(groups).unwrap_or(u64::MAX));
    }

    pub fn forget(&self, cluster: &Key) {
        let cluster = &labels(cluster);
        for family in [&self.groups, &self.bytes, &self.waiting, &self.undeleted] {
            family.remove(cluster);
        }
    }

    pub fn forget_all(&self) {
        for family in [&self.groups, &self.bytes, &self.waiting, &self.undeleted] {
            family.clear();
        }
    }
}

fn labels((namespace, cluster): &Key) -> [Label<String>; 2] {
    [("namespace", namespace.clone()), ("cluster", cluster.clone())]
}
