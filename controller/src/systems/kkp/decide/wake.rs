//! Out of sleep.

use std::time::Duration;

use shared::kkp::api::Desired;
use shared::kkp::keys;
use shared::kkp::phase::Phase;
use shared::kkp::record::{Machines, Record, Workload, has_our_reason};
use shared::text::list;

use super::control_plane::{Replicas, is_needed};
use super::facts::{Facts, MachineDeployment, Machinery};
use super::intent::effective;
use super::plan::{Action, FIRST, Plan, SLOW, Warning, ends, seen, waits};

/// How long machine-controller retries by itself after a refusal by a quota.
const TOUCH: Duration = Duration::from_mins(1);

/// What is said while KKP restores etcd: it deletes and creates it, and ends its pause by itself.
const WAITING_FOR_RESTORE: &str =
    "WaitingForRestore: an EtcdRestore is under way, and the wake goes on when it has ended";

pub(super) fn go_on(facts: &Facts<'_>, record: &Record) -> Plan {
    if facts.is_restored() && !facts.is_deleted() {
        return waits(facts, record.phase, WAITING_FOR_RESTORE, Vec::new());
    }
    match record.phase {
        Phase::StartingControlPlane => start(facts, record),
        Phase::WaitingForApi => wait_for_api(facts, record),
        Phase::WaitingForMachineController => match seen(facts, record.phase) {
            Ok(Machinery { unready: None, .. }) => Plan::enter(record, Phase::ScalingUpMachines, facts.now),
            // KKP removes what it can without the machines.
            Ok(_) if goes_on_regardless(facts, record.phase) => {
                Plan::enter(record, Phase::ScalingUpMachines, facts.now)
            }
            Ok(Machinery { unready: Some(what), .. }) => waits(facts, record.phase, what, Vec::new()),
            Err(plan) => *plan,
        },
        Phase::ScalingUpMachines => scale_up(facts, record),
        Phase::WaitingForNodes => wait_for_nodes(facts, record),
        _ => awake_paused(facts, record),
    }
}

/// KKP does not bring the cluster back by itself: it refuses the end of the pause (row 27), the cluster is being
/// deleted (row 20), or the pause is another client's.
fn is_alone(facts: &Facts<'_>) -> bool {
    facts.unpause_refused.is_some() || facts.is_deleted() || facts.is_paused_by_others()
}

/// Whether a step of a deletion has exceeded its limit: KKP then cleans up as far as it can.
fn goes_on_regardless(facts: &Facts<'_>, phase: Phase) -> bool {
    facts.is_deleted() && facts.overdue(phase).is_some()
}

/// The end of our pause, also after a refusal: without KKP expired certificates are not renewed. A cluster that is
/// deleted stays paused until it is up, because KKP then restores nothing (row 20). The pause of another client is
/// theirs to end. When they have ended ours, what it has left goes the same way: a later pause without a reason would
/// pass for ours.
fn unpause(facts: &Facts<'_>) -> Option<Action> {
    let is_left = !facts.cluster.spec.pause && (has_our_reason(facts.cluster) || is_noted(facts));
    ((facts.is_paused_by_us() || is_left) && !facts.is_deleted()).then_some(Action::Unpause)
}

/// Whether the Cluster carries what was written with a pause of ours.
fn is_noted(facts: &Facts<'_>) -> bool {
    let annotations = facts.cluster.metadata.annotations.as_ref();
    let has = |key: &str| annotations.is_some_and(|all| all.contains_key(key));
    has(keys::CERTIFICATES_EXPIRE_AT) || has(keys::PAUSED_BY_SLEEP)
}

/// etcd and the end of the pause, back to back: KKP raises everything but etcd, and at its concurrency limit nothing
/// (rows 8, 9).
fn start(facts: &Facts<'_>, record: &Record) -> Plan {
    let low = |is_etcd: bool| {
        facts.control_plane.iter().filter(move |one| (one.workload.name == "etcd") == is_etcd).filter_map(|one| {
            let before = one.before(record);
            (one.wanted < before).then(|| Action::Restore(one.workload.clone(), before))
        })
    };
    let mut actions: Vec<Action> = low(true).collect();
    if is_alone(facts) {
        actions.extend(low(false));
    }
    let etcd = facts.control_plane.iter().find(|one| one.workload.name == "etcd");
    let is_up = actions.is_empty() && etcd.is_none_or(|etcd| etcd.ready);
    let end = unpause(facts);
    if is_up && (end.is_none() || facts.unpause_refused.is_some()) {
        return Plan::enter(record, Phase::WaitingForApi, facts.now);
    }
    actions.extend(end);
    let message = facts.unpause_refused.map(|why| format!("KKP refuses the end of spec.pause: {why}"));
    waits(facts, Phase::StartingControlPlane, message.as_deref().unwrap_or("waiting for etcd"), actions)
}

