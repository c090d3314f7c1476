//! What the status of a rollout says.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::api::{PowerRollout, PowerRolloutSpec};
use super::member::{Member, MemberState};
use super::status::{NotFound, PowerRolloutStatus, RolloutPhase, TargetStatus};
use super::{Decision, Window};
use crate::annotation::format;
use crate::duration::{after, age};
use crate::kinds::View;
use crate::text::{and_more, name_some, sanitize_to};

/// Most targets that a status lists.
const MAX_TARGETS: usize = 50;

/// Most names that a message lists.
pub(super) const MAX_LISTED: usize = 3;

/// Longest name in a message, in characters.
pub(super) const MAX_NAME: usize = 100;

/// Longest estimate.
const YEAR: Duration = Duration::from_hours(365 * 24);

/// Condition type: the rollout is over.
pub const COMPLETE: &str = "Complete";
/// Condition type: too many failures, or more members than `maxTargets`.
pub const HALTED: &str = "Halted";

/// Reason of a condition: the requester of the rollout has so many that it has to wait.
const TOO_MANY_ROLLOUTS: &str = "TooManyRollouts";

/// Label of members that are gone.
pub const REMOVED: &str = "Removed";

/// A member, as the plan needs it more than once.
pub(super) struct Row<'a> {
    pub(super) index: usize,
    pub(super) object: &'a View,
    pub(super) member: Member,
    pub(super) native: usize,
    pub(super) domain: Option<&'a str>,
    pub(super) checking: bool,
}

impl Row<'_> {
    /// Whether a rollout with this UID works on it.
    pub(super) fn is_claimed(&self, uid: &str) -> bool {
        self.object.desired.mark.as_ref().is_some_and(|mark| mark.is_claim_of(uid))
    }
}

/// Why nothing starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Aborted,
    Late,
    Queued(String),
    TooMany {
        found: usize,
    },
    Empty {
        group: String,
    },
    Nothing,
    /// Nothing but names, and no object has one of them.
    NotFound,
    Halted(String),
    Paused,
    Early,
    WakeAtPassed,
    Blocked(String),
}

/// What a status depends on.
pub(super) struct Facts<'a> {
    pub(super) rollout: &'a PowerRollout,
    pub(super) rows: &'a [Row<'a>],
    pub(super) decision: &'a Decision<'a>,
    pub(super) window: &'a Window,
    pub(super) stop: Option<&'a Stop>,
    /// Why it could not start.
    pub(super) blocked: Option<&'a str>,
    pub(super) now: Timestamp,
}

/// In the order in which people want to see them.
fn rank(state: MemberState) -> usize {
    use MemberState::{
        Abandoned, AlreadyInState, Deferred, Failed, Overridden, Pending, Progressing, Refused, Succeeded, TimeOut,
    };
    [Failed, TimeOut, Overridden, Refused, Abandoned, Deferred, Progressing, Pending, Succeeded, AlreadyInState]
        .into_iter()
        .position(|one| one == state)
        .unwrap_or_default()
}

/// Fills in what people read.
pub(super) fn fill(status: &mut PowerRolloutStatus, facts: &Facts<'_>) {
    let Facts { rollout, rows, now, .. } = *facts;
    status.observed_generation = rollout.metadata.generation;
    // What was last known of the targets stays.
    if unknown(status, facts).is_none() {
        status.counts = counts(status, rows);
        status.targets = targets(rows);
    }
    let (phase, mut message) = phase(status, facts);
    if let Some(NotFound { count, names }) = &status.not_found {
        let separator = if message.is_empty() { "" } else { "; " };
        let count = usize::try_from(*count).unwrap_or(usize::MAX);
        let named = [names.join(", ")].into_iter().chain(and_more(count.saturating_sub(names.len())));
        message = format!("{message}{separator}not found: {}", named.collect::<Vec<_>>().join(" "));
    }
    (status.phase, status.message) = (Some(phase), Some(message).filter(|message| !message.is_empty()));
    status.estimated_end = estimate(status, facts).map(Time);
    if !phase.is_over() {
        status.finished_at = None;
    } else if status.finished_at.is_none() {
        status.finished_at = Some(Time(now));
    }
    let message = status.message.clone().unwrap_or_default();
    for (type_, is_true) in [(COMPLETE, phase.is_over()), (HALTED, phase == RolloutPhase::Halted)] {
        let condition = condition(type_, is_true, phase, &message, facts);
        match status.conditions.iter_mut().find(|condition| condition.type_ == type_) {
            Some(old) if old.status == condition.status => {
                *old = Condition { last_transition_time: old.last_transition_time.clone(), ..condition };
            }
            Some(old) => *old = condition,
            None => status.conditions.push(condition),
        }
    }
}

