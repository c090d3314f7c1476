//! The steps of a plan, one by one and in whole runs, on plain objects.

mod advice;
mod again;
mod chaos;
mod hold;
mod interrupted;
mod properties;
mod world;

use crate::annotation::keys;
use crate::fdb::decide;
use crate::fdb::suspension::{Minimum, Stamp};
use crate::object::name_of;
use crate::record::Format;
use serde_json::json;

use self::world::*;
use super::check::{Place, Refusal};
use super::replace::ReplacementMode;
use super::*;

/// Whatever a status or a record holds, a recovery and the controller's decision come to an answer.
#[test]
fn fuzz_fdb_status() {
    let mut recorded = World::suspended();
    let record = recorded.record(&["storage-1"]);
    let patch = recorded.with(|facts| patch::skip(facts.cluster, &record.completed(facts)));
    recorded.patch_cluster(&patch);
    let seeds = [World::suspended().0.cluster, recorded.0.cluster].map(|cluster| cluster.to_string());
    let seeds: Vec<&[u8]> = seeds.iter().map(String::as_bytes).collect();
    ::fuzz::run("FDB status", &seeds, |bytes| {
        let Ok(cluster) = serde_json::from_slice::<crate::fdb::api::FoundationDBCluster>(bytes) else { return false };
        let world = World::suspended();
        let (claims, services, pods) = (&world.claims, &world.services, &world.pods);
        let facts = Facts { cluster: &cluster, claims, services, pods, now: at(NOW) };
        let ids = cluster.groups().iter().map(|group| group.process_group_id.clone()).take(3).collect::<Vec<_>>();
        if let Ok(goal) = check::check(&facts, &ids, &ReplacementMode::Find) {
            let _ = remaining(&facts, &goal.record, true, RunState::default());
        }
        let held = decide::Held {
            kind: crate::fdb::admission::Kind::Pvc,
            name: String::new(),
            version: None,
            uid: String::new(),
            group: ids.first().cloned(),
            deleting: false,
            bytes: 1,
            stamp: Stamp::default(),
            woken: None,
        };
        let minimum = Minimum::of(
            cluster.metadata.annotations.as_ref().and_then(|all| all.values().next()).map(String::as_str),
            HOLD_FRESH,
        );
        let facts = decide::Facts {
            cluster: &cluster,
            minimum,
            pods: vec![],
            objects: vec![held],
            turn: None,
            began: at(NOW),
            now: at(NOW),
        };
        let _ = decide::decide(&facts);
        !ids.is_empty()
    });
}

#[test]
fn a_run_ends_with_the_group_back_and_nothing_of_ours_left_but_when() {
    let (mut world, record) = begun();
    assert_eq!(world.replacements(&record), ["storage-4"]);
    world.run(&record);
    let expected = group("storage-1", "storage");
    let found = &world.groups()[1];
    assert_eq!(found["processGroupConditions"], json!([]));
    for field in ["removalTimestamp", "exclusionTimestamp", "exclusionSkipped"] {
        assert_eq!(found.get(field), None, "{field}");
    }
    assert_eq!(found["addresses"], expected["addresses"]);
    assert_eq!(world.cluster["spec"]["processGroupsToRemove"], json!(["storage-4"]));
    assert_eq!(world.cluster["spec"]["skip"], json!(false));
    assert_eq!(world.cluster["metadata"]["annotations"], json!({}));
    assert_eq!(world.claims[0]["metadata"]["annotations"], json!({ keys::RECOVERED_AT: NOW }));
    assert_eq!(world.claims[1], World::suspended().claims[1], "others' volumes are left alone");
}

#[test]
fn lists_and_status_are_edited_by_one_patch_each() {
    let mut world = World::suspended();
    world.cluster["spec"]["processGroupsToRemoveWithoutExclusion"] = json!(["storage-1"]);
    world.groups()[1]["exclusionSkipped"] = json!(true);
    let steps = world.steps(&world.record(&["storage-1"]), RunState::default()).unwrap();
    let patches = steps.iter().filter_map(|step| match step {
        Step::Lists(patch) | Step::Status(patch) => Some(patch),
        _ => None,
    });
    insta::assert_json_snapshot!(patches.collect::<Vec<_>>());
}

