//! Whatever the fleet and whatever happens to it: never over a limit, groups in order, every target ends, same facts
//! same answer. The clock jumps to what the engine says is next, or to what a target does next: a check that is missing
//! or late ends the test.

use std::time::Duration;

use proptest::prelude::{Just, prop, prop_assert, prop_oneof, proptest};
use proptest::strategy::Strategy as Generator;

use super::*;
use crate::kinds::view::Cause;

const DEADLINE: i64 = 600;

/// What a target does, and after how many seconds from its start.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Succeeds(i64),
    Fails(i64),
    Hangs,
    /// It waits for its cloud from its start, and then succeeds.
    Held(i64),
}

#[derive(Clone, Debug)]
struct Member {
    group: usize,
    domain: u8,
    fate: Fate,
    /// Until how many seconds after the start of the rollout it cannot be started.
    deferred: i64,
}

#[derive(Clone, Debug)]
struct Fleet {
    window: Window,
    members: Vec<Member>,
}

fn fate() -> impl Generator<Value = Fate> {
    prop_oneof![
        4 => (0_i64..300).prop_map(Fate::Succeeds),
        1 => (0_i64..300).prop_map(Fate::Fails),
        1 => Just(Fate::Hangs),
        1 => (1_i64..900).prop_map(Fate::Held),
    ]
}

fn fleet() -> impl Generator<Value = Fleet> {
    let group = (0_usize..4, 0_u64..120).prop_map(|(max_failures, soak)| Group {
        max_failures,
        min_success_time: Duration::from_secs(soak),
        ..Group::default()
    });
    let deferred = prop_oneof![3 => Just(0), 1 => 1_i64..900];
    let member = (0_usize..3, 0_u8..3, fate(), deferred).prop_map(|(group, domain, fate, deferred)| Member {
        group,
        domain,
        fate,
        deferred,
    });
    let members = prop::collection::vec(member, 0..40);
    (prop::collection::vec(group, 3), 1_usize..8, prop::option::of(1_usize..10), members).prop_map(
        |(groups, max_concurrency, starts_per_minute, members)| {
            let deadline = Some(Duration::from_secs(DEADLINE.unsigned_abs()));
            Fleet {
                window: Window { groups, max_concurrency, starts_per_minute, deadline, accepted_until: None },
                members,
            }
        },
    )
}

fn at(seconds: i64) -> Timestamp {
    now() + SignedDuration::from_secs(seconds)
}

fn since(target: &Target, now: Timestamp) -> i64 {
    (now - target.since).get_seconds()
}

struct Run<'a> {
    fleet: &'a Fleet,
    targets: Vec<Target>,
    now: Timestamp,
}

