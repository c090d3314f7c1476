//! What a watch has collected of a spoke, and the part of it that decisions read.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;
use kube::runtime::watcher::Event;
use shared::spoke::kinds::{ClusterOperator, Lease, NODE_LEASES, Node};
use shared::spoke::{NodeObservation, OperatorObservation, Spoke, SpokeError};

use super::objects::{ENTRY_BYTES, NodeState, Objects, OperatorState, node_state, operator_state, renewed, unwell};
use super::reader::MOST;
use fair::{Charge, ChargedValue, MemoryFull};

/// Leases that are kept, of whatever namespace: workloads may leave theirs behind, and of each only a moment is kept.
const MAX_LEASES: usize = 50_000;

/// Something that the watch has seen, charged until it is applied.
pub enum Change {
    /// Of a Node.
    Node(Event<ChargedValue<Node>>),
    /// Of a Lease, of a Node's or of anybody's.
    Lease(Event<ChargedValue<Lease>>),
    /// Of an operator.
    Operator(Event<ChargedValue<ClusterOperator>>),
    /// The cluster has no such kind: it is no OpenShift.
    NoOperators,
    /// A pending certificate request of a kubelet.
    Request,
    /// Certificate requests that cannot be watched.
    Unread,
    /// Nothing that anybody waits for.
    Nothing,
}

/// What is known of a spoke.
#[derive(Debug)]
pub struct State {
    /// When the wake began.
    since: Timestamp,
    with_operators: bool,
    nodes: Objects<NodeState>,
    leases: Objects<Timestamp>,
    operators: Objects<OperatorState>,
    first_of_nodes: FirstSigns,
    first_of_operators: FirstSigns,
    well_since: Option<Timestamp>,
    /// Why the spoke could not be asked the last time, and since when.
    error: Option<(SpokeError, Timestamp)>,
    /// Why not everything was kept when it was listed last.
    too_many: Option<String>,
    /// There was no room for something.
    full: Option<MemoryFull>,
    /// For the first signs of life.
    charge: Charge,
    /// Of the last snapshot.
    digest: Option<u64>,
}

/// The first sign of life of each Node or operator in this watch, by name.
type FirstSigns = HashMap<String, Option<Timestamp>>;

/// Names of Nodes, and of operators, of which the first sign of life is kept; they may come and go while we watch.
const MAX_FIRST_SIGNS: usize = 2 * MOST;

/// A watch that breaks is opened again; for so long what was seen before it broke is believed.
const MAX_ERROR_AGE: Duration = Duration::from_secs(10);

impl State {
    /// Nothing is known yet of a wake that began then. Without `with_operators` they are not waited for. What is kept
    /// of the spoke is charged.
    pub fn new(since: Timestamp, with_operators: bool, charge: Charge) -> Self {
        let operators = Objects { complete: !with_operators, ..Objects::new(MOST, charge.another()) };
        let (nodes, leases) = (Objects::new(MOST, charge.another()), Objects::new(MAX_LEASES, charge.another()));
        Self {
            since,
            with_operators,
            nodes,
            leases,
            operators,
            first_of_nodes: HashMap::new(),
            first_of_operators: HashMap::new(),
            well_since: None,
            error: None,
            too_many: None,
            full: None,
            charge,
            digest: None,
        }
    }

    /// Everything is asked for anew.
    pub fn begin(&mut self) {
        let full = self.full.take().is_some();
        if self.nodes.truncated || full {
            self.nodes.clear();
        }
        if self.leases.truncated || full {
            self.leases.clear();
        }
        if self.operators.truncated || full {
            self.operators.clear();
            self.operators.complete = !self.with_operators;
        }
    }

    /// Takes in what was seen.
    pub fn apply(&mut self, change: Change) {
        let applied = match change {
            Change::Node(event) => self.nodes.apply(event, node_state),
            Change::Lease(event) => self.leases.apply(event, renewed),
            Change::Operator(event) => {
                let is_unwell = |operator: &ClusterOperator| unwell(operator).next().is_some();
                if matches!(&event, Event::Apply(operator) | Event::InitApply(operator) if is_unwell(operator)) {
                    self.well_since = None;
                }
                self.operators.apply(event, operator_state)
            }
            Change::NoOperators => {
                self.operators.complete = true;
                Ok(())
            }
            Change::Request | Change::Unread | Change::Nothing => Ok(()),
        };
        self.full = applied.err().or(self.full);
        self.error = None;
        self.too_many = self.truncated().or(self.too_many.take().filter(|_| !self.is_complete()));
    }

    /// Takes in that a request has failed.
    pub fn failed(&mut self, error: SpokeError, now: Timestamp) {
        let since = self.error.take().map_or(now, |(_, since)| since);
        self.error = Some((error, since));
    }

    /// Why not everything is kept.
    pub fn truncated(&self) -> Option<String> {
        let kinds = [
            (self.nodes.truncated, self.nodes.limit, "Nodes"),
            (self.leases.truncated, self.leases.limit, "Leases"),
            (self.operators.truncated, self.operators.limit, "ClusterOperators"),
        ];
        let many = kinds.into_iter().find(|(truncated, ..)| *truncated);
        let many = many.map(|(_, limit, what)| {
            format!("the cluster has more than {limit} {what}: the controller does not read them")
        });
        many.or(self.full.map(|full| full.to_string()))
    }

    /// Whether everything has been listed once.
    fn is_complete(&self) -> bool {
        self.nodes.complete && self.leases.complete && self.operators.complete
    }

