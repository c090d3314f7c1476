//! What the vectors do not have: rates, domains, deferral, approval, and the next check.

use std::time::Duration;

use super::*;
use crate::kinds::view::Cause;
use crate::rollout::place;

fn one_group() -> Vec<Group> {
    vec![Group::default()]
}

fn pending(name: &str) -> Target {
    target(name, State::Pending, 0)
}

fn decided<'a>(window: &Window, targets: &'a [Target]) -> Named<'a> {
    decide(window, targets, now(), true)
}

fn seconds_until(decision: &Named<'_>) -> Option<i64> {
    decision.next_check.map(|at| (at - now()).get_seconds())
}

#[test]
fn no_more_than_the_limit_start_in_a_minute() {
    let window = Window { starts_per_minute: Some(3), ..window(20, one_group()) };
    let started = [target("a", DONE, 70), target("b", DONE, 50), target("c", State::Progressing, 20)];
    let mut targets: Vec<Target> = started.into_iter().chain(["d", "e", "f"].map(pending)).collect();
    let decision = decided(&window, &targets);
    assert_eq!((decision.start.as_slice(), seconds_until(&decision)), (["d"].as_slice(), Some(10)));
    targets[3] = target("d", State::Progressing, 0);
    let decision = decided(&window, &targets);
    assert_eq!((decision.start.len(), seconds_until(&decision)), (0, Some(10)));
}

const DONE: State = State::Succeeded;

#[test]
fn targets_start_round_robin_over_domains_and_then_by_name() {
    let names = [("eu", "a"), ("eu", "b"), ("eu", "c"), ("us", "d"), ("us", "e"), ("ap", "f")];
    let mut targets: Vec<Target> = names.iter().map(|(domain, name)| in_domain(domain, pending(name))).collect();
    let window = window(4, one_group());
    assert_eq!(decided(&window, &targets).start, ["f", "a", "d", "b"]);
    targets.reverse();
    assert_eq!(decided(&window, &targets).start, ["f", "a", "d", "b"], "whatever the order of the input");
}

#[test]
fn an_estimate_counts_rounds_soaks_and_the_pace_of_starts() {
    let groups = || vec![Group { min_success_time: Duration::from_mins(2), ..Group::default() }, Group::default()];
    let (minutes, hour) = (|minutes| Some(Duration::from_mins(minutes)), Duration::from_hours(1).as_secs());
    for (at_once, pace, deadline, counts, seconds) in [
        (20, None, None, [0, 0], 0),
        (20, None, None, [0, 1], 300),
        (20, None, None, [1, 0], 420),
        // A soak holds its slot.
        (1, None, None, [3, 0], 3 * 420),
        (20, None, None, [1, 40], 420 + 2 * 300),
        (20, None, None, [1, 41], 420 + 3 * 300),
        (40, Some(1), None, [1, 40], 420 + 39 * 60 + 300),
        // The slower of both limits.
        (1, Some(1), None, [0, 3], 3 * 300),
        (40, Some(2), None, [0, 4], 60 + 300),
        // No target is waited for after its deadline.
        (1, None, minutes(3), [1, 2], 180 + 120 + 2 * 180),
        (1, None, minutes(15), [0, 10_000], 10_000 / 12 * hour + 4 * 300),
    ] {
        let window = Window { starts_per_minute: pace, deadline, ..window(at_once, groups()) };
        let about = window.about(&counts, Duration::from_mins(5));
        assert_eq!(about.as_secs(), seconds, "{at_once} at once, {pace:?} a minute, {deadline:?}, {counts:?}");
    }
}

#[test]
fn a_target_without_room_frees_its_slot_after_five_minutes_and_keeps_its_deadline() {
    let deadline = Some(Duration::from_mins(30));
    let window = Window { deadline, ..window(1, one_group()) };
    for (held, started, starts, check) in [(0, 60, 0, 300), (299, 299, 0, 1), (300, 300, 1, 1_500), (300, 1_799, 1, 1)]
    {
        let mut first = target("a", State::Held(Cause::Capacity), held);
        first.started = Some(ago(started));
        let targets = [first, pending("b")];
        let decision = decided(&window, &targets);
        assert_eq!((decision.start.len(), seconds_until(&decision)), (starts, Some(check)), "{held} {started}");
        assert_eq!((decision.current, decision.complete), (Some(0), false));
    }
    let targets =
        [Target { started: Some(ago(1_800)), ..target("a", State::Held(Cause::Capacity), 300) }, pending("b")];
    let decision = decided(&window, &targets);
    assert_eq!((decision.timed_out.as_slice(), decision.breached), (["a"].as_slice(), Some(0)));
}

