//! One reconcile of a rollout, as data: which targets start, which claims end, and the status.
//!
//! [`plan`] is total, deterministic and idempotent. The claims and records on the targets and the status of the rollout
//! are its only memory: whoever leads plans the same.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;

use super::api::{PowerRollout, PowerRolloutSpec};
use super::member::{self, Facts, Member, MemberState, State, Target};
use super::members::{not_found, place};
use super::report::{Row, Stop};
use super::share::Share;
use super::snapshot::Snapshot;
use super::status::{Accepted, GroupStatus, Halt, PowerRolloutStatus, RolloutPhase};
use super::{Decision, Group, Window, decide, report, timeline};
use crate::annotation::format;
use crate::annotation::mark::{Action, Mark, Outcome};
use crate::duration;
use crate::kinds::View;
use crate::kinds::row::Deadlines;
use crate::power::Power;

/// How long success must last in a canary group, unless the rollout says otherwise.
const CANARY_SOAK: Duration = Duration::from_mins(2);
/// Starts in a minute, unless the rollout says otherwise. A Hibernate has no limit.
const STARTS_PER_MINUTE: u32 = 30;
/// Targets under way at once, unless the rollout says otherwise.
pub const MAX_CONCURRENCY: Share = Share::Count(20);
/// How often deferred targets are judged again: a hold ends without a change of the object. And how often a rollout
/// looks for its turn.
const RECHECK: Duration = Duration::from_secs(30);

/// How often it is checked whether the rollout is still blocked.
const BLOCKED: Duration = Duration::from_secs(2);

/// An object that the rollout selects; once it has started, one that was a member then.
#[derive(Clone, Copy, Debug)]
pub struct Candidate<'a> {
    /// What was read of it.
    pub object: &'a View,
    /// The index of the group that selects it, or selected it then.
    pub group: usize,
    /// What it shares a cloud's limits with, if that is known: see [`Target::domain`].
    pub domain: Option<&'a str>,
    /// Why it has to be left alone for now, as other objects of the hub say: an upgrade by TALM.
    pub upgrade: Option<&'a str>,
    /// What the last try to start it found against that, and when it was.
    pub checked: Option<(&'a str, Timestamp)>,
    /// Whether such a try is under way.
    pub checking: bool,
}

/// Everything that a plan depends on.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// The rollout.
    pub rollout: &'a PowerRollout,
    /// The objects that it selects; once it has started, its members.
    pub candidates: &'a [Candidate<'a>],
    /// How long one of them may take, unless the rollout says otherwise.
    pub deadlines: Deadlines,
    /// Why it is not its turn: its requester has too many rollouts.
    pub queued: Option<&'a str>,
    /// Why no target may start, whatever the rollout says: an incomplete list, a missing policy.
    pub blocked: Option<&'a str>,
    /// Now.
    pub now: Timestamp,
}

/// What is to be done. Targets are named by their index among the candidates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The members of a rollout that starts now. They are recorded before the status, and the status before anything
    /// else is written.
    pub snapshot: Option<Snapshot>,
    /// Targets to start, in this order, with their claims.
    pub starts: Vec<(usize, Mark)>,
    /// Claims to end, with their records.
    pub ends: Vec<(usize, Mark)>,
    /// The status.
    pub status: PowerRolloutStatus,
    /// When to plan again, if nothing changes before.
    pub requeue_at: Option<Timestamp>,
}

/// Whether a rollout is over and stays so.
pub fn is_over(rollout: &PowerRollout) -> bool {
    let over = |status: &PowerRolloutStatus| {
        status.phase.is_some_and(RolloutPhase::is_over) && status.attempt == Some(rollout.spec.retry_failed)
    };
    rollout.status.as_ref().is_some_and(over)
}

/// Whether targets may be in progress.
pub fn has_begun(rollout: &PowerRollout) -> bool {
    rollout.status.as_ref().is_some_and(|status| status.started_at.is_some())
}

