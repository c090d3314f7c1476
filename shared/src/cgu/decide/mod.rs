//! What an upgrade does next: rows 1 to 23 of section 2.
//!
//! [`decide`] is total and deterministic. It takes one step, such as a batch that ends: the status that it writes brings
//! the next reconcile. What a step does to other objects comes before its status and can be done twice; its Events come
//! after it.

mod batch;
mod end;
mod enforce;
mod precache;
mod start;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::act::Act;
use super::api::{ClusterGroupUpgrade, ClusterGroupUpgradeStatus, Reference};
use super::conditions::{PROGRESSING, SUCCEEDED};
use super::events::Event;
use super::governance::Governance;
use super::version::Release;
use crate::guarded::Guarded;

/// Finalizer of an upgrade.
pub const FINALIZER: &str = "ran.openshift.io/cleanup-finalizer";
/// Annotation: `partial` lets an upgrade start after blockers that have failed.
pub const COMPLETION_MODE: &str = "ran.openshift.io/blocking-cgu-completion-mode";
/// Annotation: `true`, with `partial`, drops clusters that a blocker has not completed.
pub const CLUSTER_FILTERING: &str = "ran.openshift.io/blocking-cgu-cluster-filtering";
/// Annotation: `false` makes a time-out final.
pub const LATE_COMPLETION: &str = "hibernate.sh/late-completion";

/// Upgrades that block one.
pub type Blockers = BTreeMap<Reference, Arc<Guarded<ClusterGroupUpgrade>>>;

/// Everything that a decision looks at.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// The time.
    pub now: Timestamp,
    /// The upgrade.
    pub upgrade: &'a ClusterGroupUpgrade,
    /// Clusters, policies, Placements, views and settings of pulls.
    pub governance: Governance,
    /// Upgrades that block it, as far as they exist.
    pub blockers: Blockers,
    /// Upgrades that wait for each other, the upgrade first and last; empty if none does.
    pub cycle: Vec<Reference>,
    /// Clusters that sleep, or have not run for long enough: what they comply with is not known.
    pub asleep: BTreeSet<String>,
    /// When the next of them has run for long enough.
    pub settled: Option<Timestamp>,
    /// The image that pulls images; none: no pull is served.
    pub pull_image: Option<String>,
    /// Images of releases that were looked up, or why there is none.
    pub releases: BTreeMap<Release, Result<String, String>>,
}

/// Everything that is to be done, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Whether the finalizer is added (true) or removed.
    pub finalizer: Option<bool>,
    /// What happens to other objects.
    pub acts: Vec<Act>,
    /// The status after it.
    pub status: ClusterGroupUpgradeStatus,
    /// What is published once the status is written.
    pub events: Vec<Event>,
    /// When the next limit expires, if nothing changes before.
    pub next: Option<Timestamp>,
    /// The release whose image has to be looked up before anything else is decided.
    pub lookup: Option<Release>,
}

/// What an upgrade does next.
pub fn decide(facts: &Facts<'_>) -> Plan {
    let metadata = &facts.upgrade.metadata;
    let has_finalizer = metadata.finalizers.iter().flatten().any(|one| one == FINALIZER);
    let status = facts.upgrade.status.clone().unwrap_or_default();
    let plan = Plan { status, ..Plan::default() };
    // Row 1
    if metadata.deletion_timestamp.is_some() {
        return if has_finalizer { end::deleted(facts, plan) } else { plan };
    }
    // Row 2
    if !has_finalizer {
        return Plan { finalizer: Some(true), events: vec![Event::Created], ..plan };
    }
    // Row 3
    if plan.status.condition(SUCCEEDED).is_some() {
        return end::ended(facts, plan);
    }
    match plan.status.condition(PROGRESSING).map(|condition| condition.status.as_str()) {
        // Rows 4 to 17
        None | Some("False") => start::start(facts, plan),
        // Rows 18 to 23
        Some(_) => batch::go_on(facts, plan),
    }
}

impl Facts<'_> {
    fn annotation(&self, key: &str) -> Option<&str> {
        self.upgrade.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }
}
