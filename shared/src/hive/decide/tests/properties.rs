//! What must hold for every cluster, however it got there.

use proptest::prelude::*;

use super::*;
use crate::cloud::InstanceState::{Halted, Pending, Running, ShuttingDown, Stopped, Stopping, Terminated, Unknown};
use crate::power::Power;

pub(super) fn any_cluster() -> impl Strategy<Value = ClusterDeployment> {
    let word = || {
        let reasons = prop::sample::select(vec![
            "Initialized",
            "Unsupported",
            "ResumingOrRunning",
            "StoppingOrHibernating",
            "Stopping",
            "FailedToStop",
            "WaitingForMachinesToStop",
            "Hibernating",
            "StartingMachines",
            "WaitingForMachines",
            "FailedToStartMachines",
            "WaitingForNodes",
            "PausingForClusterOperatorsToSettle",
            "WaitingForClusterOperators",
            "Running",
            "",
        ]);
        (prop::sample::select(vec!["True", "False", "Unknown"]), reasons)
    };
    let state = prop::sample::select(vec!["", "Running", "Hibernating"]);
    let keys = vec![RECONCILE_PAUSE, POWERSTATE_PAUSE, FAKE_CLUSTER, "other"];
    (state, word(), word(), any::<[bool; 3]>(), prop::sample::select(keys)).prop_map(
        |(state, h, r, [installed, deleted, conditions], key)| {
            let mut found = if conditions { noted(cluster(state), h, r) } else { cluster(state) };
            found.spec.installed = installed || !deleted;
            found.metadata.deletion_timestamp = (deleted && installed).then(|| Time(at(0)));
            annotated(found, key, "true")
        },
    )
}

fn any_states() -> impl Strategy<Value = Vec<InstanceState>> {
    prop::collection::vec(
        prop::sample::select(vec![Pending, Running, Stopping, Stopped, ShuttingDown, Terminated]),
        0..5,
    )
}

/// Machines as a driver of either lifecycle lists them: only one that recreates them has some halted, due or recorded.
fn any_listing() -> impl Strategy<Value = (Lifecycle, Listing)> {
    let stop_start = any_states().prop_map(|states| {
        let instances = states.into_iter().enumerate().map(|(n, state)| Instance::new(format!("i-{n}"), state));
        (Lifecycle::StopStart, Listing { instances: instances.collect(), ..Listing::default() })
    });
    let state = prop::sample::select(vec![Pending, Running, Stopping, Halted, Stopped, ShuttingDown, Unknown]);
    let recreate = (prop::collection::vec((state, any::<bool>()), 0..5), any::<bool>()).prop_map(|(machines, owed)| {
        let machine =
            |(n, (state, due))| Instance { due, recorded: state == Stopped, ..Instance::new(format!("i-{n}"), state) };
        let instances = machines.into_iter().enumerate().map(machine).collect();
        (Lifecycle::Recreate, Listing { instances, owed, ..Listing::default() })
    });
    prop_oneof![stop_start, recreate]
}

/// What a stop does to a machine, and what becomes of it by itself: one step each, for either lifecycle.
fn stopped_by(lifecycle: Lifecycle, state: InstanceState) -> InstanceState {
    match (lifecycle, state) {
        (Lifecycle::Recreate, Running) => Halted,
        _ => Stopping,
    }
}

