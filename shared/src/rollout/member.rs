//! From what was found of an object to its state in a rollout.
//!
//! The claim and the record on the object are the state: a new leader finds the same. Rules that do not depend on the
//! rollout, such as those of admission, come in as facts.

use std::time::Duration;

use jiff::Timestamp;

use crate::annotation::format;
use crate::annotation::mark::{Action, Mark, Outcome};
use crate::kinds::view::Cause;
use crate::power::Power;

/// The rollout, as far as its members depend on it.
#[derive(Clone, Copy, Debug)]
pub struct Rollout<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
    /// What it is for.
    pub action: Action,
    /// UID of the rollout whose records a Restore reads.
    pub restores: Option<&'a str>,
    /// How often `retryFailed` was raised.
    pub attempt: u32,
    /// When it started.
    pub started: Timestamp,
    /// When the state that it asks for began, if a schedule asks for it: what was requested later stands.
    pub as_of: Option<Timestamp>,
    /// Whether targets may ever start again: it is neither aborted nor past its `notAfter`.
    pub may_start: bool,
}

impl Rollout<'_> {
    /// The claim on a target that it starts. An earlier attempt knows what was asked for before it.
    pub fn claim(&self, facts: &Facts<'_>, wanted: Power, group: usize, now: Timestamp) -> Mark {
        let earlier = facts.mark.filter(|mark| mark.uid == self.uid);
        Mark {
            name: self.name.to_owned(),
            group: u32::try_from(group).unwrap_or(u32::MAX),
            uid: self.uid.to_owned(),
            action: self.action,
            attempt: self.attempt,
            before: earlier.map_or(facts.desired, |mark| mark.before),
            wanted,
            since: format::seconds(now),
            held_until: None,
            wake_at: None,
            ended: None,
        }
    }
}

/// What was found of an object that the rollout selects.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The state that it is asked for.
    pub desired: Power,
    /// The state that it is in, and since when; `None` between two states.
    pub observed: Option<(Power, Timestamp)>,
    /// When it was created.
    pub created: Timestamp,
    /// When its state was asked for last.
    pub requested: Option<Timestamp>,
    /// When it wakes by itself.
    pub wakes_at: Option<Timestamp>,
    /// Its annotation, if it is readable.
    pub mark: Option<&'a Mark>,
    /// The rule that refuses the change, with its reason.
    pub refused: Option<&'a str>,
    /// Why it cannot change yet.
    pub deferred: Option<&'a str>,
    /// Why the change fails, such as refused credentials, and since when.
    pub failed: Option<(&'a str, Timestamp)>,
    /// Why its cloud delays the change, and since when.
    pub held: Option<(Cause, Timestamp)>,
}

/// What an object is in a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// For the engine.
    pub state: State,
    /// When that began; `None`: now.
    pub since: Option<Timestamp>,
    /// When it was started.
    pub started: Option<Timestamp>,
    /// The state that the rollout wants.
    pub wanted: Power,
    /// In one word, for the status.
    pub label: MemberState,
    /// Why, for people.
    pub reason: String,
}

/// A member of a rollout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its name, unique within the rollout.
    pub name: String,
    /// The index of its group in the strategy.
    pub group: usize,
    /// Its namespace: a domain closes on what several of them say.
    pub namespace: String,
    /// What shares a cloud's limits with it: platform, region and account. Targets start round robin over domains.
    /// While it is not known, what its cloud does counts for no other target, and what others met does not hold it up.
    pub domain: Option<String>,
    /// What it does.
    pub state: State,
    /// When this state began; for a deferred target, when its reason was checked last.
    pub since: Timestamp,
    /// When it was started, if it was. The deadline runs from here.
    pub started: Option<Timestamp>,
    /// Time since then in which no leader observed it. The deadline excludes it.
    pub unobserved: Duration,
    /// Time since this state began in which the rollout was paused. The soak excludes it.
    pub paused: Duration,
    /// Whether the rollout's claim is on it. Until the claim is a record, the rollout is not complete.
    pub claimed: bool,
    /// Whether it is being checked whether it may start. Others start meanwhile.
    pub checking: bool,
}