fn condition(type_: &str, is_true: bool, phase: RolloutPhase, message: &str, facts: &Facts<'_>) -> Condition {
    let is_queued = matches!(facts.stop, Some(Stop::Queued(_)));
    Condition {
        type_: type_.to_owned(),
        status: if is_true { "True" } else { "False" }.to_owned(),
        reason: if is_queued { TOO_MANY_ROLLOUTS.to_owned() } else { phase.to_string() },
        message: message.to_owned(),
        last_transition_time: Time(facts.now),
        observed_generation: facts.rollout.metadata.generation,
    }
}

/// Why nothing is known of the targets of a rollout that has begun, such as of a kind that is not watched any more.
fn unknown<'a>(status: &PowerRolloutStatus, facts: &Facts<'a>) -> Option<&'a str> {
    facts.blocked.filter(|_| status.started_at.is_some() && facts.rows.is_empty())
}

/// The first of the targets, in the order in which people want to see them.
fn targets(rows: &[Row<'_>]) -> Vec<TargetStatus> {
    let mut ranked: Vec<&Row<'_>> = rows.iter().collect();
    ranked.sort_by_key(|row| (rank(row.member.label), &row.object.identity.namespace, &row.object.identity.name));
    let one = |row: &&Row<'_>| TargetStatus {
        namespace: row.object.identity.namespace.clone(),
        name: row.object.identity.name.clone(),
        state: row.member.label.to_string(),
        reason: row.member.reason.clone(),
    };
    ranked.iter().take(MAX_TARGETS).map(one).collect()
}