proptest! {
    #[test]
    fn moves_only_what_may_move_and_in_one_direction(
        cluster in any_cluster(), (lifecycle, listing) in any_listing(), nodes in any::<[(bool, i16, bool); 2]>(), failed in any::<Option<(bool, u8)>>(),
    ) {
        let states: Vec<_> = listing.instances.iter().map(|i| i.state).collect();
        let mut facts = facts(&cluster).found(lifecycle, listing).nodes_are(nodes.map(|(r, s, m)| (r, i64::from(s), m)), &[]);
        if let Some((verb, ago)) = failed {
            facts = facts.failed(if verb { Verb::Start } else { Verb::Stop }, i64::from(ago));
        }
        let plan = decide(&facts);
        prop_assert_eq!(&plan, &decide(&facts), "same facts, same plan");
        for action in &plan.actions {
            let machines = facts.machines.as_ref().unwrap().as_ref().unwrap();
            match action {
                Action::Move(Verb::Stop, ids) => {
                    prop_assert_eq!(cluster.desired(), Power::Hibernating);
                    prop_assert_eq!(ids, &machines.to_stop(|_| true));
                    prop_assert!(lifecycle == Lifecycle::Recreate || *ids == machines.in_state(&[Running]));
                }
                Action::Move(Verb::Start, ids) => {
                    prop_assert_eq!(cluster.desired(), Power::Running);
                    prop_assert_eq!(ids, &machines.to_start(|_| true));
                    prop_assert!(lifecycle == Lifecycle::Recreate || *ids == machines.in_state(&[Stopped]));
                }
                Action::Move(Verb::Terminate, _) => prop_assert!(false, "there is no spot instance"),
                Action::Settle => prop_assert!(machines.owed && (cluster.is_true(READY) || cluster.is_true(HIBERNATING))),
                Action::SetPowerState(to, _) => prop_assert_ne!(cluster.desired(), *to),
            }
        }
        if cluster.spec.power_state.as_deref() == Some("Hibernating") && says_done(&plan, "Hibernating") && !cluster.annotation_is_true(FAKE_CLUSTER) {
            let is_left = |state: &InstanceState| *state == Unknown && lifecycle == Lifecycle::StopStart;
            prop_assert!(states.iter().all(|state| matches!(state, Stopped | Terminated) || is_left(state)));
            prop_assert!(states.contains(&Stopped));
        }
    }

    #[test]
    fn a_status_that_was_written_is_not_written_again_and_h_agrees_with_r(cluster in any_cluster(), (lifecycle, listing) in any_listing()) {
        let facts = facts(&cluster).found(lifecycle, listing);
        let Some(status) = decide(&facts).status else { return Ok(()) };
        let Some(patch) = status.patch(&cluster, at(0)) else { return Ok(()) };
        let after = patched(&cluster, &patch);
        prop_assert_eq!(status.patch(&after, at(1)), None);
        let is = |type_| after.condition(type_).is_some_and(|c| c.status == "True");
        if status.hibernating.is_some() && status.ready.is_some() {
            prop_assert!(!(is(HIBERNATING) && is(READY)));
        }
    }

    #[test]
    fn a_sleep_ends_whatever_the_order_in_which_machines_stop(
        order in Just([0usize, 1, 2, 3]).prop_shuffle(), begin in any_states(), recreate: bool,
    ) {
        let lifecycle = if recreate { Lifecycle::Recreate } else { Lifecycle::StopStart };
        let mut cluster = noted(cluster("Hibernating"), ("False", reason::RESUMING_OR_RUNNING), ("True", reason::RUNNING));
        let mut states: Vec<_> = begin.into_iter().filter(|state| !matches!(state, Terminated | ShuttingDown)).chain([Running; 4]).take(4).collect();
        for round in 0..16 {
            let machine = |(n, state): (usize, &InstanceState)| Instance::new(format!("i-{n}"), *state);
            let instances = states.iter().enumerate().map(machine).collect();
            let facts = facts(&cluster).found(lifecycle, Listing { instances, ..Listing::default() });
            let plan = decide(&facts);
            for action in &plan.actions {
                let Action::Move(Verb::Stop, ids) = action else { panic!("{action:?}") };
                for id in ids {
                    let state = &mut states[id.strip_prefix("i-").unwrap().parse::<usize>().unwrap()];
                    *state = stopped_by(lifecycle, *state);
                }
            }
            if let Some(patch) = plan.status.and_then(|status| status.patch(&cluster, at(round))) {
                cluster = patched(&cluster, &patch);
            }
            let mover = states[order[usize::try_from(round).unwrap() % 4]];
            states[order[usize::try_from(round).unwrap() % 4]] = match mover { Pending => Running, Stopping => Stopped, other => other };
        }
        prop_assert_eq!(cluster.power_state(), "Hibernating", "{:?}", states);
    }
}

fn says_done(plan: &Plan, power_state: &str) -> bool {
    plan.status.as_ref().is_some_and(|status| status.power_state == Some(power_state))
}