/// Plans one reconcile.
pub fn plan(input: &Input<'_>) -> Plan {
    let Input { rollout, deadlines, now, .. } = *input;
    let spec = &rollout.spec;
    let mut status = rollout.status.clone().unwrap_or_default();
    count_accepts(&mut status, spec, now);
    let context = context(rollout, &status, now);
    let uid = context.uid;
    let rows = rows(input, &context);
    let since =
        |row: &Row<'_>| format::time(&row.object.desired.mark.as_ref().filter(|mark| mark.is_claim_of(uid))?.since);
    timeline::observe(&mut status, rows.iter().filter_map(since).min(), now);
    if status.started_at.is_some() {
        // A soak goes on once nothing starts any more: the claim has to end.
        timeline::pause(&mut status, spec.paused && !is_closed(spec, now), now);
    }
    let last = spec.groups.len();
    let targets = targets(&rows, &status, uid, last, now);
    if status.started_at.is_none() {
        // What blocks a rollout may keep its targets from being found.
        let is_known = input.blocked.is_none() && input.queued.is_none();
        let objects = input.candidates.iter().map(|candidate| candidate.object);
        status.not_found = if is_known { not_found(spec, objects) } else { None };
    }
    let counted = totals(spec, &rows);
    let stop = stop(input, &status, &counted, rows.len());
    let starts_now = status.started_at.is_none() && stop.is_none();
    if status.started_at.is_none() {
        status.groups = counted;
    }
    if starts_now {
        // Frozen on the object before anything starts: percentages refer to it.
        status.started_at = Some(Time(now));
        status.members_generation = rollout.metadata.generation;
        status.total = u32::try_from(rows.len()).ok();
    }
    let frozen = || rows.iter().filter_map(|row| Some((row.native, row.object.identity.uid?)));
    let snapshot = starts_now.then(|| Snapshot::of(frozen(), last + 1));
    let window = window(spec, &status, deadlines);
    let open = stop.is_none() && !starts_now;
    let decision = decide(&window, &targets, now, open);
    if let (Some(group), None) = (decision.breached, &status.halt) {
        let group = spec.groups.get(group).map(|group| group.name.clone()).unwrap_or_default();
        // A retry that waits for a later `notAfter` ends the halt then.
        let retry_failed = status.attempt.unwrap_or(spec.retry_failed);
        status.halt = Some(Halt { group, at: Time(now), accept_failures: spec.accept_failures, retry_failed });
    }
    status.awaits_approval = decision.awaits_approval.and_then(|group| spec.groups.get(group)).map(|g| g.name.clone());

    let start = |at: usize| {
        let (row, group) = (&rows[at], targets[at].group);
        let facts = facts(&context, &input.candidates[row.index], row.member.wanted, now);
        (row.index, context.claim(&facts, row.member.wanted, group, now))
    };
    let starts = decision.start.iter().chain(&decision.retry).copied().map(start).collect();
    let end = |late| move |at: usize| (at, late);
    let ended_now = decision.ended.iter().copied().map(end(None));
    let timed_out = decision.timed_out.iter().copied().map(end(window.deadline));
    let ends = ended_now.chain(timed_out).filter_map(|(at, late)| ended(&rows[at], late, now)).collect();
    let requeue_at = requeue_at(input, &decision, &rows, starts_now);
    let (stop, blocked) = (stop.as_ref(), input.queued.or(input.blocked));
    let facts = report::Facts { rollout, rows: &rows, decision: &decision, window: &window, stop, blocked, now };
    report::fill(&mut status, &facts);
    Plan { snapshot, starts, ends, status, requeue_at }
}

pub(super) fn context<'a>(
    rollout: &'a PowerRollout,
    status: &PowerRolloutStatus,
    now: Timestamp,
) -> member::Rollout<'a> {
    let (metadata, spec) = (&rollout.metadata, &rollout.spec);
    member::Rollout {
        name: metadata.name.as_deref().unwrap_or_default(),
        uid: metadata.uid.as_deref().unwrap_or_default(),
        action: spec.action,
        restores: spec.restore_of.as_ref().map(|other| other.uid.as_str()),
        attempt: status.attempt.unwrap_or_default(),
        started: status.started_at.as_ref().map_or(now, |at| at.0),
        as_of: spec.as_of.as_ref().map(|at| at.0),
        may_start: !is_closed(spec, now),
    }
}