/// What a member of a rollout does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// It has not been started.
    Pending,
    /// It cannot be started yet. It holds neither a slot nor its group.
    Deferred,
    /// It is under way.
    Progressing,
    /// It is in progress, and its cloud lacks capacity or rate-limits requests.
    Held(Cause),
    /// It has reached its state.
    Succeeded,
    /// It has failed, and may recover until its deadline.
    Failed,
    /// Its deadline has passed.
    TimedOut,
    /// The rollout leaves it alone: refused, overridden, removed, or in its state already.
    Excluded,
}

/// A member's state in one word, in the order in which users read them. It is never renamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, strum::Display, strum::EnumIter)]
#[expect(missing_docs, reason = "named as the states of Outcome and State")]
pub enum MemberState {
    Succeeded,
    AlreadyInState,
    Progressing,
    Pending,
    Deferred,
    Failed,
    TimeOut,
    Refused,
    Overridden,
    Abandoned,
}

impl MemberState {
    /// All of them, in order.
    pub fn all() -> impl Iterator<Item = Self> {
        <Self as strum::IntoEnumIterator>::iter()
    }
}

impl Member {
    fn new(state: State, wanted: Power, label: MemberState, reason: &str) -> Self {
        Self { state, since: None, started: None, wanted, label, reason: reason.to_owned() }
    }

    /// A member of a Restore whose record was overwritten or removed since it started.
    pub(super) fn unrestored(desired: Power) -> Self {
        let reason = "the record of the undone rollout is gone: not restored";
        Self::new(State::Excluded, desired, MemberState::Overridden, reason)
    }

    fn since(self, since: Option<Timestamp>) -> Self {
        Self { since, ..self }
    }
}

/// What an object is in a rollout; `None` if it is no member.
pub fn judge(rollout: &Rollout<'_>, facts: &Facts<'_>) -> Option<Member> {
    // What was created later is not part of the plan that was confirmed. A claim on it is forged.
    if facts.created > rollout.started {
        return None;
    }
    match facts.mark.filter(|mark| mark.uid == rollout.uid) {
        Some(mark) => match &mark.ended {
            // Once nothing starts any more, the claim ends as any other.
            None if rollout.may_start && mark.attempt < rollout.attempt && facts.failed.is_some() => {
                Some(unclaimed(mark.wanted, rollout, facts))
            }
            None => Some(claimed(mark, facts)),
            Some(ended) => {
                let (state, label) = match ended.result {
                    // Another attempt: it is judged as if it had not been started.
                    Outcome::Failed | Outcome::TimeOut if mark.attempt < rollout.attempt => {
                        return Some(unclaimed(mark.wanted, rollout, facts));
                    }
                    Outcome::Succeeded => (State::Succeeded, MemberState::Succeeded),
                    Outcome::Failed => (State::TimedOut, MemberState::Failed),
                    Outcome::TimeOut => (State::TimedOut, MemberState::TimeOut),
                    Outcome::Overridden => (State::Excluded, MemberState::Overridden),
                    Outcome::Abandoned => (State::Excluded, MemberState::Abandoned),
                };
                let since = ended.failed.as_deref().unwrap_or(&ended.at);
                let member = Member::new(state, mark.wanted, label, &ended.reason).since(format::time(since));
                Some(Member { started: format::time(&mark.since), ..member })
            }
        },
        None => wanted(rollout, facts.mark).map(|wanted| unclaimed(wanted, rollout, facts)),
    }
}

/// The state that the rollout wants; `None` if the rollout that it undoes has left no record here.
pub fn wanted(rollout: &Rollout<'_>, mark: Option<&Mark>) -> Option<Power> {
    match rollout.action {
        Action::Hibernate => Some(Power::Hibernating),
        Action::Resume => Some(Power::Running),
        Action::Restore => mark.filter(|mark| Some(mark.uid.as_str()) == rollout.restores).map(|mark| mark.before),
    }
}

