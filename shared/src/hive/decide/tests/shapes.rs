//! Drivers that delete machines and make them again, beside those that stop and start them.

use super::*;
use crate::cloud::InstanceState::{Halted, Unknown};
use crate::cloud::{CloudEvent, Limits, Refusal};

/// A driver that keeps a durable record found these.
fn recreated(cluster: &ClusterDeployment, instances: Vec<Instance>) -> Facts<'_> {
    facts(cluster).found(Lifecycle::Recreate, Listing { instances, ..Listing::default() })
}

/// The cloud has no such machine; the record says that it existed.
fn recorded(id: &str) -> Instance {
    Instance { recorded: true, ..Instance::new(id, Stopped) }
}

fn due(id: &str, state: InstanceState) -> Instance {
    Instance { due: true, ..Instance::new(id, state) }
}

fn progress(plan: &Plan) -> (&str, &str) {
    plan.status.as_ref().and_then(|s| s.progress.as_ref()).map_or(("", ""), |p| (p.reason, p.message.as_str()))
}

#[test]
fn nothing_found_is_an_error_unless_a_record_says_that_it_was_deleted_on_purpose() {
    let cluster = asleep(("False", "WaitingForMachinesToStop"));
    for (case, lifecycle, instances, power_state) in [
        ("stop/start, nothing", Lifecycle::StopStart, vec![], reason::FAILED_TO_STOP),
        ("recreate, no record", Lifecycle::Recreate, vec![], reason::FAILED_TO_STOP),
        ("recreate, recorded", Lifecycle::Recreate, vec![recorded("m-0"), recorded("m-1")], reason::HIBERNATING),
        ("stop/start has no record", Lifecycle::StopStart, vec![recorded("m-0")], reason::FAILED_TO_STOP),
    ] {
        let plan = decide(&facts(&cluster).found(lifecycle, Listing { instances, ..Listing::default() }));
        assert_eq!((says(&plan).2, plan.actions.len()), (power_state, 0), "{case}");
    }
    let plan = decide(&recreated(&cluster, vec![recorded("m-0"), recorded("m-1")]));
    assert_eq!(progress(&plan).1, "2 instances deleted and recorded");
    let waking = waking(("False", "StartingMachines"));
    assert_eq!(says(&decide(&recreated(&waking, vec![]))).2, "FailedToStartMachines");
}

/// A valid key of another account shows no machines either.
#[test]
fn who_is_where_it_should_be_stays_there_while_nothing_is_found_for_less_than_three_steady_periods() {
    let (asleep, awake) = (asleep(("True", reason::HIBERNATING)), waking(("True", reason::RUNNING)));
    for (cluster, minutes, power_state) in [
        (&asleep, 0, ""),
        (&asleep, 29, ""),
        (&asleep, 30, reason::FAILED_TO_STOP),
        (&awake, 0, ""),
        (&awake, 29, ""),
        (&awake, 30, "FailedToStartMachines"),
    ] {
        let plan = decide(&Facts { empty_for: Duration::from_mins(minutes), ..facts(cluster).machines_are(&[]) });
        assert_eq!((says(&plan).2, progress(&plan).0), (power_state, "NoInstances"), "after {minutes} minutes");
        assert_eq!(plan.requeue, Requeue::After(Duration::from_secs(40)));
        let is_noticed = plan.notice.is_some_and(|notice| notice.warning && notice.reason == "NoInstances");
        assert_eq!(is_noticed, power_state.is_empty(), "after {minutes} minutes");
    }
}

#[test]
fn steps_in_the_middle_go_either_way() {
    let sleeping = asleep(("False", "WaitingForMachinesToStop"));
    let waking = waking(("False", "WaitingForMachines"));
    for (case, machine, stops, starts) in [
        ("running", Instance::new("m", Running), true, false),
        ("paused", Instance::new("m", Halted), true, true),
        ("its image is being made", Instance::new("m", Stopping), false, false),
        ("its image is there", due("m", Stopping), true, true),
        ("deleted", recorded("m"), false, true),
        ("being made", Instance::new("m", Pending), false, false),
        ("made, not all restored", due("m", Pending), true, true),
        ("broken", Instance::new("m", Unknown), false, false),
    ] {
        // A second machine, so that the cluster is not where it should be in any of these.
        let with = |cluster, other| recreated(cluster, vec![machine.clone(), Instance::new("n", other)]);
        let stop_actions = if stops { vec![stop(&["m"])] } else { vec![] };
        let start_actions = if starts { vec![start(&["m"])] } else { vec![] };
        assert_eq!(decide(&with(&sleeping, Stopping)).actions, stop_actions, "{case}: into sleep");
        assert_eq!(decide(&with(&waking, Pending)).actions, start_actions, "{case}: out of sleep");
    }
}

