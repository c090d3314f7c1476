//! The table row by row, and what holds for whatever may be found.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::fdb::api::FoundationDBCluster;
use crate::fdb::suspension::{Minimum, OPERATOR, RECOVERY, Stamp, Suspension};

const REMOVAL: &str = "2026-11-21T17:59:58Z";

fn at(seconds: i64) -> Timestamp {
    "2026-11-21T18:00:00Z".parse::<Timestamp>().unwrap() + SignedDuration::from_secs(seconds)
}

/// A cluster with groups `storage-0` and so on, each in zone `z{number % zones}`, marked and excluded.
fn cluster(groups: usize, zones: usize, options: &Value) -> FoundationDBCluster {
    let group = |number: usize| {
        json!({"processGroupID": format!("storage-{number}"), "processClass": "storage", "removalTimestamp": REMOVAL,
            "exclusionTimestamp": REMOVAL, "addresses": ["10.0.0.1"], "faultDomain": format!("z{}", number % zones)})
    };
    serde_json::from_value(json!({
        "metadata": {"name": "prod", "namespace": "db", "uid": "u1"},
        "spec": {"version": "7.3.69", "automationOptions": options, "routing": {"publicIPSource": "service"}},
        "status": {"processGroups": (0..groups).map(group).collect::<Vec<_>>()},
    }))
    .unwrap()
}

fn held(number: usize) -> Held {
    Held {
        kind: Kind::Pvc,
        name: String::new(),
        version: None,
        uid: format!("p-{number}"),
        group: Some(format!("storage-{number}")),
        deleting: false,
        bytes: 1 << 30,
        stamp: Stamp::default(),
        woken: None,
    }
}

/// An object that has been held since then, for a minute, by an ordinary stamp.
fn stamped(number: usize, since: Timestamp) -> Held {
    let record = Suspension {
        uid: format!("p-{number}"),
        group: format!("storage-{number}"),
        removal: Some(REMOVAL.to_owned()),
        minimum: "1m0s".to_owned(),
        class: "storage".to_owned(),
        fault_domain: Some("z0".to_owned()),
        addresses: vec!["10.0.0.1".to_owned()],
        why: OPERATOR.to_owned(),
    };
    let stamp = Stamp { since: Some(since), record: Some(record), present: true, ..Stamp::default() };
    Held { stamp, ..held(number) }
}

fn edited(mut held: Held, edit: impl FnOnce(&mut Held)) -> Held {
    edit(&mut held);
    held
}

fn facts<'a>(cluster: &'a FoundationDBCluster, objects: &[Held], now: Timestamp) -> Facts<'a> {
    let minimum = Minimum::For(Duration::from_mins(1));
    Facts { cluster, minimum, pods: vec![], objects: objects.to_vec(), turn: None, began: at(-86_400), now }
}

fn changes(plan: &Plan) -> Vec<Change> {
    plan.actions.iter().map(|action| action.change.clone()).collect()
}

/// What a plan makes of the objects.
fn carry_out(plan: &Plan, objects: &mut [Held], now: Timestamp) {
    for action in &plan.actions {
        let object = &mut objects[action.object];
        match &action.change {
            Change::Stamp(since, record) => {
                assert_eq!(record.uid, object.uid, "a stamp names its object");
                object.woken = None;
                object.stamp = Stamp {
                    since: Some(*since),
                    record: Some((**record).clone()),
                    released: None,
                    present: true,
                    key: object.stamp.key,
                };
            }
            Change::Release => object.stamp.released = Some(now),
            Change::Wake => object.woken = Some(now),
            Change::Clear => {
                object.stamp = Stamp { key: object.stamp.key, ..Stamp::default() };
                object.woken = None;
            }
        }
    }
}

