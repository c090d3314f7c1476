//! Rows 1 and 3: cleanup after an upgrade that has ended or is deleted, and late completion.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;

use super::batch::{COMPLETED, COMPLIANT, records};
use super::precache::abandon;
use super::{Act, Facts, LATE_COMPLETION, Plan};
use crate::cgu::api::{COMPLETE, ClusterGroupUpgrade, ClusterGroupUpgradeStatus, TIMED_OUT};
use crate::cgu::conditions::SUCCEEDED;
use crate::cgu::events::Event;
use crate::cgu::wire::Compliance;

/// How long after a timeout compliance still completes the upgrade.
const LATE_COMPLETION_WINDOW: SignedDuration = SignedDuration::from_hours(24);

/// Row 1.
pub(super) fn delete(facts: &Facts<'_>, mut plan: Plan) -> Plan {
    let is_over = plan.status.status.completed_at.is_some();
    if facts.upgrade.spec.enable && !is_over {
        delete_open_views(&mut plan);
    }
    if !is_over || !facts.deletes_objects() {
        plan.acts.push(Act::DeleteObjects);
        abandon(&mut plan);
    }
    plan.finalizer = Some(false);
    plan
}

/// Row 3, once; then a late completion.
pub(super) fn finish(facts: &Facts<'_>, mut plan: Plan) -> Plan {
    let has_succeeded = plan.status.is(SUCCEEDED, "True");
    if plan.status.status.completed_at.is_none() {
        delete_open_views(&mut plan);
        if facts.deletes_objects() {
            plan.acts.push(Act::DeleteObjects);
            abandon(&mut plan);
            plan.status.placements.clear();
            plan.status.placement_bindings.clear();
            plan.status.safe_resource_names.clear();
        }
        let clusters = plan.cluster_count();
        plan.events.push(if has_succeeded { Event::Succeeded { clusters } } else { timeout_event(&plan) });
        let progress = &mut plan.status.status;
        (progress.current_batch, progress.current_batch_started_at) = (0, None);
        progress.current_batch_remediation_progress.clear();
        progress.completed_at = Some(Time(facts.now));
        return plan;
    }
    if !is_final(facts.upgrade, facts.now) && facts.comply_late(&plan.status) {
        let records = records(&plan.status);
        let is_complete = |name: &&String| records.get(name).is_some_and(|one| one.state == COMPLETE);
        let clusters = plan.status.remediation_plan.iter().flatten();
        let late: Vec<String> = clusters.filter(|name| !is_complete(name)).cloned().collect();
        for name in late {
            plan.complete(facts, &name);
        }
        plan.end(facts.now, ("Completed", "Completed"), "True", (COMPLIANT, COMPLIANT));
        plan.events.push(Event::Succeeded { clusters: plan.cluster_count() });
    }
    plan
}

/// Whether nothing changes it any more: the cleanup after its end is done, and no compliance completes it late.
pub fn is_final(upgrade: &ClusterGroupUpgrade, now: Timestamp) -> bool {
    let Some(status) = &upgrade.status else { return false };
    let (Some(end), Some(completed)) = (status.condition(SUCCEEDED), &status.status.completed_at) else { return false };
    let limit = completed.0.checked_add(LATE_COMPLETION_WINDOW).unwrap_or(completed.0);
    let has_opted_out = upgrade.annotations().get(LATE_COMPLETION).is_some_and(|value| value == "false");
    end.reason != "TimedOut" || now > limit || has_opted_out
}

impl Facts<'_> {
    fn deletes_objects(&self) -> bool {
        self.upgrade.spec.actions.after_completion.as_ref().is_none_or(|after| after.delete_objects)
    }

    /// Whether no policy finds a cluster of the plan non-compliant, and each cluster that is not recorded as complete is
    /// listed as compliant: by the policy at which it timed out, or by any if it had not started. A cluster that no
    /// policy lists any more has never complied.
    fn comply_late(&self, status: &ClusterGroupUpgradeStatus) -> bool {
        let (policies, records) = (status.policies(), records(status));
        status.remediation_plan.iter().flatten().all(|name| {
            let record = records.get(name).copied();
            let verdicts = || self.verdicts(&policies, name, record);
            let timed_out = record.and_then(|one| one.current_policy.as_ref());
            let is_listed = || {
                let mut compliant = verdicts().filter(|(_, one)| *one == Compliance::Compliant);
                compliant.any(|(policy, _)| timed_out.is_none_or(|last| last.name == policy.name))
            };
            verdicts().all(|(_, one)| one != Compliance::NonCompliant)
                && (record.is_some_and(|one| one.state == COMPLETE) || is_listed())
        })
    }
}

/// Deletes views and actions of the clusters of the current batch that are not complete.
fn delete_open_views(plan: &mut Plan) {
    let batch = match plan.status.status.current_batch {
        0 => plan.status.remediation_plan.first().map_or(&[][..], Vec::as_slice),
        _ => plan.batch(),
    };
    let progress = &plan.status.status.current_batch_remediation_progress;
    let open = |name: &&String| progress.get(*name).is_none_or(|one| one.state != COMPLETED);
    let deletions: Vec<Act> = batch.iter().filter(open).map(|name| Act::DeleteViews(name.clone(), true)).collect();
    plan.acts.extend(deletions);
}

fn timeout_event(plan: &Plan) -> Event {
    let clusters = plan.status.clusters.iter().filter(|one| one.state == TIMED_OUT);
    Event::TimedOut { timed_out: clusters.map(|one| one.name.clone()).collect(), clusters: plan.cluster_count() }
}
