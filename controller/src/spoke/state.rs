//! What a watch has collected of a spoke, and the part of it that decisions read.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;
use kube::runtime::watcher::Event;
use shared::spoke::kinds::{ClusterOperator, Lease, Node, Object};
use shared::spoke::{NodeObservation, OperatorObservation, Spoke, SpokeError};
use shared::text::sanitize_to;

use super::reader::MOST;
use fair::{Charge, ChargedValue, MemoryFull};

/// Leases that are kept, of whatever namespace: workloads may leave theirs behind, and of each only a moment is kept.
const LEASES: usize = 50_000;

/// Longest namespace and name that Kubernetes allows, with a slash.
const MAX_KEY_CHARS: usize = 63 + 1 + 253;

/// Namespaces that are kept of one operator.
const MAX_NAMESPACES: usize = 20;

/// Where kubelets keep their Leases.
const NODE_LEASES: &str = "kube-node-lease";

/// Bytes that an object takes here besides its texts.
const ENTRY: usize = 160;

/// Objects of one kind, by key, and what they are charged.
#[derive(Debug)]
struct Charged<V> {
    objects: BTreeMap<String, V>,
    charge: Charge,
}

impl<V: Size> Charged<V> {
    fn new(charge: Charge) -> Self {
        Self { objects: BTreeMap::new(), charge }
    }

    /// Keeps one more than `most`. Returns whether there are too many.
    fn keep(&mut self, most: usize, key: String, value: V) -> Result<bool, MemoryFull> {
        self.remove(&key);
        if self.objects.len() <= most {
            self.charge.spend(V::size(&key, &value))?;
            self.objects.insert(key, value);
        }
        Ok(self.objects.len() > most)
    }

    fn remove(&mut self, key: &str) {
        if let Some(value) = self.objects.remove(key) {
            self.charge.refund(V::size(key, &value));
        }
    }
}

/// What an object takes, in bytes.
trait Size: Sized {
    fn size(key: &str, value: &Self) -> usize;
}

/// Objects of one kind, by key; replaced as a whole when the watch begins anew.
#[derive(Debug)]
struct Objects<V> {
    current: Charged<V>,
    next: Option<Charged<V>>,
    complete: bool,
    /// How many are kept.
    most: usize,
    /// Whether there are more, so that some were left out.
    cut: bool,
}

impl<V: Size> Objects<V> {
    fn new(most: usize, charge: Charge) -> Self {
        Self { current: Charged::new(charge), next: None, complete: false, most, cut: false }
    }

    /// What is not all of them is nothing to go on from.
    fn forget(&mut self) {
        *self = Self::new(self.most, self.current.charge.another());
    }

    fn apply<K: Object>(&mut self, event: Event<ChargedValue<K>>, value: impl Fn(&K) -> V) -> Result<(), MemoryFull> {
        match event {
            Event::Init => self.next = Some(Charged::new(self.current.charge.another())),
            Event::InitApply(object) => {
                let next = self.next.get_or_insert_with(|| Charged::new(self.current.charge.another()));
                self.cut |= next.keep(self.most, key(&*object), value(&object))?;
            }
            Event::InitDone => {
                let none = || Charged::new(self.current.charge.another());
                self.current = self.next.take().unwrap_or_else(none);
                self.complete = true;
                self.cut = self.current.objects.len() > self.most;
            }
            Event::Apply(object) => self.cut |= self.current.keep(self.most, key(&*object), value(&object))?,
            Event::Delete(object) => self.current.remove(&key(&*object)),
        }
        Ok(())
    }
}

/// Namespace and name, which a spoke may choose as it likes.
fn key(object: &impl Object) -> String {
    sanitize_to(&object.metadata().full_name(), MAX_KEY_CHARS)
}

#[derive(Debug)]
struct NodeState {
    ready: bool,
    heartbeat: Option<Timestamp>,
    instance: Option<String>,
}

#[derive(Debug)]
struct OperatorState {
    unwell: Vec<String>,
    namespaces: Vec<String>,
    written: Option<Timestamp>,
}

/// Nodes and operators are there three times: here, in the picture, and in what a decision reads.
impl Size for NodeState {
    fn size(key: &str, value: &Self) -> usize {
        3 * (ENTRY + key.len() + value.instance.as_ref().map_or(0, String::len))
    }
}

