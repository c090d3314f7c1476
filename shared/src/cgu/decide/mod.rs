//! Decides the next step of an upgrade: rows 1 to 23 of section 2.
//!
//! [`decide`] is total and deterministic. It takes one step, such as the end of a batch; the status write triggers the
//! next reconcile. A crash between acts and status repeats the acts, so each can be done twice. Events come last.

mod batch;
mod end;
mod enforce;
mod precache;
mod start;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};

use super::api::{ClusterGroupUpgrade, ClusterGroupUpgradeStatus, Reference};
use super::conditions::{PROGRESSING, SUCCEEDED};
use super::events::Event;
use super::governance::Governance;
use super::objects::Approval;
use super::precache::workload::Step;
use super::version::Release;
use super::view::ViewRequest;
use crate::guarded::Guarded;

pub use self::end::is_final;

pub const FINALIZER: &str = "ran.openshift.io/cleanup-finalizer";
/// Annotation: `partial` lets an upgrade start after blockers that have failed.
pub const COMPLETION_MODE: &str = "ran.openshift.io/blocking-cgu-completion-mode";
/// Annotation: `true`, with `partial`, drops clusters that a blocker has not completed.
pub const CLUSTER_FILTERING: &str = "ran.openshift.io/blocking-cgu-cluster-filtering";
/// Annotation: `false` makes a timeout final.
pub const LATE_COMPLETION: &str = "hibernate.sh/late-completion";
/// An action that has not taken effect on its cluster by then is created again.
pub const APPROVAL_RETRY: SignedDuration = SignedDuration::from_mins(1);

/// The upgrades that block this one, as far as they exist.
pub type Blockers = BTreeMap<Reference, Arc<Guarded<ClusterGroupUpgrade>>>;

/// Everything that a decision reads.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    pub now: Timestamp,
    pub upgrade: &'a ClusterGroupUpgrade,
    pub governance: Governance,
    pub blockers: Blockers,
    /// Upgrades that wait for each other, this one first and last; empty if there is no cycle.
    pub cycle: Vec<Reference>,
    /// Clusters that sleep, or have not run for long enough: their last compliance report does not count.
    pub asleep: BTreeSet<String>,
    /// When the next of them has run for long enough.
    pub settles_at: Option<Timestamp>,
    /// The image that pulls other images. Without it `preCaching` is not served.
    pub pull_image: Option<String>,
    /// Images of the releases that were looked up, or why there is none.
    pub releases: BTreeMap<Release, Result<String, String>>,
}

/// Everything to do, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// Adds (true) or removes the finalizer.
    pub finalizer: Option<bool>,
    pub acts: Vec<Act>,
    /// The status once all acts are done.
    pub status: ClusterGroupUpgradeStatus,
    /// Published once the status is written.
    pub events: Vec<Event>,
    /// When the next limit expires, if nothing changes before.
    pub requeue_at: Option<Timestamp>,
    /// The release whose image has to be looked up before anything else is decided.
    pub lookup: Option<Release>,
}

/// A change to other objects. Each can be done twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Creates the Placement of a policy, which selects nothing, and its binding.
    Prepare(Reference),
    /// Creates the binding again if it is gone: bindings are not watched.
    Bind(Reference),
    /// Adds clusters to the Placement of a policy.
    Enforce(Reference, Vec<String>),
    /// Empties every Placement of the upgrade.
    Release,
    /// Writes labels and annotations of a `ManagedCluster`: those of the start, or (true) of its completion.
    UpdateCluster(String, bool),
    View(ViewRequest),
    Approve(Approval),
    Pull(Pull),
    /// Deletes the views of a cluster, and (true) its actions.
    DeleteViews(String, bool),
    /// Deletes Placements and bindings.
    DeleteObjects,
}

/// A step of a pull of images: writes to the views and actions of a cluster, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pull {
    pub cluster: String,
    pub steps: Vec<Step>,
    /// The cluster may not have carried them out yet: they are not repeated within [`APPROVAL_RETRY`].
    pub repeats: bool,
}

/// The next step of an upgrade.
pub fn decide(facts: &Facts<'_>) -> Plan {
    let mut plan = next_step(facts);
    // What is final does not read who sleeps.
    if let Some(at) = facts.settles_at.filter(|_| !is_final(facts.upgrade, facts.now)) {
        plan.requeue_at(at);
    }
    plan
}

fn next_step(facts: &Facts<'_>) -> Plan {
    let metadata = &facts.upgrade.metadata;
    let has_finalizer = metadata.finalizers.iter().flatten().any(|one| one == FINALIZER);
    let status = facts.upgrade.status.clone().unwrap_or_default();
    let plan = Plan { status, ..Plan::default() };
    // Row 1
    if metadata.deletion_timestamp.is_some() {
        return if has_finalizer { end::delete(facts, plan) } else { plan };
    }
    if rolls_out_works(facts.upgrade) {
        return plan;
    }
    // Row 2
    if !has_finalizer {
        return Plan { finalizer: Some(true), events: vec![Event::Created], ..plan };
    }
    // Row 3
    if plan.status.condition(SUCCEEDED).is_some() {
        return end::finish(facts, plan);
    }
    match plan.status.condition(PROGRESSING).map(|condition| condition.status.as_str()) {
        // Rows 4 to 17
        None | Some("False") => start::start(facts, plan),
        // Rows 18 to 23
        Some(_) => batch::run(facts, plan),
    }
}

/// TALM has started it, and has not finished it: it rolls out `ManifestWork`s, which only TALM serves. Its policies, of
/// which it need not have any, say nothing about its clusters.
pub fn rolls_out_works(upgrade: &ClusterGroupUpgrade) -> bool {
    let has_templates = !upgrade.spec.manifest_work_templates.is_empty();
    upgrade.status.as_ref().is_some_and(|status| {
        let is_running = status.is(PROGRESSING, "True");
        let has_begun = is_running || status.condition(SUCCEEDED).is_some();
        // Without policies an upgrade ends before it is in progress.
        let has_no_policies = is_running && status.managed_policies_for_upgrade.is_empty();
        status.status.completed_at.is_none() && (has_templates && has_begun || has_no_policies)
    })
}

impl Facts<'_> {
    fn annotation(&self, key: &str) -> Option<&str> {
        self.upgrade.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }
}
