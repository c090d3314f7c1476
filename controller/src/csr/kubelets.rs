//! Which kubelets of a waking cluster show themselves, by their Leases.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use fair::{Charge, MemoryFull};
use jiff::{SignedDuration, Timestamp};
use shared::spoke::kinds::Lease;

use super::{Cluster, ENTRY_BYTES, SETTLE, SKEW, Window};

/// What the Leases of kubelets have shown in this wake.
#[derive(Debug, Default)]
pub(super) struct Kubelets {
    /// The Lease of each Node.
    pub(super) seen: HashMap<String, SeenLease>,
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

/// A Lease as it was last seen.
#[derive(Debug)]
pub(super) struct SeenLease {
    /// When its kubelet says that it renewed it: the clock of a kubelet may be wrong.
    renewed: Option<Timestamp>,
    /// For how long the API server had answered when it was first seen so.
    at: SignedDuration,
    /// Whether it was renewed in this wake.
    in_wake: bool,
}

impl Kubelets {
    /// The Nodes whose kubelets have a certificate, by their Leases as they are now.
    pub(super) fn joined(
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
        charge.refund(gone.map(|(node, _)| node.len() + ENTRY_BYTES).sum());
        let at = self.answered;
        let mut alive = BTreeSet::new();
        for node in nodes {
            let renewed = renewed.get(node).copied().flatten();
            if !self.seen.contains_key(node) {
                charge.spend(node.len() + ENTRY_BYTES)?;
                let in_wake =
                    renewed.is_some_and(|renewed| renewed > window.opened && renewed.duration_since(now) <= SKEW);
                self.seen.insert(node.clone(), SeenLease { renewed, at, in_wake });
            }
            let Some(seen) = self.seen.get_mut(node) else { continue };
            if seen.renewed != renewed {
                *seen = SeenLease { renewed, at, in_wake: renewed.is_some() };
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
            charge.spend(missing.iter().map(|node| node.len() + ENTRY_BYTES).sum())?;
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
        let silent = |(node, seen): (&String, &SeenLease)| {
            let runs = since(node).or_else(|| by_machine.get(&node.to_ascii_lowercase()).copied())?;
            Some((node.clone(), (self.answered - seen.at).min(now.duration_since(runs))))
        };
        self.seen.iter().filter_map(silent).collect()
    }
}

#[cfg(test)]
mod tests {
    use fair::{Consumer, MemoryLimit};

    use super::super::Machine;
    use super::*;

    const OPENED: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn at(seconds: i64) -> Timestamp {
        OPENED + SignedDuration::from_secs(seconds)
    }

    fn lease(node: &str, renewed: Option<i64>) -> Lease {
        let mut lease = Lease::default();
        node.clone_into(&mut lease.metadata.name);
        lease.spec.renew_time = renewed.map(at);
        lease
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_node_has_joined_while_its_kubelet_renews_its_lease_in_this_wake() {
        let mut known = Kubelets::default();
        let mut charge = MemoryLimit::default().of(Consumer::new("tenant", "spoke")).charge();
        let mut joined = |nodes: &BTreeSet<String>, leases: &[Lease], window: &Window, answered: i64| {
            known.answered = SignedDuration::from_secs(answered);
            known.joined(nodes, leases, window, at(answered), &mut charge).unwrap()
        };
        let mut window = Window { opened: OPENED, closes: Timestamp::MAX, after_long_sleep: true };
        let nodes = names(&["alive", "asleep", "never", "slow-clock", "fast-clock"]);
        let mut leases = vec![
            lease("alive", Some(5)),
            lease("asleep", Some(-90_000)),
            lease("never", None),
            lease("slow-clock", Some(-3_600)),
            lease("fast-clock", Some(3_600)),
        ];
        assert_eq!(joined(&nodes, &leases, &window, 6), names(&["alive"]), "a clock that is far ahead says nothing");
        leases[3] = lease("slow-clock", Some(-3_590));
        assert_eq!(
            joined(&nodes, &leases, &window, 16),
            names(&["alive", "slow-clock"]),
            "its clock is an hour behind"
        );
        assert_eq!(joined(&nodes, &leases, &window, 85), names(&["alive", "slow-clock"]));
        // Who renews its Lease no more is missing.
        assert_eq!(joined(&nodes, &leases, &window, 86), names(&["slow-clock"]));
        leases[0] = lease("alive", Some(90));
        window.closes = at(600);
        assert_eq!(joined(&nodes, &leases, &window, 90), names(&["alive", "slow-clock"]));
        let nodes = names(&["alive", "asleep", "never", "slow-clock", "fast-clock", "new"]);
        leases[1] = lease("asleep", Some(92));
        let found = joined(&nodes, &leases, &window, 95);
        assert_eq!(
            found,
            names(&["alive", "asleep", "new", "slow-clock"]),
            "only Nodes that were missing then get one"
        );
    }

    #[test]
    fn a_node_is_silent_since_it_was_first_seen_and_while_its_machine_runs() {
        let mut known = Kubelets { answered: SignedDuration::from_secs(200), ..Kubelets::default() };
        let mut charge = MemoryLimit::default().of(Consumer::new("tenant", "spoke")).charge();
        let machine = |node: &str, instance: &str| Machine {
            internal_dns: vec![node.to_owned()],
            instance: Some(instance.to_owned()),
            ..Machine::default()
        };
        let cluster = Cluster {
            nodes: names(&["Old", "late", "by-machine", "off"]),
            machines: vec![machine("by-machine", "i-1"), machine("off", "i-2")],
            ..Cluster::default()
        };
        let window = Window { opened: OPENED, closes: Timestamp::MAX, after_long_sleep: true };
        let since = [("old", 0), ("late", 270), ("i-1", 0)];
        known.run_since = since.map(|(name, seconds)| (name.to_owned(), at(seconds))).into();
        let mut silent = |answered, leases: &[Lease]| {
            known.answered = SignedDuration::from_secs(answered);
            known.joined(&cluster.nodes, leases, &window, at(answered), &mut charge).unwrap();
            let silent = known.silent(&cluster, at(answered)).into_iter();
            silent.map(|(node, time)| format!("{node} {}", time.as_secs())).collect::<Vec<_>>()
        };
        let slow = |seconds| vec![lease("Old", Some(seconds))];
        assert_eq!(silent(200, &slow(-9)), ["Old 0", "by-machine 0", "late -70"], "whatever the time before");
        assert_eq!(silent(279, &slow(-9)), ["Old 79", "by-machine 79", "late 9"]);
        assert_eq!(silent(280, &slow(-8)), ["Old 0", "by-machine 80", "late 10"]);
    }
}