/// Once the limit is exceeded, only what a wake needs is waited for.
fn wait_for_api(facts: &Facts<'_>, record: &Record) -> Plan {
    let is_overdue = facts.overdue(record.phase).is_some();
    let is_low = |one: &&Replicas| {
        one.before(record) > 0 && (one.wanted == 0 || !one.ready) && (!is_overdue || is_needed(&one.workload.name))
    };
    let low = list(facts.control_plane.iter().filter(is_low).map(|one| &one.workload.name));
    let plan = if low.is_empty() || goes_on_regardless(facts, record.phase) {
        seen(facts, record.phase).map(|_| Plan::enter(record, Phase::WaitingForMachineController, facts.now))
    } else {
        Err(Box::new(waits(facts, record.phase, &format!("waiting for {low}"), Vec::new())))
    };
    // KKP has had its turn: what it does not raise is not its own.
    let left =
        facts.control_plane.iter().filter(|one| one.wanted == 0 && one.before(record) > 0 && facts.in_phase() > FIRST);
    let left = left.map(|one| Action::Restore(one.workload.clone(), one.before(record)));
    match plan {
        Ok(plan) => plan,
        Err(waiting) => Plan { actions: left.chain(unpause(facts)).collect(), ..*waiting },
    }
}

/// A `MachineDeployment` as it is to be, if it differs. Its count is that of our copy on it: without one, no sleep has
/// set it to 0. A count that another client has raised stays; 0 stays 0. The annotations are those of the record, and
/// without one those of the copies.
fn restored(record: &Record, one: &MachineDeployment) -> Option<Machines> {
    let recorded = record.machine_deployments.get(&one.name);
    let mut autoscaler = one.autoscaler_copy.clone();
    autoscaler.extend(recorded.map(|recorded| recorded.autoscaler.clone()).unwrap_or_default());
    let unmanaged = autoscaler.keys().any(|key| !one.autoscaler.contains_key(key));
    let is_marked = one.copy.is_some() || !one.autoscaler_copy.is_empty();
    (unmanaged || is_marked).then_some(Machines { autoscaler, ..one.before() })
}

/// Counts and annotations as they were, of the `MachineDeployments` that are picked.
fn to_restore(record: &Record, user: &Machinery, pick: fn(&MachineDeployment) -> bool) -> Vec<Action> {
    let picked = user.deployments.iter().filter(|one| pick(one));
    picked.filter_map(|one| Some(Action::RestoreMachines(one.name.clone(), restored(record, one)?))).collect()
}

/// Those without Machines. Any change of a `MachineDeployment`'s annotations voids the token with which its new
/// Machines are about to join (row 53): one that runs, because another client or a restored backup has raised it, is
/// written once its Nodes are ready.
fn to_raise(record: &Record, user: &Machinery) -> Vec<Action> {
    to_restore(record, user, |one| one.replicas == 0)
}

/// What is left to restore of those that run. A count that a user has set to 0 since stays.
fn to_annotate(record: &Record, user: &Machinery) -> Vec<Action> {
    let running = user.deployments.iter().filter(|one| one.replicas > 0);
    let annotated =
        |one: &MachineDeployment| Some(Action::RestoreAutoscaler(one.name.clone(), restored(record, one)?.autoscaler));
    running.filter_map(annotated).collect()
}

fn scale_up(facts: &Facts<'_>, record: &Record) -> Plan {
    let user = match seen(facts, record.phase) {
        Ok(user) => user,
        Err(plan) => return *plan,
    };
    let actions = if facts.is_deleted() { to_detach(record, user) } else { to_raise(record, user) };
    if actions.is_empty() {
        // Not at the end only: Nodes may be long in coming, and backups must not wait for them.
        let actions = vec![Action::TouchBackups];
        return Plan { actions, ..Plan::enter(record, Phase::WaitingForNodes, facts.now) };
    }
    waits(facts, record.phase, "restoring the counts of MachineDeployments", actions)
}

/// A deletion needs one Node where there are volumes: their driver's controller runs there (row 22).
fn to_detach(record: &Record, user: &Machinery) -> Vec<Action> {
    let runs = user.deployments.iter().any(|one| one.replicas > 0);
    let recorded = |one: &MachineDeployment| Some(record.machine_deployments.get(&one.name)?.replicas);
    let first = user.deployments.iter().find(|one| recorded(one).or(one.copy).is_some_and(|count| count > 0));
    let one = Machines { replicas: 1, ..Machines::default() };
    // A record that was rebuilt does not know about volumes.
    first
        .filter(|_| (record.numbers.volumes > 0 || record.rebuilt) && !runs)
        .map(|first| Action::RestoreMachines(first.name.clone(), one))
        .into_iter()
        .collect()
}

