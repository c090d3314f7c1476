//! What an upgrade does next: rows 1 to 23 of section 2.
//!
//! [`decide`] is total and deterministic. It takes one step, such as a batch that ends: the status that it writes brings
//! the next reconcile. What a step does to other objects comes before its status and can be done twice; its Events come
//! after it.

mod batch;
mod end;
mod precache;
mod start;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

pub use super::act::{Act, Pull};
use super::api::{COMPLETE, ClusterGroupUpgrade, ClusterGroupUpgradeStatus, ClusterState, Reference};
use super::conditions::{self, PROGRESSING, SUCCEEDED};
use super::events::Event;
use super::policy::{Child, Compliance, Policy};
use super::precache::spec::PreCachingConfigSpec;
use super::select::ManagedCluster;
use super::version::Release;
use super::view::Views;
use crate::guarded::Guarded;

pub use self::batch::APPROVE_AGAIN;

/// Finalizer of an upgrade.
pub const FINALIZER: &str = "ran.openshift.io/cleanup-finalizer";
/// Annotation: `partial` lets an upgrade start after blockers that have failed.
pub const COMPLETION_MODE: &str = "ran.openshift.io/blocking-cgu-completion-mode";
/// Annotation: `true`, with `partial`, drops clusters that a blocker has not completed.
pub const CLUSTER_FILTERING: &str = "ran.openshift.io/blocking-cgu-cluster-filtering";
/// Annotation: `false` makes a time-out final.
pub const LATE_COMPLETION: &str = "hibernate.sh/late-completion";

/// Everything that a decision looks at.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The time.
    pub now: Timestamp,
    /// The upgrade.
    pub upgrade: &'a ClusterGroupUpgrade,
    /// Every `ManagedCluster`, by name.
    pub clusters: &'a BTreeMap<String, ManagedCluster>,
    /// Root policies.
    pub roots: &'a BTreeMap<Reference, Arc<Policy>>,
    /// Child policies, by cluster and root.
    pub children: &'a BTreeMap<String, BTreeMap<Reference, Child>>,
    /// Upgrades that block it, as far as they exist.
    pub blockers: &'a BTreeMap<Reference, Arc<Guarded<ClusterGroupUpgrade>>>,
    /// Upgrades that wait for each other, the upgrade first and last; empty if none does.
    pub cycle: &'a [Reference],
    /// Why a Placement of it selects nothing.
    pub unplaced: Option<&'a str>,
    /// Clusters that sleep, or have not run for long enough: what they comply with is not known.
    pub asleep: &'a BTreeSet<String>,
    /// Views of upgrades.
    pub views: &'a Views,
    /// What only a pull of images needs.
    pub precaching: Precaching<'a>,
}