#[test]
fn three_targets_that_wait_for_one_cause_close_their_domain_until_one_succeeds() {
    let held = |name: &str, cause, since| in_domain("eu", target(name, State::Held(cause), since));
    let two = [held("a", Cause::Capacity, 60), held("b", Cause::Capacity, 50)];
    let rest = [in_domain("eu", pending("x")), in_domain("us", pending("y"))];
    for (more, starts) in [
        (vec![], vec!["x", "y"]),
        (vec![held("c", Cause::Throttled, 40)], vec!["x", "y"]),
        (vec![held("c", Cause::Capacity, 40)], vec!["y"]),
        (vec![held("c", Cause::Capacity, 40), in_domain("us", target("d", DONE, 10))], vec!["y"]),
        (vec![held("c", Cause::Capacity, 40), in_domain("eu", target("d", DONE, 55))], vec!["x", "y"]),
    ] {
        let targets: Vec<Target> = two.iter().chain(&more).chain(&rest).cloned().collect();
        let decision = decided(&window(20, one_group()), &targets);
        let mut start = decision.start.clone();
        start.sort_unstable();
        assert_eq!((start, decision.closed.is_empty()), (starts.clone(), starts.len() == 2), "{more:?}");
    }
}

#[test]
fn one_tenant_or_several_accounts_close_no_domain() {
    let held = |name: &str, namespace: &str, domain: Option<&str>| Target {
        namespace: namespace.to_owned(),
        domain: domain.map(str::to_owned),
        ..target(name, State::Held(Cause::Throttled), 60)
    };
    let rest = [in_domain("eu", pending("x")), Target { domain: None, ..pending("y") }];
    for (case, waiting, starts) in [
        ("one namespace", [("a", "n", Some("eu")), ("b", "n", Some("eu")), ("c", "n", Some("eu"))], vec!["x", "y"]),
        ("two namespaces", [("a", "n", Some("eu")), ("b", "n", Some("eu")), ("c", "m", Some("eu"))], vec!["y"]),
        (
            "their own accounts",
            [("a", "n", Some("eu/1")), ("b", "m", Some("eu/2")), ("c", "o", Some("eu/3"))],
            vec!["x", "y"],
        ),
        ("accounts that are not known", [("a", "n", None), ("b", "m", None), ("c", "o", None)], vec!["x", "y"]),
    ] {
        let waiting = waiting.map(|(name, namespace, domain)| held(name, namespace, domain));
        let targets: Vec<Target> = waiting.iter().chain(&rest).cloned().collect();
        let mut start = decided(&window(20, one_group()), &targets).start;
        start.sort_unstable();
        assert_eq!(start, starts, "{case}");
    }
    // What one tenant's cluster met before another's succeeded counts for nobody.
    let held = |name: &str, namespace: &str, since| Target { since: ago(since), ..held(name, namespace, Some("eu")) };
    let mut targets = vec![held("a", "n", 60), held("b", "n", 60), held("c", "n", 60), held("d", "m", 70)];
    targets.extend([in_domain("eu", target("e", DONE, 65)), rest[0].clone()]);
    assert_eq!(decided(&window(20, one_group()), &targets).start, ["x"]);
}

#[test]
fn deferred_targets_are_retried_after_the_last_group_those_checked_longest_ago_first() {
    let groups = vec![Group::default(), Group::default()];
    let deferred = |name: &str, since| target(name, State::Deferred, since);
    let mut targets = vec![deferred("a", 10), deferred("b", 30), deferred("c", 20), in_group(1, pending("d"))];
    let decision = decided(&window(2, groups.clone()), &targets);
    assert_eq!((decision.start.as_slice(), decision.retry.len()), (["d"].as_slice(), 0), "they hold up no group");
    targets[3] = in_group(1, target("d", DONE, 0));
    targets[0].since = ago(40);
    targets[2].since = ago(29);
    let decision = decided(&window(9, groups.clone()), &targets);
    assert_eq!((decision.current, decision.retry.as_slice()), (None, ["a", "b"].as_slice()));
    assert_eq!((decision.complete, seconds_until(&decision)), (false, Some(1)), "c is checked again after 30 s");
    // One that is retried does not hold up the others.
    targets[0] = target("a", State::Progressing, 1);
    assert_eq!(decided(&window(2, groups), &targets).retry, ["b"]);
}

#[test]
fn a_target_of_an_earlier_group_that_comes_late_does_not_hold_up_the_group_that_has_begun() {
    let groups = vec![Group::default(), Group::default()];
    let begun = in_group(1, target("a", State::Progressing, 5));
    let mut targets = vec![pending("canary"), begun, in_group(1, pending("b"))];
    assert_eq!(decided(&window(9, groups.clone()), &targets).start, ["b"]);
    targets[2].state = DONE;
    let decision = decided(&window(9, groups), &targets);
    assert_eq!((decision.retry.as_slice(), decision.complete), (["canary"].as_slice(), false), "it starts at the end");
}

#[test]
fn a_rollout_is_not_complete_before_its_claims_are_records() {
    for (state, ended) in [(DONE, true), (State::Excluded, true)] {
        let mut targets = [target("a", state, 5)];
        assert!(decided(&window(9, one_group()), &targets).complete, "{state:?}");
        targets[0].claimed = true;
        let window = window(9, one_group());
        let decision = decided(&window, &targets);
        assert_eq!((decision.ended.len(), decision.complete), (usize::from(ended), !ended), "{state:?}");
    }
}

