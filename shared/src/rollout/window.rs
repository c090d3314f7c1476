//! The sliding window.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;

use super::Decision;
use super::member::{State, Target};
use crate::duration::after;
use crate::kinds::view::Cause;

/// What `starts_per_minute` counts in.
const MINUTE: Duration = Duration::from_mins(1);

/// A sliding window: a slot is filled as soon as it is free. The next group starts once every target of this one has
/// ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// The groups, in order.
    pub groups: Vec<Group>,
    /// How many targets hold a slot at once.
    pub max_concurrency: usize,
    /// How many targets start in any 60 s.
    pub starts_per_minute: Option<usize>,
    /// How long a target may take from its start.
    pub deadline: Option<Duration>,
    /// Failures until then were accepted: they do not count.
    pub accepted_until: Option<Timestamp>,
}

impl Window {
    /// About how long so many targets of each group take, if each takes so long, or until its deadline if that is
    /// shorter. A group of n takes `ceil(n / max_concurrency)` times that and its soak, or, if that is longer, the
    /// minutes of `starts_per_minute` before its last start, and that once. No promise: failures, approvals and what is
    /// deferred add to it.
    pub fn about(&self, counts: &[usize], each: Duration) -> Duration {
        let each = self.deadline.map_or(each, |limit| each.min(limit));
        let times = |length: Duration, count: usize| length.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX));
        let group = |(count, group): (&usize, &Group)| {
            let Some(before) = count.checked_sub(1) else { return Duration::ZERO };
            let each = each.saturating_add(group.min_success_time);
            let minutes = self.starts_per_minute.map_or(0, |limit| before / limit.max(1));
            times(each, before / self.max_concurrency.max(1)).max(times(MINUTE, minutes)).saturating_add(each)
        };
        counts.iter().zip(&self.groups).map(group).fold(Duration::ZERO, Duration::saturating_add)
    }
}

/// Targets that start before those of the next group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Group {
    /// How many of its targets may fail. One more, and nothing starts in any group.
    pub max_failures: usize,
    /// How long success must last before it counts. Until then it holds its slot.
    pub min_success_time: Duration,
    /// Whether nothing starts after this group until a person approves; false once one has.
    pub pause_after: bool,
}

/// How long a target that lacks cloud capacity, or is rate limited, holds its slot.
const HELD: Duration = Duration::from_mins(5);
/// Targets of one domain that wait for one cause before nothing else starts there.
const CLOSED: usize = 3;
/// Namespaces that these targets are in: what one tenant's clusters say stops no other tenant's.
const CLOSED_BY: usize = 2;
/// How long a deferred target is left alone before it is checked again.
const RECHECK: Duration = Duration::from_secs(30);

/// What a target means for the window.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Standing {
    /// Its index among all targets.
    at: usize,
    /// Until when it holds a slot.
    slot: Option<Until>,
    /// Whether the next group waits for it.
    keeps_group: bool,
    /// Since when it counts as a failure.
    failed: Option<Timestamp>,
    /// Whether its deadline has passed only now.
    timed_out: bool,
    /// Whether its claim is to become a record.
    ended: bool,
}

/// A limit; `None` in it never expires.
type Until = Option<Timestamp>;

/// When its deadline passes. A start in the future is a claim that was forged, or a clock that went back.
fn deadline(target: &Target, window: &Window, now: Timestamp) -> Until {
    let started = target.started.unwrap_or(target.since).min(now);
    window.deadline.map(|limit| after(started, limit.saturating_add(target.unobserved)))
}

fn standing(at: usize, target: &Target, window: &Window, now: Timestamp) -> Standing {
    let nothing = Standing { at, slot: None, keeps_group: false, failed: None, timed_out: false, ended: false };
    let deadline = deadline(target, window, now);
    let since = target.since.min(now);
    let is_over = |until: Until| until.is_some_and(|until| now >= until);
    match target.state {
        State::Pending => Standing { keeps_group: true, ..nothing },
        State::Deferred => nothing,
        State::Excluded => Standing { ended: target.claimed, ..nothing },
        State::TimedOut => Standing { failed: Some(since), ..nothing },
        State::Progressing | State::Held(_) | State::Failed if is_over(deadline) => {
            let failed = if target.state == State::Failed { since } else { deadline.unwrap_or(now) };
            Standing { failed: Some(failed), timed_out: true, ..nothing }
        }
        State::Failed => Standing { slot: Some(deadline), failed: Some(since), ..nothing },
        State::Progressing => Standing { slot: Some(deadline), keeps_group: true, ..nothing },
        State::Held(_) => {
            let held = after(since, HELD);
            let until = deadline.map_or(held, |deadline| deadline.min(held));
            Standing { slot: (now < held).then_some(Some(until)), keeps_group: true, ..nothing }
        }
        State::Succeeded => {
            let soak = group(window, target.group).min_success_time;
            let until = Some(after(since, soak.saturating_add(target.paused)));
            let soaks = !is_over(until);
            Standing { slot: soaks.then_some(until), keeps_group: soaks, ended: target.claimed && !soaks, ..nothing }
        }
    }
}