/// What a pull of images before the start needs.
#[derive(Clone, Copy, Debug)]
pub struct Precaching<'a> {
    /// The image that pulls; none: no pull is served.
    pub image: Option<&'a str>,
    /// All `PreCachingConfigs`, by namespace and name.
    pub configs: &'a BTreeMap<(String, String), PreCachingConfigSpec>,
    /// Data of the `ConfigMaps` of overrides.
    pub overrides: &'a BTreeMap<(String, String), BTreeMap<String, String>>,
    /// Images of releases that were looked up, or why there is none.
    pub releases: &'a BTreeMap<Release, Result<String, String>>,
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
    let is_kept = metadata.finalizers.iter().flatten().any(|one| one == FINALIZER);
    let status = facts.upgrade.status.clone().unwrap_or_default();
    let plan = Plan { status, ..Plan::default() };
    // Row 1
    if metadata.deletion_timestamp.is_some() {
        return if is_kept { end::deleted(facts, plan) } else { plan };
    }
    // Row 2
    if !is_kept {
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
    /// Whether a cluster complies with a policy. The last report of a cluster that sleeps does not count.
    fn compliance(&self, policy: &Reference, cluster: &str) -> Compliance {
        let found = self.reported(policy, cluster);
        if found == Compliance::Compliant && self.asleep.contains(cluster) { Compliance::NonCompliant } else { found }
    }

    fn reported(&self, policy: &Reference, cluster: &str) -> Compliance {
        self.roots.get(policy).map_or(Compliance::NonCompliant, |policy| policy.of(cluster))
    }

    /// Whether none of the policies finds one of these clusters non-compliant. Of one that the upgrade has recorded as
    /// complete the last report counts, whether it sleeps by now or not. If `late`, each other one has to be listed as
    /// compliant: by the policy at which it timed out, or by any if it had not begun.
    fn all_comply<'a>(
        &self,
        status: &ClusterGroupUpgradeStatus,
        clusters: impl IntoIterator<Item = &'a String>,
        late: bool,
    ) -> bool {
        let recorded: BTreeMap<&String, &ClusterState> = status.clusters.iter().map(|one| (&one.name, one)).collect();
        let policies = status.policies();
        let complies = |name: &String| {
            let record = recorded.get(name);
            if record.is_some_and(|one| one.state == COMPLETE) {
                return policies.iter().all(|policy| self.reported(policy, name) != Compliance::NonCompliant);
            }
            let timed_out = record.and_then(|one| one.current_policy.as_ref());
            let is_meant = |policy: &Reference| timed_out.is_none_or(|last| last.name == policy.name);
            let found = || policies.iter().map(|policy| (policy, self.compliance(policy, name)));
            !found().any(|(_, one)| one == Compliance::NonCompliant)
                && (!late || found().any(|(policy, one)| one == Compliance::Compliant && is_meant(policy)))
        };
        clusters.into_iter().all(complies)
    }

    fn annotation(&self, key: &str) -> Option<&str> {
        self.upgrade.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Whether its Placements and bindings go at its end.
    fn deletes_objects(&self) -> bool {
        self.upgrade.spec.actions.after_completion.as_ref().is_none_or(|after| after.delete_objects)
    }

    /// When the time of the whole upgrade is over.
    fn deadline(&self, started: Timestamp) -> Timestamp {
        let minutes = self.upgrade.spec.remediation_strategy.timeout;
        let timeout = SignedDuration::from_secs(minutes.saturating_mul(60));
        started.checked_add(timeout).unwrap_or(if minutes < 0 { Timestamp::MIN } else { Timestamp::MAX })
    }
}

impl Plan {
    fn condition(&mut self, now: Timestamp, type_: &str, status: &str, reason: &str, message: &str) {
        conditions::set(&mut self.status.conditions, now, type_, status, reason, message);
    }

    /// Whether a condition does not have this message yet: then an Event says it.
    fn is_news(&self, type_: &str, message: &str) -> bool {
        self.status.condition(type_).is_none_or(|known| known.message != conditions::message(message))
    }

    /// Both conditions of an end.
    fn end(&mut self, now: Timestamp, reasons: (&str, &str), status: &str, messages: (&str, &str)) {
        self.condition(now, PROGRESSING, "False", reasons.0, messages.0);
        self.condition(now, SUCCEEDED, status, reasons.1, messages.1);
    }

    /// A cluster has ended. It is there once.
    fn record(&mut self, state: ClusterState) {
        match self.status.clusters.iter_mut().find(|known| known.name == state.name) {
            Some(known) => *known = state,
            None => self.status.clusters.push(state),
        }
    }

    /// A cluster complies with every policy: its labels and annotations, and its record.
    fn complete(&mut self, facts: &Facts<'_>, cluster: &str) {
        self.change(facts, cluster, true);
        let state = ClusterState { name: cluster.to_owned(), state: COMPLETE.to_owned(), ..ClusterState::default() };
        self.record(state);
    }

    fn change(&mut self, facts: &Facts<'_>, cluster: &str, is_complete: bool) {
        let change = facts.upgrade.spec.actions.of(is_complete).map(|_| Act::Change(cluster.to_owned(), is_complete));
        self.acts.extend(change);
    }

    fn planned(&self) -> usize {
        self.status.remediation_plan.iter().map(Vec::len).sum()
    }

    /// The clusters of the current batch.
    fn batch(&self) -> &[String] {
        let index = usize::try_from(self.status.status.current_batch - 1).ok();
        index.and_then(|index| self.status.remediation_plan.get(index)).map_or(&[], Vec::as_slice)
    }

    fn wake_at(&mut self, at: Timestamp) {
        self.next = Some(self.next.map_or(at, |next| next.min(at)));
    }
}

/// A moment, as a status holds it.
const fn time(at: Timestamp) -> Time {
    Time(at)
}