#[test]
fn the_table() {
    let one = || cluster(1, 1, &json!({}));
    let with = |field: &str, value: Value| {
        let mut cluster = serde_json::to_value(one()).unwrap();
        cluster["status"]["processGroups"][0][field] = value;
        serde_json::from_value::<FoundationDBCluster>(cluster).unwrap()
    };
    let recovery =
        |since| edited(stamped(0, since), |held| held.stamp.record.as_mut().unwrap().why = RECOVERY.to_owned());
    let unmarked = || with("removalTimestamp", Value::Null);
    let unreadable = |since| edited(held(0), |held| held.stamp = Stamp { since, present: true, ..Stamp::default() });
    let other = |since| edited(stamped(0, since), |held| held.stamp.record.as_mut().unwrap().removal = None);
    let released = |since, at| edited(stamped(0, since), |held| held.stamp.released = Some(at));
    let unknown = FoundationDBCluster { status: None, ..one() };
    for (row, cluster, object, expected) in vec![
        ("D1", one(), recovery(at(-599)), "none"),
        ("D1 unmarked", unmarked(), recovery(at(-599)), "none"),
        ("D2 recovery", unmarked(), recovery(at(-600)), "clear"),
        ("D2 unmarked", unmarked(), stamped(0, at(-10)), "clear"),
        ("D2 unmarked, unreadable", unmarked(), unreadable(None), "clear"),
        ("D2 nothing on it", unmarked(), held(0), "none"),
        ("D3", unknown.clone(), stamped(0, at(-3600)), "none"),
        ("D3 nothing on it", unknown, held(0), "none"),
        ("D4 not excluded", with("exclusionTimestamp", Value::Null), held(0), "none"),
        ("D5", one(), held(0), "stamp 0"),
        (
            "D5 skipped",
            {
                let mut skipped = with("exclusionTimestamp", Value::Null);
                skipped.status.as_mut().unwrap().process_groups[0].exclusion_skipped = true;
                skipped
            },
            held(0),
            "stamp 0",
        ),
        ("D5 of another removal", one(), other(at(-3600)), "stamp 0"),
        ("D6 the record", one(), unreadable(Some(at(-30))), "stamp -30"),
        ("D6 all of it", one(), unreadable(None), "stamp 0"),
        ("D6 the time", one(), edited(stamped(0, at(0)), |held| held.stamp.since = None), "stamp 0"),
        ("D7", one(), stamped(0, at(61)), "stamp 0"),
        ("D7 within a minute", one(), stamped(0, at(59)), "none"),
        ("D8", one(), recovery(at(-600)), "stamp -600"),
        ("D9 59 s", one(), stamped(0, at(-59)), "none"),
        ("D10 60 s", one(), stamped(0, at(-60)), "release"),
        ("D10 61 s", one(), stamped(0, at(-61)), "release"),
        ("D11 14 s", one(), released(at(-600), at(-14)), "none"),
        ("D11 15 s", one(), released(at(-600), at(-15)), "wake"),
        ("deleting", one(), edited(stamped(0, at(-61)), |held| held.deleting = true), "none"),
        ("of no group", one(), edited(held(0), |held| held.group = None), "none"),
        ("a Service", one(), edited(held(0), |held| held.kind = Kind::Service), "stamp 0"),
    ] {
        let objects = [object];
        let plan = decide(&facts(&cluster, &objects, at(0)));
        let detail = match changes(&plan).as_slice() {
            [] => "none".to_owned(),
            [Change::Stamp(since, _)] => format!("stamp {}", since.duration_since(at(0)).as_secs()),
            [Change::Release] => "release".to_owned(),
            [Change::Wake] => "wake".to_owned(),
            [Change::Clear] => "clear".to_owned(),
            more => panic!("{row}: {more:?}"),
        };
        assert_eq!(detail, expected, "{row}");
    }
}

#[test]
fn a_group_whose_pod_is_there_is_left_alone_until_it_goes() {
    let (cluster, objects) = (cluster(1, 1, &json!({})), [held(0)]);
    let mut pods = [Pod { group: "storage-0".to_owned(), deleting: false }];
    let plan = decide(&Facts { pods: pods.to_vec(), ..facts(&cluster, &objects, at(0)) });
    assert_eq!((plan.actions.len(), plan.requeue), (0, Some(POD_POLL_INTERVAL)));
    for (seconds, pause) in [(3, 5), (28, 30), (3_598, 3_600), (-60, 5)] {
        let plan = decide(&Facts { pods: pods.to_vec(), ..facts(&cluster, &objects, at(seconds)) });
        assert_eq!(plan.requeue, Some(Duration::from_secs(pause)), "{seconds}");
    }
    pods[0].deleting = true;
    let plan = decide(&Facts { pods: pods.to_vec(), ..facts(&cluster, &objects, at(0)) });
    assert_eq!((plan.actions.len(), plan.held, plan.held_bytes), (1, 1, 1 << 30));
}

#[test]
fn off_stamps_nothing_but_sees_through_what_was_promised() {
    let cluster = cluster(1, 1, &json!({}));
    let decide_off = |object: Held, now| {
        let objects = [object];
        decide(&Facts { minimum: Minimum::Off, ..facts(&cluster, &objects, now) }).actions
    };
    assert_eq!(decide_off(held(0), at(0)), []);
    assert_eq!(decide_off(stamped(0, at(0)), at(59)), []);
    assert_eq!(decide_off(stamped(0, at(0)), at(60)), [Action { object: 0, change: Change::Release }]);
    let unreadable =
        edited(held(0), |held| held.stamp = Stamp { since: Some(at(0)), present: true, ..Stamp::default() });
    assert_eq!(decide_off(unreadable, at(999_999)), [], "what cannot be read never means off");
}