fn group(window: &Window, index: usize) -> Group {
    window.groups.get(index).copied().unwrap_or_default()
}

/// Every target by name, with its standing.
fn standings<'a>(window: &Window, targets: &'a [Target], now: Timestamp) -> Vec<(&'a Target, Standing)> {
    let with_standing = |(at, target)| (target, standing(at, target, window, now));
    let mut all: Vec<_> = targets.iter().enumerate().map(with_standing).collect();
    all.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
    all
}

/// The index of every target that is to start, in the order in which [`decide`] starts them while nothing closes a
/// domain.
pub(super) fn order(window: &Window, targets: &[Target], now: Timestamp) -> Vec<usize> {
    let all = standings(window, targets, now);
    let group = |group| to_start(&all, Some(group), &BTreeSet::new(), usize::MAX);
    (0..window.groups.len()).flat_map(group).collect()
}

/// What is to be done. `open`: whether targets may start at all; paused, aborted or outside its hours a rollout starts
/// none.
pub fn decide<'a>(window: &Window, targets: &'a [Target], now: Timestamp, open: bool) -> Decision<'a> {
    let all = standings(window, targets, now);
    let those = |pick: &dyn Fn(&Standing) -> bool| -> Vec<usize> {
        all.iter().map(|(_, standing)| standing).filter(|standing| pick(standing)).map(|standing| standing.at).collect()
    };
    let holders = those(&|standing| standing.slot.is_some());
    let timed_out = those(&|standing| standing.timed_out);
    let ended = those(&|standing| standing.ended);
    // A target of an earlier group that comes late does not hold up the group that has begun.
    let begun = all.iter().filter(|(target, _)| target.started.is_some()).map(|(target, _)| target.group).max();
    let is_late = |target: &Target| begun.is_some_and(|begun| target.group < begun);
    let keeps = |(target, standing): &&(&Target, Standing)| standing.keeps_group && !is_late(target);
    let current = all.iter().filter(keeps).map(|(target, _)| target.group).min();
    let is_left = |(target, standing): &(&Target, Standing)| {
        let waits = standing.keeps_group || standing.slot.is_some() || target.state == State::Deferred;
        waits || standing.timed_out || standing.ended
    };
    let complete = !all.iter().any(is_left);
    let breached = breached(window, &all);
    let closed = closed(&all);
    let mut decision = Decision { ended, timed_out, breached, current, complete, ..Decision::default() };
    let mut checks: Vec<Timestamp> =
        all.iter().filter_map(|(target, standing)| expires(target, *standing, window, now)).collect();
    if !complete {
        let over = current.unwrap_or(window.groups.len());
        decision.awaits_approval = (0..over).find(|index| group(window, *index).pause_after);
    }
    if open && breached.is_none() && decision.awaits_approval.is_none() {
        let (starts, freed) = starts_left(window, &all, now);
        let free = window.max_concurrency.saturating_sub(holders.len());
        let count = free.min(starts);
        if all.iter().any(|(target, _)| target.state == State::Pending && !is_late(target)) {
            decision.start = to_start(&all, current, &closed, count);
        } else {
            let (due, later) = to_retry(&all, &closed, now);
            decision.retry = due.into_iter().take(count).collect();
            checks.extend(later);
        }
        let waiting = decision.start.len() + decision.retry.len() == count;
        checks.extend(freed.filter(|_| waiting && starts <= free));
    }
    decision.next_check = checks.into_iter().filter(|at| *at > now).min();
    Decision { holders, closed: closed.into_iter().collect(), ..decision }
}

/// When the standing of a target changes by itself.
fn expires(target: &Target, standing: Standing, window: &Window, now: Timestamp) -> Option<Timestamp> {
    let held = || match target.state {
        // Its slot is free, its deadline runs.
        State::Held(_) => deadline(target, window, now),
        _ => None,
    };
    standing.slot.flatten().or_else(held)
}

