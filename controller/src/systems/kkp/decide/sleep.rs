//! Into sleep.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use shared::annotation::format;
use shared::finding::{Finding, Severity};
use shared::kkp::data::Outcome;
use shared::kkp::api::Desired;
use shared::kkp::certificates::end_before_a_deletion;
use shared::kkp::keys::{self, ASLEEP, REFUSED, UNDOING};
use shared::kkp::phase::Phase;
use shared::kkp::record::{Machines, Numbers, Record, Workload};
use shared::text::{list, sanitize_to};

use super::control_plane::Replicas;
use super::facts::{Facts, MachineDeployment, Machinery, Pod, Stage, User, kept_awake};
use super::intent::effective;
use super::plan::{Action, Plan, QUEUE_POLL, QUEUED, Report, SLOW, Warning, ends, seen, waits};
use super::preflight::{admits, volumes_deleted};
use super::standing::{MISSING, hold, phase, was_missed};
use super::wake::undo_of_drain;

/// What the condition says before the first write of a sleep: the record follows it.
const OPENS: &str = "the preflight begins";

/// What it says while a drain that took too long is undone.
pub(super) const UNDOING: &str = "undoing the drain";

/// Requeue delay of a sleep that the preflight refuses. A change of the Cluster is reconciled at once.
const REFUSED_POLL: Duration = Duration::from_mins(2);

/// How long Pods of Nodes that are gone are waited for, for example because a webhook refuses their deletion.
const LOST_PODS: Duration = Duration::from_mins(1);

/// How long before the first certificate expires the condition warns.
const EXPIRY: jiff::SignedDuration = jiff::SignedDuration::from_hours(14 * 24);

/// Characters of what is kept of the cause of a drain that took too long.
const MAX_BLOCKED: usize = 1_500;

/// How often counts that others raised are corrected in one sleep.
const CORRECTIONS: u32 = 3;

/// Nothing is changed yet: the condition comes before the record, and the preflight before both.
pub(super) fn before(facts: &Facts<'_>) -> Plan {
    if let Some(why) = kept_awake(facts.cluster, facts.now) {
        return refused(&why);
    }
    if !facts.may_begin {
        return Plan { requeue: Some(QUEUE_POLL), ..Plan::work(Phase::Preflight, QUEUED, Vec::new()) };
    }
    if phase(facts.cluster) != Some(Phase::Preflight) {
        return Plan { requeue: Some(Duration::ZERO), ..Plan::work(Phase::Preflight, OPENS, Vec::new()) };
    }
    begin(facts)
}

fn begin(facts: &Facts<'_>) -> Plan {
    let (Some(findings), User::Seen(user)) = (facts.preflight, facts.user) else {
        let why = match (facts.preflight, facts.user) {
            (Some(findings), _) => refusal(findings, facts.forced),
            (None, User::Silent(why)) => why.to_owned(),
            _ => "not asked yet".to_owned(),
        };
        return refused(&why);
    };
    if !admits(findings, facts.forced) {
        return refused(&refusal(findings, facts.forced));
    }
    let mut record = note_control_plane(facts, Record::begin(facts.cluster.uid(), facts.now));
    record = note_machines(&record, user).unwrap_or(record);
    record.cordoned = user.nodes.iter().filter(|node| node.cordoned).map(|node| node.name.clone()).collect();
    let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
    record.numbers = Numbers { machines: count(user.machines.len()), ..facts.numbers };
    Plan::enter(&record, Phase::Draining, facts.now)
}

fn refusal(findings: &[Finding], forced: bool) -> String {
    let stands = |finding: &&Finding| !admits(std::slice::from_ref(*finding), forced);
    let grave: Vec<_> = findings.iter().filter(stands).collect();
    let hint = grave.iter().all(|finding| finding.severity == Severity::Forceable);
    let sentences = grave.iter().map(|finding| finding.sentence.as_str()).collect::<Vec<_>>().join("; ");
    if hint { format!("{sentences}; --force accepts this") } else { sentences }
}

fn refused(why: &str) -> Plan {
    let plan = Plan::work(Phase::Preflight, format!("refused: {why}"), Vec::new()).with(Outcome::Failed);
    Plan { requeue: Some(REFUSED_POLL), ..plan }
}

