//! Kinds of machines: the control plane starts first and stops last; spot instances are stopped, or terminated at the
//! end.

use proptest::prelude::*;

use super::properties::any_cluster;
use super::*;
use crate::cloud::Spot;
use crate::power::Power;

/// A machine of the control plane, a worker, and workers on spot instances.
const CP: Kind = (true, None);
const WORKER: Kind = (false, None);
const ONCE: Kind = (false, Some(Spot::OneTime));
const ALWAYS: Kind = (false, Some(Spot::Persistent));
const UNTOLD: Kind = (false, Some(Spot::Unknown));

type Kind = (bool, Option<Spot>);

fn with<'a>(cluster: &'a ClusterDeployment, machines: &[(Kind, InstanceState)]) -> Facts<'a> {
    let instance = |(n, ((control_plane, spot), state)): (usize, &(Kind, InstanceState))| Instance {
        control_plane: *control_plane,
        spot: *spot,
        ..Instance::new(format!("i-{n}"), *state)
    };
    facts(cluster).listed(machines.iter().enumerate().map(instance).collect())
}

fn terminate(ids: &[&str]) -> Action {
    Action::Move(Verb::Terminate, ids.iter().map(|id| (*id).into()).collect())
}

fn progress(plan: &Plan) -> &str {
    plan.status.as_ref().and_then(|status| status.progress.as_ref()).map_or("", |word| word.message.as_str())
}

#[test]
fn the_control_plane_stops_last_and_starts_first() {
    let cluster = asleep(("False", reason::STOPPING));
    let plan = decide(&with(&cluster, &[(CP, Running), (WORKER, Running), (CP, Running), (WORKER, Running)]));
    assert_eq!(plan.actions, [stop(&["i-1", "i-3"]), stop(&["i-0", "i-2"])]);
    let plan = decide(&with(&cluster, &[(CP, Running), (WORKER, Stopping)]));
    assert_eq!(plan.actions, [stop(&["i-0"])]);

    let cluster = waking(("False", "StartingMachines"));
    let plan = decide(&with(&cluster, &[(WORKER, Stopped), (CP, Stopped), (CP, Pending), (WORKER, Stopped)]));
    assert_eq!(plan.actions, [start(&["i-1"]), start(&["i-0", "i-3"])]);
    let plan = decide(&with(&cluster, &[(WORKER, Stopped), (CP, Running)]));
    assert_eq!(plan.actions, [start(&["i-0"])]);
}

/// Four seconds after a try that was refused by name nothing is done; after five, the other kind is tried as well.
#[test]
fn one_that_is_refused_keeps_the_other_kind_from_nothing() {
    let stopping = asleep(("False", reason::FAILED_TO_STOP));
    let sleep = || with(&stopping, &[(CP, Running), (WORKER, Running)]);
    assert_eq!(decide(&sleep().failed(Verb::Stop, 4)).actions, []);
    assert_eq!(decide(&sleep().failed(Verb::Stop, 5)).actions, [stop(&["i-1", "i-0"])]);
    let more = with(&stopping, &[(CP, Running), (WORKER, Running), (CP, Running)]);
    assert_eq!(decide(&more.failed(Verb::Stop, 5)).actions, [stop(&["i-1", "i-0"])], "one of them first");
    let more = with(&stopping, &[(CP, Stopping), (WORKER, Running), (CP, Running), (CP, Running)]);
    assert_eq!(decide(&more.failed(Verb::Stop, 5)).actions, [stop(&["i-1", "i-2", "i-3"])], "which was not refused");
    let waking = waking(("False", "FailedToStartMachines"));
    let wake = with(&waking, &[(WORKER, Stopped), (CP, Stopped), (WORKER, Stopped)]);
    assert_eq!(decide(&wake.failed(Verb::Start, 5)).actions, [start(&["i-1", "i-0"])]);
    let wake = with(&waking, &[(WORKER, Pending), (CP, Stopped), (WORKER, Stopped)]);
    assert_eq!(decide(&wake.failed(Verb::Start, 5)).actions, [start(&["i-1", "i-2"])]);
}

#[test]
fn a_clock_that_was_set_back_holds_nothing_back() {
    let stopping = asleep(("False", reason::FAILED_TO_STOP));
    let facts = with(&stopping, &[(CP, Running)]).failed(Verb::Stop, -3_600);
    assert_eq!(decide(&facts).actions, [stop(&["i-0"])]);
}

