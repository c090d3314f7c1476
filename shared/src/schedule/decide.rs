//! Which edge of a schedule is due, and what comes next.

use std::time::Duration;

use jiff::{Timestamp, ToSpan as _};

use super::api::{LastEdge, ScheduleSpec, ScheduleStatus};
use super::timetable::{Edge, Source, Timetable};
use crate::annotation::format;
use crate::duration::{after, age};
use crate::power::Power;
use crate::rollout::api::TargetName;
use crate::rollout::draft::MAX_NAMES;

/// Edges to come in the status.
const SHOWN: usize = 3;
/// How old an `applyAt` may be when it is written.
pub const APPLY_WINDOW: Duration = Duration::from_mins(10);
/// How long a rollout stays open that no edge follows.
const OPEN: Duration = Duration::from_hours(30 * 24);

/// A target that is held awake, or was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The target.
    pub target: TargetName,
    /// Until when.
    pub until: Timestamp,
    /// When its state was requested.
    pub requested: Timestamp,
}

/// What one decision depends on.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The schedule.
    pub spec: &'a ScheduleSpec,
    /// The same, ready to answer.
    pub timetable: &'a Timetable,
    /// What was observed of it before.
    pub status: Option<&'a ScheduleStatus>,
    /// When it was written last: an edge before that is none of this schedule.
    pub written: Timestamp,
    /// Targets that it governs, that are to run, and that have a hold.
    pub holds: &'a [Hold],
    /// Whether a calendar cannot be read: nothing falls asleep, and what windows and events wake is woken.
    pub wakes_only: bool,
    /// Now.
    pub now: Timestamp,
}

/// What is to be done for a schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What is due now.
    pub due: Option<Due>,
    /// The next edges.
    pub next: Vec<Edge>,
    /// The state that the schedule asks for now.
    pub state: Option<Power>,
    /// When something else than an edge is due: the end of a hold, or an `applyAt`.
    pub other_at: Option<Timestamp>,
}

/// An edge that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The edge.
    pub edge: Edge,
    /// How it is carried out.
    pub by: By,
    /// The targets that it is about; all of the schedule if there are none.
    pub targets: Vec<TargetName>,
}

/// How an edge is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// By a rollout that starts targets until this time.
    Rollout(Timestamp),
    /// Not at all: the sleep would end at this time, too soon.
    TooShort(Timestamp),
    /// Not at all: an exception or a calendar leaves targets as they are until this time.
    Unchanged(Timestamp),
}

impl By {
    /// Until when targets are started.
    ///
    /// # Errors
    /// Why none is.
    pub fn until(self) -> Result<Timestamp, String> {
        let (why, at) = match self {
            Self::Rollout(until) => return Ok(until),
            Self::TooShort(wake) => ("the targets would wake again at", wake),
            Self::Unchanged(end) => ("unchanged until", end),
        };
        Err(format!("skipped: {why} {}", format::seconds(at)))
    }
}

/// Decides. A suspended schedule has no edges. Of missed edges the last one alone is due, however late.
pub fn decide(facts: &Facts<'_>) -> Decision {
    let Facts { spec, timetable, status, written, holds, wakes_only, now } = *facts;
    if spec.suspend {
        return Decision { due: None, next: Vec::new(), state: None, other_at: None };
    }
    let (next, state) = (timetable.next(now, SHOWN), timetable.state(now));
    let acted = status.and_then(|status| status.last_edge.as_ref()).map_or(Timestamp::MIN, acted_until);
    let applied = applied(facts).filter(|edge| edge.at > acted);
    let edge = timetable.last(written.max(acted), now).into_iter().chain(applied).max_by_key(|edge| edge.at);
    let due = match edge {
        Some(edge) => Some((edge, Vec::new())),
        None if state == Some(Power::Hibernating) => ended_holds(facts),
        None => None,
    };
    let due = due.filter(|(edge, _)| !wakes_only || edge.power == Power::Running);
    let due = due.map(|(edge, targets)| Due { by: by(facts, &edge, &next), edge, targets });
    let others = holds.iter().map(|hold| hold.until).chain(spec.apply_at.as_ref().map(|at| at.0));
    let other_at = others.filter(|at| *at > now).min();
    Decision { due, next, state, other_at }
}

/// Until when nothing is due any more: an edge of which something is pending is due itself.
fn acted_until(edge: &LastEdge) -> Timestamp {
    let before = || edge.at.0.checked_sub(1.millisecond()).unwrap_or(edge.at.0);
    if edge.pending.is_some() { before() } else { edge.at.0 }
}

/// Targets that were woken with a hold since they were to sleep, and whose hold has ended: they sleep again. What was woken
/// without one stays awake until the next edge.
fn ended_holds(facts: &Facts<'_>) -> Option<(Edge, Vec<TargetName>)> {
    let Facts { timetable, written, holds, now, .. } = *facts;
    let is_over = |hold: &&Hold| hold.requested <= hold.until && written < hold.until && hold.until <= now;
    let mut over: Vec<&Hold> = holds.iter().filter(is_over).collect();
    if over.is_empty() {
        return None;
    }
    let since = timetable.asleep_since(now)?;
    over.retain(|hold| since < hold.requested);
    over.sort_by(|one, other| one.target.cmp(&other.target));
    over.truncate(MAX_NAMES);
    let at = over.iter().map(|hold| hold.until).max()?;
    let edge = Edge { at, nominal: at, power: Power::Hibernating, source: Source::Hold };
    Some((edge, over.into_iter().map(|hold| hold.target.clone()).collect()))
}

fn by(facts: &Facts<'_>, edge: &Edge, next: &[Edge]) -> By {
    if let Some(end) = facts.timetable.unchanged_until(facts.now) {
        return By::Unchanged(end);
    }
    // What has begun is tried until the next edge.
    let last = facts.status.and_then(|status| status.last_edge.as_ref());
    let has_begun = last.is_some_and(|last| last.pending.is_some() && last.at.0 == edge.at);
    let wake = next.iter().find(|edge| edge.power == Power::Running).map(|edge| edge.at);
    let is_short = |wake: &Timestamp| age(facts.now, *wake) < facts.timetable.minimum_sleep();
    if let Some(wake) = wake.filter(|wake| edge.power == Power::Hibernating && !has_begun && is_short(wake)) {
        return By::TooShort(wake);
    }
    let until = next.first().map_or_else(|| after(facts.now, OPEN), |edge| edge.at);
    By::Rollout(facts.timetable.next_unchanged(facts.now).map_or(until, |begin| begin.min(until)))
}

/// The state that was asked for by hand. An `applyAt` that was written long after its time, such as from a file, is none.
fn applied(facts: &Facts<'_>) -> Option<Edge> {
    let at = facts.spec.apply_at.as_ref()?.0;
    let is_fresh = at <= facts.now && age(at, facts.written) < APPLY_WINDOW;
    let power = facts.timetable.state(at).filter(|_| is_fresh)?;
    Some(Edge { at, nominal: at, power, source: Source::Apply })
}