#[test]
fn what_was_promised_in_between_is_promised_for_good() {
    let cluster = cluster(1, 1, &json!({}));
    let mut objects = [stamped(0, at(-30))];
    let longer = |objects: &[Held]| {
        decide(&Facts { minimum: Minimum::For(Duration::from_mins(2)), ..facts(&cluster, objects, at(0)) })
    };
    let plan = longer(&objects);
    assert!(matches!(changes(&plan).as_slice(), [Change::Stamp(since, _)] if *since == at(-30)), "{plan:?}");
    carry_out(&plan, &mut objects, at(0));
    assert!(longer(&objects).actions.is_empty());
    for minimum in [Minimum::Off, Minimum::For(Duration::from_mins(1))] {
        let then = |seconds| Facts { minimum: minimum.clone(), ..facts(&cluster, &objects, at(seconds)) };
        assert!(decide(&then(89)).actions.is_empty(), "shortened again: {minimum:?}");
        assert_eq!(changes(&decide(&then(90))), [Change::Release]);
    }
}

#[test]
fn while_the_database_is_unwell_the_next_zone_waits_for_the_last_one() {
    let mut cluster = cluster(2, 2, &json!({"waitBetweenRemovalsSeconds": 0}));
    let released = edited(stamped(0, at(-3_600)), |held| held.stamp.released = Some(at(-1_800)));
    let due =
        edited(stamped(1, at(-3_600)), |held| held.stamp.record.as_mut().unwrap().fault_domain = Some("z1".into()));
    let objects = [released, due];
    let releases = |cluster: &FoundationDBCluster| {
        let plan = decide(&facts(cluster, &objects, at(0)));
        plan.actions.iter().filter(|action| action.change == Change::Release).count()
    };
    assert_eq!(releases(&cluster), 1, "the operator had its time");
    for (available, full_replication, expected) in [(true, true, 1), (false, true, 0), (true, false, 0)] {
        let health = json!({"available": available, "healthy": true, "fullReplication": full_replication});
        cluster.status.as_mut().unwrap().health = serde_json::from_value(health).unwrap();
        assert_eq!(releases(&cluster), expected, "{available} {full_replication}");
    }
}

#[test]
fn a_minimum_that_cannot_be_read_holds_until_it_can() {
    let (cluster, mut objects) = (cluster(1, 1, &json!({})), [stamped(0, at(0))]);
    let minimum = Minimum::Unreadable("2 hours".to_owned());
    assert_eq!(decide(&Facts { minimum, ..facts(&cluster, &objects, at(999_999)) }).actions, []);
    let minimum = Minimum::For(Duration::from_hours(2));
    let plan = decide(&Facts { minimum: minimum.clone(), ..facts(&cluster, &objects, at(60)) });
    carry_out(&plan, &mut objects, at(60));
    let plan = decide(&Facts { minimum, ..facts(&cluster, &objects, at(60)) });
    assert_eq!((plan.actions, plan.requeue), (vec![], Some(Duration::from_mins(119))), "a longer one counts for all");
}

#[test]
fn both_volumes_of_one_id_and_the_service_go_together() {
    let cluster = cluster(1, 1, &json!({}));
    let service = edited(stamped(0, at(0)), |held| held.kind = Kind::Service);
    let objects = [stamped(0, at(0)), stamped(0, at(5)), service];
    assert_eq!(decide(&facts(&cluster, &objects, at(60))).actions, [], "the youngest decides");
    assert_eq!(decide(&facts(&cluster, &objects, at(65))).actions.len(), 3);
}

#[test]
fn what_a_crash_left_half_released_is_released_at_once() {
    let cluster = cluster(1, 1, &json!({}));
    let objects = [edited(stamped(0, at(0)), |held| held.stamp.released = Some(at(60))), stamped(0, at(0))];
    assert_eq!(decide(&facts(&cluster, &objects, at(61))).actions, [Action { object: 1, change: Change::Release }]);
}