#[test]
fn spot_machines_into_sleep() {
    const ONCE_CP: Kind = (true, Some(Spot::OneTime));
    let cluster = asleep(("False", reason::STOPPING));
    let both_of_two = vec![stop(&["i-1", "i-2"]), stop(&["i-0"])];
    for (case, machines, actions) in [
        ("only on-demand", &[(CP, Running), (WORKER, Running)][..], vec![stop(&["i-1"]), stop(&["i-0"])]),
        ("a mix: one-time spot waits", &[(CP, Running), (ONCE, Running)], vec![stop(&["i-0"])]),
        ("others are stopped", &[(CP, Running), (ALWAYS, Running), (UNTOLD, Running)], both_of_two),
        ("the rest goes", &[(CP, Stopping), (ONCE, Running), (ONCE, Pending)], vec![terminate(&["i-1", "i-2"])]),
        ("the rest is not: it starts", &[(CP, Pending), (ONCE, Running)], vec![]),
        ("one not known is", &[(CP, Stopped), (ONCE, Running), (UNTOLD, Running)], vec![stop(&["i-2"])]),
        ("only spot: there would be nothing left", &[(ONCE, Running), (ONCE, Running)], vec![]),
        ("a control plane is never given up", &[(ONCE_CP, Running), (WORKER, Stopped)], vec![stop(&["i-0"])]),
        ("being terminated", &[(CP, Stopped), (ONCE, ShuttingDown)], vec![]),
    ] {
        assert_eq!(decide(&with(&cluster, machines)).actions, actions, "{case}");
    }
    let plan = decide(&with(&cluster, &[(CP, Stopping), (ONCE, Running)]));
    let detail = "; one-time spot instances cannot be stopped and are terminated at the end: i-1";
    assert!(progress(&plan).ends_with(detail), "{}", progress(&plan));
}

#[test]
fn a_cluster_whose_spot_machines_are_gone_sleeps_and_says_so_as_long_as_it_sleeps() {
    let cluster = asleep(("False", "WaitingForMachinesToStop"));
    let machines = [(CP, Stopped), (WORKER, Stopped), (ONCE, Terminated)];
    let plan = decide(&with(&cluster, &machines));
    assert_eq!(says(&plan).0, reason::HIBERNATING);
    assert_eq!(progress(&plan), "2 instances stopped, 1 one-time spot instance terminated");
    let patch = PowerStatus::default().awaiting("MachinesToStop", "i-0").patch(&cluster, at(-9)).unwrap();
    let cluster = patched(&cluster, &patch);
    let asleep = patched(&cluster, &plan.status.unwrap().patch(&cluster, at(0)).unwrap());
    let later = decide(&with(&asleep, &machines[..2]));
    assert_eq!(later.status.unwrap().patch(&asleep, at(3600)), None, "EC2 has forgotten it; nothing is written");
}

#[test]
fn a_stop_that_fails_leaves_spot_machines_alone() {
    let cluster = asleep(("False", reason::STOPPING));
    for seconds_ago in [1, 60] {
        let plan = decide(&with(&cluster, &[(CP, Running), (ONCE, Running)]).failed(Verb::Stop, seconds_ago));
        assert!(plan.actions.iter().all(|action| !matches!(action, Action::Move(Verb::Terminate, _))));
        assert_eq!(says(&plan).0, reason::FAILED_TO_STOP);
    }
    let plan = decide(&with(&cluster, &[(CP, Stopped), (ONCE, Running)]).failed(Verb::Terminate, 1));
    assert_eq!((plan.actions.as_slice(), says(&plan).0), ([].as_slice(), reason::FAILED_TO_STOP));
}

#[test]
fn machines_between_two_states_are_no_failure_unless_it_lasts() {
    let failed = |kind, failures| {
        let failure = CloudError { kind, message: "i-0: IncorrectInstanceState: not now".into() };
        Some(attempt(Verb::Stop, 1, Some(failure), failures))
    };
    let cluster = asleep(("False", reason::STOPPING));
    for (kind, failures, detail) in [
        (CloudErrorKind::InTransit, 1, "WaitingForMachinesToStop"),
        (CloudErrorKind::InTransit, 3, "WaitingForMachinesToStop"),
        (CloudErrorKind::InTransit, 4, reason::FAILED_TO_STOP),
        (CloudErrorKind::Refused, 1, reason::FAILED_TO_STOP),
    ] {
        let mut facts = with(&cluster, &[(CP, Running)]);
        facts.tried = failed(kind, failures);
        let plan = decide(&facts);
        assert_eq!((says(&plan).0, plan.actions.len()), (detail, 0), "{kind} {failures}: held back in any case");
    }
    assert_eq!(backoff(CloudErrorKind::InTransit, 1), Duration::from_secs(3));
}