fn breached(window: &Window, all: &[(&Target, Standing)]) -> Option<usize> {
    let mut failures: BTreeMap<usize, usize> = BTreeMap::new();
    let counts = |failed: Timestamp| window.accepted_until.is_none_or(|until| failed > until);
    for (target, _) in all.iter().filter(|(_, standing)| standing.failed.is_some_and(counts)) {
        *failures.entry(target.group).or_default() += 1;
    }
    let exceeds = |(index, count): &(usize, usize)| *count > group(window, *index).max_failures;
    failures.into_iter().find(exceeds).map(|(index, _)| index)
}

/// Domains that lack capacity or are rate limited: so many targets of several namespaces wait there for one cause, and
/// none has succeeded since.
fn closed<'a>(all: &[(&'a Target, Standing)]) -> BTreeSet<&'a str> {
    let mut waiting: BTreeMap<(&str, Cause), Vec<(Timestamp, &str)>> = BTreeMap::new();
    let mut succeeded: BTreeMap<&str, Timestamp> = BTreeMap::new();
    for (target, standing) in all {
        let Some(domain) = target.domain.as_deref() else { continue };
        match target.state {
            State::Held(cause) if !standing.timed_out => {
                waiting.entry((domain, cause)).or_default().push((target.since, &target.namespace));
            }
            State::Succeeded => {
                let last = succeeded.entry(domain).or_insert(target.since);
                *last = target.since.max(*last);
            }
            _ => {}
        }
    }
    let is_closed = |domain: &str, held: &[(Timestamp, &str)]| {
        let last = succeeded.get(domain);
        let held = held.iter().filter(|(since, _)| last.is_none_or(|last| since >= last));
        let namespaces: BTreeSet<&str> = held.clone().map(|(_, namespace)| *namespace).collect();
        held.count() >= CLOSED && namespaces.len() >= CLOSED_BY
    };
    waiting.into_iter().filter(|((domain, _), held)| is_closed(domain, held)).map(|((domain, _), _)| domain).collect()
}

/// How many may start in this minute, and when the next one may.
fn starts_left(window: &Window, all: &[(&Target, Standing)], now: Timestamp) -> (usize, Option<Timestamp>) {
    let Some(limit) = window.starts_per_minute else { return (usize::MAX, None) };
    let mut ends: Vec<Timestamp> = all
        .iter()
        .filter_map(|(target, _)| Some(after(target.started?.min(now), MINUTE)))
        .filter(|end| *end > now)
        .collect();
    ends.sort_unstable();
    // The start after which fewer than the limit are left in the minute.
    let freed = ends.len().checked_sub(limit.max(1)).and_then(|at| ends.get(at)).or(ends.first()).copied();
    (limit.saturating_sub(ends.len()), freed)
}

/// Round robin over domains, then by name. A target's rank does not depend on what the others do.
fn to_start(all: &[(&Target, Standing)], group: Option<usize>, closed: &BTreeSet<&str>, count: usize) -> Vec<usize> {
    let mut ranks: BTreeMap<Option<&str>, usize> = BTreeMap::new();
    // The targets are in the order of their names.
    let mut found: Vec<(usize, Option<&str>, usize)> = Vec::new();
    for (place, (target, _)) in all.iter().enumerate().filter(|(_, (target, _))| Some(target.group) == group) {
        let rank = ranks.entry(target.domain.as_deref()).or_default();
        *rank += 1;
        if target.state == State::Pending && !target.checking && is_open(target, closed) {
            found.push((*rank, target.domain.as_deref(), place));
        }
    }
    found.sort_unstable();
    found.into_iter().take(count).map(|(.., place)| all[place].1.at).collect()
}

fn is_open(target: &Target, closed: &BTreeSet<&str>) -> bool {
    target.domain.as_deref().is_none_or(|domain| !closed.contains(domain))
}

/// Those that may be checked now, the one that was checked longest ago first, and when the next one may.
fn to_retry(all: &[(&Target, Standing)], closed: &BTreeSet<&str>, now: Timestamp) -> (Vec<usize>, Option<Timestamp>) {
    let waits = |target: &Target| matches!(target.state, State::Deferred | State::Pending) && !target.checking;
    let is_left = |(target, _): &&(&Target, Standing)| waits(target) && is_open(target, closed);
    let mut open: Vec<_> = all.iter().filter(is_left).collect();
    open.sort_by_key(|(target, _)| target.since); // stable: then by name
    let due = |target: &Target| match target.state {
        State::Deferred => after(target.since.min(now), RECHECK),
        _ => now,
    };
    let later = open.iter().map(|(target, _)| due(target)).filter(|at| *at > now).min();
    (open.into_iter().filter(|(target, _)| due(target) <= now).map(|(_, standing)| standing.at).collect(), later)
}
