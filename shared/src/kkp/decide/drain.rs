//! Into sleep, rows S6 to S22: what needs the user cluster.

use std::collections::BTreeMap;
use std::time::Duration;

use super::facts::{Facts, MachineDeployment, Machinery, Pod, Stage};
use super::plan::{Action, Plan, Report, SLOW, ending};
use super::wake::{has_pause, undo_of_drain};
use crate::annotation::format;
use crate::kkp::data::Outcome;
use crate::kkp::keys;
use crate::kkp::phase::{Limited, Phase};
use crate::kkp::record::{Machines, Record};
use crate::power::Power;
use crate::text::{list, sanitize_to};

/// What the condition says while a drain that took too long is undone.
pub(super) const UNDOING: &str = "undoing the drain";
/// Characters of what is kept of the cause of a drain that took too long.
const MAX_BLOCKED: usize = 1_500;
/// How long Pods of Nodes that are gone are waited for, for example because a webhook refuses their deletion.
const LOST_PODS: Duration = Duration::from_mins(1);

/// S6. The condition still names what was waited for, and the last error.
pub(super) fn takes_too_long(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    facts.overdue()?;
    let last = facts.cluster.condition(keys::DEHYDRATED).and_then(|condition| condition.message.as_deref());
    let blocked = sanitize_to(last.unwrap_or_default(), MAX_BLOCKED);
    let record = Record { blocked, ..record.clone() };
    Some(undoing(facts.enters(&record, Phase::DrainTimedOut)))
}

/// S8. A `MachineDeployment` that a sleep has set to 0 has a copy.
pub(super) fn machines_unrecorded(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    Some(facts.records(note_machines(record, facts.seen()?)?))
}

/// S9. CSI controllers run in kube-system: they go once nothing is attached, or the wait for it is over (row 60).
pub(super) fn volumes_attached(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let user = facts.seen()?;
    let stage = awaited(user, record).map(|pod| pod.stage).min();
    let is_attached = !user.attachments.is_empty() && facts.in_phase() <= facts.limits[Limited::Attachments];
    let message = format!("waiting for volumes to be detached: {}", list(&user.attachments));
    (stage == Some(Stage::System) && is_attached).then(|| facts.waits(&message, closes(record, user)))
}

/// S10
pub(super) fn pods_left(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let user = facts.seen()?;
    let stage = awaited(user, record).map(|pod| pod.stage).min()?;
    let of_stage = || awaited(user, record).filter(move |pod| pod.stage == stage);
    let fresh: Vec<String> = of_stage().filter(|pod| !pod.terminating).map(|pod| pod.name.clone()).collect();
    let mut actions = closes(record, user);
    actions.extend((!fresh.is_empty()).then_some(Action::DeletePods(fresh)));
    let message = format!("waiting for Pods to end: {}", list(of_stage().map(|pod| &pod.name)));
    Some(facts.waits(&message, actions))
}

/// S11
pub(super) fn nodes_open(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let actions = closes(record, facts.seen()?);
    (!actions.is_empty()).then(|| facts.waits("cordoning Nodes", actions))
}

/// What stops the autoscaler, and new Pods on Nodes.
fn closes(record: &Record, user: &Machinery) -> Vec<Action> {
    let scaled = user.deployments.iter().filter(|one| !one.autoscaler.is_empty());
    let stops = scaled.map(|one| Action::StopAutoscaler(one.name.clone(), recorded(record, one).autoscaler));
    stops.chain(cordon(user)).collect()
}

/// Pods that the drain deletes and waits for. It does neither for one that a controller has placed on a cordoned Node
/// again, which would never end, nor wait for one without a kubelet.
fn awaited<'a>(user: &'a Machinery, record: &Record) -> impl Iterator<Item = &'a Pod> {
    let begun = format::time(&record.since);
    user.pods.iter().filter(move |pod| {
        let has_returned = begun.is_some_and(|begun| pod.returned.is_some_and(|at| at > begun));
        let never_ends = pod.is_lost && pod.terminating;
        !has_returned && !never_ends
    })
}

/// Nodes that are not cordoned, or whose Pods KKP would evict: either alone is not enough (rows 54 to 56).
fn cordon(user: &Machinery) -> Option<Action> {
    let open = user.nodes.iter().filter(|node| !node.cordoned || !node.skips_eviction);
    let open: Vec<String> = open.map(|node| node.name.clone()).collect();
    (!open.is_empty()).then_some(Action::Cordon(open))
}

/// Of a drain that took too long.
fn undoing(plan: Plan) -> Plan {
    Plan { report: Some(Report::of(Phase::DrainTimedOut, UNDOING).with(Outcome::Pending)), ..plan }
}

/// S7
pub(super) fn undo_waits(facts: &Facts<'_>, _: &Record) -> Option<Plan> {
    let message = format!("{UNDOING}: the user cluster is silent");
    let plan = Plan::work(Phase::DrainTimedOut, message, []).with(Outcome::Pending);
    facts.seen().is_none().then_some(plan.requeued(SLOW))
}

/// S13. The pause is ours if a Machine appeared after it (S24). Its end needs nothing of the user cluster, and the API
/// server runs, also that of a cluster that is being deleted.
pub(super) fn undo_drain(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let unpause = has_pause(facts).then_some(Action::Unpause);
    let refused = facts.unpause_refused.filter(|_| unpause.is_some());
    let drained = facts.seen().map(|user| undo_of_drain(record, user)).unwrap_or_default();
    let actions: Vec<Action> = unpause.into_iter().chain(drained).collect();
    if actions.is_empty() {
        return None;
    }
    let Some(why) = refused else { return Some(undoing(facts.waits("", actions))) };
    let message = format!("{UNDOING}: KKP refuses the end of spec.pause: {why}");
    Some(Plan::work(Phase::DrainTimedOut, message, actions).with(Outcome::Pending).requeued(SLOW))
}

