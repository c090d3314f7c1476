//! The engine alone.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use shared::rollout::{Group, State, Target, Window, decide};
use testbed::bench::table::Table;
use tokio::time::Instant;

const TARGETS: usize = 10_000;
const RUNS: usize = 50;

/// Decides midway: half of the targets have ended, a window is under way, the rest is to come, in twenty domains.
pub fn run(table: &mut Table) {
    let now = Timestamp::now();
    let target = |index: usize| {
        let state = match index {
            0..5_000 => State::Succeeded,
            5_000..5_200 => State::Progressing,
            _ => State::Pending,
        };
        let started = (state != State::Pending).then(|| now - SignedDuration::from_secs(60));
        Target {
            name: format!("fleet/cluster-{index}"),
            group: 0,
            namespace: "fleet".to_owned(),
            domain: Some(format!("aws/region-{}", index % 20)),
            state,
            since: now - SignedDuration::from_secs(30),
            started,
            unobserved: Duration::ZERO,
            paused: Duration::ZERO,
            claimed: state == State::Progressing,
            checking: false,
        }
    };
    let targets: Vec<Target> = (0..TARGETS).map(target).collect();
    let window = Window {
        groups: vec![Group { max_failures: 100, ..Group::default() }],
        max_concurrency: 400,
        starts_per_minute: None,
        deadline: Some(Duration::from_mins(15)),
        accepted_until: None,
    };
    let mut took: Vec<f64> = (0..RUNS)
        .map(|_| {
            let began = Instant::now();
            let decision = decide(&window, &targets, now, true);
            let took = began.elapsed().as_secs_f64() * 1_000.0;
            assert_eq!(decision.start.len(), 200, "half of the slots are free");
            took
        })
        .collect();
    took.sort_by(f64::total_cmp);
    table.add("decide", "milliseconds, 10,000 targets, median", None, None, took[RUNS / 2]);
    table.add("decide", "milliseconds, 10,000 targets, worst", None, Some(10.0), took[RUNS - 1]);
}
