//! What is kept of a spoke's objects: few fields of each, charged to the spoke.

use std::collections::{BTreeMap, BTreeSet};

use fair::{Charge, ChargedValue, MemoryFull};
use jiff::Timestamp;
use kube::runtime::watcher::Event;
use shared::spoke::kinds::{ClusterOperator, Lease, Node, Object};
use shared::text::sanitize_to;

/// Longest namespace and name that Kubernetes allows, with a slash.
const MAX_KEY_CHARS: usize = 63 + 1 + 253;

/// Namespaces that are kept of one operator.
const MAX_NAMESPACES: usize = 20;

/// Bytes that an object takes here besides its texts.
pub(super) const ENTRY_BYTES: usize = 160;

/// Objects of one kind, by key, and their charge.
#[derive(Debug)]
pub(super) struct ChargedObjects<V> {
    pub(super) objects: BTreeMap<String, V>,
    pub(super) charge: Charge,
}

impl<V: Size> ChargedObjects<V> {
    fn new(charge: Charge) -> Self {
        Self { objects: BTreeMap::new(), charge }
    }

    /// Another one for the same spoke, empty yet.
    fn another(&self) -> Self {
        Self::new(self.charge.another())
    }

    /// Keeps one more than `limit`. Returns whether there are too many.
    fn insert(&mut self, limit: usize, key: String, value: V) -> Result<bool, MemoryFull> {
        self.remove(&key);
        if self.objects.len() <= limit {
            self.charge.spend(V::size(&key, &value))?;
            self.objects.insert(key, value);
        }
        Ok(self.objects.len() > limit)
    }

    fn remove(&mut self, key: &str) {
        if let Some(value) = self.objects.remove(key) {
            self.charge.refund(V::size(key, &value));
        }
    }
}

/// What an object takes, in bytes.
pub(super) trait Size: Sized {
    fn size(key: &str, value: &Self) -> usize;
}

/// Objects of one kind, by key; replaced as a whole when the watch begins anew.
#[derive(Debug)]
pub(super) struct Objects<V> {
    pub(super) current: ChargedObjects<V>,
    pub(super) next: Option<ChargedObjects<V>>,
    pub(super) complete: bool,
    /// How many are kept.
    pub(super) limit: usize,
    /// Whether there are more, so that some were left out.
    pub(super) truncated: bool,
}

impl<V: Size> Objects<V> {
    pub(super) fn new(limit: usize, charge: Charge) -> Self {
        Self { current: ChargedObjects::new(charge), next: None, complete: false, limit, truncated: false }
    }

    /// Drops objects that are not all there are.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.limit, self.current.charge.another());
    }

    pub(super) fn apply<K: Object>(
        &mut self,
        event: Event<ChargedValue<K>>,
        value: impl Fn(&K) -> V,
    ) -> Result<(), MemoryFull> {
        match event {
            Event::Init => self.next = Some(self.current.another()),
            Event::InitApply(object) => {
                let next = self.next.get_or_insert_with(|| self.current.another());
                self.truncated |= next.insert(self.limit, key(&*object), value(&object))?;
            }
            Event::InitDone => {
                self.current = self.next.take().unwrap_or_else(|| self.current.another());
                self.complete = true;
                self.truncated = self.current.objects.len() > self.limit;
            }
            Event::Apply(object) => self.truncated |= self.current.insert(self.limit, key(&*object), value(&object))?,
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
pub(super) struct NodeState {
    pub(super) ready: bool,
    pub(super) heartbeat: Option<Timestamp>,
    pub(super) instance: Option<String>,
}

#[derive(Debug)]
pub(super) struct OperatorState {
    pub(super) unwell: Vec<String>,
    pub(super) namespaces: Vec<String>,
    pub(super) written: Option<Timestamp>,
}

/// Nodes and operators are there three times: here, in the snapshot, and in what a decision reads.
impl Size for NodeState {
    fn size(key: &str, value: &Self) -> usize {
        3 * (ENTRY_BYTES + key.len() + value.instance.as_ref().map_or(0, String::len))
    }
}

impl Size for OperatorState {
    fn size(key: &str, value: &Self) -> usize {
        let texts = value.unwell.iter().chain(&value.namespaces);
        3 * (ENTRY_BYTES + key.len() + texts.map(|text| ENTRY_BYTES + text.len()).sum::<usize>())
    }
}

impl Size for Timestamp {
    fn size(key: &str, _: &Self) -> usize {
        ENTRY_BYTES / 2 + key.len()
    }
}

/// A Lease that was never renewed has the maximum age.
pub(super) fn renewed(lease: &Lease) -> Timestamp {
    lease.spec.renew_time.unwrap_or(Timestamp::MIN)
}

pub(super) fn node_state(node: &Node) -> NodeState {
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

pub(super) fn unwell(operator: &ClusterOperator) -> impl Iterator<Item = String> {
    let conditions = operator.status.conditions.iter();
    let unwell = conditions.filter(|c| UNWELL.contains(&(c.type_.as_str(), c.status.as_str())));
    unwell.map(|c| format!("{}={}", c.type_, c.status))
}

pub(super) fn operator_state(operator: &ClusterOperator) -> OperatorState {
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
