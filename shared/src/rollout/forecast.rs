//! A rollout before it starts: what each target is, in which order they start, and about how long all take.

use std::time::Duration;

use jiff::Timestamp;

use super::api::PowerRollout;
use super::member::MemberState;
use super::plan::{self, Candidate, Input};
use super::status::PowerRolloutStatus;
use super::window;
use crate::duration::after;
use crate::kinds::View;
use crate::kinds::row::STOP_START;

/// How far the clock of a hub may be ahead.
const AHEAD: Duration = Duration::from_mins(5);

/// An object that the rollout selects, and what is known of it besides.
#[derive(Clone, Debug)]
pub struct Subject {
    /// What was read of it.
    pub object: View,
    /// The index of the group that selects it.
    pub group: usize,
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
    /// From the first start to the last record, by [`about`](super::Window::about).
    pub lasts: Duration,
}

/// Judges and orders the targets of a rollout that starts now. `typical`: what one target takes.
pub fn forecast(rollout: &PowerRollout, subjects: &[Subject], typical: Duration, now: Timestamp) -> Forecast {
    let now = begin(subjects, now);
    let candidates: Vec<Candidate<'_>> = subjects.iter().map(|subject| candidate(subject, now)).collect();
    let deadlines = STOP_START; // longer than `typical`
    let input = Input { rollout, candidates: &candidates, deadlines, queued: None, blocked: None, now };
    let mut status = PowerRolloutStatus::default();
    let context = plan::context(rollout, &status, now);
    let rows = plan::rows(&input, &context);
    let targets = plan::targets(&rows, &status, context.uid, rollout.spec.groups.len(), now);
    status.groups = plan::totals(&rollout.spec, &rows);
    let window = plan::window(&rollout.spec, &status, deadlines);
    let order = window::order(&window, &targets, now);
    let start = |at: usize| (rows[at].index, targets[at].group);
    let starts: Vec<(usize, usize)> = order.into_iter().map(start).collect();
    let count = |group: usize| starts.iter().filter(|(_, one)| *one == group).count();
    let counts: Vec<usize> = (0..window.groups.len()).map(count).collect();
    let mut members = vec![None; subjects.len()];
    for row in &rows {
        members[row.index] = Some((row.member.label, row.member.reason.clone()));
    }
    Forecast { members, starts, lasts: window.about(&counts, typical) }
}

/// The clock of the hub may be ahead: what it has dated is no newer than the start.
fn begin(subjects: &[Subject], now: Timestamp) -> Timestamp {
    let limit = after(now, AHEAD);
    let known =
        subjects.iter().flat_map(|one| [Some(one.object.identity.created), one.object.desired.requested()]).flatten();
    known.filter(|at| *at <= limit).max().map_or(now, |newest| newest.max(now))
}

fn candidate(subject: &Subject, now: Timestamp) -> Candidate<'_> {
    let Subject { object, group, upgrade, checked } = subject;
    let checked = checked.as_deref().map(|why| (why, now));
    let domain = Some(object.obstacles.domain.as_deref().unwrap_or_default());
    Candidate { object, group: *group, domain, upgrade: upgrade.as_deref(), checked, checking: false }
}