pub(super) fn go_on(facts: &Facts<'_>, record: &Record) -> Plan {
    match record.phase {
        Phase::Draining => drain(facts, record),
        Phase::ScalingDownMachines => scale_down_machines(facts, record),
        Phase::MachinesScaledDown => wait_for_quota(facts, record),
        Phase::Pausing => pause(facts, record),
        Phase::ScalingDownControlPlane => scale_down_control_plane(facts, record),
        Phase::Dehydrated => asleep(facts, record),
        _ => before(facts),
    }
}

fn drain(facts: &Facts<'_>, record: &Record) -> Plan {
    if facts.overdue(Phase::Draining).is_some() {
        // The condition still names what was waited for, and the last error.
        let last = facts.cluster.condition(keys::DEHYDRATED).and_then(|condition| condition.message.as_deref());
        let blocked = sanitize_to(last.unwrap_or_default(), MAX_BLOCKED);
        let report = Some(Report::of(Phase::DrainTimedOut, UNDOING).with(Outcome::Pending));
        let record = Record { blocked, ..record.clone() };
        return Plan { report, ..Plan::enter(&record, Phase::DrainTimedOut, facts.now) };
    }
    let user = match seen(facts, Phase::Draining) {
        Ok(user) => user,
        Err(plan) => return *plan,
    };
    let mut actions = Vec::new();
    if let Some(recorded) = note_machines(record, user) {
        return Plan {
            requeue: Some(Duration::ZERO),
            record: Some(recorded),
            ..waits(facts, Phase::Draining, "", Vec::new())
        };
    }
    let scaled = user.deployments.iter().filter(|one| !one.autoscaler.is_empty());
    actions.extend(scaled.map(|one| Action::StopAutoscaler(one.name.clone(), recorded(record, one).autoscaler)));
    actions.extend(cordon(user));
    let pods: Vec<&Pod> = user.pods.iter().filter(|pod| is_awaited(pod, record)).collect();
    let stage = pods.iter().map(|pod| pod.stage).min();
    let attached = !user.attachments.is_empty();
    match stage {
        // CSI controllers run in kube-system: they go once nothing is attached, or the wait for it is over.
        Some(Stage::System) if attached && facts.in_phase() <= facts.limits.attachments => {
            let message = format!("waiting for volumes to be detached: {}", list(&user.attachments));
            waits(facts, Phase::Draining, &message, actions)
        }
        Some(stage) => {
            let of_stage = || pods.iter().filter(move |pod| pod.stage == stage);
            let fresh: Vec<String> = of_stage().filter(|pod| !pod.terminating).map(|pod| pod.name.clone()).collect();
            actions.extend((!fresh.is_empty()).then_some(Action::DeletePods(fresh)));
            let message = format!("waiting for Pods to end: {}", list(of_stage().map(|pod| &pod.name)));
            waits(facts, Phase::Draining, &message, actions)
        }
        None if !actions.is_empty() => waits(facts, Phase::Draining, "cordoning Nodes", actions),
        None => Plan::enter(record, Phase::ScalingDownMachines, facts.now),
    }
}

/// Whether the drain deletes a Pod and waits for its end. It does neither for one that a controller has placed on a
/// cordoned Node again, which would never end, nor wait for one without a kubelet.
fn is_awaited(pod: &Pod, record: &Record) -> bool {
    let has_returned = format::time(&record.entered).is_some_and(|begun| pod.returned.is_some_and(|at| at > begun));
    let never_ends = pod.is_lost && pod.terminating;
    !has_returned && !never_ends
}

/// Nodes that are not cordoned, or whose Pods KKP would evict: either alone is not enough (rows 54 to 56).
fn cordon(user: &Machinery) -> Option<Action> {
    let open = user.nodes.iter().filter(|node| !node.cordoned || !node.skips_eviction);
    let open: Vec<String> = open.map(|node| node.name.clone()).collect();
    (!open.is_empty()).then_some(Action::Cordon(open))
}

