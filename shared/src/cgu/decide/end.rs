//! Rows 1 and 3: what is left of an upgrade that has ended or is deleted, and a late completion.

use jiff::SignedDuration;

use super::super::api::{COMPLETE, TIMED_OUT};
use super::super::conditions::SUCCEEDED;
use super::super::events::Event;
use super::batch::{COMPLETED, COMPLIANT};
use super::precache::abandon;
use super::{Act, Facts, LATE_COMPLETION, Plan, time};

/// How long after a time-out compliance is watched.
const LATE: SignedDuration = SignedDuration::from_hours(24);

/// Row 1: its objects go, and the finalizer.
pub(super) fn deleted(facts: &Facts<'_>, mut plan: Plan) -> Plan {
    let is_over = plan.status.status.completed_at.is_some();
    if facts.upgrade.spec.enable && !is_over {
        forget_open(&mut plan);
    }
    if !is_over || !facts.deletes_objects() {
        plan.acts.push(Act::DeleteObjects);
        abandon(&mut plan);
    }
    plan.finalizer = Some(false);
    plan
}

/// Row 3, once; then a late completion.
pub(super) fn ended(facts: &Facts<'_>, mut plan: Plan) -> Plan {
    let has_succeeded = plan.status.condition(SUCCEEDED).is_some_and(|end| end.status == "True");
    let Some(completed) = plan.status.status.completed_at.as_ref().map(|at| at.0) else {
        forget_open(&mut plan);
        if facts.deletes_objects() {
            plan.acts.push(Act::DeleteObjects);
            abandon(&mut plan);
            plan.status.placements.clear();
            plan.status.placement_bindings.clear();
            plan.status.safe_resource_names.clear();
        }
        let clusters = plan.planned();
        plan.events.push(if has_succeeded { Event::Succeeded { clusters } } else { timed_out(&plan) });
        let progress = &mut plan.status.status;
        (progress.current_batch, progress.current_batch_started_at) = (0, None);
        progress.current_batch_remediation_progress.clear();
        progress.completed_at = Some(time(facts.now));
        return plan;
    };
    let is_timed_out = plan.status.condition(SUCCEEDED).is_some_and(|end| end.reason == "TimedOut");
    let end = completed.checked_add(LATE).unwrap_or(completed);
    if !is_timed_out || facts.now > end || facts.annotation(LATE_COMPLETION) == Some("false") {
        return plan;
    }
    let planned = || plan.status.remediation_plan.iter().flatten();
    // One that no policy lists any more has never complied.
    if facts.all_comply(&plan.status, planned(), true) {
        let is_recorded =
            |name: &String| plan.status.clusters.iter().any(|one| one.name == *name && one.state == COMPLETE);
        let late: Vec<String> = planned().filter(|name| !is_recorded(name)).cloned().collect();
        for name in late {
            plan.complete(facts, &name);
        }
        plan.end(facts.now, ("Completed", "Completed"), "True", (COMPLIANT, COMPLIANT));
        plan.events.push(Event::Succeeded { clusters: plan.planned() });
    }
    plan
}

/// Views and actions go of clusters of the current batch that are not complete.
fn forget_open(plan: &mut Plan) {
    let batch = match plan.status.status.current_batch {
        0 => plan.status.remediation_plan.first().map_or(&[][..], Vec::as_slice),
        _ => plan.batch(),
    };
    let progress = &plan.status.status.current_batch_remediation_progress;
    let open = |name: &&String| progress.get(*name).is_none_or(|one| one.state != COMPLETED);
    let forgotten: Vec<Act> = batch.iter().filter(open).map(|name| Act::Forget(name.clone(), true)).collect();
    plan.acts.extend(forgotten);
}

fn timed_out(plan: &Plan) -> Event {
    let clusters = plan.status.clusters.iter().filter(|one| one.state == TIMED_OUT);
    Event::TimedOut { timed_out: clusters.map(|one| one.name.clone()).collect(), clusters: plan.planned() }
}