/// What is changed about the suspended world, and what is left to be done.
#[test]
fn what_is_done_already_is_left_out() {
    type Change = fn(&mut World);
    let recorded: Change = |world| {
        let record = world.record(&["storage-1"]);
        let patch = world.with(|facts| patch::skip(facts.cluster, &record.completed(facts)));
        world.patch_cluster(&patch);
    };
    let unlisted: Change = |world| world.cluster["spec"]["processGroupsToRemove"] = json!(["storage-4"]);
    let served: Change = |world| {
        world.cluster["spec"]["routing"] = json!({ "publicIPSource": "service" });
        world.services = vec![service("log-1", "log"), service("storage-2", "storage")];
    };
    for (change, expected) in [
        ((|_| {}) as Change, "hold skip settle lists status include verify resume await clear"),
        (recorded, "hold settle lists status include verify resume await clear"),
        (unlisted, "hold skip settle status include verify resume await clear"),
        (served, "hold skip settle lists status include services verify resume await clear"),
    ] {
        let (mut world, record) = begun();
        change(&mut world);
        assert_eq!(words(&world, &record, RunState::default()).join(" "), expected);
    }
}

#[test]
fn a_database_that_is_away_is_tried_twice_and_leaves_the_record() {
    let (mut world, record) = begun();
    let (mut done, mut detail) = (RunState::default(), Vec::new());
    while let Some(step) = world.steps(&record, done).unwrap().first() {
        detail.push(word(step));
        match step {
            Step::Include(_, planned) => world.with(|facts| done.include_failed(facts, planned)),
            step => world.carry_out(step, &mut done),
        }
    }
    assert_eq!(
        detail,
        ["hold", "skip", "settle", "lists", "status", "include", "verify", "resume", "await", "include"]
    );
    assert!(world.cluster["metadata"]["annotations"][keys::RECOVERY].is_string());
    assert!(Stamp::of(&world.claims[0]).is_recovery(), "the hold stays");
    // Once the database is back, another run has only that left.
    let record = world.record(&["storage-1"]);
    assert_eq!(world.run(&record), ["include", "clear"]);
}

#[test]
fn a_service_is_made_like_its_siblings() {
    let mut world = World::suspended();
    world.cluster["spec"]["routing"] = json!({ "publicIPSource": "service" });
    let record = world.record(&["storage-1"]);
    let first = world.steps(&record, RunState::default()).unwrap().remove(0);
    assert_eq!(word(&first), "hold", "a person has to see to it");
    world.carry_out(&first, &mut RunState::default());
    let alone = world.steps(&record, RunState::default());
    assert!(matches!(alone, Err(Unrecoverable::NoSibling { .. })), "{alone:?}");
    world.services = vec![service("log-1", "log"), service("storage-2", "storage")];
    let steps = world.steps(&record, RunState::default()).unwrap();
    let Some(Step::Services(made)) = steps.iter().find(|step| word(step) == "services") else { panic!("{steps:?}") };
    insta::assert_json_snapshot!(made);
}

#[test]
fn what_is_included_depends_on_class_and_mode() {
    let both = json!(["10.0.0.7", "10.0.0.8"]);
    let orders = |world: &World| {
        let record = world.goal_with(&["storage-1"], &ReplacementMode::None).unwrap().record;
        world.with(|facts| include::orders(facts.cluster, &record))
    };
    for (class, use_localities, version, has_addresses) in [
        ("storage", None, "7.3.69", false),
        ("log", None, "7.3.69", true),
        ("transaction", None, "7.1.42", true),
        ("storage", Some(false), "7.3.69", true),
        ("storage", None, "7.1.41", true),
        ("storage", None, "7.4.0", false),
        ("storage", None, "odd", true),
    ] {
        let mut world = World::suspended();
        world.cluster["spec"]["version"] = json!(version);
        world.cluster["spec"]["automationOptions"] = json!({ "useLocalitiesForExclusion": use_localities });
        world.groups()[1]["processClass"] = json!(class);
        world.groups()[1]["addresses"] = both.clone();
        let addresses = if has_addresses { " 10.0.0.7 10.0.0.8" } else { "" };
        let expected = format!("include locality_instance_id:storage-1{addresses}");
        assert_eq!(orders(&world), [expected], "{class} {version}");
    }
    // An address that went to another Pod is that one's affair.
    let mut world = World::suspended();
    world.groups()[1]["processClass"] = json!("log");
    world.groups()[1]["addresses"] = both;
    world.groups()[3]["addresses"] = json!(["10.0.0.7"]);
    let orders = orders(&world);
    assert_eq!(orders, ["include locality_instance_id:storage-1 10.0.0.8"]);
    assert_eq!(include::command(&orders)[2], orders[0]);
}