/// Whether no target may start any more: it is aborted, or past its `notAfter`.
pub fn is_closed(spec: &PowerRolloutSpec, now: Timestamp) -> bool {
    spec.abort || now >= spec.not_after.0
}

/// Counts `acceptFailures`, and ends a halt once one of its counters has increased.
fn count_accepts(status: &mut PowerRolloutStatus, spec: &PowerRolloutSpec, now: Timestamp) {
    let count = spec.accept_failures;
    status.accepted = Some(match status.accepted.take() {
        None => Accepted { count, until: None },
        Some(accepted) if count > accepted.count => Accepted { count, until: Some(Time(now)) },
        Some(accepted) => accepted,
    });
    // A retry waits until targets may start: it would use up the attempt, and forget the failures.
    if status.attempt.is_none() || !is_closed(spec, now) {
        status.attempt = Some(spec.retry_failed);
    }
    let attempt = status.attempt;
    let holds = |halt: &Halt| halt.accept_failures == count && Some(halt.retry_failed) == attempt;
    status.halt = status.halt.take().filter(holds);
}

/// What stands for and against the change to this state.
fn facts<'a>(rollout: &member::Rollout<'_>, candidate: &Candidate<'a>, wanted: Power, now: Timestamp) -> Facts<'a> {
    let object = candidate.object;
    let sleeps = wanted == Power::Hibernating;
    // A Restore ends the hold that the rollout wrote that it undoes.
    let undone = object.desired.mark.as_ref().filter(|mark| rollout.restores == Some(mark.uid.as_str()));
    let undone = undone.and_then(Mark::hold);
    let holds = |until: Timestamp| now < until && undone != Some(until);
    let obstacles = &object.obstacles;
    let held = obstacles.not_asleep_before.as_ref().filter(|(until, _)| holds(*until)).map(|(_, why)| why.as_str());
    let for_sleep = held.or(candidate.upgrade).filter(|_| sleeps);
    Facts {
        desired: object.desired.power,
        observed: object.observed.power,
        created: object.identity.created,
        requested: object.desired.requested(),
        wakes_at: object.desired.wakes_at(),
        mark: object.desired.mark.as_ref(),
        refused: if sleeps { &obstacles.refused } else { &obstacles.no_wake }.as_deref(),
        deferred: obstacles.waits.as_deref().or(for_sleep).or(candidate.checked.map(|(why, _)| why)),
        failed: obstacles.failed.as_ref().map(|(why, since)| (why.as_str(), *since)),
        held: obstacles.delayed,
    }
}

pub(super) fn rows<'a>(input: &Input<'a>, context: &member::Rollout<'_>) -> Vec<Row<'a>> {
    let begun = has_begun(input.rollout);
    let one = |(index, candidate): (usize, &Candidate<'a>)| {
        let object = candidate.object;
        let own = object.desired.mark.as_ref().filter(|mark| mark.uid == context.uid);
        let wanted = own.map(|mark| mark.wanted).or_else(|| member::wanted(context, object.desired.mark.as_ref()));
        let mut member = match wanted {
            Some(wanted) => member::judge(context, &facts(context, candidate, wanted, input.now))?,
            // It stays a member; its desired state before the undone rollout is lost.
            None if begun => Member::unrestored(object.desired.power),
            None => return None,
        };
        // Only what a check found is checked again: everything else changes by itself.
        let checked = candidate.checked.filter(|(why, _)| member.reason == *why);
        if let (State::Deferred, Some((_, at))) = (member.state, checked) {
            member.since = Some(at);
        }
        let Candidate { group: native, domain, checking, .. } = *candidate;
        Some(Row { index, object, member, native, domain, checking })
    };
    input.candidates.iter().enumerate().filter_map(one).collect()
}

