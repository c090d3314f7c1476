//! What this process remembers of a target between two looks. Losing it costs a look, never a wrong action.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;
use shared::hive::api::ClusterDeployment;
use shared::hive::conditions::{HIBERNATING, READY};
use shared::hive::decide::{Machines, NodeLook, Tried};
use tokio::time::Instant;

/// Memory of one target.
#[derive(Debug, Default)]
pub struct Memory {
    /// The object as it came back from our last write, until the watch has caught up with it.
    written: Option<ClusterDeployment>,
    /// What the last look saw of the object, and until when another look is not needed.
    settled: Option<(u64, Instant)>,
    /// The last start or stop.
    pub tried: Option<Tried>,
    /// Failed looks in a row.
    pub failed_looks: u32,
    /// The last list of machines.
    machines: Option<(Instant, Machines)>,
    /// Signs of life at the first look of this wake.
    first_signs: Option<HashMap<String, Option<Timestamp>>>,
    /// When the spoke was last asked what could stand in the way of a sleep.
    pub preflight: Option<Instant>,
    /// The reason of the last notice, so that it is given once.
    pub noticed: Option<&'static str>,
}

impl Memory {
    /// The newer of the watched object and the one that our last write returned.
    pub fn newest(&mut self, watched: &ClusterDeployment) -> ClusterDeployment {
        let version =
            |cluster: &ClusterDeployment| cluster.resource_version().and_then(|version| version.parse::<u64>().ok());
        match self.written.take() {
            Some(written) if written.uid() == watched.uid() && version(&written) > version(watched) => {
                self.written = Some(written.clone());
                written
            }
            _ => watched.clone(),
        }
    }

    /// Keeps what a write returned.
    pub fn wrote(&mut self, cluster: &ClusterDeployment) {
        self.written = Some(cluster.clone());
    }

    /// How long this object, as it is, need not be looked at.
    #[must_use]
    pub fn rests(&self, cluster: &ClusterDeployment) -> Option<Duration> {
        let (seen, until) = self.settled?;
        let left = until.saturating_duration_since(Instant::now());
        (seen == fingerprint(cluster) && !left.is_zero()).then_some(left)
    }

    /// This object, as it is, need not be looked at for this long.
    pub fn rest(&mut self, cluster: &ClusterDeployment, pause: Duration) {
        self.settled = Some((fingerprint(cluster), Instant::now() + pause));
    }

    /// The last list of machines, if it is not older than `max_age`.
    #[must_use]
    pub fn machines(&self, max_age: Duration) -> Option<Machines> {
        let (at, machines) = self.machines.as_ref()?;
        (!max_age.is_zero() && at.elapsed() < max_age).then(|| machines.clone())
    }

    /// Keeps a list of machines.
    pub fn saw_machines(&mut self, machines: &Machines) {
        self.machines = Some((Instant::now(), machines.clone()));
    }

    /// A new wake begins: the signs of life of the last one prove nothing.
    pub fn new_wake(&mut self) {
        self.first_signs = None;
    }

    /// Marks the nodes whose sign of life has changed since the first look of this wake.
    pub fn mark_moved(&mut self, nodes: &mut [NodeLook]) {
        let first = self.first_signs.get_or_insert_with(HashMap::new);
        for node in nodes {
            let before = first.entry(node.name.clone()).or_insert(node.sign_of_life);
            node.moved = *before != node.sign_of_life;
        }
    }
}

/// What of an object calls for a new look: everything but the status that others keep there.
fn fingerprint(cluster: &ClusterDeployment) -> u64 {
    let mut hasher = DefaultHasher::new();
    cluster.uid().hash(&mut hasher);
    cluster.metadata.generation.hash(&mut hasher);
    cluster.metadata.deletion_timestamp.is_some().hash(&mut hasher);
    cluster.annotations().hash(&mut hasher);
    cluster.labels().hash(&mut hasher);
    cluster.power_state().hash(&mut hasher);
    for condition in [HIBERNATING, READY].into_iter().filter_map(|type_| cluster.condition(type_)) {
        (&condition.type_, &condition.status, &condition.reason, &condition.message).hash(&mut hasher);
    }
    hasher.finish()
}