#[test]
fn a_cloud_without_room_is_named() {
    let cluster = waking(("False", "WaitingForMachines"));
    let mut facts = with(&cluster, &[(CP, Stopped), (WORKER, Stopped)]);
    let message = "StartInstances in us-east-1: InsufficientInstanceCapacity: none left".to_owned();
    let failure = CloudError { kind: CloudErrorKind::Capacity, message };
    facts.tried = Some(attempt(Verb::Start, 1, Some(failure), 1));
    let plan = decide(&facts);
    assert_eq!((says(&plan).2, plan.requeue), ("FailedToStartMachines", Requeue::Retry(Duration::from_secs(4))));
    assert!(message_of(&plan).contains("InsufficientInstanceCapacity: none left"));
    assert_eq!(plan.status.unwrap().progress.unwrap().reason, "Capacity");
}

#[test]
fn workers_are_not_started_for_a_control_plane_without_room() {
    let cluster = waking(("False", "WaitingForMachines"));
    for (kind, up, expected) in [
        (CloudErrorKind::Capacity, false, vec![vec!["i-0", "i-1"], vec!["i-2", "i-3"]]),
        (CloudErrorKind::Capacity, true, vec![vec!["i-0", "i-2"]]),
        (CloudErrorKind::Refused, false, vec![vec!["i-0", "i-1", "i-2"]]),
    ] {
        let second = if up { Running } else { Stopped };
        let mut facts = with(&cluster, &[(CP, Stopped), (CP, second), (WORKER, Stopped), (WORKER, Stopped)]);
        let failure = CloudError { kind, message: "none left".to_owned() };
        facts.tried = Some(attempt(Verb::Start, 60, Some(failure), 1));
        let starts: Vec<_> = decide(&facts)
            .actions
            .into_iter()
            .map(|action| match action {
                Action::Move(Verb::Start, ids) => ids,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(starts, expected, "{kind} {up}");
    }
}

fn message_of(plan: &Plan) -> String {
    message(plan).to_owned()
}

fn any_machines() -> impl Strategy<Value = Vec<(Kind, InstanceState)>> {
    let kind = prop::sample::select(vec![CP, WORKER, ONCE, ALWAYS, UNTOLD, (true, Some(Spot::OneTime))]);
    let state = prop::sample::select(vec![Pending, Running, Stopping, Stopped, ShuttingDown, Terminated]);
    prop::collection::vec((kind, state), 0..7)
}

proptest! {
    #[test]
    fn only_one_time_spot_workers_are_terminated_and_only_when_the_rest_goes_down(
        cluster in any_cluster(), machines in any_machines(), failed in any::<Option<(u8, u8)>>(),
    ) {
        let mut facts = with(&cluster, &machines);
        if let Some((verb, ago)) = failed {
            let verb = [Verb::Start, Verb::Stop, Verb::Terminate][usize::from(verb) % 3];
            facts = facts.failed(verb, i64::from(ago));
        }
        let kind = |id: &String| machines[id.strip_prefix("i-").unwrap().parse::<usize>().unwrap()];
        let plan = decide(&facts);
        let terminates = plan.actions.iter().any(|action| matches!(action, Action::Move(Verb::Terminate, _)));
        for action in &plan.actions {
            match action {
                Action::Move(Verb::Terminate, ids) => {
                    prop_assert_eq!(cluster.desired(), Power::Hibernating);
                    prop_assert!(!ids.is_empty() && ids.iter().all(|id| kind(id).0 == ONCE));
                    let mut rest = machines.iter().filter(|(kind, _)| *kind != ONCE);
                    prop_assert!(rest.all(|(_, state)| !matches!(state, Running | Pending)));
                }
                Action::Move(Verb::Stop, ids) => prop_assert!(!terminates && ids.iter().all(|id| kind(id).0 != ONCE && kind(id).1 == Running)),
                Action::Move(Verb::Start, ids) => prop_assert!(ids.iter().all(|id| kind(id).1 == Stopped)),
                Action::SetPowerState(..) | Action::Settle => {}
            }
        }
        if facts.was_refused(Verb::Stop) || facts.was_refused(Verb::Start) {
            return Ok(()); // all at once then
        }
        let groups = plan.actions.iter().filter_map(|action| match action {
            Action::Move(Verb::Stop, ids) => Some((true, ids)),
            Action::Move(Verb::Start, ids) => Some((false, ids)),
            _ => None,
        });
        for (place, (stops, ids)) in groups.enumerate() {
            let control_plane = ids.iter().all(|id| kind(id).0.0);
            prop_assert!(control_plane || ids.iter().all(|id| !kind(id).0.0), "one group, one kind");
            prop_assert!(place == 0 || control_plane == stops, "the control plane stops last and starts first");
        }
    }
}