/// The drain took too long and is undone. It begins again when it is requested again.
pub(super) fn timed_out(facts: &Facts<'_>, record: &Record) -> Plan {
    let User::Seen(user) = facts.user else {
        let message = format!("{UNDOING}: the user cluster is silent");
        let plan = Plan::work(Phase::DrainTimedOut, message, Vec::new()).with(Outcome::Pending);
        return Plan { requeue: Some(SLOW), ..plan };
    };
    let actions: Vec<Action> = undo_of_drain(record, user);
    let entered = format::time(&record.entered);
    let desired = effective(facts.cluster, Some(record), facts.request, facts.now);
    // One of the same second is newer: a drain takes longer than that.
    let is_newer = facts.request.at >= entered && facts.request.at.is_some_and(|at| at <= facts.now);
    let again = desired == Desired::Hibernating && is_newer;
    if actions.is_empty() && (again || desired == Desired::Running) {
        return Plan { requeue: again.then_some(Duration::ZERO), ..ends(facts, Vec::new()) };
    }
    if actions.is_empty() && !record.machine_deployments.is_empty() {
        // Everything is undone: what users change from here on is theirs.
        let record = Record { machine_deployments: BTreeMap::new(), ..record.clone() };
        return Plan {
            record: Some(record),
            ..waits(facts, Phase::DrainTimedOut, UNDOING, Vec::new()).with(Outcome::Pending)
        };
    }
    if !actions.is_empty() {
        return waits(facts, Phase::DrainTimedOut, UNDOING, actions).with(Outcome::Pending);
    }
    let last = Some(&record.blocked).filter(|last| !last.is_empty()).map(|last| format!(". Last seen: {last}"));
    let message = format!(
        "Pods did not end in time; the Nodes are open again, and the cluster runs. Hibernate it again to retry{}",
        last.unwrap_or_default()
    );
    Plan { requeue: Some(SLOW), ..Plan::work(Phase::DrainTimedOut, message, Vec::new()) }
}

/// The record with what it does not know yet of `MachineDeployments`; `None` if it knows all. One that a sleep has set
/// to 0 has a copy.
fn note_machines(record: &Record, user: &Machinery) -> Option<Record> {
    let mut noted = record.clone();
    for deployment in &user.deployments {
        noted.note_machines(&deployment.name, deployment.before());
    }
    (noted != *record).then_some(noted)
}

fn recorded(record: &Record, one: &MachineDeployment) -> Machines {
    record.machine_deployments.get(&one.name).cloned().unwrap_or_default()
}

fn scale_down_machines(facts: &Facts<'_>, record: &Record) -> Plan {
    let phase = Phase::ScalingDownMachines;
    let user = match seen(facts, phase) {
        Ok(user) => user,
        Err(plan) => return *plan,
    };
    if let Some(noted) = note_machines(record, user) {
        return Plan { requeue: Some(Duration::ZERO), record: Some(noted), ..waits(facts, phase, "", Vec::new()) };
    }
    let up = user.deployments.iter().filter(|one| one.replicas > 0 || !one.autoscaler.is_empty());
    let mut actions: Vec<Action> = up
        .map(|one| {
            // A copy may be left of an earlier sleep, and a count raised by a client that knows nothing of this one.
            let replicas = one.copy.unwrap_or_default().max(one.replicas);
            Action::ScaleDownMachines(one.name.clone(), Machines { replicas, ..recorded(record, one) })
        })
        .collect();
    actions.extend(cordon(user));
    if user.machines.is_empty() && actions.is_empty() {
        let orphans = user.nodes.iter().filter(|node| !node.has_machine && !node.ready && node.stale); // row 57
        actions.extend(orphans.map(|node| Action::DeleteNode(node.name.clone())));
    }
    if actions.is_empty() && user.machines.is_empty() && user.nodes.is_empty() {
        return Plan::enter(record, Phase::MachinesScaledDown, facts.now);
    }
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
    waits(facts, phase, &message, actions)
}

