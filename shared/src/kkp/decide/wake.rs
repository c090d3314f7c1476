//! Out of sleep: what each phase does. The first row that applies decides.
//!
//! | # | phase | if | then |
//! |---|---|---|---|
//! | W1 | all | an `EtcdRestore` is under way, and no deletion | wait for its end |
//! | W2 | `StartingControlPlane` | etcd serves, and no pause of ours is left to end, or KKP refuses its end | `WaitingForApi` |
//! | W3 | `StartingControlPlane` | otherwise | raise etcd, and what KKP does not raise; end the pause |
//! | W4 | `WaitingForApi` | a workload is not up | wait, and restore what KKP does not |
//! | W5 | `WaitingForApi` | the API server does not answer | the same |
//! | W6 | `WaitingForApi` | otherwise | `WaitingForMachineController` |
//! | W7 | those after it | the API server does not answer | wait |
//! | W8 | `WaitingForMachineController` | something that a count needs is not ready | wait |
//! | W9 | `WaitingForMachineController` | otherwise | `ScalingUpMachines` |
//! | W10 | `ScalingUpMachines` | counts are left to restore | restore them |
//! | W11 | `ScalingUpMachines` | otherwise | have backups go on, `WaitingForNodes` |
//! | W12 | `WaitingForNodes` | Nodes are not ready that are needed | wait |
//! | W13 | `WaitingForNodes` | annotations are left to restore, within the limit | restore them |
//! | W14 | `WaitingForNodes` | a pause is left that is in the way | `AwakePaused` |
//! | W15 | `WaitingForNodes` | otherwise | end |
//! | W16 | `AwakePaused` | deleted, and not paused | end: KKP removes everything else |
//! | W17 | `AwakePaused` | not paused by us, and not deleted | end, once the API server answers |
//! | W18 | `AwakePaused` | not paused by us | wait for the end of another client's pause |
//! | W19 | `AwakePaused` | otherwise | try to end the pause again |

use std::time::Duration;

use super::control_plane::{Replicas, is_needed};
use super::facts::{Facts, MachineDeployment, Machinery};
use super::plan::{Action, NEW_FOR, Plan, Row, SLOW, Warning, ending, user_is_silent};
use crate::kkp::keys;
use crate::kkp::pause::{has_leftover, is_annotated};
use crate::kkp::phase::Phase;
use crate::kkp::record::{Machines, Record, Workload};
use crate::power::Power;
use crate::text::list;

/// How long machine-controller retries by itself after a refusal by a quota.
const TOUCH: Duration = Duration::from_mins(1);

/// The rows of a phase of the wake.
pub(super) fn rows(phase: Phase) -> &'static [Row] {
    match phase {
        Phase::StartingControlPlane => {
            &[("W2", control_plane_started), ("W3", |facts, record| Some(start_control_plane(facts, record)))]
        }
        Phase::WaitingForApi => &[
            ("W4", workloads_are_low),
            ("W5", api_is_silent),
            ("W6", |facts, record| facts.enters_if_seen(record, Phase::WaitingForMachineController)),
        ],
        Phase::WaitingForMachineController => &[
            ("W7", user_is_silent),
            ("W8", machine_controller_unready),
            ("W9", |facts, record| facts.enters_if_seen(record, Phase::ScalingUpMachines)),
        ],
        Phase::ScalingUpMachines => &[("W7", user_is_silent), ("W10", raise_machines), ("W11", machines_raised)],
        Phase::WaitingForNodes => &[
            ("W7", user_is_silent),
            ("W12", nodes_are_missing),
            ("W13", restore_annotations),
            ("W14", pause_is_left),
            ("W15", nodes_are_ready),
        ],
        _ => &[
            ("W16", |facts, _| (!facts.cluster.spec.pause && facts.is_deleted()).then(|| ending(facts, Vec::new()))),
            ("W17", awake),
            ("W18", paused_by_others),
            ("W19", |facts, _| Some(end_pause(facts))),
        ],
    }
}

/// W1. KKP deletes and creates etcd, and ends its pause by itself.
pub(super) fn restore_is_under_way(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let message = "WaitingForRestore: an EtcdRestore is under way, and the wake goes on when it has ended";
    let waits = facts.is_restored() && !facts.is_deleted() && record.phase.is_of_wake();
    waits.then(|| facts.waits(message, []))
}

/// KKP does not bring the cluster back by itself: it refuses the end of the pause (row 27), the cluster is being
/// deleted (row 20), or the pause is another client's.
fn is_alone(facts: &Facts<'_>) -> bool {
    facts.unpause_refused.is_some() || facts.is_deleted() || facts.is_paused_by_others()
}

