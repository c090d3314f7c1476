//! Into sleep, rows S23 to S37: the pause, and the control plane at 0.

use super::control_plane::Replicas;
use super::facts::Facts;
use super::plan::{Action, Plan};
use super::preflight::volumes_deleted;
use crate::kkp::keys;
use crate::kkp::phase::Phase;
use crate::kkp::record::Record;
use crate::text::list;

/// S23. The preflight is old by now: what it found of KKP is checked again.
pub(super) fn pause_is_blocked(facts: &Facts<'_>, _: &Record) -> Option<Plan> {
    let is_settled = facts.cluster.phase() == "Running" && facts.cluster.is_true("SeedResourcesUpToDate");
    let blocker = if facts.cluster.spec.pause && !facts.is_paused_by_us() {
        format!("another client has paused the cluster: for the sleep to go on, {}", keys::TO_UNPAUSE)
    } else if facts.is_restored() {
        "an EtcdRestore is under way".to_owned()
    } else if let Some(sentence) = volumes_deleted(facts.control_plane) {
        sentence
    } else if let Some(sentence) = facts.cluster.encryption_under_way().filter(|_| !facts.cluster.spec.pause) {
        sentence
    } else if !facts.cluster.spec.pause && !is_settled {
        "KKP applies changes: a pause now would hold up its updates of other clusters".to_owned()
    } else {
        return None;
    };
    Some(facts.waits(&blocker, []))
}

/// S24. Another client has raised a count. A paused cluster with a Machine would leave an instance behind.
/// machine-controller still runs, also after the pause.
pub(super) fn machines_returned(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let user = facts.seen().filter(|user| !user.machines.is_empty() || !user.nodes.is_empty());
    user.map(|_| facts.enters(record, Phase::ScalingDownMachines))
}

pub(super) fn note_control_plane(facts: &Facts<'_>, mut record: Record) -> Record {
    for one in facts.control_plane {
        if !record.control_plane.contains_key(&one.workload) || one.wanted > 0 {
            record.note(one.workload.clone(), one.count());
        }
    }
    record
}

/// Names of `CronJobs` that are not suspended.
fn cron_jobs(facts: &Facts<'_>) -> Vec<String> {
    facts.cron_jobs.iter().filter(|job| !job.suspended).map(|job| job.name.clone()).collect()
}

/// S27
pub(super) fn control_plane_unrecorded(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let mut noted = note_control_plane(facts, record.clone());
    if facts.control_plane.iter().any(|one| one.wanted > 0) {
        noted.note_quiet(facts.control_plane.iter().all(|one| one.wanted == 0 || one.is_etcd()), facts.now);
    }
    noted.cron_jobs.extend(cron_jobs(facts));
    (noted != *record).then(|| facts.records(noted))
}

/// Those of these that are up go to 0.
pub(super) fn stop(facts: &Facts<'_>, which: fn(&Replicas) -> bool) -> Option<Plan> {
    let up: Vec<&Replicas> = facts.control_plane.iter().filter(|one| one.wanted > 0 && which(one)).collect();
    let message = format!("scaling down {}", list(up.iter().map(|one| &one.workload.name)));
    let actions = up.iter().map(|one| Action::ScaleDown(one.workload.clone(), one.count()));
    (!up.is_empty()).then(|| facts.waits(&message, actions))
}

fn apiserver_is_up(facts: &Facts<'_>) -> bool {
    facts.control_plane.iter().any(Replicas::is_apiserver_up)
}

/// S30. machine-controller ends before the API server: a Machine that it created around the pause would keep its
/// instance (row 58).
pub(super) fn machine_controller_runs(facts: &Facts<'_>, _: &Record) -> Option<Plan> {
    let runs = facts.control_plane.iter().any(|one| one.workload.name == "machine-controller" && one.running);
    let waits = runs && apiserver_is_up(facts);
    waits.then(|| facts.waits("waiting for machine-controller to end", []))
}

/// S31. What began around the pause needs the API server, and KKP: it goes on in the wake.
pub(super) fn begun_around_the_pause(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let is_begun = facts.seen().is_some_and(|user| !user.machines.is_empty());
    let is_begun = is_begun || facts.cluster.encryption_under_way().is_some();
    (is_begun && apiserver_is_up(facts)).then(|| facts.enters(record, Phase::StartingControlPlane))
}

/// S33
pub(super) fn not_quiet(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let is_up = facts.control_plane.iter().any(|one| one.wanted > 0 && one.is_etcd());
    let waits = is_up && record.quiet(facts.now) < facts.limits.settle;
    waits.then(|| facts.waits("waiting until no reconcile of KKP raises replicas again", []))
}

/// S35
pub(super) fn suspend_cron_jobs(facts: &Facts<'_>, _: &Record) -> Option<Plan> {
    let jobs = cron_jobs(facts);
    (!jobs.is_empty()).then(|| facts.waits("suspending CronJobs", [Action::Suspend(jobs)]))
}

/// S36
pub(super) fn control_plane_runs(facts: &Facts<'_>, _: &Record) -> Option<Plan> {
    let running = list(facts.control_plane.iter().filter(|one| one.running).map(|one| &one.workload.name));
    (!running.is_empty()).then(|| facts.waits(&format!("waiting for Pods to end: {running}"), []))
}