/// In the Enterprise edition a paused cluster keeps the quota that it used last. Pods that are left on Nodes that are
/// gone, those of `DaemonSets` among them, would be endpoints after the wake: they are deleted as the Pod garbage
/// collector does, which takes a minute.
fn wait_for_quota(facts: &Facts<'_>, record: &Record) -> Plan {
    let phase = Phase::MachinesScaledDown;
    let usage = facts.cluster.status.as_ref().and_then(|status| status.resource_usage.as_ref());
    let usage = usage.filter(|_| !facts.is_paused_by_us()); // it is frozen then
    if usage.is_some_and(|usage| !is_zero(usage.cpu.as_deref()) || !is_zero(usage.memory.as_deref())) {
        return waits(facts, phase, "waiting for KKP to release the quota of the machines", Vec::new());
    }
    match facts.user {
        User::Seen(user) if !user.lost_pods.is_empty() && facts.in_phase() < LOST_PODS => {
            let message = format!("deleting {} Pods of Nodes that are gone", user.lost_pods.len());
            let is_over = user.machines.is_empty() && user.nodes.is_empty();
            let actions = is_over.then(|| Action::DeleteLostPods(user.lost_pods.clone()));
            waits(facts, phase, &message, actions.into_iter().collect())
        }
        _ => Plan::enter(record, Phase::Pausing, facts.now),
    }
}

/// Whether a quantity such as `0`, `0m` or `0.0Gi` is zero.
fn is_zero(quantity: Option<&str>) -> bool {
    let number = quantity.unwrap_or_default().trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
    number.chars().all(|digit| matches!(digit, '0' | '.' | '-' | '+'))
}

/// The preflight is old by now: what it found of KKP is checked again, and that no Machine exists also after the pause.
/// machine-controller still runs then.
fn pause(facts: &Facts<'_>, record: &Record) -> Plan {
    let phase = Phase::Pausing;
    let user = match seen(facts, phase) {
        Ok(user) => user,
        Err(plan) => return *plan,
    };
    let kkp_phase = facts.cluster.status.as_ref().and_then(|status| status.phase.as_deref());
    let is_settled = kkp_phase == Some("Running") && facts.cluster.is_true("SeedResourcesUpToDate");
    let blocker = if facts.cluster.spec.pause && !facts.is_paused_by_us() {
        Some(format!("another client has paused the cluster: for the sleep to go on, {}", keys::TO_UNPAUSE))
    } else if facts.is_restored() {
        Some("an EtcdRestore is under way".to_owned())
    } else if let Some(sentence) = volumes_deleted(facts.control_plane) {
        Some(sentence)
    } else if !facts.cluster.spec.pause && !is_settled {
        Some("KKP applies changes: a pause now would hold up its updates of other clusters".to_owned())
    } else {
        None
    };
    match &blocker {
        Some(blocker) => waits(facts, phase, blocker, Vec::new()),
        // Another client has raised a count. A paused cluster with a Machine would leave an instance behind.
        None if !user.machines.is_empty() || !user.nodes.is_empty() => {
            Plan::enter(record, Phase::ScalingDownMachines, facts.now)
        }
        None if facts.cluster.spec.pause => Plan::enter(record, Phase::ScalingDownControlPlane, facts.now),
        None => waits(facts, phase, "", vec![Action::Pause]),
    }
}

/// Without a record, it is rebuilt from the copies on the objects, those of the `MachineDeployments` once their API
/// answers. Without a condition that says so, the cluster is no further asleep than its pause says: it can wake, and
/// nothing more is stopped.
pub(super) fn orphaned(facts: &Facts<'_>, record: Option<Record>, phase: Phase) -> Plan {
    let Some(record) = record else { return rebuild(facts, phase, None) };
    Plan::enter(&Record { corrections: CORRECTIONS, correcting: false, ..record }, phase, facts.now)
}

/// Rebuilds it. `useless`: what is said of the record that there is. Counts that were raised meanwhile stay, as the
/// advice promises.
pub(super) fn rebuild(facts: &Facts<'_>, phase: Phase, useless: Option<Report>) -> Plan {
    let record = rebuilt(facts);
    if !record.control_plane.keys().any(|workload| is_named(workload, "etcd")) {
        return Plan::held(useless.map_or_else(|| missing(facts, phase), without_copy));
    }
    let was = useless.map_or_else(|| "missing".to_owned(), |report| format!("of no use ({})", report.reason));
    let note = format!("ConfigMap hibernate-record was {was} and is rebuilt from the copies on the objects");
    let warning = Some(Warning { reason: "RecordRebuilt", note });
    // The advice was followed: what was raised by hand is neither stopped nor paused again, and the end of the pause is
    // a wake.
    let is_by_hand = was_missed(facts.cluster) && matches!(phase, Phase::Pausing | Phase::ScalingDownControlPlane);
    let phase = if is_by_hand { Phase::Dehydrated } else { phase };
    Plan { warning, ..Plan::enter(&record, phase, facts.now) }
}

