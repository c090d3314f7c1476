//! Out of sleep.

use super::{Action, Facts, Machinery, Plan, Replicas, SLOW, User, names, seen, waits};
use crate::kkp::keys::ACTIVE_RESTORE;
use crate::kkp::phase::Phase;
use crate::kkp::record::{Machines, Record};

pub(super) fn go_on(facts: &Facts<'_>, record: &Record) -> Plan {
    match record.phase {
        Phase::StartingControlPlane => start(facts, record),
        Phase::WaitingForApi => wait_for_api(facts, record),
        Phase::WaitingForMachineController => match seen(facts, record.phase) {
            Ok(Machinery { unready: None, .. }) => Plan::enter(record, Phase::ScalingUpMachines, facts.now),
            Ok(Machinery { unready: Some(what), .. }) => waits(facts, record.phase, what, Vec::new()),
            Err(plan) => *plan,
        },
        Phase::ScalingUpMachines => scale_up(facts, record),
        Phase::WaitingForNodes => wait_for_nodes(facts, record),
        _ => awake_paused(facts, record),
    }
}

/// KKP does not bring the cluster back by itself: it refuses the end of the pause (row 27), or the cluster is being deleted (row 20).
fn is_alone(facts: &Facts<'_>) -> bool {
    facts.unpause_refused.is_some() || facts.cluster.metadata.deletion_timestamp.is_some()
}

/// etcd and the end of the pause, back to back: KKP raises everything but etcd, and at its concurrency limit nothing (rows 8, 9).
fn start(facts: &Facts<'_>, record: &Record) -> Plan {
    let low = |is_etcd: bool| {
        facts.control_plane.iter().filter(move |one| (one.workload.name == "etcd") == is_etcd).filter_map(|one| {
            let recorded = *record.control_plane.get(&one.workload)?;
            (one.wanted < recorded).then(|| Action::Restore(one.workload.clone(), recorded))
        })
    };
    let mut actions: Vec<Action> = low(true).collect();
    if is_alone(facts) {
        actions.extend(low(false));
    } else if facts.cluster.spec.pause && record.paused {
        actions.push(Action::Unpause);
    }
    let etcd = facts.control_plane.iter().find(|one| one.workload.name == "etcd");
    if actions.is_empty() && etcd.is_none_or(|etcd| etcd.ready) {
        return Plan::enter(record, Phase::WaitingForApi, facts.now);
    }
    waits(facts, Phase::StartingControlPlane, "waiting for etcd", actions)
}

fn wait_for_api(facts: &Facts<'_>, record: &Record) -> Plan {
    let is_low = |one: &&Replicas| {
        let recorded = record.control_plane.get(&one.workload).copied().unwrap_or_default();
        recorded > 0 && (one.wanted == 0 || !one.ready)
    };
    let low = names(facts.control_plane.iter().filter(is_low).map(|one| one.workload.name.as_str()));
    if !low.is_empty() {
        return waits(facts, record.phase, &format!("waiting for {low}"), Vec::new());
    }
    match seen(facts, record.phase) {
        Ok(_) => Plan::enter(record, Phase::WaitingForMachineController, facts.now),
        Err(plan) => *plan,
    }
}

/// Counts as they were. A count that another client has raised stays; 0 stays 0.
fn to_restore(record: &Record, user: &Machinery) -> Vec<Action> {
    let low = user.deployments.iter().filter_map(|one| {
        let recorded = record.machine_deployments.get(&one.name)?;
        let replicas = if one.replicas == 0 { recorded.replicas } else { one.replicas };
        let unmanaged = recorded.autoscaler.keys().any(|key| !one.autoscaler.contains_key(key));
        let machines = Machines { replicas, autoscaler: recorded.autoscaler.clone() };
        (replicas != one.replicas || unmanaged).then(|| Action::RestoreMachines(one.name.clone(), machines))
    });
    low.collect()
}

fn scale_up(facts: &Facts<'_>, record: &Record) -> Plan {
    let User::Seen(user) = facts.user else {
        return waits(facts, record.phase, "the user cluster is silent", Vec::new());
    };
    // The MachineDeployments are those of the backup: their counts are of that day (row 18).
    let restored = facts.cluster.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(ACTIVE_RESTORE));
    if restored && !record.machine_deployments.is_empty() {
        let record = Record { machine_deployments: std::collections::BTreeMap::new(), ..record.clone() };
        return Plan::enter(&record, Phase::WaitingForNodes, facts.now);
    }
    let actions = to_restore(record, user);
    if actions.is_empty() {
        return Plan::enter(record, Phase::WaitingForNodes, facts.now);
    }
    waits(facts, record.phase, "restoring the counts of MachineDeployments", actions)
}

fn wait_for_nodes(facts: &Facts<'_>, record: &Record) -> Plan {
    let User::Seen(user) = facts.user else {
        return waits(facts, record.phase, "the user cluster is silent", Vec::new());
    };
    let wanted: u32 = user.deployments.iter().map(|one| one.replicas).sum();
    let ready = user.nodes.iter().filter(|node| node.ready && node.has_machine).count();
    let missing = (wanted as usize).saturating_sub(ready);
    if missing > 0 {
        let quota = user.quota.as_ref().map(|why| format!("; Machines are refused: {why}")).unwrap_or_default();
        let message = format!("{ready} of {wanted} Nodes are ready{quota}");
        return waits(facts, record.phase, &message, Vec::new());
    }
    if facts.cluster.spec.pause && record.paused {
        return Plan::enter(record, Phase::AwakePaused, facts.now);
    }
    end(facts, record, user)
}

/// The last calls, and the record goes.
fn end(facts: &Facts<'_>, record: &Record, user: &Machinery) -> Plan {
    let ours = facts.cron_jobs.iter().filter(|job| job.suspended && record.cron_jobs.contains(&job.name));
    let ours: Vec<String> = ours.map(|job| job.name.clone()).collect();
    let mut actions: Vec<Action> = uncordon(user).into_iter().collect();
    actions.extend((!ours.is_empty()).then_some(Action::Unsuspend(ours)));
    actions.push(Action::TouchBackups);
    Plan { actions, ends: true, ..Plan::default() }
}

/// Nodes that the sleep changed and that are still there: those of a wake before the machines went.
fn uncordon(user: &Machinery) -> Option<Action> {
    let ours: Vec<String> = user.nodes.iter().filter(|node| node.ours).map(|node| node.name.clone()).collect();
    (!ours.is_empty()).then_some(Action::Uncordon(ours))
}

/// What a drain changed before any machine went.
pub(super) fn undo_of_drain(record: &Record, user: &Machinery) -> Vec<Action> {
    to_restore(record, user).into_iter().chain(uncordon(user)).collect()
}

/// Every count is restored, but KKP still leaves the cluster alone: the end of the pause is tried again.
fn awake_paused(facts: &Facts<'_>, record: &Record) -> Plan {
    let User::Seen(user) = facts.user else {
        return waits(facts, record.phase, "the user cluster is silent", Vec::new());
    };
    if !facts.cluster.spec.pause {
        return end(facts, record, user);
    }
    let why = facts.unpause_refused.unwrap_or("the cluster is being deleted");
    let message = format!("the cluster is awake, and KKP does not manage it: the end of spec.pause was refused: {why}");
    Plan { requeue: Some(SLOW), ..Plan::work(Phase::AwakePaused, message, vec![Action::Unpause]) }
}
