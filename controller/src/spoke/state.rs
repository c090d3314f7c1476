//! What a watch has collected of a spoke, and the part of it that decisions read.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use kube::runtime::watcher::Event;
use shared::spoke::openshift::ClusterOperator;
use shared::spoke::{NodeLook, OperatorLook, Spoke, SpokeError};
use shared::text::sanitize_to;

use crate::csr::pages::MOST;
use crate::runtime::hub::full_name;

/// Leases that are kept, of whatever namespace: workloads may leave theirs behind, and of each only a moment is kept.
const LEASES: usize = 50_000;

/// Longest namespace and name that Kubernetes allows, with a slash.
const MAX_KEY_CHARS: usize = 63 + 1 + 253;

/// Namespaces that are kept of one operator.
const MAX_NAMESPACES: usize = 20;

/// Where kubelets keep their Leases.
const NODE_LEASES: &str = "kube-node-lease";

/// Objects of one kind, by key; replaced as a whole when the watch begins anew.
#[derive(Debug)]
struct Objects<V> {
    current: BTreeMap<String, V>,
    next: Option<BTreeMap<String, V>>,
    complete: bool,
    /// How many are kept.
    most: usize,
    /// Whether there are more, so that some were left out.
    cut: bool,
}

impl<V> Objects<V> {
    fn new(most: usize) -> Self {
        Self { current: BTreeMap::new(), next: None, complete: false, most, cut: false }
    }

    /// What is not all of them is nothing to go on from.
    fn begin(&mut self) {
        if self.cut {
            *self = Self::new(self.most);
        }
    }

    fn apply<K: ResourceExt>(&mut self, event: Event<K>, value: impl Fn(&K) -> V) {
        match event {
            Event::Init => self.next = Some(BTreeMap::new()),
            Event::InitApply(object) => {
                self.cut |= keep(self.next.get_or_insert_default(), self.most, key(&object), value(&object));
            }
            Event::InitDone => {
                self.current = self.next.take().unwrap_or_default();
                self.complete = true;
                self.cut = self.current.len() > self.most;
            }
            Event::Apply(object) => self.cut |= keep(&mut self.current, self.most, key(&object), value(&object)),
            Event::Delete(object) => {
                self.current.remove(&key(&object));
            }
        }
    }
}

/// Namespace and name, which a spoke may choose as it likes.
fn key(object: &impl ResourceExt) -> String {
    sanitize_to(&full_name(object), MAX_KEY_CHARS)
}