fn missing(facts: &Facts<'_>, phase: Phase) -> Report {
    let problem = format!(
        "it is missing, and etcd carries no copy of its count: restore the record, or scale the control plane by hand, etcd first, and then {}",
        keys::TO_UNPAUSE
    );
    Report { dehydrated: true, ..hold(facts.cluster, Some(phase), MISSING, &problem) }
}

/// The advice about a record that is of no use, and why the wake waits.
fn without_copy(report: Report) -> Report {
    let message = format!(
        "{}. But etcd carries no copy of its count: the wake waits until the record is corrected, or etcd is scaled by hand",
        report.message
    );
    Report { message, ..report }
}

fn rebuilt(facts: &Facts<'_>) -> Record {
    let counts = facts.control_plane.iter().map(|one| (one.workload.clone(), one.count()));
    let control_plane = counts.filter(|(_, count)| *count > 0).collect();
    let cron_jobs = facts.cron_jobs.iter().filter(|job| job.ours).map(|job| job.name.clone()).collect();
    let begun = Record::begin(facts.cluster.uid(), facts.now);
    Record { control_plane, cron_jobs, corrections: CORRECTIONS, rebuilt: true, ..begun }
}

fn is_named(workload: &Workload, name: &str) -> bool {
    workload.name == name
}

fn note_control_plane(facts: &Facts<'_>, mut record: Record) -> Record {
    for one in facts.control_plane {
        if !record.control_plane.contains_key(&one.workload) || one.wanted > 0 {
            record.note(one.workload.clone(), one.count());
        }
    }
    record
}

fn scale_down_control_plane(facts: &Facts<'_>, record: &Record) -> Plan {
    let phase = Phase::ScalingDownControlPlane;
    let mut noted = note_control_plane(facts, record.clone());
    let is_quiet = facts.control_plane.iter().all(|one| one.wanted == 0 || is_named(&one.workload, "etcd"));
    if facts.control_plane.iter().any(|one| one.wanted > 0) {
        noted.note_quiet(is_quiet, facts.now);
    }
    noted.cron_jobs.extend(facts.cron_jobs.iter().filter(|job| !job.suspended).map(|job| job.name.clone()));
    if noted != *record {
        return Plan { requeue: Some(Duration::ZERO), record: Some(noted), ..waits(facts, phase, "", Vec::new()) };
    }
    if let Some(deleted) = volumes_deleted(facts.control_plane) {
        return waits(facts, phase, &deleted, Vec::new());
    }
    let up = |pick: &dyn Fn(&Workload) -> bool| -> Vec<&Replicas> {
        facts.control_plane.iter().filter(|one| one.wanted > 0 && pick(&one.workload)).collect()
    };
    let stages: [&dyn Fn(&Workload) -> bool; 3] = [
        &|workload| !is_named(workload, "apiserver") && !is_named(workload, "etcd"),
        &|workload| is_named(workload, "apiserver"),
        &|workload| is_named(workload, "etcd"),
    ];
    for (number, pick) in stages.into_iter().enumerate() {
        let left = up(pick);
        if left.is_empty() {
            continue;
        }
        if number == 1
            && let Some(plan) = before_apiserver(facts, record)
        {
            return plan;
        }
        if number == 2 && record.quiet(facts.now) < facts.limits.settle {
            return waits(facts, phase, "waiting until no reconcile of KKP raises replicas again", Vec::new());
        }
        let message = format!("scaling down {}", list(left.iter().map(|one| &one.workload.name)));
        return waits(
            facts,
            phase,
            &message,
            left.into_iter().map(|one| Action::ScaleDown(one.workload.clone(), one.count())).collect(),
        );
    }
    let awake: Vec<String> = facts.cron_jobs.iter().filter(|job| !job.suspended).map(|job| job.name.clone()).collect();
    if !awake.is_empty() {
        return waits(facts, phase, "suspending CronJobs", vec![Action::Suspend(awake)]);
    }
    let running = list(facts.control_plane.iter().filter(|one| one.running).map(|one| &one.workload.name));
    if running.is_empty() {
        Plan::enter(&Record { correcting: false, ..record.clone() }, Phase::Dehydrated, facts.now)
    } else {
        waits(facts, phase, &format!("waiting for Pods to end: {running}"), Vec::new())
    }
}

