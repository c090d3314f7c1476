//! What the engine is checked against.

mod judged;
mod planned;
mod properties;
mod table;
mod vectors;

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use super::{Group, State, Strategy, Target, Window};

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

fn strategy(window: &Window) -> Strategy {
    Strategy::Window(window.clone())
}
