//! Which schedule governs a target: exactly one does.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;

use super::api::{Schedule, WORKLOADS};
use super::rollout::targets;
use crate::kinds::View;
use crate::power::Power;
use crate::rollout::api::Targets;
use crate::rollout::{Members, NamespaceLabels, needs_namespaces};

/// A schedule, as far as it matters for which targets it governs.
#[derive(Debug)]
pub struct Governor {
    /// Its namespace; none for a `ClusterPowerSchedule`.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    kind: String,
    priority: i32,
    created: Timestamp,
    /// What it governs; none if that is everything.
    members: Option<Members>,
    /// Whether what it selects can be read. Otherwise it governs every target of its namespaces, so that no other schedule
    /// takes them over, and acts on none.
    is_readable: bool,
    /// Whether labels of namespaces decide.
    pub needs_namespaces: bool,
}

impl Governor {
    /// From a schedule.
    pub fn of(schedule: &impl Schedule) -> Self {
        let (meta, spec) = (schedule.meta(), schedule.spec());
        let mut selected = targets(spec, meta.namespace.as_deref());
        if selected.kind == WORKLOADS && meta.namespace.is_none() {
            // They are named by their namespaces.
            selected.names.iter_mut().for_each(|one| one.namespace.clone_from(&one.name));
        }
        let members = Members::of(&selected, &[]);
        let is_readable = members.is_ok();
        // What labels of targets would select is not known: any of these namespaces.
        let every = || Members::of(&Targets { selector: None, all: true, ..selected.clone() }, &[]);
        Self {
            namespace: meta.namespace.clone(),
            name: schedule.name_any(),
            uid: meta.uid.clone().unwrap_or_default(),
            kind: selected.kind.clone(),
            priority: spec.priority,
            created: meta.creation_timestamp.as_ref().map_or(Timestamp::MAX, |at| at.0),
            needs_namespaces: needs_namespaces(&selected),
            members: members.or_else(|_| every()).ok(),
            is_readable,
        }
    }

    /// The one that governs comes first.
    fn rank(&self) -> (bool, Reverse<i32>, Timestamp, &str) {
        (self.namespace.is_none(), Reverse(self.priority), self.created, &self.uid)
    }

    /// Whether it selects this object of this kind, or may do so.
    fn covers(&self, kind: &str, object: &View, namespaces: &NamespaceLabels) -> bool {
        self.kind == kind && self.members.as_ref().is_none_or(|members| members.cover(object, namespaces))
    }
}

/// All schedules, by the namespaces of their targets.
#[derive(Debug, Default)]
pub struct Governors {
    own: BTreeMap<String, Vec<Governor>>,
    everywhere: Vec<Governor>,
}

impl Governors {
    /// From all schedules.
    pub fn new(all: impl IntoIterator<Item = Governor>) -> Self {
        let mut governors = Self::default();
        for one in all {
            match &one.namespace {
                Some(namespace) => governors.own.entry(namespace.clone()).or_default().push(one),
                None => governors.everywhere.push(one),
            }
        }
        for list in governors.own.values_mut().chain([&mut governors.everywhere]) {
            list.sort_by(|one, other| one.rank().cmp(&other.rank()));
        }
        governors
    }

    /// The schedules that select this object of this kind, the one that governs it first.
    pub fn of(&self, kind: &str, object: &View, namespaces: &NamespaceLabels) -> impl Iterator<Item = &Governor> {
        let own = self.own.get(&object.identity.namespace).into_iter().flatten();
        own.chain(&self.everywhere).filter(move |one| one.covers(kind, object, namespaces))
    }

    /// The schedule that governs this object of this kind, if it can act on it.
    pub fn acting(&self, kind: &str, object: &View, namespaces: &NamespaceLabels) -> Option<&Governor> {
        self.of(kind, object, namespaces).next().filter(|one| one.is_readable)
    }

    /// The same for the workloads of a namespace.
    pub fn of_workloads(&self, namespace: &str, labels: &NamespaceLabels) -> Option<&Governor> {
        let name = Some(namespace.to_owned());
        let meta = ObjectMeta { name: name.clone(), namespace: name, ..ObjectMeta::default() };
        let view = View::of(&meta, Power::default());
        self.acting(WORKLOADS, &view, labels)
    }

    /// Whether labels of namespaces decide which one governs.
    pub fn need_namespaces(&self) -> bool {
        self.everywhere.iter().any(|one| one.needs_namespaces)
    }
}