/// Whether a step of a deletion has exceeded its limit: KKP then cleans up as far as it can.
fn goes_on_regardless(facts: &Facts<'_>) -> bool {
    facts.is_deleted() && facts.overdue().is_some()
}

/// The end of our pause, also after a refusal: without KKP expired certificates are not renewed. A cluster that is
/// deleted stays paused until it is up, because KKP then restores nothing (row 20). The pause of another client is
/// theirs to end. When they have ended ours, what it has left goes the same way: a later pause without a reason would
/// pass for ours.
fn unpause(facts: &Facts<'_>) -> Option<Action> {
    (has_pause(facts) && !facts.is_deleted()).then_some(Action::Unpause)
}

/// Whether the Cluster has our pause, or what is left of it.
pub(super) fn has_pause(facts: &Facts<'_>) -> bool {
    facts.is_paused_by_us() || has_leftover(facts.cluster)
}

/// Counts that are lower than before the sleep, of etcd or of the rest.
fn low(facts: &Facts<'_>, record: &Record, of_etcd: bool) -> Vec<Action> {
    let picked = facts.control_plane.iter().filter(|one| one.is_etcd() == of_etcd);
    let low = picked.filter(|one| one.wanted < one.before(record));
    low.map(|one| Action::Restore(one.workload.clone(), one.before(record))).collect()
}

/// What brings etcd up, and what KKP does not bring up.
fn starts(facts: &Facts<'_>, record: &Record) -> Vec<Action> {
    let others = if is_alone(facts) { low(facts, record, false) } else { Vec::new() };
    low(facts, record, true).into_iter().chain(others).collect()
}

/// W2
fn control_plane_started(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let serves = facts
        .control_plane
        .iter()
        .find(|one| one.is_etcd())
        .is_none_or(|etcd| etcd.lacks().is_none() || etcd.serves() && facts.overdue().is_some());
    let is_up = serves && starts(facts, record).is_empty();
    let is_over = is_up && (unpause(facts).is_none() || facts.unpause_refused.is_some());
    is_over.then(|| facts.enters(record, Phase::WaitingForApi))
}

/// W3. etcd and the end of the pause, back to back: KKP raises everything but etcd, and at its concurrency limit
/// nothing (rows 8, 9).
fn start_control_plane(facts: &Facts<'_>, record: &Record) -> Plan {
    let message = facts.unpause_refused.map(|why| format!("KKP refuses the end of spec.pause: {why}"));
    let actions = starts(facts, record).into_iter().chain(unpause(facts));
    facts.waits(message.as_deref().unwrap_or("waiting for etcd"), actions)
}

/// W4. Once the limit is exceeded, only what a wake needs is waited for, until it serves. All of etcd was waited for
/// before.
fn workloads_are_low(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let is_overdue = facts.overdue().is_some();
    let is_low = |one: &&Replicas| {
        let is_up = if is_overdue || one.is_etcd() { one.serves() } else { one.wanted > 0 && one.lacks().is_none() };
        one.before(record) > 0 && !is_up && (!is_overdue || is_needed(&one.workload.name))
    };
    let low = list(facts.control_plane.iter().filter(is_low).map(|one| &one.workload.name));
    let waits = !low.is_empty() && !goes_on_regardless(facts);
    waits.then(|| facts.waits(&format!("waiting for {low}"), left_by_kkp(facts, record)))
}

/// What is not ready of a control plane that serves; empty if all is.
pub(super) fn lacks(facts: &Facts<'_>) -> String {
    list(facts.control_plane.iter().filter_map(Replicas::lacks))
}

/// W5
fn api_is_silent(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    user_is_silent(facts, record).map(|plan| Plan { actions: left_by_kkp(facts, record), ..plan })
}

/// Once KKP has had its turn: what it does not raise is not its own.
fn left_by_kkp(facts: &Facts<'_>, record: &Record) -> Vec<Action> {
    let left = |one: &&Replicas| one.wanted == 0 && one.before(record) > 0 && facts.in_phase() > NEW_FOR;
    let left = facts.control_plane.iter().filter(left);
    left.map(|one| Action::Restore(one.workload.clone(), one.before(record))).chain(unpause(facts)).collect()
}