/// Looks once a second at groups that were all held at once, with an operator that deletes what it may. Returns when
/// each group was released, in seconds.
fn releases(options: &Value, began: i64) -> Vec<(i64, usize)> {
    let cluster = cluster(20, 5, options);
    let mut objects: Vec<Held> = (0..20)
        .map(|number| {
            edited(stamped(number, at(0)), |held| {
                held.stamp.record.as_mut().unwrap().fault_domain = Some(format!("z{}", number % 5));
            })
        })
        .collect();
    let (mut turn, mut released) = (None, vec![]);
    for second in 0..400 {
        let now = at(second);
        let plan = decide(&Facts { turn, began: at(began), ..facts(&cluster, &objects, now) });
        carry_out(&plan, &mut objects, now);
        for action in &plan.actions {
            released.push((second, action.object));
            objects[action.object].deleting = true;
        }
        turn = plan.turn;
    }
    released
}

#[test]
fn zones_go_one_by_one_with_the_wait_between_them() {
    let released = releases(&json!({"waitBetweenRemovalsSeconds": 2}), -3600);
    assert_eq!(released.len(), 20);
    for (position, (second, object)) in released.iter().enumerate() {
        let turn = i64::try_from(position / 4).unwrap();
        assert_eq!((*second, *object % 5), (60 + 2 * turn, position / 4), "{released:?}");
    }
}

#[test]
fn other_modes_have_their_own_pace() {
    let all = releases(&json!({"removalMode": "All", "waitBetweenRemovalsSeconds": 2}), -3600);
    assert_eq!((all.len(), all[0].0, all[19].0), (20, 60, 60));
    let single = releases(&json!({"removalMode": "ProcessGroup", "waitBetweenRemovalsSeconds": 3}), -3600);
    let seconds: Vec<_> = single.iter().map(|(second, _)| *second).collect();
    assert_eq!(seconds, (0..20).map(|turn| 60 + 3 * turn).collect::<Vec<_>>());
    assert_eq!(releases(&json!({"removalMode": "None"}), -3600), []);
    let default: BTreeSet<_> = releases(&json!({}), -3600).iter().map(|(second, _)| *second).collect();
    assert_eq!(default, [60, 120, 180, 240, 300].into());
    let never = releases(&json!({"waitBetweenRemovalsSeconds": 1_000_000_000_000_i64}), -3600);
    assert!(never.is_empty(), "a wait beyond the end of time is one: {never:?}");
}

#[test]
fn after_a_restart_the_first_turn_waits_for_what_may_have_been_released_before() {
    assert_eq!(releases(&json!({"waitBetweenRemovalsSeconds": 10}), 55)[0].0, 65);
    assert_eq!(releases(&json!({"removalMode": "All", "waitBetweenRemovalsSeconds": 10}), 55)[0].0, 60);
}

/// The seconds of this many at which the operator is woken for a group that was released at that time.
fn woken(released: i64, seconds: i64) -> Vec<i64> {
    let cluster = cluster(1, 1, &json!({}));
    let mut objects = [edited(stamped(0, at(-600)), |held| held.stamp.released = Some(at(released)))];
    let mut woken = vec![];
    for second in 0..seconds {
        let plan = decide(&facts(&cluster, &objects, at(second)));
        carry_out(&plan, &mut objects, at(second));
        woken.extend(plan.actions.iter().map(|_| second));
    }
    woken
}

#[test]
fn an_operator_that_sleeps_is_woken_more_and_more_rarely() {
    assert_eq!(woken(0, 1_000), [15, 30, 60, 120, 240, 480, 960]);
}

#[test]
fn a_release_that_lies_ahead_does_not_keep_the_operator_awake() {
    assert_eq!(woken(100_000, 3_000), [0, 600, 1_200, 1_800, 2_400]);
}

fn any_time() -> impl Strategy<Value = Timestamp> {
    (-7_200_i64..7_200).prop_map(at)
}

fn any_stamp() -> impl Strategy<Value = Stamp> {
    let removal = prop_oneof![3 => Just(Some(REMOVAL.to_owned())), 1 => Just(None), 1 => Just(Some("x".to_owned()))];
    let minimum = prop_oneof![Just("1m0s".to_owned()), Just("1h0m0s".to_owned()), Just("soon".to_owned())];
    let why = prop_oneof![2 => Just(OPERATOR.to_owned()), 1 => Just(RECOVERY.to_owned())];
    let record = (removal, minimum, why).prop_map(|(removal, minimum, why)| Suspension {
        removal,
        minimum,
        why,
        ..Suspension::default()
    });
    (
        proptest::option::of(any_time()),
        proptest::option::of(record),
        proptest::option::weighted(0.3, any_time()),
        any::<bool>(),
    )
        .prop_map(|(since, record, released, key)| {
            let present = since.is_some() || record.is_some() || released.is_some();
            Stamp { since, record, released, key, present }
        })
}

