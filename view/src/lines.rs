//! Objects that are only shown, as lines of a table.

use jiff::Timestamp;
use shared::cgu::api::{COMPLETE, TIMED_OUT};
use shared::kinds::Shows;
use shared::rollout::status::{GroupStatus, TargetStatus};

use super::Item;
use super::age::{age, local};
use super::rollout::RolloutState;
use super::schedule::ScheduleState;
use super::upgrade::UpgradeState;

const ROLLOUT: [&str; 8] = ["NAME", "ACTION", "PHASE", "TARGETS", "SUCCEEDED", "FAILED", "REQUESTED BY", "AGE"];
const UPGRADE: [&str; 8] = ["NAMESPACE", "NAME", "STATE", "BATCH", "CLUSTERS", "COMPLETE", "TIMED OUT", "AGE"];
const SCHEDULE: [&str; 9] = ["NAMESPACE", "NAME", "ZONE", "STATE", "NEXT", "AT", "TARGETS", "ROLLOUT", "SUSPENDED"];

/// The heads of [`groups`] and [`members`].
pub const GROUPS: [&str; 2] = ["GROUP", "TARGETS"];
pub const MEMBERS: [&str; 4] = ["NAMESPACE", "NAME", "STATE", "REASON"];
/// The name of the group of the remaining targets.
pub const REMAINING: &str = "(remaining)";

/// The head of the table; none of what does not fit one line.
pub const fn head(shows: Shows) -> Option<&'static [&'static str]> {
    match shows {
        Shows::Rollout => Some(&ROLLOUT),
        Shows::Upgrade => Some(&UPGRADE),
        Shows::Schedule => Some(&SCHEDULE),
        Shows::ClusterPool | Shows::FoundationDb => None,
    }
}

/// The line of an item under [`head`]; none of what does not fit one.
pub fn line(item: &Item, now: Timestamp) -> Option<Vec<String>> {
    match item {
        Item::Rollout(rollout) => Some(of_rollout(rollout, now).into()),
        Item::Upgrade(upgrade) => Some(of_upgrade(upgrade, now).into()),
        Item::Schedule(schedule) => Some(of_schedule(schedule).into()),
        Item::Target(_) | Item::Pool(_) | Item::Database(_) => None,
    }
}

fn of_rollout(rollout: &RolloutState, now: Timestamp) -> [String; ROLLOUT.len()] {
    let count = |state: &str| rollout.status.counts.get(state).copied().unwrap_or_default();
    [
        rollout.name.clone(),
        rollout.spec.action.to_string(),
        rollout.phase.clone(),
        rollout.status.total.map(|total| total.to_string()).unwrap_or_default(),
        (count("Succeeded") + count("AlreadyInState")).to_string(),
        (count("Failed") + count("TimeOut")).to_string(),
        rollout.requested_by.clone().unwrap_or_default(),
        rollout.created_at.map(|at| age(at, now)).unwrap_or_default(),
    ]
}

fn of_upgrade(state: &UpgradeState, now: Timestamp) -> [String; UPGRADE.len()] {
    let created = state.upgrade.metadata.creation_timestamp.as_ref();
    [
        state.namespace().to_owned(),
        state.name().to_owned(),
        state.state(),
        state.batch(),
        state.members.len().to_string(),
        state.count(COMPLETE).to_string(),
        state.count(TIMED_OUT).to_string(),
        created.map(|at| age(at.0, now)).unwrap_or_default(),
    ]
}

fn of_schedule(state: &ScheduleState) -> [String; SCHEDULE.len()] {
    let (spec, status) = (state.spec(), state.status().cloned().unwrap_or_default());
    let next = status.next.first();
    [
        state.namespace().to_owned(),
        state.name().to_owned(),
        spec.time_zone.clone(),
        state.state(),
        next.map(|edge| edge.power.to_string()).unwrap_or_default(),
        next.map(|edge| local(edge.at.0, &spec.time_zone)).unwrap_or_default(),
        status.targets.map(|targets| targets.to_string()).unwrap_or_default(),
        status.last_edge.and_then(|edge| edge.rollout).unwrap_or_default(),
        spec.suspend.to_string(),
    ]
}

/// The groups of a rollout in their order.
pub fn groups(rollout: &RolloutState) -> impl Iterator<Item = [String; GROUPS.len()]> {
    rollout.status.groups.iter().map(|GroupStatus { name, total }| {
        let name = if name.is_empty() { REMAINING } else { name };
        [name.to_owned(), total.to_string()]
    })
}

/// The targets that the status of a rollout names.
pub fn members(rollout: &RolloutState) -> impl Iterator<Item = [String; MEMBERS.len()]> {
    let cells = |TargetStatus { namespace, name, state, reason }: &TargetStatus| {
        [namespace, name, state, reason].map(String::clone)
    };
    rollout.status.targets.iter().map(cells)
}