fn counts(status: &PowerRolloutStatus, rows: &[Row<'_>]) -> BTreeMap<String, u32> {
    let mut counts: BTreeMap<String, u32> = BTreeMap::new();
    for row in rows {
        *counts.entry(row.member.label.to_string()).or_default() += 1;
    }
    let found = u32::try_from(rows.len()).unwrap_or(u32::MAX);
    let removed = status.total.map_or(0, |total| total.saturating_sub(found));
    if removed > 0 {
        counts.insert(REMOVED.to_owned(), removed);
    }
    counts
}

fn count(status: &PowerRolloutStatus, state: MemberState) -> u32 {
    status.counts.get(&state.to_string()).copied().unwrap_or_default()
}

fn phase(status: &PowerRolloutStatus, facts: &Facts<'_>) -> (RolloutPhase, String) {
    let Facts { rollout, rows, decision, stop, .. } = *facts;
    let spec = &rollout.spec;
    let uid = rollout.metadata.uid.as_deref().unwrap_or_default();
    let under_way = rows.iter().filter(|row| row.is_claimed(uid)).count();
    let ends = matches!(stop, Some(Stop::Aborted | Stop::Late));
    let begun = status.started_at.is_some();
    let waits = matches!(stop, Some(Stop::TooMany { .. } | Stop::Blocked(_)));
    if under_way == 0 && (ends || stop == Some(&Stop::NotFound) || (begun && decision.complete && !waits)) {
        return over(status, facts);
    }
    let go_on = if under_way == 0 { String::new() } else { format!("; {under_way} targets are under way") };
    let limit = spec.max_targets;
    let early = if begun { RolloutPhase::Progressing } else { RolloutPhase::Waiting };
    match stop {
        Some(Stop::Aborted) => (RolloutPhase::Progressing, format!("aborted{go_on}")),
        Some(Stop::Late) => (RolloutPhase::Progressing, format!("notAfter has passed{go_on}")),
        Some(Stop::Queued(why)) => (RolloutPhase::Waiting, why.clone()),
        Some(Stop::TooMany { found }) => (
            RolloutPhase::Halted,
            format!("selects {found} targets, more than maxTargets {limit}: raise it or abort{go_on}"),
        ),
        Some(Stop::Empty { group }) => {
            (RolloutPhase::Halted, format!("group {group} selects none of the targets: correct its selector or names"))
        }
        Some(Stop::Nothing | Stop::NotFound) => (RolloutPhase::Waiting, nothing(spec)),
        Some(Stop::Halted(group)) => (RolloutPhase::Halted, halted(group) + &go_on),
        Some(Stop::WakeAtPassed) => (early, format!("wakeAt has passed: set it to a later time{go_on}")),
        Some(Stop::Blocked(why)) => (early, format!("{why}{go_on}")),
        Some(Stop::Paused) if !begun => (RolloutPhase::Planned, "created paused: unpause it to start".to_owned()),
        Some(Stop::Paused) => (RolloutPhase::Paused, format!("paused{go_on}")),
        Some(Stop::Early) => {
            let at = spec.not_before.as_ref().map(|at| format::seconds(at.0)).unwrap_or_default();
            (RolloutPhase::Waiting, format!("starts at {at}"))
        }
        None => match (&status.halt, &status.awaits_approval) {
            (Some(halt), _) => (RolloutPhase::Halted, halted(&halt.group) + &go_on),
            (None, Some(group)) => {
                (RolloutPhase::Paused, format!("group {group} is over: set its pauseAfter to false to go on"))
            }
            (None, None) => (RolloutPhase::Progressing, waiting(status, decision)),
        },
    }
}

fn halted(group: &str) -> String {
    let group = if group.is_empty() { "the remaining targets".to_owned() } else { format!("group {group}") };
    format!("too many failures in {group}: increase acceptFailures to go on, retryFailed to try again, or abort")
}

/// What the rollout waits for, if that is not obvious.
fn waiting(status: &PowerRolloutStatus, decision: &Decision<'_>) -> String {
    let deferred = count(status, MemberState::Deferred);
    match decision.closed.as_slice() {
        [] if deferred > 0 && count(status, MemberState::Pending) == 0 => format!("{deferred} targets are deferred"),
        [] => String::new(),
        closed => {
            let domains = name_some(closed, MAX_LISTED);
            format!("nothing starts in {domains}: the cloud lacks capacity or rate-limits requests")
        }
    }
}

/// Why nothing is selected.
fn nothing(spec: &PowerRolloutSpec) -> String {
    match &spec.restore_of {
        None => "selects no targets: their selection is immutable, create another rollout".to_owned(),
        Some(other) => format!(
            "no target that is selected has a record of rollout {} with UID {}: it has ended no target, or is undone",
            sanitize_to(&other.name, MAX_NAME),
            sanitize_to(&other.uid, MAX_NAME)
        ),
    }
}

fn over(status: &PowerRolloutStatus, facts: &Facts<'_>) -> (RolloutPhase, String) {
    let (spec, aborted) = (&facts.rollout.spec, facts.stop == Some(&Stop::Aborted));
    let well = count(status, MemberState::Succeeded) + count(status, MemberState::AlreadyInState);
    let all: u32 = status.counts.values().sum();
    let unknown = unknown(status, facts).map(|why| format!("; {why}")).unwrap_or_default();
    if aborted {
        return (RolloutPhase::Aborted, format!("{well} of {all} targets are in their state{unknown}"));
    }
    if all == 0 {
        (
            RolloutPhase::Finished,
            facts.blocked.map_or_else(|| nothing(spec), |why| format!("notAfter has passed: {why}")),
        )
    } else if well == all {
        (RolloutPhase::Succeeded, String::new())
    } else {
        let waits =
            if status.attempt == Some(spec.retry_failed) { "" } else { "; retryFailed waits: notAfter has passed" };
        (RolloutPhase::Finished, format!("{well} of {all} targets are in their state{waits}{unknown}"))
    }
}

/// When the rollout ends by [`about`](Window::about), with the mean of what its targets took so far, for those that are
/// left.
fn estimate(status: &PowerRolloutStatus, facts: &Facts<'_>) -> Option<Timestamp> {
    let Facts { rollout, rows, window, now, .. } = *facts;
    if status.phase != Some(RolloutPhase::Progressing) {
        return None;
    }
    let lasted = |row: &Row<'_>| {
        let (begin, end) = (row.member.started?, row.member.since?);
        (row.member.label == MemberState::Succeeded && end >= begin).then(|| age(begin, end))
    };
    let lasted: Vec<Duration> = rows.iter().filter_map(lasted).collect();
    let mean = lasted.iter().sum::<Duration>().checked_div(u32::try_from(lasted.len()).ok()?)?;
    let is_left = |row: &&Row<'_>| matches!(row.member.label, MemberState::Pending | MemberState::Progressing);
    let last = rollout.spec.groups.len();
    let mut left = vec![0; last + 1];
    for row in rows.iter().filter(is_left) {
        left[row.native.min(last)] += 1;
    }
    if left.iter().sum::<usize>() == 0 {
        return None;
    }
    let end = after(now, window.about(&left, mean).min(YEAR));
    // To the minute, so that it is not written anew all the time.
    Timestamp::from_second(end.as_second() / 60 * 60 + 60).ok()
}
