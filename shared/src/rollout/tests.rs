//! What the engine is checked against.

mod judged;
mod planned;
mod properties;
mod table;
mod vectors;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{Decision, Group, State, Target, Window};

const NOW: &str = "2026-11-24T12:00:00Z";

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// So many seconds ago.
fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

fn target(name: &str, state: State, since: i64) -> Target {
    let is_started = !matches!(state, State::Pending | State::Deferred | State::Excluded);
    let started = is_started.then(|| ago(since));
    let (name, namespace) = (name.to_owned(), name.to_owned());
    let (unobserved, paused) = (Duration::ZERO, Duration::ZERO);
    Target {
        name,
        group: 0,
        namespace,
        domain: Some(String::new()),
        state,
        since: ago(since),
        started,
        unobserved,
        paused,
        claimed: false,
        checking: false,
    }
}

fn in_group(group: usize, target: Target) -> Target {
    Target { group, ..target }
}

fn in_domain(domain: &str, target: Target) -> Target {
    Target { domain: Some(domain.to_owned()), ..target }
}

fn window(max_concurrency: usize, groups: Vec<Group>) -> Window {
    Window { groups, max_concurrency, starts_per_minute: None, deadline: None, accepted_until: None }
}

/// A decision, with names in place of indices.
#[derive(Debug, PartialEq)]
struct Named<'a> {
    start: Vec<&'a str>,
    retry: Vec<&'a str>,
    ended: Vec<&'a str>,
    timed_out: Vec<&'a str>,
    holders: Vec<&'a str>,
    breached: Option<usize>,
    current: Option<usize>,
    awaits_approval: Option<usize>,
    closed: Vec<&'a str>,
    complete: bool,
    next_check: Option<Timestamp>,
}

fn decide<'a>(window: &Window, targets: &'a [Target], now: Timestamp, open: bool) -> Named<'a> {
    let found = super::decide(window, targets, now, open);
    let names = |of: Vec<usize>| of.into_iter().map(|at| targets[at].name.as_str()).collect();
    let Decision { breached, current, awaits_approval, closed, complete, next_check, .. } = found;
    Named {
        start: names(found.start),
        retry: names(found.retry),
        ended: names(found.ended),
        timed_out: names(found.timed_out),
        holders: names(found.holders),
        breached,
        current,
        awaits_approval,
        closed,
        complete,
        next_check,
    }
}