#[test]
fn in_global_mode_the_operators_lists_forget_the_group() {
    let (mut world, record) = begun();
    let clears = |world: &World| {
        let orders = world.with(|facts| include::orders(facts.cluster, &record));
        assert_eq!(orders[0], "include locality_instance_id:storage-1");
        orders[1..].to_vec()
    };
    assert!(clears(&world).is_empty());
    world.cluster["spec"]["automationOptions"]["synchronizationMode"] = json!("local");
    assert!(clears(&world).is_empty());
    world.cluster["spec"]["automationOptions"]["synchronizationMode"] = json!("global");
    let found = clears(&world);
    assert_eq!(found[..2], ["writemode on", "option on ACCESS_SYSTEM_KEYS"]);
    let begin = r"clear \xff\x02/org.foundationdb.kubernetes-operator";
    assert_eq!(found[2], format!("{begin}/pendingForRemoval/storage-1"));
    assert_eq!((found.len(), &found[5]), (7, &format!("{begin}/pendingForInclusion/storage-1")));
    world.cluster["spec"]["processGroupIDPrefix"] = json!("dc1");
    assert_eq!(clears(&world)[2], format!("{begin}/pendingForRemoval/dc1/storage-1"));
    world.cluster["spec"]["lockOptions"] = json!({ "lockKeyPrefix": "/a//b/" });
    assert_eq!(clears(&world)[2], "clear /a/b/pendingForRemoval/dc1/storage-1");
    // What users choose ends neither a word nor a command.
    world.cluster["spec"]["lockOptions"] = json!({ "lockKeyPrefix": "a b;\"\\é" });
    assert_eq!(clears(&world)[2], r"clear a\x20b\x3b\x22\x5c\xc3\xa9/pendingForRemoval/dc1/storage-1");
}

