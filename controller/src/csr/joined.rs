//! Which kubelets of a waking cluster show themselves, by their Leases.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fair::{Charge, MemoryFull};
use jiff::{SignedDuration, Timestamp};
use shared::spoke::kinds::Lease;

use super::ENTRY;
use crate::spoke::csr::{Cluster, SETTLE, SKEW, Window};

/// Which Nodes have a kubelet with a certificate.
#[derive(Debug, Default)]
pub(super) struct Joined {
    /// The Lease of each Node.
    pub(super) seen: HashMap<String, Seen>,
    /// The Nodes that were missing when the cluster was awake.
    pub(super) missing: Option<BTreeSet<String>>,
    /// For how long the API server has answered, and when it answered last.
    pub(super) answered: SignedDuration,
    pub(super) answered_at: Option<Timestamp>,
    pub(super) run_since: HashMap<String, Timestamp>,
    /// Until when certificates from before the wake are valid, by Node. The cluster soon deletes the requests.
    pub(super) certificates: BTreeSet<(String, Timestamp)>,
    /// Whether a worker has been Ready in this wake.
    pub(super) has_ready_worker: bool,
}

/// A Lease.
#[derive(Debug)]
pub(super) struct Seen {
    /// When its kubelet says that it renewed it: the clock of a kubelet may be wrong.
    renewed: Option<Timestamp>,
    /// For how long the API server had answered when it was first seen so.
    at: SignedDuration,
    /// Whether it was renewed in this wake.
    in_wake: bool,
}

impl Joined {
    /// The Nodes that do, by their Leases as they are now.
    pub(super) fn of(
        &mut self,
        nodes: &BTreeSet<String>,
        leases: &[Lease],
        window: &Window,
        now: Timestamp,
        charge: &mut Charge,
    ) -> Result<BTreeSet<String>, MemoryFull> {
        let renewed = |lease: &Lease| (lease.metadata.name.clone(), lease.spec.renew_time);
        let renewed: HashMap<String, Option<Timestamp>> = leases.iter().map(renewed).collect();
        let gone = self.seen.extract_if(|node, _| !nodes.contains(node));
        charge.refund(gone.map(|(node, _)| node.len() + ENTRY).sum());
        let at = self.answered;
        let mut alive = BTreeSet::new();
        for node in nodes {
            let renewed = renewed.get(node).copied().flatten();
            if !self.seen.contains_key(node) {
                charge.spend(node.len() + ENTRY)?;
                let in_wake =
                    renewed.is_some_and(|renewed| renewed > window.opened && renewed.duration_since(now) <= SKEW);
                self.seen.insert(node.clone(), Seen { renewed, at, in_wake });
            }
            let Some(seen) = self.seen.get_mut(node) else { continue };
            if seen.renewed != renewed {
                *seen = Seen { renewed, at, in_wake: renewed.is_some() };
            }
            if seen.in_wake && at - seen.at < SETTLE {
                alive.insert(node.clone());
            }
        }
        if window.closes == Timestamp::MAX {
            return Ok(alive);
        }
        if self.missing.is_none() {
            let missing: BTreeSet<String> = nodes.difference(&alive).cloned().collect();
            charge.spend(missing.iter().map(|node| node.len() + ENTRY).sum())?;
            self.missing = Some(missing);
        }
        let missing = self.missing.as_ref().unwrap_or(nodes);
        Ok(alive.union(&nodes.difference(missing).cloned().collect()).cloned().collect())
    }

    /// For how long each Node whose machine runs has not renewed its Lease.
    pub(super) fn silent(&self, cluster: &Cluster, now: Timestamp) -> BTreeMap<String, SignedDuration> {
        let since = |name: &str| self.run_since.get(&name.to_ascii_lowercase()).copied();
        let by_machine: HashMap<String, Timestamp> = cluster
            .machines
            .iter()
            .filter_map(|machine| Some((machine, since(machine.instance.as_deref()?)?)))
            .flat_map(|(machine, at)| machine.names().map(move |name| (name.to_ascii_lowercase(), at)))
            .collect();
        let silent = |(node, seen): (&String, &Seen)| {
            let runs = since(node).or_else(|| by_machine.get(&node.to_ascii_lowercase()).copied())?;
            Some((node.clone(), (self.answered - seen.at).min(now.duration_since(runs))))
        };
        self.seen.iter().filter_map(silent).collect()
    }
}