fn wait_for_nodes(facts: &Facts<'_>, record: &Record) -> Plan {
    let user = match seen(facts, record.phase) {
        Ok(user) => user,
        Err(plan) => return *plan,
    };
    let wanted = user.deployments.iter().fold(0_u32, |sum, one| sum.saturating_add(one.replicas));
    let ready = user.nodes.iter().filter(|node| node.ready && node.has_machine && !node.leaves).count();
    let wanted = if facts.is_deleted() { wanted.min(1) } else { wanted };
    // Every count is restored: a sleep that is requested again needs nothing of this record.
    let sleeps_again = effective(facts.cluster, Some(record), facts.request, facts.now) == Desired::Hibernating;
    if (wanted as usize) > ready && !sleeps_again && !goes_on_regardless(facts, record.phase) {
        return waits_for_nodes(facts, record, user, &format!("{ready} of {wanted} Nodes are ready"));
    }
    let mut actions = if facts.is_deleted() { Vec::new() } else { to_annotate(record, user) };
    if !actions.is_empty() && facts.overdue(record.phase).is_none() {
        return waits(facts, record.phase, "restoring annotations of MachineDeployments", actions);
    }
    let plan = if facts.is_paused_by_us() || facts.cluster.spec.pause && facts.is_deleted() {
        Plan::enter(record, Phase::AwakePaused, facts.now)
    } else {
        end(facts, record, user)
    };
    // Another client may change them each time: past the limit they are written once more, and hold up nothing.
    actions.extend(plan.actions);
    Plan { actions, ..plan }
}

/// The control plane's own jobs resume meanwhile. A quota that refuses Machines may do so for long: then the cluster is
/// hydrated in part.
fn waits_for_nodes(facts: &Facts<'_>, record: &Record, user: &Machinery, message: &str) -> Plan {
    let mut actions: Vec<Action> = uncordon(user).into_iter().chain(unsuspend(facts, record)).collect();
    let Some(quota) = &user.quota else { return waits(facts, record.phase, message, actions) };
    let message = format!("hydrated in part: {message}; a quota refuses Machines: {}", quota.why);
    if facts.in_phase() < TOUCH {
        return waits(facts, record.phase, &message, actions);
    }
    actions.push(Action::TouchMachineSets(quota.sets.clone()));
    Plan { requeue: Some(SLOW), ..waits(facts, record.phase, &message, actions) }
}

fn unsuspend(facts: &Facts<'_>, record: &Record) -> Option<Action> {
    let ours = facts.cron_jobs.iter().filter(|job| job.ours || job.suspended && record.cron_jobs.contains(&job.name));
    let ours: Vec<String> = ours.map(|job| job.name.clone()).collect();
    (!ours.is_empty()).then_some(Action::Unsuspend(ours))
}

fn end(facts: &Facts<'_>, record: &Record, user: &Machinery) -> Plan {
    let mut actions: Vec<Action> = uncordon(user).into_iter().collect();
    actions.extend(unsuspend(facts, record));
    let marked = facts.control_plane.iter().filter(|one| one.copy.is_some()).map(|one| one.workload.clone());
    let marked: Vec<Workload> = marked.collect();
    actions.extend((!marked.is_empty()).then_some(Action::Unmark(marked)));
    actions.push(Action::TouchBackups);
    actions.extend(unpause(facts));
    // Without the record it would pass for ours.
    actions.extend((facts.is_paused_by_others() && is_noted(facts)).then_some(Action::Disown));
    let warning = facts.is_paused_by_others().then(|| {
        let why = facts.cluster.spec.pause_reason.as_deref().filter(|why| !why.is_empty()).unwrap_or("no reason given");
        let note = format!("the cluster is awake, and another client has paused it ({why}): KKP does not manage it until spec.pause is false");
        Warning { reason: "PausedByOthers", note }
    });
    Plan { warning, ..ends(facts, actions) }
}

/// Nodes that the sleep changed and that are still there: those of a wake before the machines went.
fn uncordon(user: &Machinery) -> Option<Action> {
    let stays = user.nodes.iter().filter(|node| node.ours && !node.leaves);
    let ours: Vec<String> = stays.map(|node| node.name.clone()).collect();
    (!ours.is_empty()).then_some(Action::Uncordon(ours))
}

/// What a drain changed before any machine went.
pub(super) fn undo_of_drain(record: &Record, user: &Machinery) -> Vec<Action> {
    to_restore(record, user, |_| true).into_iter().chain(uncordon(user)).collect()
}

/// Every count is restored, but KKP still leaves the cluster alone: the end of the pause is tried again.
fn awake_paused(facts: &Facts<'_>, record: &Record) -> Plan {
    if !facts.cluster.spec.pause && facts.is_deleted() {
        return ends(facts, Vec::new()); // KKP removes everything else
    }
    if !facts.is_paused_by_us() && !facts.is_deleted() {
        return seen(facts, record.phase).map_or_else(|plan| *plan, |user| end(facts, record, user));
    }
    if !facts.is_paused_by_us() {
        let message = format!(
            "the cluster is awake, and KKP does not delete it while another client pauses it: {}",
            keys::TO_UNPAUSE
        );
        return Plan { requeue: Some(SLOW), ..Plan::work(Phase::AwakePaused, message, Vec::new()) };
    }
    let message = match facts.unpause_refused {
        Some(why) => {
            format!("the cluster is awake, and KKP does not manage it: the end of spec.pause was refused: {why}")
        }
        None => "ending the pause".to_owned(),
    };
    Plan { requeue: Some(SLOW), ..Plan::work(Phase::AwakePaused, message, vec![Action::Unpause]) }
}
