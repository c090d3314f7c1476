//! Which schedule governs a target: exactly one does.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::ResourceExt as _;

use super::api::{Schedule, WORKLOADS};
use super::rollout::targets;
use crate::kinds::cron_job::IN_NAMESPACE;
use crate::kinds::operators::objects::OPERATORS;
use crate::kinds::{TargetKind, View};
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
    /// Kinds of operators that it includes among Workloads.
    operator_kinds: Vec<String>,
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
            operator_kinds: spec.operator_kinds.clone(),
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

/// A schedule that selects a target.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// The schedule.
    pub governor: &'a Governor,
    /// Whether it governs the target. Of those of Workloads the first one does, and of those of the target's own kind.
    pub governs: bool,
}

impl Candidate<'_> {
    /// Whether it acts on the target.
    pub fn acts(&self) -> bool {
        self.governs && self.governor.is_readable
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
        self.acting(WORKLOADS, &whole(namespace), labels)
    }

    /// The schedules that select this object of a row, by themselves or among Workloads, the one that governs it first. An
    /// object of a kind that rollouts and Workloads have is governed by the first one of each.
    pub fn of_target(&self, row: &TargetKind, object: &View, labels: &NamespaceLabels) -> Vec<Candidate<'_>> {
        let (namespace, resource) = (&object.identity.namespace, row.kind.resource_name());
        let includes = |one: &Governor| IN_NAMESPACE.contains(&row) || one.operator_kinds.contains(&resource);
        let whole = whole(namespace);
        // One schedule of Workloads acts in a namespace. The others do not act on a kind that it leaves out.
        let is_included = self.of(WORKLOADS, &whole, labels).next().is_some_and(includes);
        let among_workloads = self.of(WORKLOADS, &whole, labels).filter(|one| is_included && includes(one));
        let of_kind = self.of(row.kind.kind, object, labels).filter(|_| row.in_rollouts.is_some());
        let ranked = of_kind.enumerate().chain(among_workloads.enumerate());
        let mut found: Vec<Candidate<'_>> =
            ranked.map(|(place, governor)| Candidate { governor, governs: place == 0 }).collect();
        found.sort_by(|one, other| one.governor.rank().cmp(&other.governor.rank()));
        found
    }

    /// Whether labels of namespaces decide which one governs.
    pub fn need_namespaces(&self) -> bool {
        self.everywhere.iter().any(|one| one.needs_namespaces)
    }
}

/// A namespace, as schedules of Workloads select it.
fn whole(namespace: &str) -> View {
    let name = Some(namespace.to_owned());
    let meta = ObjectMeta { name: name.clone(), namespace: name, ..ObjectMeta::default() };
    View::of(&meta, Power::default())
}

/// Whether schedules may have objects of this row as targets, by themselves or among Workloads.
pub fn may_govern(row: &TargetKind) -> bool {
    row.in_rollouts.is_some() || IN_NAMESPACE.contains(&row) || OPERATORS.contains(&row)
}
