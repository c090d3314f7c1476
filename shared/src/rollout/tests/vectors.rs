//! The vectors of OCM's engine (docs/reference/rollouts.md, section 2): what it rolls out, what has timed out, and
//! whether too many have failed.

use std::time::Duration;

use super::*;
use crate::rollout::Share;

/// Clusters are numbers; three make a group.
struct Vector {
    name: &'static str,
    /// One group after another, each with this tolerance, or all in one.
    per_group: bool,
    /// Groups that roll out first, without tolerance.
    mandatory: usize,
    clusters: usize,
    concurrency: &'static str,
    failures: &'static str,
    deadline: Option<u64>,
    soak: u64,
    existing: &'static [(u8, State, i64)],
    rollout: &'static [u8],
    timed_out: &'static [u8],
    breach: bool,
}

const PLAIN: Vector = Vector {
    name: "",
    per_group: false,
    mandatory: 0,
    clusters: 6,
    concurrency: "2",
    failures: "0",
    deadline: Some(90),
    soak: 0,
    existing: &[],
    rollout: &[],
    timed_out: &[],
    breach: false,
};
const DONE: State = State::Succeeded;
const FAILED: State = State::Failed;
const APPLYING: State = State::Progressing;
const MIXED: &[(u8, State, i64)] = &[(1, DONE, 60), (2, FAILED, 120), (3, APPLYING, 60)];
const ONE_FAILED: &[(u8, State, i64)] = &[(1, DONE, 60), (2, FAILED, 120), (3, DONE, 60)];
const TWO_FAILED: &[(u8, State, i64)] = &[(1, DONE, 60), (2, FAILED, 120), (3, FAILED, 120)];

/// OCM's quirk: a tolerance above the total means none.
fn tolerance(text: &str, total: usize) -> usize {
    let count = text.parse::<Share>().unwrap().of(total);
    if count > total { 0 } else { count }
}

fn check(vector: &Vector) {
    let groups: Vec<Group> = (0..if vector.per_group { vector.clusters.div_ceil(3) } else { vector.mandatory + 1 })
        .map(|index| {
            let of = if vector.per_group { 3 } else { vector.clusters };
            let max_failures = if index < vector.mandatory { 0 } else { tolerance(vector.failures, of) };
            Group { max_failures, min_success_time: Duration::from_secs(vector.soak), ..Group::default() }
        })
        .collect();
    let max_concurrency = vector.concurrency.parse::<Share>().unwrap().of(vector.clusters);
    let deadline = vector.deadline.map(Duration::from_secs);
    let window = Window { deadline, ..window(max_concurrency, groups.clone()) };
    let targets: Vec<Target> = (1..=u8::try_from(vector.clusters).unwrap())
        .map(|number| {
            let found = vector.existing.iter().find(|(name, ..)| *name == number);
            let (state, since) = found.map_or((State::Pending, 0), |(_, state, since)| (*state, *since));
            let group = (usize::from(number) - 1) / 3;
            in_group(group.min(groups.len() - 1), target(&number.to_string(), state, since))
        })
        .collect();
    let decision = decide(&window, &targets, now(), true);
    let mut rollout: Vec<&str> = decision.holders.iter().chain(&decision.start).copied().collect();
    rollout.sort_unstable();
    let names = |numbers: &[u8]| numbers.iter().map(u8::to_string).collect::<Vec<_>>();
    assert_eq!(rollout, names(vector.rollout), "{}", vector.name);
    assert_eq!(decision.timed_out, names(vector.timed_out), "{}", vector.name);
    assert_eq!(decision.breached.is_some(), vector.breach, "{}", vector.name);
}

#[test]
fn progressive() {
    for vector in [
        Vector { name: "nothing exists", rollout: &[1, 2], ..PLAIN },
        Vector { name: "breach", existing: MIXED, rollout: &[3], timed_out: &[2], breach: true, ..PLAIN },
        Vector { name: "tolerated", failures: "1", existing: MIXED, rollout: &[3, 4], timed_out: &[2], ..PLAIN },
        Vector {
            name: "a soak takes a slot",
            failures: "100%",
            soak: 60,
            existing: &[(1, DONE, 30), (2, FAILED, 120), (3, APPLYING, 30)],
            rollout: &[1, 3],
            timed_out: &[2],
            ..PLAIN
        },
        Vector {
            name: "deadline of 0 s",
            failures: "3",
            deadline: Some(0),
            existing: &[(1, DONE, 30), (2, APPLYING, 30), (3, APPLYING, 30)],
            rollout: &[4, 5],
            timed_out: &[2, 3],
            ..PLAIN
        },
        Vector {
            name: "without a deadline a failure keeps its slot",
            concurrency: "50%",
            failures: "100%",
            deadline: None,
            existing: MIXED,
            rollout: &[2, 3, 4],
            ..PLAIN
        },
        Vector {
            name: "no tolerance, no deadline",
            concurrency: "50%",
            failures: "0%",
            deadline: None,
            existing: MIXED,
            rollout: &[2, 3],
            breach: true,
            ..PLAIN
        },
        Vector {
            name: "a mandatory group has no tolerance",
            mandatory: 1,
            concurrency: "3",
            failures: "100%",
            existing: MIXED,
            rollout: &[3],
            timed_out: &[2],
            breach: true,
            ..PLAIN
        },
        Vector {
            name: "a tolerance above the total is none",
            failures: "7",
            existing: MIXED,
            rollout: &[3],
            timed_out: &[2],
            breach: true,
            ..PLAIN
        },
    ] {
        check(&vector);
    }
}

#[test]
fn progressive_per_group() {
    let plain = || Vector { per_group: true, clusters: 9, concurrency: "100%", ..PLAIN };
    for vector in [
        Vector {
            name: "within tolerance",
            failures: "2",
            existing: ONE_FAILED,
            rollout: &[4, 5, 6],
            timed_out: &[2],
            ..plain()
        },
        Vector {
            name: "the next group",
            failures: "2",
            existing: &[(1, DONE, 60), (2, FAILED, 120), (3, DONE, 60), (4, DONE, 60), (5, DONE, 60), (6, DONE, 60)],
            rollout: &[7, 8, 9],
            timed_out: &[2],
            ..plain()
        },
        Vector { name: "breach", deadline: None, existing: ONE_FAILED, rollout: &[2], breach: true, ..plain() },
        Vector {
            name: "a tolerated failure does not hold up the next group",
            deadline: None,
            failures: "2",
            existing: ONE_FAILED,
            rollout: &[2, 4, 5, 6],
            ..plain()
        },
        Vector {
            name: "30% of 3 is 1",
            deadline: None,
            failures: "30%",
            existing: TWO_FAILED,
            rollout: &[2, 3],
            breach: true,
            ..plain()
        },
    ] {
        check(&vector);
    }
}