fn any_object() -> impl Strategy<Value = Held> {
    (0_usize..6, any_stamp(), any::<bool>(), proptest::bool::weighted(0.1), proptest::option::of(any_time())).prop_map(
        |(number, mut stamp, service, deleting, woken)| {
            if let Some(record) = &mut stamp.record {
                (record.uid, record.group) = (format!("p-{number}"), format!("storage-{number}"));
            }
            let kind = if service { Kind::Service } else { Kind::Pvc };
            Held { kind, deleting, bytes: 1, stamp, woken, ..held(number) }
        },
    )
}

fn any_cluster() -> impl Strategy<Value = FoundationDBCluster> {
    let mode = prop_oneof![Just("All"), Just("Zone"), Just("ProcessGroup"), Just("None")];
    let shape = proptest::collection::vec((any::<bool>(), any::<bool>()), 6);
    (mode, 0_i64..100, shape).prop_map(|(mode, wait, shape)| {
        let mut cluster = cluster(6, 3, &json!({"removalMode": mode, "waitBetweenRemovalsSeconds": wait}));
        for (group, (marked, excluded)) in cluster.status.as_mut().unwrap().process_groups.iter_mut().zip(shape) {
            group.removal_timestamp = group.removal_timestamp.take().filter(|_| marked);
            group.exclusion_timestamp = group.exclusion_timestamp.take().filter(|_| excluded);
        }
        cluster
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    /// The same facts give the same plan, and what has been carried out is not wanted again.
    #[test]
    fn a_plan_is_wanted_once(
        cluster in any_cluster(),
        mut objects in proptest::collection::vec(any_object(), 0..12),
        minutes in prop_oneof![Just(0_u64), Just(1), Just(30)],
        gone in proptest::collection::vec(any::<bool>(), 6),
    ) {
        let minimum = Minimum::from(Duration::from_mins(minutes));
        let pods: Vec<Pod> = gone.iter().enumerate().filter(|(_, gone)| !**gone)
            .map(|(number, _)| Pod { group: format!("storage-{number}"), deleting: false }).collect();
        let observation = |objects: &[Held], turn: Option<Turn>| {
            decide(&Facts { minimum: minimum.clone(), pods: pods.clone(), turn, ..facts(&cluster, objects, at(0)) })
        };
        let plan = observation(&objects, None);
        prop_assert_eq!(&plan, &observation(&objects, None));
        let touched: BTreeSet<_> = plan.actions.iter().map(|action| action.object).collect();
        prop_assert_eq!(touched.len(), plan.actions.len(), "each object once");
        carry_out(&plan, &mut objects, at(0));
        let again = observation(&objects, plan.turn.clone());
        // A recovery that was given up becomes an ordinary stamp first, and is released by the next look.
        let settled = again.actions.iter().all(|action| matches!(action.change, Change::Release | Change::Wake));
        prop_assert!(settled, "{:?} then {:?}", plan, again);
        carry_out(&again, &mut objects, at(0));
        let third = observation(&objects, again.turn.clone());
        prop_assert!(third.actions.iter().all(|action| action.change == Change::Wake), "{:?}", third);
    }

    /// Nothing is released whose own record says that it is to stay, nothing of another removal, nothing that is
    /// recovered.
    #[test]
    fn nothing_is_released_early(
        cluster in any_cluster(),
        objects in proptest::collection::vec(any_object(), 0..12),
        minutes in prop_oneof![Just(0_u64), Just(1), Just(30)],
    ) {
        let minimum = Minimum::from(Duration::from_mins(minutes));
        let plan = decide(&Facts { minimum: minimum.clone(), ..facts(&cluster, &objects, at(0)) });
        for action in plan.actions.iter().filter(|action| action.change == Change::Release) {
            let object = &objects[action.object];
            let group = cluster.group(object.group.as_deref().unwrap()).unwrap();
            prop_assert!(group.is_marked() && group.is_excluded());
            let record = object.stamp.record.as_ref().unwrap();
            prop_assert!(record.is_of(group.removal_timestamp.as_deref()) && record.why != RECOVERY);
            let age = object.stamp.age(at(0));
            prop_assert!(age >= object.stamp.window(&minimum).unwrap() && age >= Duration::from_mins(minutes));
        }
        prop_assert!(plan.requeue.is_none_or(|next| next >= Duration::from_millis(100)), "no loop without a pause");
    }
}