/// S14. A request of the same second is newer: a drain takes longer than that.
pub(super) fn requested_again(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let desired = facts.desired(Some(record));
    let is_newer =
        facts.request.at >= format::time(&record.entered) && facts.request.at.is_some_and(|at| at <= facts.now);
    let again = desired == Power::Hibernating && is_newer;
    let plan = || Plan { requeue: again.then_some(Duration::ZERO), ..ending(facts, Vec::new()) };
    (again || desired == Power::Running).then(plan)
}

/// S15
pub(super) fn forget_machines(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let emptied = || Record { machine_deployments: BTreeMap::new(), ..record.clone() };
    let plan = || Plan { record: Some(emptied()), ..undoing(facts.waits("", [])) };
    (!record.machine_deployments.is_empty()).then(plan)
}

/// S16
pub(super) fn has_failed(record: &Record) -> Plan {
    let last = Some(&record.blocked).filter(|last| !last.is_empty()).map(|last| format!(". Last seen: {last}"));
    let message = format!(
        "Pods did not end in time; the Nodes are open again, and the cluster runs. Hibernate it again to retry{}",
        last.unwrap_or_default()
    );
    Plan::work(Phase::DrainTimedOut, message, []).requeued(SLOW)
}

/// The record with what it does not know yet of `MachineDeployments`; `None` if it knows all.
pub(super) fn note_machines(record: &Record, user: &Machinery) -> Option<Record> {
    let mut noted = record.clone();
    for deployment in &user.deployments {
        noted.note_machines(&deployment.name, deployment.before());
    }
    (noted != *record).then_some(noted)
}

fn recorded(record: &Record, one: &MachineDeployment) -> Machines {
    record.machine_deployments.get(&one.name).cloned().unwrap_or_default()
}

/// S17. Since the drain a `MachineDeployment` was added or raised, or a Node uncordoned: what runs there has a grace
/// period, too.
pub(super) fn nodes_came(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let user = facts.seen()?;
    let is_open = user.nodes.iter().any(|node| node.has_machine && !node.leaves && !node.cordoned);
    (is_open || awaited(user, record).next().is_some()).then(|| facts.enters(record, Phase::Draining))
}

/// S18
pub(super) fn machines_gone(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let user = facts.seen()?;
    let is_gone = user.machines.is_empty() && user.nodes.is_empty() && of_machines(record, user).is_empty();
    is_gone.then(|| facts.enters(record, Phase::MachinesScaledDown))
}

/// S19
pub(super) fn scale_down_machines(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let user = facts.seen()?;
    let detaches = facts.cluster.spec.cloud.provider_name == "vsphere" && !user.attachments.is_empty();
    let message = if user.machines.is_empty() {
        format!("waiting for Nodes to go: {}", list(user.nodes.iter().map(|node| &node.name)))
    } else if detaches {
        // There machine-controller waits for them, whatever annotation a Node has (row 60).
        let volumes = list(&user.attachments);
        format!("waiting for Machines to go, and these for volumes to be detached: {volumes}")
    } else {
        format!("waiting for Machines to go: {}", list(&user.machines))
    };
    Some(facts.waits(&message, of_machines(record, user)))
}

/// What has Machines and Nodes go.
fn of_machines(record: &Record, user: &Machinery) -> Vec<Action> {
    let up = user.deployments.iter().filter(|one| one.replicas > 0 || !one.autoscaler.is_empty());
    let to_zero = up.map(|one| {
        // A copy may be left of an earlier sleep, and a count raised by a client that knows nothing of this one.
        let replicas = one.copy.unwrap_or_default().max(one.replicas);
        Action::ScaleDownMachines(one.name.clone(), Machines { replicas, ..recorded(record, one) })
    });
    let mut actions: Vec<Action> = to_zero.chain(cordon(user)).collect();
    if user.machines.is_empty() && actions.is_empty() {
        let orphans = user.nodes.iter().filter(|node| !node.has_machine && !node.ready && node.stale); // row 57
        actions.extend(orphans.map(|node| Action::DeleteNode(node.name.clone())));
    }
    actions
}

/// S20. In the Enterprise edition a paused cluster keeps the quota that it used last.
pub(super) fn quota_in_use(facts: &Facts<'_>, _: &Record) -> Option<Plan> {
    let usage = facts.cluster.status.as_ref().and_then(|status| status.resource_usage.as_ref());
    let usage = usage.filter(|_| !facts.is_paused_by_us())?; // it is frozen then
    let in_use = !is_zero(usage.cpu.as_deref()) || !is_zero(usage.memory.as_deref());
    in_use.then(|| facts.waits("waiting for KKP to release the quota of the machines", []))
}

/// S21. Those of `DaemonSets` among them would be endpoints after the wake: they are deleted as the Pod garbage
/// collector does, which takes a minute.
pub(super) fn lost_pods_left(facts: &Facts<'_>, _: &Record) -> Option<Plan> {
    let user = facts.seen().filter(|user| !user.lost_pods.is_empty() && facts.in_phase() < LOST_PODS)?;
    let message = format!("deleting {} Pods of Nodes that are gone", user.lost_pods.len());
    let is_over = user.machines.is_empty() && user.nodes.is_empty();
    let actions = is_over.then(|| Action::DeleteLostPods(user.lost_pods.clone()));
    Some(facts.waits(&message, actions))
}

/// Whether a quantity such as `0`, `0m` or `0.0Gi` is zero.
fn is_zero(quantity: Option<&str>) -> bool {
    let number = quantity.unwrap_or_default().trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    number.chars().all(|digit| matches!(digit, '0' | '.' | '-' | '+'))
}