impl Size for OperatorState {
    fn size(key: &str, value: &Self) -> usize {
        let texts = value.unwell.iter().chain(&value.namespaces);
        3 * (ENTRY + key.len() + texts.map(|text| ENTRY + text.len()).sum::<usize>())
    }
}

impl Size for Timestamp {
    fn size(key: &str, _: &Self) -> usize {
        ENTRY / 2 + key.len()
    }
}

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
}

/// The first sign of life of each Node or operator in this watch, by name.
type FirstSigns = HashMap<String, Option<Timestamp>>;

/// Names of Nodes, and of operators, of which the first sign of life is kept; they may come and go while we watch.
const FIRST: usize = 2 * MOST;

/// A watch that breaks is opened again; for so long what was seen before it broke is believed.
const BREAK: Duration = Duration::from_secs(10);

impl State {
    /// Nothing is known yet of a wake that began then. Without `with_operators` they are not waited for. What is kept
    /// of the spoke is charged.
    pub fn new(since: Timestamp, with_operators: bool, charge: Charge) -> Self {
        let operators = Objects { complete: !with_operators, ..Objects::new(MOST, charge.another()) };
        let (nodes, leases) = (Objects::new(MOST, charge.another()), Objects::new(LEASES, charge.another()));
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
        }
    }

    /// Everything is asked for anew.
    pub fn begin(&mut self) {
        let full = self.full.take().is_some();
        if self.nodes.cut || full {
            self.nodes.forget();
        }
        if self.leases.cut || full {
            self.leases.forget();
        }
        if self.operators.cut || full {
            self.operators.forget();
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
        self.too_many = self.cut().or(self.too_many.take().filter(|_| !self.is_complete()));
    }

    /// Takes in that a request has failed.
    pub fn failed(&mut self, error: SpokeError, now: Timestamp) {
        let since = self.error.take().map_or(now, |(_, since)| since);
        self.error = Some((error, since));
    }

    /// Why not everything is kept.
    pub fn cut(&self) -> Option<String> {
        let kinds = [
            (self.nodes.cut, self.nodes.most, "Nodes"),
            (self.leases.cut, self.leases.most, "Leases"),
            (self.operators.cut, self.operators.most, "ClusterOperators"),
        ];
        let many = kinds.into_iter().find(|(cut, ..)| *cut);
        let many = many.map(|(_, most, what)| {
            format!("the cluster has more than {most} {what}: the controller does not read them")
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
    pub fn picture(&mut self, now: Timestamp) -> Picture {
        let mut operators = self.operators.current.objects.values();
        let well = self.operators.complete && operators.all(|operator| operator.unwell.is_empty());
        self.well_since = if well { self.well_since.or(Some(now)) } else { None };
        let complete = self.is_complete();
        let spoke = if complete { self.spoke() } else { Spoke::default() };
        if let Some(full) = self.full.filter(|_| complete) {
            self.too_many = Some(full.to_string());
        }
        let (error, too_many, since) = (self.error.clone(), self.too_many.clone(), self.since);
        Picture { complete, error, too_many, since, spoke }
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
                moved: moved(first_of_nodes, name, sign_of_life, charge, full),
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
                moved: moved(first_of_operators, name, renewed.copied(), charge, full),
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
fn moved(
    first: &mut FirstSigns,
    name: &str,
    sign: Option<Timestamp>,
    charge: &mut Charge,
    full: &mut Option<MemoryFull>,
) -> bool {
    if let Some(first) = first.get(name) {
        return *first != sign;
    }
    if first.len() < FIRST {
        match charge.spend(ENTRY + name.len()) {
            Ok(()) => drop(first.insert(name.to_owned(), sign)),
            Err(none) => *full = Some(none),
        }
    }
    false
}

/// What a watch has seen, as reconciles read it.
#[derive(Debug)]
pub struct Picture {
    /// Everything has been listed once.
    complete: bool,
    error: Option<(SpokeError, Timestamp)>,
    too_many: Option<String>,
    /// When the wake began.
    since: Timestamp,
    spoke: Spoke,
}

impl Picture {
    /// Whether there is something to say: everything has been listed once, or cannot be.
    pub fn speaks(&self) -> bool {
        self.complete || self.error.is_some() || self.too_many.is_some()
    }

    /// What decisions read, or why there is nothing to read.
    pub fn observed(&self, now: Timestamp) -> Result<&Spoke, SpokeError> {
        let lasts = |since: Timestamp| Duration::try_from(now.duration_since(since)).unwrap_or_default() > BREAK;
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
    pub fn digest(&self, now: Timestamp) -> u64 {
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

/// A Lease that was never renewed has the maximum age.
fn renewed(lease: &Lease) -> Timestamp {
    lease.spec.renew_time.unwrap_or(Timestamp::MIN)
}

fn node_state(node: &Node) -> NodeState {
    let ready = node.status.ready.as_ref();
    let instance = node.spec.provider_id.as_deref().and_then(|id| id.rsplit('/').next());
    NodeState {
        ready: ready.is_some_and(|ready| ready.status == "True"),
        heartbeat: ready.and_then(|ready| ready.last_heartbeat_time),
        instance: instance.map(|id| sanitize_to(id, MAX_KEY_CHARS)),
    }
}

/// docs/reference/hive.md, section 1.3, checkClusterRunning 5: what makes an operator unwell. An unknown or missing
/// Available counts as fine.
const UNWELL: &[(&str, &str)] = &[("Available", "False"), ("Progressing", "True"), ("Degraded", "True")];

fn unwell(operator: &ClusterOperator) -> impl Iterator<Item = String> {
    let conditions = operator.status.conditions.iter();
    let unwell = conditions.filter(|c| UNWELL.contains(&(c.type_.as_str(), c.status.as_str())));
    unwell.map(|c| format!("{}={}", c.type_, c.status))
}

fn operator_state(operator: &ClusterOperator) -> OperatorState {
    let ClusterOperator { metadata, status } = operator;
    let namespaces =
        status.related_objects.iter().filter(|object| object.group.is_empty() && object.resource == "namespaces");
    let namespaces: BTreeSet<&str> = namespaces.map(|object| object.name.as_str()).collect();
    OperatorState {
        unwell: unwell(operator).take(UNWELL.len()).collect(),
        namespaces: namespaces.into_iter().take(MAX_NAMESPACES).map(|name| sanitize_to(name, MAX_KEY_CHARS)).collect(),
        written: metadata.status_written,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fair::{Consumer, MemoryLimit};

    /// A state, and the Nodes that it takes in, of names that are so long.
    fn state(memory: &MemoryLimit, now: Timestamp) -> (State, impl Fn(&mut State, usize, usize)) {
        let charge = memory.of(Consumer::new("tenant", "spoke")).charge();
        let of_nodes = charge.another();
        let list = move |state: &mut State, nodes: usize, length: usize| {
            state.apply(Change::Node(Event::Init));
            for number in 0..nodes {
                let mut node = Node::default();
                node.metadata.name = format!("node-{number:0length$}");
                state.apply(Change::Node(Event::InitApply(ChargedValue::new(node, of_nodes.another()))));
            }
        };
        (State::new(now, false, charge), list)
    }

    #[test]
    fn more_objects_than_we_keep_are_no_picture() {
        let now = Timestamp::now();
        let memory = MemoryLimit::default();
        let (mut state, list) = state(&memory, now);
        let many = Some("the cluster has more than 5000 Nodes: the controller does not read them".to_owned());
        list(&mut state, MOST, 1);
        state.apply(Change::Node(Event::InitDone));
        assert_eq!(state.cut(), None);
        list(&mut state, MOST + 20, 1);
        assert_eq!(state.cut(), many, "before the list ends, which it may never do");
        state.apply(Change::Node(Event::InitDone));
        assert_eq!(state.nodes.current.objects.len(), MOST + 1);
        state.apply(Change::Lease(Event::Init));
        state.apply(Change::Lease(Event::InitDone));
        for _ in 0..2 {
            let picture = state.picture(now);
            let error = picture.observed(now).unwrap_err().to_string();
            assert!(error.contains("more than 5000 Nodes") && picture.speaks(), "{error}");
            state.begin();
            assert_eq!(state.cut(), None, "asked for once more");
        }
        list(&mut state, 1, 1);
        assert!(state.picture(now).observed(now).is_err());
        state.apply(Change::Node(Event::InitDone));
        assert_eq!(state.picture(now).observed(now).unwrap().nodes.len(), 1, "once there are fewer");
    }

    #[test]
    fn what_is_kept_of_a_spoke_is_charged_until_it_is_dropped() {
        let now = Timestamp::now();
        let memory = MemoryLimit::default();
        let (mut state, list) = state(&memory, now);
        let leases = |state: &mut State, count: usize| {
            state.apply(Change::Lease(Event::Init));
            for number in 0..count {
                let mut lease = Lease::default();
                lease.metadata.name = format!("{number:0250}");
                let charge = state.charge.another();
                state.apply(Change::Lease(Event::InitApply(ChargedValue::new(lease, charge))));
            }
        };
        list(&mut state, 100, 200);
        let used = state.nodes.next.as_ref().unwrap().charge.used();
        assert!((50_000..200_000).contains(&used), "{used}");
        leases(&mut state, LEASES);
        assert_eq!(state.cut().as_deref(), Some("the cluster's answers are too large together"));
        state.begin();
        assert_eq!((state.nodes.current.charge.used(), state.leases.current.charge.used()), (0, 0));
        list(&mut state, 3, 10);
        state.apply(Change::Node(Event::InitDone));
        leases(&mut state, 3);
        state.apply(Change::Lease(Event::InitDone));
        assert_eq!(state.picture(now).observed(now).unwrap().nodes.len(), 3);
        let node = state.nodes.current.charge.used() / 3;
        let mut gone = Node::default();
        gone.metadata.name = format!("node-{:010}", 1);
        state.apply(Change::Node(Event::Delete(ChargedValue::new(gone, state.charge.another()))));
        assert_eq!(state.nodes.current.charge.used(), 2 * node);
    }

    #[test]
    fn an_operator_lives_by_the_newest_lease_of_its_namespaces() {
        let now = Timestamp::now();
        let memory = MemoryLimit::default();
        let charge = memory.of(Consumer::new("tenant", "spoke")).charge();
        let mut state = State::new(now, true, charge.another());
        let operator = |number: usize, of: &[usize]| {
            let objects: Vec<_> = of
                .iter()
                .chain(of)
                .map(|namespace| serde_json::json!({ "group": "", "resource": "namespaces", "name": format!("n-{namespace}") }))
                .collect();
            let status = serde_json::json!({ "relatedObjects": objects });
            let object = serde_json::json!({ "metadata": { "name": format!("o-{number}") }, "status": status });
            ChargedValue::new(serde_json::from_value::<ClusterOperator>(object).unwrap(), charge.another())
        };
        let lease = |namespace: usize, number: i32, renewed: i64| {
            let mut lease = Lease::default();
            (lease.metadata.namespace, lease.metadata.name) = (format!("n-{namespace}"), number.to_string());
            lease.spec.renew_time = Some(Timestamp::from_second(renewed).unwrap());
            ChargedValue::new(lease, charge.another())
        };
        state.apply(Change::Node(Event::Init));
        state.apply(Change::Node(Event::InitDone));
        state.apply(Change::Lease(Event::Init));
        for namespace in 0..20 {
            for number in 0..1_000_i32 {
                state.apply(Change::Lease(Event::InitApply(lease(namespace, number, i64::from(1_000 + number % 500)))));
            }
        }
        state.apply(Change::Lease(Event::InitDone));
        let all: Vec<usize> = (0..20).collect();
        for number in 0..200 {
            state.apply(Change::Operator(Event::Apply(operator(number, &all))));
        }
        state.apply(Change::Operator(Event::Apply(operator(200, &[7]))));
        state.apply(Change::Operator(Event::Apply(operator(201, &[99]))));
        state.operators.complete = true;
        let alive = |state: &mut State, number: usize| {
            let name = format!("o-{number}");
            let spoke = state.picture(now).observed(now).cloned().unwrap();
            let found = spoke.operators.into_iter().find(|one| one.name == name).unwrap();
            (found.leased, found.sign_of_life.map(Timestamp::as_second), found.moved)
        };
        assert_eq!(alive(&mut state, 200), (true, Some(1_499), false));
        assert_eq!(alive(&mut state, 201), (false, None, false));
        state.apply(Change::Lease(Event::Apply(lease(7, 3, 2_000))));
        assert_eq!(alive(&mut state, 200), (true, Some(2_000), true));
        state.apply(Change::Lease(Event::Delete(lease(7, 3, 2_000))));
        assert_eq!(alive(&mut state, 200), (true, Some(1_499), false));
        assert_eq!(state.operators.current.objects["o-0"].namespaces.len(), 20, "each once");
    }
}