#[test]
fn a_machine_in_an_unknown_state_never_counts_as_asleep_and_holds_a_wake_up_for_five_minutes() {
    let broken = || Instance { node_names: vec!["node-1".into()], ..Instance::new("m-1", Unknown) }.in_words("ERROR");
    let sleeping = asleep(("False", "WaitingForMachinesToStop"));
    let plan = decide(&recreated(&sleeping, vec![recorded("m-0"), broken()]));
    assert_eq!((says(&plan).2, plan.actions.len()), ("WaitingForMachinesToStop", 0));
    assert_eq!(progress(&plan).1, "1 of 2 instances are not stopped: m-1 (ERROR)");

    let waking = |seconds| {
        began(
            noted(cluster("Running"), ("False", reason::RESUMING_OR_RUNNING), ("False", "WaitingForMachines")),
            seconds,
        )
    };
    let machines = || vec![Instance { node_names: vec!["node-0".into()], ..Instance::new("m-0", Running) }, broken()];
    let early = waking(290);
    let plan = decide(&recreated(&early, machines()));
    assert_eq!((needs(&recreated(&early, machines())), says(&plan).2), (None, "WaitingForMachines"));
    assert_eq!(progress(&plan).1, "1 of 2 instances are not running: m-1 (ERROR)");

    let late = noted(cluster("Running"), ("False", reason::RESUMING_OR_RUNNING), ("False", "WaitingForMachines"));
    let late = Facts { now: at(300), ..recreated(&late, machines()) };
    assert_eq!(needs(&late), Some(Need::Spoke), "the wake goes on");
    let nodes = [(true, 299, true), (false, -3600, false)];
    let plan = decide(&late.nodes_are(nodes, &[]));
    assert_ne!(says(&plan).2, "WaitingForNodes", "the Node of a broken machine is not waited for");
    let notice = plan.notice.unwrap();
    assert!(
        notice.warning && notice.reason == "MachineUnusable" && notice.message.ends_with("m-1 (ERROR)"),
        "{notice:?}"
    );
}

#[test]
fn what_a_transition_leaves_behind_is_removed_once_its_end_is_on_the_object() {
    let owed = |cluster, instances| {
        facts(cluster).found(Lifecycle::Recreate, Listing { instances, owed: true, ..Listing::default() })
    };
    let running = || vec![Instance::new("m-0", Running)];
    let (reached, noted) = (waking(("False", "WaitingForClusterOperators")), waking(("True", reason::RUNNING)));
    let plan = decide(&owed(&reached, running()).nodes_are(AWAKE, &[]));
    assert_eq!((says(&plan).2, plan.actions.len(), plan.requeue), (reason::RUNNING, 0, Requeue::After(Duration::ZERO)));
    let plan = decide(&owed(&noted, running()));
    assert_eq!((plan.actions, plan.requeue), (vec![Action::Settle], Requeue::After(OWED)));
    let plan = decide(&recreated(&noted, running()));
    assert_eq!((plan.actions, plan.requeue), (vec![], Requeue::After(Settings::default().steady)), "nothing is owed");

    let (reached, noted) = (asleep(("False", reason::STOPPING)), asleep(("True", reason::HIBERNATING)));
    assert_eq!(decide(&owed(&reached, vec![recorded("m-0")])).actions, []);
    assert_eq!(decide(&owed(&noted, vec![recorded("m-0")])).actions, [Action::Settle]);
}

#[test]
fn what_a_driver_has_to_say_is_an_event() {
    for cluster in [asleep(("True", reason::HIBERNATING)), waking(("False", "WaitingForMachines"))] {
        let listing = |event| Listing { instances: vec![recorded("m-0")], event, ..Listing::default() };
        let notice = |event| decide(&facts(&cluster).found(Lifecycle::Recreate, listing(event))).notice;
        let event = CloudEvent { reason: "RecordRebuilt", message: "again".to_owned() };
        assert_eq!(notice(Some(event)), Some(Notice::warning("RecordRebuilt", "again".to_owned())));
        assert_eq!(notice(None), None);
    }
}

