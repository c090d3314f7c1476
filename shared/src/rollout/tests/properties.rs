//! Whatever the fleet and whatever happens to it: never over a limit, groups in order, every target ends, same facts same answer.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::{Just, prop, prop_assert, prop_oneof, proptest};
use proptest::strategy::Strategy as Generator;

use super::*;
use crate::rollout::{Cause, Decision, decide};

const TICK: i64 = 10;

/// What a target does once it is started, and after how many ticks.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Succeeds(u8),
    Fails(u8),
    Hangs,
    /// It waits for its cloud, and then succeeds.
    Held(u8),
}

#[derive(Clone, Debug)]
struct Fleet {
    window: Window,
    members: Vec<(usize, u8, Fate)>,
}

fn fate() -> impl Generator<Value = Fate> {
    prop_oneof![
        4 => (0_u8..20).prop_map(Fate::Succeeds),
        1 => (0_u8..20).prop_map(Fate::Fails),
        1 => Just(Fate::Hangs),
        1 => (1_u8..60).prop_map(Fate::Held),
    ]
}

fn fleet() -> impl Generator<Value = Fleet> {
    let group = (0_usize..4, 0_u64..120).prop_map(|(max_failures, soak)| Group {
        max_failures,
        min_success_time: Duration::from_secs(soak),
        ..Group::default()
    });
    let members = prop::collection::vec((0_usize..3, 0_u8..3, fate()), 0..40);
    (prop::collection::vec(group, 3), 1_usize..8, prop::option::of(1_usize..10), members).prop_map(
        |(groups, max_concurrency, starts_per_minute, members)| Fleet {
            window: Window { groups, max_concurrency, starts_per_minute, deadline: Some(Duration::from_mins(10)) },
            members,
        },
    )
}

fn targets(fleet: &Fleet) -> Vec<Target> {
    let one = |(index, (group, domain, _)): (usize, &(usize, u8, Fate))| Target {
        group: *group,
        domain: domain.to_string(),
        ..target(&format!("t-{index:02}"), State::Pending, 0)
    };
    fleet.members.iter().enumerate().map(one).collect()
}

fn after(state: State, fate: Fate, ticks: i64) -> State {
    let is_due = |limit: u8| ticks >= i64::from(limit);
    match (state, fate) {
        (State::Progressing, Fate::Succeeds(limit)) if is_due(limit) => State::Succeeded,
        (State::Progressing, Fate::Fails(limit)) if is_due(limit) => State::Failed,
        (State::Progressing, Fate::Held(_)) => State::Held(Cause::Capacity),
        (State::Held(_), Fate::Held(limit)) if is_due(limit) => State::Succeeded,
        (state, _) => state,
    }
}

fn never_over_a_limit(window: &Window, targets: &[Target], decision: &Decision<'_>, now: Timestamp) {
    let free = window.max_concurrency.saturating_sub(decision.holders.len());
    assert!(decision.start.len() <= free, "{} start, {free} slots", decision.start.len());
    if let Some(limit) = window.starts_per_minute {
        let recent = targets.iter().filter_map(|one| one.started).filter(|at| (now - *at).get_seconds() < 60).count();
        assert!(decision.start.is_empty() || recent + decision.start.len() <= limit);
    }
    let by_name: BTreeMap<&str, &Target> = targets.iter().map(|one| (one.name.as_str(), one)).collect();
    for name in &decision.start {
        let one = by_name[name];
        assert_eq!((one.state, Some(one.group)), (State::Pending, decision.current));
        let earlier = targets.iter().filter(|other| other.group < one.group);
        let is_over = |other: &Target| {
            let has_ended = matches!(other.state, State::Succeeded | State::Failed | State::TimedOut);
            has_ended || decision.timed_out.contains(&other.name.as_str())
        };
        assert!(earlier.clone().all(is_over), "a group starts before an earlier one is over");
    }
    assert!(decision.breached.is_none() || decision.start.is_empty());
}

/// Runs a fleet to its end; the answer is the number of ticks.
fn run(fleet: &Fleet) -> (Vec<Target>, bool) {
    let (strategy, mut targets) = (strategy(&fleet.window), targets(fleet));
    for tick in 0..4_000_i64 {
        let now = now() + SignedDuration::from_secs(tick * TICK);
        for (target, (_, _, fate)) in targets.iter_mut().zip(&fleet.members) {
            let ticks = target.started.map_or(0, |at| (now - at).get_seconds() / TICK);
            let state = after(target.state, *fate, ticks);
            if state != target.state {
                (target.state, target.since) = (state, now);
            }
        }
        let decision = decide(&strategy, &targets, now, true);
        never_over_a_limit(&fleet.window, &targets, &decision, now);
        let mut reversed = targets.clone();
        reversed.reverse();
        assert_eq!(decide(&strategy, &reversed, now, true), decision, "same facts, same answer");
        if decision.complete || decision.breached.is_some() && decision.holders.is_empty() {
            return (targets.clone(), decision.breached.is_some());
        }
        let looks_again = decision.next_check.is_some() || !decision.holders.is_empty();
        let has_work = !decision.start.is_empty() || !decision.timed_out.is_empty();
        assert!(looks_again || has_work, "nothing to do, nothing to wait for, and not complete");
        let (start, timed_out): (Vec<String>, Vec<String>) = (
            decision.start.iter().map(ToString::to_string).collect(),
            decision.timed_out.iter().map(ToString::to_string).collect(),
        );
        for target in &mut targets {
            if start.contains(&target.name) {
                (target.state, target.since, target.started) = (State::Progressing, now, Some(now));
            } else if timed_out.contains(&target.name) {
                (target.state, target.since) = (State::TimedOut, now);
            }
        }
    }
    panic!("the rollout does not end: {targets:#?}");
}

proptest! {
    #[test]
    fn every_rollout_ends_within_its_limits(fleet in fleet()) {
        let (targets, breached) = run(&fleet);
        if !breached {
            for one in targets {
                prop_assert!(matches!(one.state, State::Succeeded | State::Failed | State::TimedOut), "{one:?}");
            }
        }
    }
}