    /// Whether the first kind has been listed: the API server works.
    pub fn answers(&self) -> bool {
        self.nodes.complete
    }

    /// What decisions read of it. It takes as long as there are objects: once for many events.
    pub fn snapshot(&mut self, now: Timestamp) -> Snapshot {
        let mut operators = self.operators.current.objects.values();
        let well = self.operators.complete && operators.all(|operator| operator.unwell.is_empty());
        self.well_since = if well { self.well_since.or(Some(now)) } else { None };
        let complete = self.is_complete();
        let spoke = if complete { self.spoke() } else { Spoke::default() };
        if let Some(full) = self.full.filter(|_| complete) {
            self.too_many = Some(full.to_string());
        }
        let (error, too_many, since) = (self.error.clone(), self.too_many.clone(), self.since);
        Snapshot { complete, error, too_many, since, spoke }
    }

    /// Whether a snapshot differs from the last one in what decisions depend on.
    pub fn is_news(&mut self, snapshot: &Snapshot, now: Timestamp) -> bool {
        let digest = snapshot.digest(now);
        self.digest.replace(digest) != Some(digest)
    }

    fn spoke(&mut self) -> Spoke {
        let Self { nodes, leases, operators, first_of_nodes, first_of_operators, charge, full, .. } = self;
        let leases = &leases.current.objects;
        let newest = newest(leases);
        let nodes = nodes.current.objects.iter().map(|(name, node)| {
            let renewed = leases.get(&format!("{NODE_LEASES}/{name}")).copied();
            let sign_of_life = renewed.max(node.heartbeat);
            NodeObservation {
                name: name.clone(),
                instance: node.instance.clone(),
                ready: node.ready,
                sign_of_life,
                moved: has_changed(first_of_nodes, name, sign_of_life, charge, full),
            }
        });
        let nodes = nodes.collect();
        let operators = operators.current.objects.iter().map(|(name, operator)| {
            let renewed = operator.namespaces.iter().filter_map(|namespace| newest.get(namespace.as_str())).max();
            OperatorObservation {
                name: name.clone(),
                unwell: operator.unwell.clone(),
                leased: renewed.is_some(),
                sign_of_life: renewed.copied().max(operator.written),
                moved: has_changed(first_of_operators, name, renewed.copied(), charge, full),
            }
        });
        Spoke { nodes, operators: operators.collect(), operators_well_since: self.well_since }
    }
}

/// The newest renewal among the Leases of each namespace.
fn newest(leases: &BTreeMap<String, Timestamp>) -> HashMap<&str, Timestamp> {
    let mut all: Vec<(&str, Timestamp)> = Vec::new();
    for (key, renewed) in leases {
        let namespace = key.split_once('/').map_or("", |(namespace, _)| namespace);
        match all.last_mut() {
            Some((last, newest)) if *last == namespace => *newest = (*newest).max(*renewed),
            _ => all.push((namespace, *renewed)),
        }
    }
    all.into_iter().collect()
}

/// Whether a sign of life differs from the first one, which is kept if there is room for it.
fn has_changed(
    first: &mut FirstSigns,
    name: &str,
    sign: Option<Timestamp>,
    charge: &mut Charge,
    full: &mut Option<MemoryFull>,
) -> bool {
    if let Some(first) = first.get(name) {
        return *first != sign;
    }
    if first.len() < MAX_FIRST_SIGNS {
        match charge.spend(ENTRY_BYTES + name.len()) {
            Ok(()) => drop(first.insert(name.to_owned(), sign)),
            Err(none) => *full = Some(none),
        }
    }
    false
}

/// What a watch has seen, as reconciles read it.
#[derive(Debug)]
pub struct Snapshot {
    /// Everything has been listed once.
    complete: bool,
    error: Option<(SpokeError, Timestamp)>,
    too_many: Option<String>,
    /// When the wake began.
    since: Timestamp,
    spoke: Spoke,
}

impl Snapshot {
    /// Whether there is something to say: everything has been listed once, or cannot be.
    pub fn is_conclusive(&self) -> bool {
        self.complete || self.error.is_some() || self.too_many.is_some()
    }

    /// What decisions read, or why there is nothing to read.
    pub fn observed(&self, now: Timestamp) -> Result<&Spoke, SpokeError> {
        let lasts =
            |since: Timestamp| Duration::try_from(now.duration_since(since)).unwrap_or_default() > MAX_ERROR_AGE;
        if let Some((error, _)) = self.error.as_ref().filter(|(_, since)| !self.complete || lasts(*since)) {
            return Err(error.clone());
        }
        if let Some(why) = &self.too_many {
            return Err(SpokeError::Failed(why.clone()));
        }
        if !self.complete {
            return Err(SpokeError::Unreachable("the cluster's API server has not answered yet".into()));
        }
        Ok(&self.spoke)
    }

    /// Changes when something has changed that a decision depends on; a Lease renewed once more is no news.
    fn digest(&self, now: Timestamp) -> u64 {
        let mut hasher = DefaultHasher::new();
        match self.observed(now) {
            Err(error) => error.to_string().hash(&mut hasher),
            Ok(spoke) => {
                for node in &spoke.nodes {
                    let alive = node.moved || node.sign_of_life > Some(self.since);
                    (&node.name, node.ready, alive).hash(&mut hasher);
                }
                for operator in &spoke.operators {
                    let alive = operator.moved || operator.sign_of_life > Some(self.since);
                    (&operator.name, &operator.unwell, alive).hash(&mut hasher);
                }
            }
        }
        hasher.finish()
    }
}

#[cfg(test)]
mod tests;