/// Keeps one more than `most`. Returns whether there are too many.
fn keep<V>(objects: &mut BTreeMap<String, V>, most: usize, key: String, value: V) -> bool {
    if objects.len() <= most || objects.contains_key(&key) {
        objects.insert(key, value);
    }
    objects.len() > most
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

/// Something that the watch has seen.
#[expect(clippy::large_enum_variant, reason = "it lives for a moment")]
pub enum Change {
    /// Of a Node.
    Node(Event<Node>),
    /// Of a Lease, of a Node's or of anybody's.
    Lease(Event<Lease>),
    /// Of an operator.
    Operator(Event<ClusterOperator>),
    /// The cluster has no such kind: it is no OpenShift.
    NoOperators,
    /// A pending certificate request of a kubelet.
    Request,
    /// Nothing that anybody waits for.
    Nothing,
}

/// What is known of a spoke.
#[derive(Debug)]
pub struct State {
    /// When the wake began.
    since: Timestamp,
    nodes: Objects<NodeState>,
    leases: Objects<Timestamp>,
    operators: Objects<OperatorState>,
    /// The first sign of life of each Node and operator in this watch.
    first: HashMap<String, Option<Timestamp>>,
    well_since: Option<Timestamp>,
    /// Why the spoke could not be asked the last time, and since when.
    error: Option<(SpokeError, Timestamp)>,
    /// The kind of which there were more than we keep when it was listed last.
    too_many: Option<(usize, &'static str)>,
}

/// Names of Nodes and operators of which the first sign of life is kept; they may come and go while we watch.
const FIRST: usize = 4 * MOST;

/// A watch that breaks is opened again; for so long what was seen before it broke is believed.
const BREAK: Duration = Duration::from_secs(10);

impl State {
    /// Nothing is known yet of a wake that began then. Without `with_operators` they are not waited for.
    pub fn new(since: Timestamp, with_operators: bool) -> Self {
        let operators = Objects { complete: !with_operators, ..Objects::new(MOST) };
        let (nodes, leases, first) = (Objects::new(MOST), Objects::new(LEASES), HashMap::new());
        Self { since, nodes, leases, operators, first, well_since: None, error: None, too_many: None }
    }

    /// Everything is asked for anew.
    pub fn begin(&mut self) {
        self.nodes.begin();
        self.leases.begin();
        self.operators.begin();
    }

    /// Takes in what was seen.
    pub fn apply(&mut self, change: Change, now: Timestamp) {
        match change {
            Change::Node(event) => self.nodes.apply(event, node_state),
            Change::Lease(event) => self.leases.apply(event, renewed),
            Change::Operator(event) => self.operators.apply(event, operator_state),
            Change::NoOperators => self.operators.complete = true,
            Change::Request | Change::Nothing => {}
        }
        self.error = None;
        self.too_many = self.cut().or(self.too_many.filter(|_| !self.is_complete()));
        let well =
            self.operators.complete && self.operators.current.values().all(|operator| operator.unwell.is_empty());
        self.well_since = if well { self.well_since.or(Some(now)) } else { None };
        if self.is_complete() {
            let signs: Vec<_> = self.node_signs().chain(self.operator_signs()).collect();
            for (key, sign) in signs {
                if self.first.len() < FIRST {
                    self.first.entry(key).or_insert(sign);
                }
            }
        }
    }

    /// Takes in that a request has failed.
    pub fn failed(&mut self, error: SpokeError, now: Timestamp) {
        let since = self.error.take().map_or(now, |(_, since)| since);
        self.error = Some((error, since));
    }

    /// Whether there is something to say: everything has been listed once, or cannot be.
    pub fn speaks(&self) -> bool {
        self.is_complete() || self.error.is_some() || self.too_many.is_some()
    }

    /// The kind of which there are more than we keep, and how many that is.
    pub fn cut(&self) -> Option<(usize, &'static str)> {
        let kinds = [
            (self.nodes.cut, self.nodes.most, "Nodes"),
            (self.leases.cut, self.leases.most, "Leases"),
            (self.operators.cut, self.operators.most, "ClusterOperators"),
        ];
        kinds.into_iter().find_map(|(cut, most, what)| cut.then_some((most, what)))
    }

    /// Whether everything has been listed once.
    fn is_complete(&self) -> bool {
        self.nodes.complete && self.leases.complete && self.operators.complete
    }

    /// Whether the first kind has been listed: the API server works.
    pub fn answers(&self) -> bool {
        self.nodes.complete
    }

    fn node_signs(&self) -> impl Iterator<Item = (String, Option<Timestamp>)> {
        self.nodes.current.iter().map(|(key, node)| {
            let renewed = self.leases.current.get(&format!("{NODE_LEASES}/{key}")).copied();
            (format!("node/{key}"), renewed.max(node.heartbeat))
        })
    }

    fn operator_signs(&self) -> impl Iterator<Item = (String, Option<Timestamp>)> {
        self.operators.current.iter().map(|(key, operator)| (format!("operator/{key}"), self.lease_of(operator)))
    }

    /// The newest renewal among an operator's Leases, if it keeps any.
    fn lease_of(&self, operator: &OperatorState) -> Option<Timestamp> {
        let of = |namespace: &String| {
            let prefix = format!("{namespace}/");
            let from = self.leases.current.range(prefix.clone()..);
            from.take_while(move |(key, _)| key.starts_with(&prefix)).map(|(_, renewed)| *renewed).max()
        };
        operator.namespaces.iter().filter_map(of).max()
    }

    /// What decisions read, or why there is nothing to read.
    pub fn observed(&self, now: Timestamp) -> Result<Spoke, SpokeError> {
        let lasts = |since: Timestamp| Duration::try_from(now.duration_since(since)).unwrap_or_default() > BREAK;
        if let Some((error, _)) = self.error.as_ref().filter(|(_, since)| !self.is_complete() || lasts(*since)) {
            return Err(error.clone());
        }
        if let Some((most, what)) = self.too_many {
            return Err(SpokeError::Failed(format!(
                "the cluster has more than {most} {what}: the controller does not read them"
            )));
        }
        if !self.is_complete() {
            return Err(SpokeError::Unreachable("the cluster's API server has not answered yet".into()));
        }
        let moved = |key: &str, sign: Option<Timestamp>| self.first.get(key).is_some_and(|first| *first != sign);
        let nodes = self.nodes.current.iter().zip(self.node_signs()).map(|((name, node), (key, sign))| NodeLook {
            name: name.clone(),
            instance: node.instance.clone(),
            ready: node.ready,
            sign_of_life: sign,
            moved: moved(&key, sign),
        });
        let operators = self.operators.current.iter().zip(self.operator_signs());
        let operators = operators.map(|((name, operator), (key, renewed))| OperatorLook {
            name: name.clone(),
            unwell: operator.unwell.clone(),
            leased: self.lease_of(operator).is_some(),
            sign_of_life: renewed.max(operator.written),
            moved: moved(&key, renewed),
        });
        Ok(Spoke { nodes: nodes.collect(), operators: operators.collect(), operators_well_since: self.well_since })
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
    let renewed = lease.spec.as_ref().and_then(|spec| spec.renew_time.as_ref());
    renewed.map_or(Timestamp::MIN, |time| time.0)
}

fn node_state(node: &Node) -> NodeState {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let ready = conditions.into_iter().find(|condition| condition.type_ == "Ready");
    let provider = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
    NodeState {
        ready: ready.is_some_and(|ready| ready.status == "True"),
        heartbeat: ready.and_then(|ready| ready.last_heartbeat_time.as_ref()).map(|Time(time)| *time),
        instance: provider.and_then(|id| id.rsplit('/').next()).map(|id| sanitize_to(id, MAX_KEY_CHARS)),
    }
}

/// hive.md 1.3, checkClusterRunning 5: what makes an operator unwell. An unknown or missing Available counts as fine.
const UNWELL: &[(&str, &str)] = &[("Available", "False"), ("Progressing", "True"), ("Degraded", "True")];

fn operator_state(operator: &ClusterOperator) -> OperatorState {
    let status = operator.status.as_ref();
    let conditions = status.into_iter().flat_map(|status| &status.conditions);
    let unwell = conditions.filter(|c| UNWELL.contains(&(c.type_.as_str(), c.status.as_str())));
    let related = status.into_iter().flat_map(|status| &status.related_objects);
    let namespaces = related.filter(|object| object.group.is_empty() && object.resource == "namespaces");
    let writes = operator.managed_fields().iter().filter(|entry| entry.subresource.as_deref() == Some("status"));
    OperatorState {
        unwell: unwell.take(UNWELL.len()).map(|c| format!("{}={}", c.type_, c.status)).collect(),
        namespaces: namespaces.take(MAX_NAMESPACES).map(|object| sanitize_to(&object.name, MAX_KEY_CHARS)).collect(),
        written: writes.filter_map(|entry| entry.time.as_ref()).map(|Time(time)| *time).max(),
    }
}

#[cfg(test)]
mod tests {
    use kube::api::ObjectMeta;

    use super::*;

    #[test]
    fn more_objects_than_we_keep_are_no_picture() {
        let now = Timestamp::now();
        let mut state = State::new(now, false);
        let list = |state: &mut State, nodes: usize| {
            state.apply(Change::Node(Event::Init), now);
            for number in 0..nodes {
                let metadata = ObjectMeta { name: Some(format!("node-{number}")), ..ObjectMeta::default() };
                state.apply(Change::Node(Event::InitApply(Node { metadata, ..Node::default() })), now);
            }
        };
        list(&mut state, MOST);
        state.apply(Change::Node(Event::InitDone), now);
        assert_eq!(state.cut(), None);
        list(&mut state, MOST + 20);
        assert_eq!(state.cut(), Some((MOST, "Nodes")), "before the list ends, which it may never do");
        state.apply(Change::Node(Event::InitDone), now);
        assert_eq!(state.nodes.current.len(), MOST + 1);
        state.apply(Change::Lease(Event::Init), now);
        state.apply(Change::Lease(Event::InitDone), now);
        for _ in 0..2 {
            let error = state.observed(now).unwrap_err().to_string();
            assert!(error.contains("more than 5000 Nodes") && state.speaks(), "{error}");
            state.begin();
            assert_eq!(state.cut(), None, "asked for once more");
        }
        list(&mut state, 1);
        assert!(state.observed(now).is_err());
        state.apply(Change::Node(Event::InitDone), now);
        assert_eq!(state.observed(now).unwrap().nodes.len(), 1, "once there are fewer");
    }
}