impl Run<'_> {
    fn soaks(&self, target: &Target) -> bool {
        let soak = self.fleet.window.groups[target.group].min_success_time;
        target.state == State::Succeeded && since(target, self.now).unsigned_abs() < soak.as_secs()
    }

    fn holds(&self, target: &Target) -> bool {
        let in_time = target.started.is_some_and(|started| (self.now - started).get_seconds() < DEADLINE);
        match target.state {
            State::Progressing | State::Failed => in_time,
            State::Held(_) => in_time && since(target, self.now) < 300,
            _ => self.soaks(target),
        }
    }

    /// What the targets do by themselves.
    fn live(&mut self) {
        for (target, member) in self.targets.iter_mut().zip(&self.fleet.members) {
            let Some(started) = target.started else { continue };
            let lasted = (self.now - started).get_seconds();
            let state = match (target.state, member.fate) {
                (State::Progressing, Fate::Succeeds(limit)) if lasted >= limit => State::Succeeded,
                (State::Progressing, Fate::Fails(limit)) if lasted >= limit => State::Failed,
                (State::Progressing, Fate::Held(_)) => State::Held(Cause::Capacity),
                (State::Held(_), Fate::Held(limit)) if lasted >= limit => State::Succeeded,
                (state, _) => state,
            };
            if state != target.state {
                (target.state, target.since) = (state, self.now);
            }
        }
    }

    /// When the next target does something by itself.
    fn next(&self) -> Option<Timestamp> {
        let all = self.targets.iter().zip(&self.fleet.members).filter_map(|(target, member)| {
            let limit = match (target.state, member.fate) {
                (State::Progressing, Fate::Succeeds(limit) | Fate::Fails(limit))
                | (State::Held(_), Fate::Held(limit)) => limit,
                (State::Progressing, Fate::Held(_)) => 0,
                _ => return None,
            };
            Some((target.started? + SignedDuration::from_secs(limit)).max(self.now + SignedDuration::from_millis(1)))
        });
        all.min()
    }

    fn never_over_a_limit(&self, decision: &Named<'_>) {
        let starts = decision.start.len() + decision.retry.len();
        let held = self.targets.iter().filter(|target| self.holds(target)).count();
        assert!(starts == 0 || held + starts <= self.fleet.window.max_concurrency, "{held} hold slots, {starts} start");
        if let Some(limit) = self.fleet.window.starts_per_minute {
            let is_recent = |at: &Timestamp| (self.now - *at).get_seconds() < 60;
            let recent = self.targets.iter().filter_map(|target| target.started).filter(is_recent).count();
            assert!(starts == 0 || recent + starts <= limit, "{recent} have started, {starts} start");
        }
        assert!(decision.breached.is_none() || starts == 0);
        let furthest = self.targets.iter().filter(|target| target.started.is_some()).map(|target| target.group).max();
        for name in &decision.start {
            let one = self.targets.iter().find(|target| target.name == *name).unwrap();
            assert_eq!(one.state, State::Pending);
            for other in self.targets.iter().filter(|other| other.group < one.group) {
                let is_late = furthest.is_some_and(|furthest| other.group < furthest);
                let is_over = match other.state {
                    State::Pending => is_late,
                    State::Progressing | State::Held(_) => decision.timed_out.contains(&other.name.as_str()),
                    _ => !self.soaks(other),
                };
                assert!(is_over, "{name} of group {} starts, and {} is not over", one.group, other.name);
            }
        }
    }

    /// Carries it out. Whether anything changed.
    fn act(&mut self, decision: &Owned) -> bool {
        let mut changed = false;
        let seconds = (self.now - now()).get_seconds();
        for (target, member) in self.targets.iter_mut().zip(&self.fleet.members) {
            let is_in = |names: &[String]| names.contains(&target.name);
            if is_in(&decision.start) || is_in(&decision.retry) && member.deferred <= seconds {
                (target.state, target.since, target.started) = (State::Progressing, self.now, Some(self.now));
                target.claimed = true;
            } else if is_in(&decision.retry) {
                target.since = self.now;
            } else if is_in(&decision.timed_out) {
                (target.state, target.since, target.claimed) = (State::TimedOut, self.now, false);
            } else if is_in(&decision.ended) {
                target.claimed = false;
            } else {
                continue;
            }
            changed = true;
        }
        changed
    }
}

struct Owned {
    start: Vec<String>,
    retry: Vec<String>,
    timed_out: Vec<String>,
    ended: Vec<String>,
}

impl Owned {
    fn of(decision: &Named<'_>) -> Self {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let Named { start, retry, timed_out, ended, .. } = decision;
        Self { start: owned(start), retry: owned(retry), timed_out: owned(timed_out), ended: owned(ended) }
    }
}

/// Runs a fleet to its end. The targets then, and whether too many have failed.
fn run(fleet: &Fleet) -> (Vec<Target>, bool) {
    let one = |(index, member): (usize, &Member)| Target {
        group: member.group,
        domain: (member.domain > 0).then(|| member.domain.to_string()),
        ..target(&format!("t-{index:02}"), if member.deferred > 0 { State::Deferred } else { State::Pending }, 0)
    };
    let mut run = Run { fleet, targets: fleet.members.iter().enumerate().map(one).collect(), now: at(0) };
    let window = &fleet.window;
    for _ in 0..10_000 {
        run.live();
        let targets = run.targets.clone();
        let decision = decide(window, &targets, run.now, true);
        run.never_over_a_limit(&decision);
        let reversed: Vec<Target> = targets.iter().rev().cloned().collect();
        assert_eq!(decide(window, &reversed, run.now, true), decision, "same facts, same answer");
        if decision.complete || decision.breached.is_some() && decision.holders.is_empty() {
            return (targets.clone(), decision.breached.is_some());
        }
        if !run.act(&Owned::of(&decision)) {
            let next = decision.next_check.into_iter().chain(run.next()).min();
            run.now = next.unwrap_or_else(|| panic!("nothing is next: {decision:#?}\n{targets:#?}"));
        }
    }
    panic!("the rollout does not end: {:#?}", run.targets);
}

proptest! {
    #[test]
    fn every_rollout_ends_within_its_limits(fleet in fleet()) {
        let (targets, breached) = run(&fleet);
        for one in targets.iter().filter(|_| !breached) {
            prop_assert!(matches!(one.state, State::Succeeded | State::Failed | State::TimedOut), "{one:?}");
            prop_assert!(!one.claimed || one.state == State::Failed, "{one:?}");
        }
    }
}