/// machine-controller ends before the API server: a Machine that it created around the pause would keep its instance
/// (row 58). Then the cluster wakes first.
fn before_apiserver(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let phase = Phase::ScalingDownControlPlane;
    if facts.control_plane.iter().any(|one| is_named(&one.workload, "machine-controller") && one.running) {
        return Some(waits(facts, phase, "waiting for machine-controller to end", Vec::new()));
    }
    match facts.user {
        User::Seen(user) if !user.machines.is_empty() => {
            Some(Plan::enter(record, Phase::StartingControlPlane, facts.now))
        }
        _ => None,
    }
}

fn asleep(facts: &Facts<'_>, record: &Record) -> Plan {
    let raised = list(facts.control_plane.iter().filter(|one| one.wanted > 0).map(|one| &one.workload.name));
    if raised.is_empty() {
        let Numbers { volumes, load_balancers, machines } = record.numbers;
        let numbers = if record.rebuilt {
            "Its record was rebuilt: how many machines come back with a wake is not known until then".to_owned()
        } else {
            format!(
                "{machines} machines come back with a wake; {volumes} volumes and {load_balancers} load balancers remain and are still billed"
            )
        };
        let message = format!("asleep since {}. {numbers}", record.entered);
        let Some(expiry) = expires_soon(facts) else { return rests(message, None) };
        let note = format!(
            "the control plane's certificates expire at {expiry}: wake the cluster before, and KKP renews them"
        );
        return rests(format!("{message}; {note}"), Some(Warning { reason: "CertificatesExpire", note }));
    }
    let kept_awake = kept_awake(facts.cluster, facts.now);
    if (record.correcting || record.corrections < CORRECTIONS) && kept_awake.is_none() {
        // One that was counted, and whose condition was not written, such as after a conflict, is not counted again.
        let corrections = record.corrections + u32::from(!record.correcting);
        let record = Record { corrections, correcting: true, ..record.clone() };
        return Plan::enter(&record, Phase::ScalingDownControlPlane, facts.now);
    }
    let why = kept_awake.unwrap_or_else(|| format!("at most {CORRECTIONS} times in a sleep they are set to 0"));
    let message = format!("another client keeps raising replicas of {raised}, and they are left alone now: {why}");
    rests(message.clone(), Some(Warning { reason: "ReplicasRaised", note: message })).with(Outcome::Pending)
}

fn rests(message: String, warning: Option<Warning>) -> Plan {
    let report = Some(Report::of(Phase::Dehydrated, message));
    Plan { report, warning, requeue: Some(Duration::from_mins(1)), ..Plan::default() }
}

/// When the first certificate of the control plane expires, if that is soon. KKP renews none while the cluster is
/// paused.
fn expires_soon<'a>(facts: &Facts<'a>) -> Option<&'a str> {
    let (text, at) = expiry(facts)?;
    (at.duration_since(facts.now) < EXPIRY).then_some(text)
}

fn expiry<'a>(facts: &Facts<'a>) -> Option<(&'a str, Timestamp)> {
    let text = facts.cluster.metadata.annotations.as_ref()?.get(keys::CERTIFICATES_EXPIRE_AT)?;
    Some((text, format::time(text)?))
}

/// The warning about a sleeping cluster that is being deleted although its certificates may end before KKP is done: K13
/// let it pass, or was not asked.
pub(super) fn deleted_too_late(facts: &Facts<'_>) -> Option<Warning> {
    let (text, at) = expiry(facts).filter(|_| facts.is_deleted())?;
    let note = format!(
        "the cluster is being deleted, and the first certificate of its control plane expires at {text}: KKP renews none during a deletion, \
         and cannot finish one with an expired certificate"
    );
    end_before_a_deletion(at, facts.now).then_some(Warning { reason: "CertificatesExpire", note })
}