#[test]
fn a_deadline_counts_only_time_in_which_the_target_was_observed() {
    let window = Window { deadline: Some(Duration::from_mins(15)), ..window(9, one_group()) };
    let mut targets = [target("a", State::Progressing, 2_400)];
    assert_eq!(decided(&window, &targets).timed_out, ["a"]);
    targets[0].unobserved = Duration::from_mins(30);
    let decision = decided(&window, &targets);
    assert_eq!((decision.timed_out.len(), seconds_until(&decision)), (0, Some(300)));
    // A start in the future counts from now.
    targets[0] = target("a", State::Progressing, -86_400);
    assert_eq!(seconds_until(&decided(&window, &targets)), Some(900));
}

#[test]
fn nothing_starts_after_a_group_that_waits_for_approval() {
    let mut groups = vec![Group { pause_after: true, ..Group::default() }, Group::default()];
    let mut targets = [target("a", State::Progressing, 5), in_group(1, pending("b"))];
    let decision = decided(&window(2, groups.clone()), &targets);
    assert_eq!((decision.awaits_approval, decision.start.len()), (None, 0), "its group is not over");
    targets[0].state = DONE;
    let decision = decided(&window(2, groups.clone()), &targets);
    assert_eq!((decision.awaits_approval, decision.start.len()), (Some(0), 0));
    groups[0].pause_after = false;
    assert_eq!(decided(&window(2, groups), &targets).start, ["b"]);
}

#[test]
fn accepted_failures_do_not_count() {
    let mut window = window(9, vec![Group { max_failures: 1, ..Group::default() }]);
    let mut targets = [target("a", State::TimedOut, 5), target("b", State::Failed, 5), pending("c")];
    assert_eq!(decided(&window, &targets).breached, Some(0));
    window.accepted_until = Some(ago(5));
    assert_eq!(decided(&window, &targets).start, ["c"]);
    targets[0].since = ago(4);
    targets[1].since = ago(3);
    assert_eq!(decided(&window, &targets).breached, Some(0), "these came later");
}

#[test]
fn a_rollout_that_is_not_open_starts_nothing_and_still_times_out() {
    let window = Window {
        deadline: Some(Duration::from_mins(1)),
        ..window(9, vec![Group { max_failures: 9, ..Group::default() }])
    };
    let targets = [target("a", State::Progressing, 60), target("b", State::Progressing, 59), pending("c")];
    let decision = decide(&window, &targets, now(), false);
    assert_eq!((decision.start.len(), decision.timed_out.as_slice()), (0, ["a"].as_slice()));
    assert_eq!((decision.holders.as_slice(), seconds_until(&decision)), (["b"].as_slice(), Some(1)));
}

#[test]
fn a_rollout_is_complete_once_every_target_has_ended() {
    let soak = vec![Group { max_failures: 9, min_success_time: Duration::from_mins(2), ..Group::default() }];
    for (state, since, complete) in [
        (State::Pending, 0, false),
        (State::Deferred, 0, false),
        (State::Progressing, 0, false),
        (State::Failed, 0, false),
        (State::TimedOut, 0, true),
        (State::Excluded, 0, true),
        (DONE, 119, false),
        (DONE, 120, true),
    ] {
        let window = Window { deadline: Some(Duration::from_mins(15)), ..window(9, soak.clone()) };
        assert_eq!(decided(&window, &[target("a", state, since)]).complete, complete, "{state:?}");
    }
    assert!(decided(&window(9, Vec::new()), &[]).complete);
}

#[test]
fn canaries_that_prove_nothing_are_replaced_by_the_first_of_the_rest() {
    let excluded = |name: &str, group| in_group(group, target(name, State::Excluded, 0));
    let rest = || ["m", "k", "l"].map(|name| in_group(1, pending(name)));
    let groups = |targets: &[Target]| {
        let mut all: Vec<(String, usize)> = targets.iter().map(|one| (one.name.clone(), one.group)).collect();
        all.sort();
        all.into_iter().map(|(_, group)| group).collect::<Vec<_>>()
    };
    let mut targets: Vec<Target> = [excluded("a", 0), excluded("b", 0)].into_iter().chain(rest()).collect();
    place(&mut targets, &[0, 0, 1, 1, 1], 1);
    assert_eq!(groups(&targets), [0, 0, 0, 0, 1]);
    for one in targets.iter_mut().filter(|one| one.name == "k") {
        (one.state, one.started) = (State::Progressing, Some(ago(5)));
    }
    place(&mut targets, &[0, 0, 1, 1, 1], 1);
    assert_eq!(groups(&targets), [0, 0, 0, 0, 1], "the same with one of them under way");
    let mut targets: Vec<Target> = [excluded("a", 0), pending("b")].into_iter().chain(rest()).collect();
    place(&mut targets, &[0, 0, 1, 1, 1], 1);
    assert_eq!(groups(&targets), [0, 0, 1, 1, 1], "one canary is left");
    let mut targets: Vec<Target> = [excluded("a", 0)].into_iter().chain(rest()).collect();
    place(&mut targets, &[0, 1, 1, 1], 0);
    assert_eq!(groups(&targets), [0, 1, 1, 1], "no canary group");
}