/// A target that the rollout owns.
fn claimed(mark: &Mark, facts: &Facts<'_>) -> Member {
    let started = format::time(&mark.since);
    let new = |state, label, reason: &str| Member { started, ..Member::new(state, mark.wanted, label, reason) };
    if facts.desired != mark.wanted {
        let reason = format!("another client has since requested {}", facts.desired);
        return new(State::Excluded, MemberState::Overridden, &reason);
    }
    match (facts.observed, facts.failed, facts.held) {
        (Some((power, since)), ..) if power == mark.wanted => {
            // It may have been in that state before the claim.
            let since = started.map_or(since, |started| started.max(since));
            new(State::Succeeded, MemberState::Succeeded, "").since(Some(since))
        }
        // What failed before the claim is tried again: it says nothing about this attempt yet.
        (_, Some((why, since)), _) if started.is_some_and(|started| since < started) => {
            new(State::Progressing, MemberState::Progressing, why).since(started)
        }
        (_, Some((why, since)), _) => new(State::Failed, MemberState::Failed, why).since(Some(since)),
        (_, _, Some((cause, since))) => {
            let reason = match cause {
                Cause::Capacity => "the cloud has no capacity",
                Cause::Throttled => "the cloud rate-limits requests",
            };
            new(State::Held(cause), MemberState::Progressing, reason).since(Some(since))
        }
        _ => new(State::Progressing, MemberState::Progressing, "").since(started),
    }
}

/// A target that the rollout does not own.
fn unclaimed(wanted: Power, rollout: &Rollout<'_>, facts: &Facts<'_>) -> Member {
    let new = |state, label, reason: &str| Member::new(state, wanted, label, reason);
    let foreign = facts.mark.filter(|mark| mark.uid != rollout.uid);
    let other = foreign.filter(|mark| mark.ended.is_none());
    // Of two opposite rollouts a newer Resume wins: a sleep may interrupt work, a wake only costs money. A newer
    // Hibernate is a newer request.
    let takes_over = |mark: &&Mark| {
        let is_older = format::time(&mark.since).is_some_and(|since| since <= rollout.started);
        is_older && mark.wanted == Power::Hibernating && wanted == Power::Running && rollout.action == Action::Resume
    };
    if facts.desired == wanted && facts.observed.is_some_and(|(power, _)| power == wanted) {
        return new(State::Excluded, MemberState::AlreadyInState, "");
    }
    if let Some(mark) = other.filter(|mark| !takes_over(mark)) {
        return new(State::Deferred, MemberState::Deferred, &format!("in progress in rollout {}", mark.name));
    }
    let undone = foreign.filter(|_| rollout.action == Action::Restore);
    let is_newer = |time: &str| format::time(time).zip(facts.requested).is_some_and(|(time, at)| at > time);
    let is_changed =
        |mark: &Mark| mark.wanted != facts.desired || mark.ended.as_ref().is_some_and(|ended| is_newer(&ended.at));
    if let Some(mark) = undone.filter(|mark| is_changed(mark)) {
        let reason = format!("changed since rollout {}: not restored", mark.name);
        return new(State::Excluded, MemberState::Overridden, &reason);
    }
    if let Some(mark) = other.filter(|mark| is_newer(&mark.since)) {
        let reason = format!("a newer request was made after rollout {} had claimed it", mark.name);
        return new(State::Excluded, MemberState::Overridden, &reason);
    }
    // The claim of an earlier attempt has set that time, too.
    let own = facts.mark.filter(|mark| mark.uid == rollout.uid);
    if own.is_some_and(|mark| mark.ended.is_some() && mark.wanted != facts.desired) {
        return new(State::Excluded, MemberState::Overridden, "another client has changed it since it failed");
    }
    let own = own.and_then(|mark| format::time(mark.ended.as_ref().map_or(&mark.since, |ended| &ended.at)));
    let begun = rollout.as_of.unwrap_or(rollout.started);
    if other.is_none() && facts.requested.is_some_and(|at| at > own.unwrap_or(begun)) {
        let what = if rollout.as_of.is_some() { "its schedule asked for this state" } else { "the rollout started" };
        return new(State::Excluded, MemberState::Overridden, &format!("a newer request was made after {what}"));
    }
    let later = |as_of| facts.wakes_at.filter(|at| *at > as_of && wanted == Power::Running);
    if let Some(at) = rollout.as_of.and_then(later) {
        let reason = format!("it wakes at {}, as requested: a schedule wakes it no earlier", format::seconds(at));
        return new(State::Excluded, MemberState::Overridden, &reason);
    }
    match (facts.refused, facts.deferred) {
        (Some(rule), _) => new(State::Excluded, MemberState::Refused, rule),
        (_, Some(reason)) => new(State::Deferred, MemberState::Deferred, reason),
        _ => new(State::Pending, MemberState::Pending, ""),
    }
}