/// The same, as the engine is given them, with replaced canaries.
pub(super) fn targets(
    rows: &[Row<'_>],
    status: &PowerRolloutStatus,
    uid: &str,
    last: usize,
    now: Timestamp,
) -> Vec<Target> {
    let mut targets: Vec<Target> = rows.iter().map(|row| target(row, status, uid, last, now)).collect();
    let natives: Vec<usize> = rows.iter().map(|row| row.native).collect();
    place(&mut targets, &natives, last);
    targets
}

fn target(row: &Row<'_>, status: &PowerRolloutStatus, uid: &str, last: usize, now: Timestamp) -> Target {
    let Row { object, member, native, domain, checking, .. } = row;
    let own = object.desired.mark.as_ref().filter(|mark| mark.uid == uid);
    // Only one of the remaining targets stands in for a canary.
    let stand_in = own.filter(|_| *native == last).and_then(|mark| usize::try_from(mark.group).ok());
    let group = stand_in.unwrap_or(*native).min(last);
    let since = member.since.unwrap_or(now);
    let started = member.started.filter(|_| own.is_some());
    Target {
        name: format!("{}/{}", object.identity.namespace, object.identity.name),
        group,
        namespace: object.identity.namespace.clone(),
        domain: domain.map(str::to_owned),
        state: member.state,
        since,
        started,
        unobserved: started.map_or(Duration::ZERO, |started| timeline::overlap(&status.unobserved, started, now)),
        paused: timeline::overlap(&status.paused, since, now),
        claimed: row.is_claimed(uid),
        checking: *checking,
    }
}

/// Members of each group.
pub(super) fn totals(spec: &PowerRolloutSpec, rows: &[Row<'_>]) -> Vec<GroupStatus> {
    let names = spec.groups.iter().map(|group| group.name.as_str()).chain([""]);
    let count = |index: usize| rows.iter().filter(|row| row.native == index).count();
    let total = |index| u32::try_from(count(index)).unwrap_or(u32::MAX);
    names.enumerate().map(|(index, name)| GroupStatus { name: name.to_owned(), total: total(index) }).collect()
}

fn stop(input: &Input<'_>, status: &PowerRolloutStatus, counted: &[GroupStatus], members: usize) -> Option<Stop> {
    let Input { rollout, queued, blocked, now, .. } = *input;
    let spec = &rollout.spec;
    let begun = status.started_at.is_some();
    let empty = counted.iter().find(|group| group.total == 0 && !group.name.is_empty()).filter(|_| !begun);
    if spec.abort {
        Some(Stop::Aborted)
    } else if now >= spec.not_after.0 {
        Some(Stop::Late)
    } else if let Some(why) = queued {
        Some(Stop::Queued(why.to_owned()))
    } else if spec.action != Action::Resume && spec.wake_at.as_ref().is_some_and(|at| at.0 <= now) {
        Some(Stop::WakeAtPassed)
    } else if let Some(why) = blocked {
        Some(Stop::Blocked(why.to_owned()))
    } else if members > usize::try_from(spec.max_targets).unwrap_or(usize::MAX) {
        Some(Stop::TooMany { found: members })
    } else if members == 0 && !begun {
        let is_named = !spec.targets.names.is_empty() && input.candidates.is_empty();
        let may_start = !spec.paused && spec.not_before.as_ref().is_none_or(|at| now >= at.0);
        Some(if is_named && may_start { Stop::NotFound } else { Stop::Nothing })
    } else if let Some(group) = empty {
        Some(Stop::Empty { group: group.name.clone() })
    } else if let Some(halt) = &status.halt {
        Some(Stop::Halted(halt.group.clone()))
    } else if spec.paused {
        Some(Stop::Paused)
    } else {
        spec.not_before.as_ref().is_some_and(|at| now < at.0).then_some(Stop::Early)
    }
}

/// The deadline of one target.
fn deadline(spec: &PowerRolloutSpec, of_kind: Deadlines) -> Duration {
    let default = if spec.action == Action::Hibernate { of_kind.sleep } else { of_kind.wake };
    length(spec.deadline.as_deref()).unwrap_or(default)
}

fn length(text: Option<&str>) -> Option<Duration> {
    duration::parse_unsigned(text?).ok()
}

/// How many targets may start in a minute.
pub fn starts_per_minute(spec: &PowerRolloutSpec) -> Option<u32> {
    spec.starts_per_minute.or((spec.action != Action::Hibernate).then_some(STARTS_PER_MINUTE))
}

/// The strategy; percentages are of the totals in the status.
pub(super) fn window(spec: &PowerRolloutSpec, status: &PowerRolloutStatus, deadlines: Deadlines) -> Window {
    let totals = &status.groups;
    let total = |index: usize| totals.get(index).map_or(0, |group| usize::try_from(group.total).unwrap_or(usize::MAX));
    let all: usize = (0..totals.len()).map(total).sum();
    let soak = length(spec.min_success_time.as_deref());
    let canaries = spec.groups.iter().enumerate().map(|(index, group)| Group {
        max_failures: group.max_failures.unwrap_or(Share::Count(0)).of(total(index)),
        min_success_time: soak.unwrap_or(CANARY_SOAK),
        pause_after: group.pause_after,
    });
    let default = if spec.action == Action::Hibernate { Share::Percent(100) } else { Share::Percent(10) };
    let rest = Group {
        max_failures: spec.max_failures.unwrap_or(default).of(total(spec.groups.len())),
        min_success_time: soak.unwrap_or_default(),
        pause_after: false,
    };
    Window {
        groups: canaries.chain([rest]).collect(),
        max_concurrency: spec.max_concurrency.unwrap_or(MAX_CONCURRENCY).of(all).max(1),
        starts_per_minute: starts_per_minute(spec).and_then(|limit| usize::try_from(limit).ok()),
        deadline: Some(deadline(spec, deadlines)),
        accepted_until: status.accepted.as_ref().and_then(|accepted| accepted.until.as_ref()).map(|until| until.0),
    }
}

/// The record of a claim. `late`: the deadline that has passed.
fn ended(row: &Row<'_>, late: Option<Duration>, now: Timestamp) -> Option<(usize, Mark)> {
    let mark = row.object.desired.mark.as_ref().filter(|mark| mark.ended.is_none())?;
    let why = row.member.reason.as_str();
    let (result, reason) = match (row.member.label, late) {
        (MemberState::Failed, Some(_)) => (Outcome::Failed, why.to_owned()),
        (_, Some(limit)) => {
            let more = if why.is_empty() { String::new() } else { format!(": {why}") };
            (Outcome::TimeOut, format!("not {} within {}{more}", mark.wanted, duration::go_string(limit)))
        }
        (MemberState::Succeeded, None) => (Outcome::Succeeded, String::new()),
        (_, None) => (Outcome::Overridden, why.to_owned()),
    };
    let failed = row.member.since.filter(|_| result == Outcome::Failed);
    Some((row.index, mark.end(result, &reason, now).failed_at(failed)))
}

fn requeue_at(input: &Input<'_>, decision: &Decision<'_>, rows: &[Row<'_>], starts_now: bool) -> Option<Timestamp> {
    let (spec, now) = (&input.rollout.spec, input.now);
    let soon = |after: Duration| now.checked_add(after).ok();
    let uid = input.rollout.uid().unwrap_or_default();
    let runs = rows.iter().any(|row| row.is_claimed(&uid));
    let waits = rows.iter().any(|row| row.member.state == State::Deferred) && !spec.abort;
    [
        starts_now.then_some(now),
        decision.next_check,
        spec.not_before.as_ref().map(|at| at.0),
        Some(spec.not_after.0).filter(|_| !spec.abort),
        if runs { soon(timeline::HEARTBEAT) } else { None },
        if waits || input.queued.is_some() { soon(RECHECK) } else { None },
        if input.blocked.is_some() && !spec.abort { soon(BLOCKED) } else { None },
    ]
    .into_iter()
    .flatten()
    .filter(|at| *at > now || starts_now)
    .min()
}