#[test]
fn a_call_that_the_cloud_gave_up_is_told_and_repeated_after_a_while() {
    let cluster = waking(("False", "WaitingForMachines"));
    let refusal = Refusal {
        id: "m-0".into(),
        kind: CloudErrorKind::Capacity,
        code: "NoValidHost".into(),
        message: "full".into(),
    };
    let listing = || Listing {
        instances: vec![due("m-0", Pending), Instance::new("m-1", Running)],
        failed: vec![refusal.clone()],
        ..Listing::default()
    };
    let tried = |seconds_ago: i64| attempt(Verb::Start, seconds_ago, None, 0);
    let plan = decide(&Facts { tried: Some(tried(2)), ..facts(&cluster).found(Lifecycle::Recreate, listing()) });
    assert_eq!((plan.actions.len(), plan.requeue), (0, Requeue::Retry(Duration::from_secs(3))));
    assert_eq!(
        message(&plan),
        "Failed to start machines: m-0: NoValidHost: full (more detail may be available in the logs)"
    );
    assert_eq!(progress(&plan).0, "Capacity");
    let plan = decide(&Facts { tried: Some(tried(5)), ..facts(&cluster).found(Lifecycle::Recreate, listing()) });
    assert_eq!(plan.actions, [start(&["m-0"])]);

    let cluster = asleep(("False", "WaitingForMachinesToStop"));
    let tried = attempt(Verb::Stop, 2, None, 0);
    let stopping = |profile: Profile| {
        let machines = Some(Ok(Inventory::new(profile, listing())));
        decide(&Facts { tried: Some(tried.clone()), machines, ..facts(&cluster) })
    };
    let recreated = stopping(Profile { lifecycle: Lifecycle::Recreate, ..Profile::default() });
    assert_eq!(says(&recreated).0, "WaitingForMachinesToStop", "a sleep has other concerns");
    let one_by_one = stopping(Profile { one_by_one: true, ..Profile::default() });
    assert_eq!(says(&one_by_one).0, "FailedToStop", "its driver lists stops");
    assert_eq!((one_by_one.actions.len(), progress(&one_by_one).0), (0, "Capacity"));
}

/// Of a cloud that moves machines by a call each: one master without a right keeps no other one from waking, and workers
/// do not run without any.
#[test]
fn a_right_that_is_missing_for_one_machine_is_one_machines() {
    let cluster = waking(("False", "WaitingForMachines"));
    let master = |id: &str, state| Instance { control_plane: true, ..Instance::new(id, state) };
    let denied = || CloudError::new(CloudErrorKind::Denied, "m-0: 403");
    let plan = |one_by_one, second| {
        let instances = vec![master("m-0", Stopped), master("m-1", second), Instance::new("w-0", Stopped)];
        let profile = Profile { one_by_one, ..Profile::default() };
        let machines = Some(Ok(Inventory::new(profile, Listing { instances, ..Listing::default() })));
        let tried = Some(attempt(Verb::Start, 120, Some(denied()), 1));
        decide(&Facts { machines, tried, ..facts(&cluster) }).actions
    };
    assert_eq!(plan(true, Running), [start(&["m-0", "w-0"])], "the worker is no longer held back");
    assert_eq!(plan(true, Stopped), [start(&["m-0", "m-1"]), start(&["w-0"])], "group by group: the first may fail");
    assert_eq!(plan(false, Running), [start(&["m-0"]), start(&["w-0"])], "EC2 denies accounts");
}

#[test]
fn a_machine_of_an_awake_cluster_that_its_driver_has_to_move_is_moved() {
    let awake = waking(("True", reason::RUNNING));
    let moved = |pending| decide(&recreated(&awake, vec![Instance::new("m-0", Running), pending])).actions;
    assert_eq!(moved(due("m-1", Pending)), [start(&["m-1"])], "it lost a port");
    assert_eq!(moved(Instance::new("m-1", Pending)), [], "an autoscaler has made it");
}

#[test]
fn a_platform_may_take_longer_than_the_controller_allows() {
    let cluster = asleep(("False", "WaitingForMachinesToStop"));
    let limited = |minutes| {
        let limits = Limits { sleep: Duration::from_mins(minutes), ..Limits::default() };
        let profile = Profile { limits, ..Profile::default() };
        let listing = Listing { instances: vec![Instance::new("m-0", Stopping)], ..Listing::default() };
        Facts { machines: Some(Ok(Inventory::new(profile, listing))), now: at(20 * 60), ..facts(&cluster) }
    };
    let reason = |plan: Plan| plan.notice.map(|notice| notice.reason);
    assert_eq!(reason(decide(&limited(0))), Some("SleepTakesTooLong"), "the controller's own limit is 15 minutes");
    assert_eq!(reason(decide(&limited(30))), None);
}