/// W8
fn machine_controller_unready(facts: &Facts<'_>, _: &Record) -> Option<Plan> {
    let what = facts.seen()?.unready.as_ref().filter(|_| !goes_on_regardless(facts))?;
    Some(facts.waits(what, []))
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

/// W10
fn raise_machines(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let user = facts.seen()?;
    let actions = if facts.is_deleted() { to_detach(record, user) } else { to_raise(record, user) };
    (!actions.is_empty()).then(|| facts.waits("restoring the counts of MachineDeployments", actions))
}

/// W11. Not at the end only: Nodes may be long in coming, and backups must not wait for them.
fn machines_raised(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let actions = facts.seen().map(|_| vec![Action::TouchBackups])?;
    Some(Plan { actions, ..facts.enters(record, Phase::WaitingForNodes) })
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

/// W12. The control plane's own jobs resume meanwhile. A quota that refuses Machines may do so for long: then the
/// cluster is hydrated in part. Every count is restored: a sleep that is requested again needs nothing of this record.
fn nodes_are_missing(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let user = facts.seen()?;
    let wanted = user.deployments.iter().fold(0_u32, |sum, one| sum.saturating_add(one.replicas));
    let wanted = if facts.is_deleted() { wanted.min(1) } else { wanted };
    let ready = user.nodes.iter().filter(|node| node.ready && node.has_machine && !node.leaves).count();
    let sleeps_again = facts.desired(Some(record)) == Power::Hibernating;
    let waits = (wanted as usize) > ready && !sleeps_again && !goes_on_regardless(facts);
    let message = format!("{ready} of {wanted} Nodes are ready");
    waits.then(|| waits_for_nodes(facts, record, user, &message))
}

fn waits_for_nodes(facts: &Facts<'_>, record: &Record, user: &Machinery, message: &str) -> Plan {
    let mut actions: Vec<Action> = uncordon(user).into_iter().chain(unsuspend(facts, record)).collect();
    let Some(quota) = &user.quota else { return facts.waits(message, actions) };
    let is_touched = facts.in_phase() >= TOUCH;
    actions.extend(is_touched.then(|| Action::TouchMachineSets(quota.sets.clone())));
    let message = format!("hydrated in part: {message}; a quota refuses Machines: {}", quota.why);
    let plan = facts.waits(&message, actions);
    if is_touched { plan.requeued(SLOW) } else { plan }
}

/// What is left to annotate. A cluster that is deleted needs none of it.
fn left_to_annotate(facts: &Facts<'_>, record: &Record) -> Vec<Action> {
    let user = facts.seen().filter(|_| !facts.is_deleted());
    user.map(|user| to_annotate(record, user)).unwrap_or_default()
}

/// W13
fn restore_annotations(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let actions = left_to_annotate(facts, record);
    let waits = !actions.is_empty() && facts.overdue().is_none();
    waits.then(|| facts.waits("restoring annotations of MachineDeployments", actions))
}

/// W14. Another client may change the annotations each time: past the limit they are written once more, and hold up
/// nothing.
fn pause_is_left(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let is_left = facts.is_paused_by_us() || facts.cluster.spec.pause && facts.is_deleted();
    let actions = left_to_annotate(facts, record);
    is_left.then(|| Plan { actions, ..facts.enters(record, Phase::AwakePaused) })
}

/// W15
fn nodes_are_ready(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let plan = end(facts, record, facts.seen()?);
    let actions = left_to_annotate(facts, record).into_iter().chain(plan.actions).collect();
    Some(Plan { actions, ..plan })
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
    actions.extend((facts.is_paused_by_others() && is_annotated(facts.cluster)).then_some(Action::Disown));
    let warning = facts.is_paused_by_others().then(|| {
        let why = facts.cluster.pause_reason();
        let note = format!("the cluster is awake, and another client has paused it ({why}): KKP does not manage it until spec.pause is false");
        Warning { reason: "PausedByOthers", note }
    });
    Plan { warning, ..ending(facts, actions) }
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

/// W17
fn awake(facts: &Facts<'_>, record: &Record) -> Option<Plan> {
    let is_awake = !facts.is_paused_by_us() && !facts.is_deleted();
    let end = || facts.seen().map(|user| end(facts, record, user));
    is_awake.then(|| user_is_silent(facts, record).or_else(end)).flatten()
}

/// W18
fn paused_by_others(facts: &Facts<'_>, _: &Record) -> Option<Plan> {
    let message = format!(
        "the cluster is awake, and KKP does not delete it while another client pauses it: {}",
        keys::TO_UNPAUSE
    );
    (!facts.is_paused_by_us()).then(|| Plan::work(Phase::AwakePaused, message, []).requeued(SLOW))
}

/// W19. Every count is restored, but KKP still leaves the cluster alone.
fn end_pause(facts: &Facts<'_>) -> Plan {
    let message = facts.unpause_refused.map_or_else(
        || "ending the pause".to_owned(),
        |why| format!("the cluster is awake, and KKP does not manage it: the end of spec.pause was refused: {why}"),
    );
    Plan::work(Phase::AwakePaused, message, [Action::Unpause]).requeued(SLOW)
}