#[test]
fn who_goes_is_the_newest_made_since_the_removal() {
    let who = |world: &World, wanted: &ReplacementMode| match world.goal_with(&["storage-1"], wanted) {
        Ok(goal) => {
            let choices = goal.choices.iter().map(|choice| {
                let open = if choice.is_open() { "?" } else { "" };
                format!("{}{open}", choice.newest().collect::<Vec<_>>().join("+"))
            });
            choices.collect::<Vec<_>>().join(" ")
        }
        Err(refusals) => refusals[0].to_string(),
    };
    let mut world = World::suspended();
    assert_eq!(who(&world, &ReplacementMode::Find), "storage-4");
    assert_eq!(who(&world, &ReplacementMode::None), "");
    assert_eq!(who(&world, &ReplacementMode::These(vec!["storage-2".to_owned()])), "storage-2");
    assert!(who(&world, &ReplacementMode::These(vec!["storage-7".to_owned()])).contains("no process group of this ID"));
    assert!(who(&world, &ReplacementMode::These(vec!["storage-1".to_owned()])).contains("being removed already"));
    // One that is a little older than the removal is not meant while there is one that is younger.
    world.claims[2] = claim("storage-3", "storage", "2026-11-21T17:59:56Z");
    assert_eq!(who(&world, &ReplacementMode::Find), "storage-4");
    // One more was made: the newest, and a question.
    world.count(4);
    world.fill_up("storage-5", "2026-11-21T18:10:00Z");
    assert_eq!(who(&world, &ReplacementMode::Find), "storage-5?");
    // Two were made within the same second: the order of IDs counts.
    world.fill_up("storage-0", "2026-11-21T18:10:00Z");
    world.count(5);
    assert_eq!(who(&world, &ReplacementMode::Find), "storage-5?");
    // There is room.
    world.count(6);
    assert_eq!(who(&world, &ReplacementMode::Find), "");
    // The operator works the count out by itself.
    world.cluster["spec"]["processCounts"] = json!({});
    assert_eq!(who(&world, &ReplacementMode::Find), "storage-5?");
    let twice = vec!["storage-2".to_owned(), "storage-2".to_owned()];
    assert_eq!(who(&world, &ReplacementMode::These(twice)), "storage-2");
    // The count was lowered, and nobody was made for it.
    let mut world = World::suspended();
    world.count(3);
    world.claims[3] = claim("storage-4", "storage", "2026-11-21T17:59:52Z");
    let refusal = who(&world, &ReplacementMode::Find);
    assert!(refusal.starts_with("spec.processCounts.storage is 3; with storage-1 recovered there are 4"), "{refusal}");
    assert_eq!(who(&world, &ReplacementMode::None), "");
    // A second's difference between two clocks is none.
    world.claims[3] = claim("storage-4", "storage", "2026-11-21T17:59:54Z");
    assert_eq!(who(&world, &ReplacementMode::Find), "storage-4");
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_is_changed() {
    type Change = fn(&mut World);
    let cases: [(&str, Change, &str); 12] = [
        ("storage-7", |_| {}, r#"sample has no process group "storage-7"; suspended groups: storage-1"#),
        ("storage-2", |_| {}, "storage-2 is not suspended: it is not marked for removal, and its Pod runs"),
        (
            "storage-1",
            |world| drop(world.claims.remove(0)),
            "too late: its PersistentVolumeClaim does not exist any more; the operator began to delete its resources at 2026-11-20T",
        ),
        (
            "storage-1",
            |world| world.claims[0]["metadata"]["deletionTimestamp"] = json!(NOW),
            "too late: its PersistentVolumeClaim sample-storage-1-data was deleted at 2026-11-21T18:30:00Z; its PersistentVolume pv-storage-1 keeps",
        ),
        (
            "storage-1",
            |world| world.pods.push(pod("storage-1", "Running")),
            "not suspended yet: it is marked for removal and excluded, and its Pod sample-storage-1",
        ),
        (
            "storage-1",
            |world| world.cluster["metadata"]["annotations"] = json!({ keys::RECOVERY: "mine" }),
            "annotation hibernate.sh/recovery cannot be read: it is malformed. It was probably edited by hand: remove it",
        ),
        (
            "storage-1",
            |world| world.cluster["metadata"]["annotations"] = json!({ keys::RECOVERY: r#"{"v":2}"# }),
            "it has version 2, and this release reads version 1: another release wrote it. A recovery is unfinished: finish it with the",
        ),
        (
            "storage-1",
            |world| world.cluster["metadata"]["deletionTimestamp"] = json!(NOW),
            "sample has been terminating since 2026-11-21T18:30:00Z",
        ),
        (
            "stateless-1",
            |world| world.groups()[0] = removed("stateless-1", "stateless"),
            "process groups of class stateless have no volume",
        ),
        ("storage-1", |world| world.cluster["spec"]["processCounts"]["storage"] = json!(2), "raise spec.processCounts"),
        ("storage-x", |world| world.groups()[0] = removed("storage-x", "storage"), "storage-x is not an ID"),
        ("storage-1", |world| world.cluster["status"] = json!({}), "none of its groups is suspended"),
    ];
    for (id, change, expected) in cases {
        let mut world = World::suspended();
        change(&mut world);
        let refusals = world.goal(&[id]).expect_err(expected);
        let text = refusals[0].to_string();
        assert!(text.to_lowercase().contains(&expected.to_lowercase()), "{text}");
    }
    // A Pod that terminates is as good as gone.
    let mut world = World::suspended();
    let mut leaving = pod("storage-1", "Running");
    leaving["metadata"]["deletionTimestamp"] = json!(NOW);
    world.pods.push(leaving);
    assert!(world.goal(&["storage-1"]).is_ok());
}

#[test]
fn what_an_interrupted_run_began_is_finished_with_the_next() {
    let mut world = World::suspended();
    world.suspend_another();
    world.count(4);
    let first = world.record(&["storage-1"]);
    let patch = world.with(|facts| patch::skip(facts.cluster, &first));
    world.patch_cluster(&patch);
    let goal = world.goal(&["storage-2"]).unwrap();
    assert_eq!(goal.unfinished, ["storage-1"]);
    assert!(goal.record.has("storage-1") && goal.record.has("storage-2") && goal.record.groups.len() == 2);
    let record = world.record(&["storage-2"]);
    world.run(&record);
    assert!(world.no_group_is_marked(), "{world:?}");
}

/// A world in which `storage-1` is back, and nobody has taken the record of that away.
fn left_over() -> World {
    let (mut world, record) = begun();
    world.run(&record);
    world.cluster["metadata"]["annotations"][keys::RECOVERY] = json!(record.clone().with_included(&record).text());
    world.groups()[2] = removed("storage-3", "storage");
    world.pods.retain(|pod| name_of(pod) != pod_of("storage-3"));
    world.fill_up("storage-5", "2026-11-21T18:20:00Z");
    world
}

#[test]
fn what_a_record_has_left_over_is_nobodys_business_any_more() {
    let groups = |world: &World| {
        let goal = world.goal(&["storage-3"]).unwrap();
        goal.record.groups.iter().map(|held| held.group.clone()).collect::<Vec<_>>()
    };
    let mut world = left_over();
    assert_eq!(groups(&world), ["storage-3"], "storage-1 is back");
    world.claims.retain(|claim| !name_of(claim).contains("storage-1"));
    assert_eq!(groups(&world), ["storage-3"], "and its volume may go later on");
    let record = world.record(&["storage-3"]);
    world.run(&record);
    assert_eq!(world.cluster["metadata"]["annotations"], json!({}));

    // Somebody else's skip is respected, whatever was left over.
    let mut world = left_over();
    world.cluster["spec"]["skip"] = json!(true);
    let place = Place { namespace: "db".to_owned(), name: "sample".to_owned() };
    let goal = world.goal(&["storage-3"]).unwrap();
    assert!(goal.skipped && goal.choices.is_empty());
    // But the volumes are held first: what the operator does once it is over would delete those of a suspension that
    // has ended.
    world.assert_held_and_no_more(&goal.record);
    for held in [true, false] {
        let text = Refusal::Skipped { place: place.clone(), held }.to_string();
        assert!(
            text.contains("held for 5 minutes at least") == held && text.contains("(kubectl -n db patch fdb sample "),
            "{text}"
        );
    }

    // A second removal of the same group is a new case: somebody has to go for it again.
    let mut world = left_over();
    world.groups()[1] = removed("storage-1", "storage");
    world.groups()[1]["removalTimestamp"] = json!("2026-11-21T18:15:00Z");
    world.pods.retain(|pod| name_of(pod) != pod_of("storage-1"));
    let goal = world.goal(&["storage-1"]).unwrap();
    assert_eq!(goal.record.groups[0].removal.as_deref(), Some("2026-11-21T18:15:00Z"));
    assert!(goal.record.replacements.is_empty(), "those of then are gone: {:?}", goal.record);
}

#[test]
fn a_volume_that_goes_in_the_middle_is_reported() {
    type Case = (fn(&mut World), fn(&Unrecoverable) -> bool);
    let cases: [Case; 3] = [
        (|world| drop(world.claims.remove(0)), |lost| matches!(lost, Unrecoverable::NoClaim { .. })),
        (
            |world| world.claims[0]["metadata"]["uid"] = json!("new"),
            |lost| matches!(lost, Unrecoverable::OtherClaim { .. }),
        ),
        (
            |world| world.claims[0]["metadata"]["deletionTimestamp"] = json!(NOW),
            |lost| matches!(lost, Unrecoverable::ClaimGoing { .. }),
        ),
    ];
    for (change, is_expected) in cases {
        let (mut world, record) = begun();
        change(&mut world);
        let lost = world.steps(&record, RunState::default()).unwrap_err();
        assert!(is_expected(&lost), "{lost:?}");
    }
    let (mut world, record) = begun();
    world.cluster["spec"]["skip"] = json!(true);
    world.assert_held_and_no_more(&record);
}

#[test]
fn a_pod_that_does_not_run_is_explained() {
    for (change, expected) in [
        (json!({ "status": { "phase": "Pending" } }), "its Pod is Pending"),
        (
            json!({ "status": { "phase": "Pending", "conditions": [{ "type": "PodScheduled", "status": "False",
                "reason": "Unschedulable", "message": "0/3 nodes are available" }] } }),
            "its Pod is Pending: Unschedulable: 0/3 nodes are available",
        ),
        (
            json!({ "status": { "phase": "Pending", "containerStatuses": [{ "name": "foundationdb",
                "state": { "waiting": { "reason": "ImagePullBackOff" } } }] } }),
            "its Pod is Pending: container foundationdb: ImagePullBackOff",
        ),
        (json!({ "metadata": { "deletionTimestamp": NOW } }), "its old Pod is still terminating"),
        (json!({ "spec": { "volumes": [] } }), "its Pod does not mount PersistentVolumeClaim sample-storage-1-data"),
    ] {
        let (mut world, record) = begun();
        let mut pod = pod("storage-1", "Running");
        json_patch::merge(&mut pod, &change);
        world.pods.push(pod);
        let missing = world.with(|facts| pod_obstacle(facts, &record.groups[0])).unwrap();
        assert_eq!(missing.what, expected);
    }
}
