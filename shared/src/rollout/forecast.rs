//! Simulates a rollout from begin to end: the plans of the controller, for targets that each take the same time.

use std::collections::VecDeque;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::api::PowerRollout;
use super::mark::Power;
use super::member::MemberState;
use super::observed::Observed;
use super::plan::{Candidate, Input, judged, step, window};
use super::timeline;

/// Most reconciles for each target. One starts it, one ends it; groups and limits of starts need some more.
const RECONCILES: usize = 16;
/// How far the clock of a hub may be ahead.
const AHEAD: Duration = Duration::from_mins(5);

/// An object that the rollout selects, and what is known of it besides.
#[derive(Clone, Debug)]
pub struct Subject {
    /// What was read of it.
    pub object: Observed,
    /// The index of the group that selects it.
    pub group: usize,
    /// What it shares a cloud's limits with, as far as names tell: see [`domain`](super::observed::domain).
    pub domain: String,
    /// Why it has to be left alone, as other objects of the hub say.
    pub upgrade: Option<String>,
    /// What its spoke says against a sleep.
    pub checked: Option<String>,
}

/// What becomes of a rollout if every target that starts succeeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forecast {
    /// What each subject is before the first start, and why. Refused, deferred and the like stay so.
    pub members: Vec<Option<(MemberState, String)>>,
    /// The subjects that start, in this order, with the index of the group that they start in.
    pub starts: Vec<(usize, usize)>,
    /// From the first start to the last record.
    pub lasts: Duration,
}

/// A target under way.
struct Run {
    ends: Timestamp,
    index: usize,
    wanted: Power,
}

/// Simulates a rollout that starts now. Approvals come at once, and nothing else writes. `typical`: what one target takes.
pub fn forecast(rollout: &PowerRollout, subjects: &[Subject], typical: Duration, now: Timestamp) -> Forecast {
    let limit = later(now, AHEAD);
    let known = subjects.iter().flat_map(|one| [Some(one.object.created), one.object.requested]).flatten();
    let begin = known.filter(|at| *at <= limit).max().map_or(now, |newest| newest.max(now));
    // As the times of claims.
    let begin = Timestamp::from_second(begin.as_second()).unwrap_or(begin);
    let (mut rollout, mut subjects) = (undisturbed(rollout), subjects.to_vec());
    let members = members(&rollout, &subjects, begin);
    let pending = settle(&mut subjects, &members);
    let (mut starts, mut running, mut clock) = (Vec::with_capacity(pending), VecDeque::new(), begin);
    let mut last = begin;
    for _ in 0..RECONCILES * (pending + 1) {
        if starts.len() == pending {
            break;
        }
        let candidates = candidates(&subjects, clock);
        let plan =
            step(&Input { rollout: &rollout, candidates: &candidates, queued: None, blocked: None, now: clock }, false);
        let acted = plan.next == Some(clock) || !(plan.starts.is_empty() && plan.ends.is_empty());
        let soaks = window(&rollout.spec, &plan.status).groups;
        for (index, claim) in plan.starts {
            let (ends, wanted) = (later(clock, typical), claim.wanted);
            let group = usize::try_from(claim.group).unwrap_or(usize::MAX);
            let soak = soaks.get(group).map_or(Duration::ZERO, |group| group.min_success_time);
            last = last.max(later(ends, soak));
            starts.push((index, group));
            running.push_back(Run { ends, index, wanted });
            let object = &mut subjects[index].object;
            // What delayed or failed an earlier change says nothing about this one.
            (object.desired, object.observed, object.held, object.failed) = (wanted, None, None, None);
            object.mark = Some(claim);
        }
        for (index, record) in plan.ends {
            subjects[index].object.mark = Some(record);
        }
        rollout.status = Some(plan.status);
        if acted {
            continue;
        }
        let decides = plan.decides.filter(|at| *at > clock);
        let Some(next) = decides.into_iter().chain(running.front().map(|run| run.ends)).min() else { break };
        clock = next;
        while let Some(Run { ends, index, wanted }) = running.pop_front_if(|run: &mut Run| run.ends <= clock) {
            subjects[index].object.observed = Some((wanted, ends));
        }
    }
    Forecast { members, starts, lasts: timeline::age(begin, last) }
}

/// Keeps deferred targets deferred. How many targets start.
fn settle(subjects: &mut [Subject], members: &[Option<(MemberState, String)>]) -> usize {
    let mut pending = 0;
    for (subject, member) in subjects.iter_mut().zip(members) {
        match member {
            Some((MemberState::Pending, _)) => pending += 1,
            Some((MemberState::Deferred, why)) => subject.object.waits = Some(why.clone()),
            _ => {}
        }
    }
    pending
}

fn later(time: Timestamp, length: Duration) -> Timestamp {
    SignedDuration::try_from(length).ok().and_then(|length| time.checked_add(length).ok()).unwrap_or(Timestamp::MAX)
}

/// The rollout without what depends on persons and on the time of day.
fn undisturbed(rollout: &PowerRollout) -> PowerRollout {
    let mut rollout = rollout.clone();
    rollout.metadata.uid = Some("forecast".to_owned());
    rollout.status = None;
    let spec = &mut rollout.spec;
    (spec.paused, spec.abort, spec.max_targets) = (false, false, u32::MAX);
    (spec.not_before, spec.wake_at, spec.deadline) = (None, None, None);
    spec.not_after = Time(Timestamp::MAX);
    for group in &mut spec.groups {
        group.pause_after = false;
    }
    rollout
}

fn candidates(subjects: &[Subject], now: Timestamp) -> Vec<Candidate<'_>> {
    subjects.iter().map(|subject| candidate(subject, now)).collect()
}

/// What a check has found stays so.
fn candidate(subject: &Subject, now: Timestamp) -> Candidate<'_> {
    let Subject { object, group, domain, upgrade, checked } = subject;
    let checked = checked.as_deref().map(|why| (why, now));
    let domain = Some(domain.as_str());
    Candidate { object, group: *group, domain, upgrade: upgrade.as_deref(), checked, checking: false }
}

fn members(rollout: &PowerRollout, subjects: &[Subject], now: Timestamp) -> Vec<Option<(MemberState, String)>> {
    let candidates = candidates(subjects, now);
    let mut members = vec![None; subjects.len()];
    for (index, member) in judged(&Input { rollout, candidates: &candidates, queued: None, blocked: None, now }) {
        members[index] = Some((member.label, member.reason));
    }
    members
}
