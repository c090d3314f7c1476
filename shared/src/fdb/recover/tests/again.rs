//! Runs that find what an earlier one has left: fewer groups, other wishes, a database that was not told.

use crate::annotation::keys;
use crate::fdb::admission::Kind;
use crate::fdb::suspension::Stamp;
use crate::object::name_of;
use serde_json::json;

use super::super::check::Refusal;
use super::super::facts::uid;
use super::super::presence::{removed_again, spec_drift};
use super::super::replace::ReplacementMode;
use super::super::*;
use super::world::*;

/// `storage-1` and `storage-2` are suspended, and `storage-3` and `storage-4` are to go for them.
fn two() -> (World, Record) {
    let mut world = World::suspended();
    world.cluster["spec"]["processGroupsToRemove"] = json!(["log-9", "storage-1", "storage-2"]);
    world.suspend_another();
    let replacements = vec!["storage-3".to_owned(), "storage-4".to_owned()];
    let record = Record { replacements, ..world.record(&["storage-1", "storage-2"]) };
    (world, record)
}

fn lose(world: &mut World, id: &str) {
    world.claims.retain(|claim| uid(claim) != format!("uid-{id}"));
}

/// What a run does that finds out that a volume is lost.
fn without(world: &World, record: &Record, id: &str) -> Record {
    assert_eq!(world.steps(record, RunState::default()).unwrap_err().group(), Some(id));
    world.with(|facts| record.without(id, facts.cluster))
}

fn listed(world: &World) -> &Value {
    &world.cluster["spec"]["processGroupsToRemove"]
}

/// In the middle of a run, or between two.
#[test]
fn as_many_go_as_come_back_when_a_volume_is_lost() {
    for (last, by_same_run) in ["skip", "lists", "status"].into_iter().flat_map(|last| [(last, true), (last, false)]) {
        let (mut world, record) = two();
        run_until(&mut world, &record, last);
        lose(&mut world, "storage-2");
        let record = if by_same_run { without(&world, &record, "storage-2") } else { world.record(&["storage-1"]) };
        let replacements = if by_same_run { record.replacements.clone() } else { world.replacements(&record) };
        assert_eq!(replacements, ["storage-3"], "{last}");
        assert_eq!(world.run(&record).last(), Some(&"clear"));
        let ids: Vec<&str> = listed(&world).as_array().unwrap().iter().filter_map(Value::as_str).collect();
        assert!(ids.contains(&"storage-3") && !ids.contains(&"storage-4"), "{last}: {ids:?}");
        assert_eq!(world.cluster["spec"]["skip"], json!(false));
    }
}

#[test]
fn the_one_that_stays_is_of_the_class_of_the_lost_one() {
    let mut world = World::suspended();
    let groups = world.groups();
    groups.extend([removed("log-1", "log"), group("log-2", "log")]);
    world.claims.push(claim("log-1", "log", "2026-11-20T10:00:00Z"));
    let replacements = vec!["log-2".to_owned(), "storage-4".to_owned()];
    let record = Record { replacements, ..world.goal(&["log-1", "storage-1"]).unwrap().record };
    run_until(&mut world, &record, "skip");
    for (lost, left) in [("log-1", "storage-4"), ("storage-1", "log-2")] {
        let mut world = world.clone();
        lose(&mut world, lost);
        let found = world.with(|facts| facts.unfinished(facts.record().unwrap(), &[]));
        assert_eq!((found.groups.len(), found.replacements), (1, vec![left.to_owned()]), "{lost}");
    }
}

#[test]
fn nobody_goes_when_nobody_comes_back() {
    let (mut world, record) = until("lists");
    assert_eq!(listed(&world), &json!(["storage-4"]));
    lose(&mut world, "storage-1");
    let record = without(&world, &record, "storage-1");
    assert_eq!(world.run(&record), ["settle", "lists", "verify", "resume", "clear"]);
    assert_eq!(listed(&world), &json!([]));
    assert_eq!(world.cluster["spec"]["skip"], json!(false));
    assert_eq!(world.cluster["metadata"]["annotations"], json!({}));
}

#[test]
fn one_that_the_operator_has_begun_with_is_not_taken_off_the_list() {
    let (mut world, record) = two();
    run_until(&mut world, &record, "lists");
    for group in [2, 3] {
        world.groups()[group]["removalTimestamp"] = json!("2026-11-21T18:30:07Z");
    }
    lose(&mut world, "storage-2");
    let record = without(&world, &record, "storage-2");
    world.run(&record);
    assert_eq!(listed(&world), &json!(["storage-3", "storage-4"]));
}

#[test]
fn two_runs_that_chose_differently_let_one_go() {
    let mut world = World::suspended();
    let first = world.record(&["storage-1"]);
    let second = Record { replacements: vec!["storage-3".to_owned()], ..first.clone() };
    run_until(&mut world, &first, "skip");
    world.run(&second);
    assert_eq!(listed(&world), &json!(["storage-4"]));

    // Nor do two go when the first run has ended before the second looks again.
    let mut world = World::suspended();
    world.run(&first);
    let steps = world.run(&second);
    assert!(!steps.contains(&"lists"), "{steps:?}");
    assert_eq!(listed(&world), &json!(["storage-4"]));
}

fn these(ids: &[&str]) -> ReplacementMode {
    ReplacementMode::These(ids.iter().map(|&id| id.to_owned()).collect())
}

/// What is answered to a wish: who goes besides those that are recorded, or why not.
fn answer(world: &World, ids: &[&str], wanted: &ReplacementMode) -> String {
    match world.goal_with(ids, wanted) {
        Ok(goal) => goal.choices.iter().flat_map(replace::Choice::newest).collect::<Vec<_>>().join(" "),
        Err(refusals) => refusals[0].to_string(),
    }
}

#[test]
fn who_goes_is_not_decided_twice() {
    for (last, ordered) in [("skip", ""), ("lists", ", as spec.processGroupsToRemove says by now")] {
        let (world, _) = until(last);
        let kept = |asked: &str| {
            format!(
                "--replacement {asked}: the recovery of storage-1 was begun at {NOW} with storage-4 to go in exchange{ordered}. It is \
                 finished as it was begun: run this again without --replacement"
            )
        };
        assert_eq!(answer(&world, &["storage-1"], &ReplacementMode::None), kept("none"));
        assert_eq!(answer(&world, &["storage-1"], &these(&["storage-2"])), kept("storage-2"));
        assert_eq!(answer(&world, &["storage-1"], &these(&["storage-2", "storage-4"])), kept("storage-2, storage-4"));
        assert!(answer(&world, &["storage-1"], &these(&["storage-7"])).contains("no process group of this ID"));
        for same in [ReplacementMode::Find, these(&["storage-4"])] {
            assert_eq!(answer(&world, &["storage-1"], &same), "");
        }
    }
    // That nobody goes is a decision, too.
    let mut world = World::suspended();
    let record = world.goal_with(&["storage-1"], &ReplacementMode::None).unwrap().record;
    run_until(&mut world, &record, "skip");
    assert_eq!(answer(&world, &["storage-1"], &ReplacementMode::None), "");
    assert!(answer(&world, &["storage-1"], &these(&["storage-4"])).contains(" with nobody to go in exchange. "));
}

#[test]
fn for_others_that_an_interrupted_run_did_not_begin_with_it_is_decided_anew() {
    let (mut world, record) = two();
    let of_first = world.goal(&["storage-1"]).unwrap().record;
    run_until(&mut world, &Record { replacements: record.replacements[1..].to_vec(), ..of_first }, "skip");
    assert_eq!(answer(&world, &["storage-2"], &these(&["storage-3"])), "storage-3");
    assert_eq!(answer(&world, &["storage-2"], &ReplacementMode::None), "");
    assert!(answer(&world, &["storage-2"], &these(&["storage-4"])).contains("already removes it in exchange"));
    let both = ["storage-1", "storage-2"];
    assert_eq!(answer(&world, &both, &these(&["storage-3", "storage-4"])), "storage-3");
    assert!(answer(&world, &both, &these(&["storage-3"])).contains("with storage-4 to go in exchange"));
}

/// A world in which `storage-1` has been brought back.
fn back() -> World {
    let (mut world, record) = begun();
    world.run(&record);
    world
}

#[test]
fn for_one_that_is_back_nobody_can_go() {
    let world = back();
    assert!(
        answer(&world, &["storage-1"], &these(&["storage-2"])).starts_with("--replacement storage-2: no group is left")
    );
    // The same command once more, also when the one that went for it has gone.
    for fine in [ReplacementMode::Find, ReplacementMode::None, these(&["storage-4"]), these(&["storage-7"])] {
        let goal = world.goal_with(&["storage-1"], &fine).unwrap();
        assert_eq!(goal.recovered, [("storage-1".to_owned(), NOW.to_owned())], "{fine:?}");
        assert!(goal.choices.is_empty() && goal.record.groups.is_empty(), "{fine:?}");
    }
}

/// The database was not told about `storage-1`, and the operator has seen it.
fn excluded() -> World {
    let mut world = back();
    world.report(true);
    world
}

#[test]
fn one_that_stayed_excluded_is_included_by_the_next_run() {
    let mut world = excluded();
    let goal = world.goal(&["storage-1"]).unwrap();
    assert!(goal.recovered.is_empty() && goal.choices.is_empty() && goal.unfinished.is_empty(), "{goal:?}");
    let orders = world.with(|facts| include::orders(facts.cluster, &goal.record));
    assert_eq!(orders, ["include locality_instance_id:storage-1"]);
    // Nothing is done by a run that leaves the database alone, and it knows what is owed.
    let left_alone = world.with(|facts| remaining(facts, &goal.record, false, RunState::default())).unwrap().steps;
    assert_eq!(left_alone.iter().map(word).collect::<Vec<_>>(), ["clear"]);
    let before = listed(&world).clone();
    assert_eq!(world.run(&goal.record), ["hold", "include", "await", "clear"]);
    assert_eq!((listed(&world), &world.cluster["metadata"]["annotations"]), (&before, &json!({})));
    // One that the spec removes once more is excluded for that.
    world.cluster["spec"]["processGroupsToRemove"] = json!(["storage-1"]);
    assert_eq!(world.goal(&["storage-1"]).unwrap().recovered.len(), 1);
    // Without a Pod that runs it is no matter of the database alone.
    let mut world = excluded();
    world.pods.retain(|pod| name_of(pod) != pod_of("storage-1"));
    let refusals = world.goal(&["storage-1"]).unwrap_err();
    assert!(matches!(refusals[0], Refusal::NotMarked { .. }), "{refusals:?}");
}

#[test]
fn for_one_that_is_only_included_nobody_goes() {
    let mut world = excluded();
    world.suspend_another();
    for id in ["storage-5", "storage-6"] {
        world.fill_up(id, "2026-11-21T18:20:00Z");
    }
    world.cluster["spec"]["processCounts"] = json!({});
    let goal = world.goal(&["storage-1", "storage-2"]).unwrap();
    assert_eq!((goal.record.groups.len(), goal.choices.len(), goal.choices[0].need), (2, 1, 1), "{goal:?}");
}

/// How many of the class' groups are left when all that are listed are gone.
fn left(world: &World) -> usize {
    let groups = world.cluster["status"]["processGroups"].as_array().unwrap();
    groups.iter().filter(|group| !listed(world).as_array().unwrap().contains(&group["processGroupID"])).count()
}

/// F2: both runs choose before they see each other's record, so both choose the newest.
#[test]
fn two_runs_that_begin_at_once_let_one_go_each() {
    for counts in [json!({ "storage": 3 }), json!({})] {
        let (mut world, _) = two();
        world.cluster["spec"]["processCounts"] = counts;
        for (id, created) in [("storage-5", "2026-11-21T18:10:00Z"), ("storage-6", "2026-11-21T18:20:00Z")] {
            world.fill_up(id, created);
        }
        world.groups().remove(2);
        // 1 and 2 are suspended; 4, 5 and 6 run.
        let records = [world.record(&["storage-1"]), world.record(&["storage-2"])];
        world.run_both(&records);
        assert_eq!(listed(&world), &json!(["storage-5", "storage-6"]));
        assert_eq!(left(&world), 3);

        // One after the other, each with the plan that it made at the same moment.
        let (mut world, _) = two();
        world.count(2);
        let records = [world.record(&["storage-1"]), world.record(&["storage-2"])];
        world.fill_up("storage-5", "2026-11-21T18:10:00Z");
        world.run(&records[0]);
        world.run(&records[1]);
        assert_eq!(listed(&world), &json!(["storage-4", "storage-5"]));
    }
}

/// F3: the count was raised, and the operator fills up only once the recovery has begun.
#[test]
fn a_group_that_the_operator_creates_meanwhile_goes() {
    for last in ["skip", "settle", "status", "resume"] {
        let mut world = World::suspended();
        world.count(4);
        let record = world.record(&["storage-1"]);
        assert!(world.replacements(&record).is_empty());
        run_until(&mut world, &record, last);
        world.fill_up("storage-5", "2026-11-21T18:29:00Z");
        bump(&mut world.cluster);
        world.run(&record);
        assert_eq!(listed(&world), &json!(["storage-5"]), "{last}");
        assert_eq!(left(&world), 4, "{last}");
    }
}

/// F3: the operator has marked the group again, after its replacement was created.
#[test]
fn a_removal_is_dated_by_the_record() {
    let (mut world, _) = until("resume");
    // The operator marks it again, and both edits of the replacement are lost.
    world.groups()[3].as_object_mut().unwrap().remove("removalTimestamp");
    world.groups()[1] = removed("storage-1", "storage");
    world.groups()[1]["removalTimestamp"] = json!("2026-11-21T18:29:00Z");
    world.cluster["spec"]["processGroupsToRemove"] = json!(["log-9"]);
    let record = world.record(&["storage-1"]);
    assert_eq!(record.groups[0].removed_at(), Some(REMOVAL));
    assert_eq!(world.replacements(&record), ["storage-4"]);
    // A user who removes it once more means the new removal.
    world.cluster["spec"]["processGroupsToRemove"] = json!(["log-9", "storage-1"]);
    let refusals = world.goal(&["storage-1"]).unwrap_err();
    assert!(refusals[0].to_string().contains("no group was created since the removal"), "{refusals:?}");
}

/// With `--replacement none` one too many stays, whatever another recovery of the cluster needs.
#[test]
fn nothing_goes_for_a_group_that_is_to_come_back_alone() {
    let mut world = World::suspended();
    let record = world.goal_with(&["storage-1"], &ReplacementMode::None).unwrap().record;
    assert!(record.groups[0].alone && world.replacements(&record).is_empty());
    world.run(&record);
    assert_eq!(listed(&world), &json!([]));

    let (mut world, _) = two();
    world.count(2);
    let alone = world.goal_with(&["storage-1"], &ReplacementMode::None).unwrap().record;
    run_until(&mut world, &alone, "skip");
    let other = world.record(&["storage-2"]);
    assert_eq!(world.replacements(&other), ["storage-4"]);
}

/// F1: a pass of the operator that began before `spec.skip` excludes the group after `include`. The pass that sees the
/// process report shows it.
#[test]
fn a_group_that_is_excluded_again_is_included_again() {
    let (mut world, record) = until("resume");
    let detail = words(&world, &record, RunState { settled: true, verified: true, ..RunState::default() });
    assert_eq!(detail, ["await", "clear"]);
    // The Pod runs, and the operator has not seen the process.
    world.pods.push(pod("storage-1", "Running"));
    let missing = world.steps(&record, RunState::default()).unwrap().remove(0);
    let Step::Await(missing) = missing else { panic!("{missing:?}") };
    assert!(missing[0].what.contains("does not show its process yet (MissingProcesses)"), "{missing:?}");
    // It has seen it, and that it is excluded.
    world.report(true);
    assert_eq!(words(&world, &record, RunState::default()), ["include", "await", "clear"]);
    let included = RunState { included: true, ..RunState::default() };
    assert_eq!(words(&world, &record, included), ["await", "clear"], "the operator needs a pass to see it");
    world.report(false);
    assert_eq!(words(&world, &record, included), ["clear"]);
}

/// N3: the Pod of `storage-2` stays Pending.
#[test]
fn one_that_cannot_start_keeps_no_other_excluded() {
    let (mut world, record) = two();
    run_until(&mut world, &record, "resume");
    world.pods.push(pod("storage-1", "Running"));
    world.report(true);
    let done = RunState { settled: true, verified: true, ..RunState::default() };
    assert_eq!(words(&world, &record, done), ["include", "await", "clear"]);
    let orders = world.steps(&record, done).unwrap().remove(0);
    assert!(
        matches!(&orders, Step::Include(orders, _) if *orders == ["include locality_instance_id:storage-1"]),
        "{orders:?}"
    );
    assert_eq!(words(&world, &record, RunState { included: true, ..done }), ["await", "clear"]);
}

/// N1: the run ended while it waited for the report, and a late pass of the operator has excluded the group again.
#[test]
fn one_whose_report_is_awaited_is_finished_by_any_run() {
    let (mut world, _) = two();
    let record = world.record(&["storage-1"]);
    run_until(&mut world, &record, "resume");
    world.pods.push(pod("storage-1", "Running"));
    world.report(true);
    for ids in [&["storage-2"][..], &[]] {
        let goal = world.goal(ids).unwrap();
        assert_eq!(
            (goal.unfinished, goal.record.groups.len()),
            (vec!["storage-1".to_owned()], 1 + ids.len()),
            "{ids:?}"
        );
    }
    // Also without a record: the claim is stamped for a recovery.
    world.cluster["metadata"]["annotations"] = json!({});
    let goal = world.goal(&["storage-1"]).unwrap();
    assert!(goal.record.has("storage-1") && goal.recovered.is_empty() && goal.choices.is_empty(), "{goal:?}");
    assert_eq!(words(&world, &goal.record, RunState::default())[0], "include");
}

/// What the operator is woken with while this is left to be done.
fn touch(world: &World, record: &Record, done: RunState) -> Option<Edit> {
    let steps = world.steps(record, RunState { settled: true, verified: true, ..done }).unwrap();
    let missing = steps.into_iter().find_map(|step| match step {
        Step::Await(missing) => Some(missing),
        _ => None,
    });
    world.with(|facts| patch::wake(facts, &missing.unwrap_or_default()))
}

/// N2: a pass of the operator that nothing causes may be ten minutes away.
#[test]
fn while_the_report_is_awaited_the_claim_stays_held_and_is_what_wakes_the_operator() {
    let (mut world, record) = until("resume");
    assert_eq!(touch(&world, &record, RunState::default()), None, "without a Pod there is nothing to report");
    world.pods.push(pod("storage-1", "Running"));
    let cluster = world.cluster.clone();
    let edit = touch(&world, &record, RunState::default()).unwrap();
    assert_eq!((edit.kind, edit.name.as_str()), (Kind::Pvc, "sample-storage-1-data"));
    world.edit(&edit);
    assert_eq!(world.cluster, cluster, "a pass in flight loses nothing");
    assert!(Stamp::of(&world.claims[0]).is_recovery());
    assert_eq!(world.claims[0]["metadata"]["annotations"][keys::WOKEN_AT], NOW);
    world.claims[0]["metadata"]["annotations"][keys::SUSPENDED_AT] = json!("2026-11-21T18:24:59Z");
    assert_eq!(world.run(&record), ["hold", "await", "clear"]);
    assert_eq!(world.claims[0]["metadata"]["annotations"], json!({ keys::RECOVERED_AT: NOW }));
    // One that is shown as excluded is included first, and a pass has to see that.
    let world = excluded();
    let record = world.record(&["storage-1"]);
    let included = RunState { included: true, ..RunState::default() };
    assert_eq!(touch(&world, &record, RunState::default()), None);
    assert!(touch(&world, &record.clone().with_included(&record), included).is_some());
}

/// N5: a late pass excludes the address of the old Pod, which no condition shows once the new one has another.
#[test]
fn where_addresses_are_excluded_they_are_included_once_more_after_the_report() {
    let mut world = World::suspended();
    world.cluster["spec"]["automationOptions"] = json!({ "useLocalitiesForExclusion": false });
    world.groups()[1]["addresses"] = json!(["10.0.0.7"]);
    let record = world.record(&["storage-1"]);
    run_until(&mut world, &record, "resume");
    world.pods.push(pod("storage-1", "Running"));
    let done = RunState { settled: true, verified: true, included: true, ..RunState::default() };
    assert_eq!(words(&world, &record, done), ["await", "clear"], "not before the report");
    world.report(false);
    world.groups()[1]["addresses"] = json!(["10.0.0.8"]);
    // A run that ends here leaves it to any other.
    assert_eq!(world.goal(&[]).unwrap().unfinished, ["storage-1"]);
    assert_eq!(words(&world, &record, done), ["include", "clear"]);
    let left_alone = world.with(|facts| remaining(facts, &record, false, done)).unwrap().steps;
    assert_eq!(left_alone.iter().map(word).collect::<Vec<_>>(), ["clear"]);
    let step = world.steps(&record, done).unwrap().remove(0);
    let Step::Include(orders, _) = &step else { panic!("{step:?}") };
    assert_eq!(*orders, ["include locality_instance_id:storage-1 10.0.0.7 10.0.0.8"]);
    world.carry_out(&step, &mut RunState::default());
    assert_eq!(words(&world, &record, RunState::default()), ["clear"]);
    assert_eq!(world.goal(&[]).unwrap().unfinished, ["storage-1"], "its stamps are left");

    // Logs are excluded by both.
    let mut world = World::suspended();
    world.groups().push(removed("log-1", "log"));
    world.claims.push(claim("log-1", "log", "2026-11-20T10:00:00Z"));
    let record = world.goal_with(&["log-1"], &ReplacementMode::None).unwrap().record;
    let detail = world.run(&record);
    assert_eq!(detail[detail.len() - 4..], ["resume", "await", "include", "clear"]);
}

#[test]
fn a_removal_that_a_recovery_undoes_is_named_with_the_way_to_repeat_it() {
    let (mut world, record) = begun();
    let again = |world: &World| world.with(removed_again);
    assert_eq!(again(&world), None, "it is listed from the start");
    run_until(&mut world, &record, "skip");
    assert_eq!(again(&world), None);
    run_until(&mut world, &record, "resume");
    assert_eq!(again(&world), None);
    world.cluster["spec"]["processGroupsToRemoveWithoutExclusion"] = json!(["storage-1"]);
    let text = again(&world).unwrap();
    assert!(text.starts_with("storage-1: another client has listed it") && text.contains("list it again"), "{text}");
    // Which is so: nothing of the recovery is left that would undo it.
    world.cluster["spec"]["processGroupsToRemoveWithoutExclusion"] = json!([]);
    world.run(&record);
    world.cluster["spec"]["processGroupsToRemove"] = json!(["storage-1"]);
    assert_eq!((again(&world), world.goal(&[]).unwrap().record.groups.len()), (None, 0));
}

#[test]
fn a_volume_of_another_template_is_known_before_the_operator_replaces_it() {
    let (mut world, record) = begun();
    let found = |world: &World| world.with(|facts| spec_drift(facts, &record)).map(|found| (found.groups, found.field));
    assert_eq!(found(&world), None, "nothing is known");
    for (claim, hash) in world.claims.iter_mut().zip(["old", "old", "old", "new"]) {
        claim["metadata"]["annotations"] = json!({ "foundationdb.org/last-applied-spec": hash });
    }
    assert_eq!(found(&world), Some(("storage-1".to_owned(), "spec.processes")));
    // The operator replaces every group of another prefix, too.
    for (prefix, field) in [("p2", "spec.processGroupIDPrefix"), ("", "spec.processes")] {
        let mut world = world.clone();
        world.cluster["spec"]["processGroupIDPrefix"] = json!(prefix);
        assert_eq!(found(&world), Some(("storage-1".to_owned(), field)), "{prefix}");
    }
    // Set back, the operator replaces the newer ones, and makes others from the old template.
    let mut set_back = world.clone();
    set_back.claims[3]["metadata"]["annotations"] = json!({ "foundationdb.org/last-applied-spec": "old" });
    assert_eq!(found(&set_back), None);
    // While it is not marked again, nothing says so.
    run_until(&mut world, &record, "status");
    assert_eq!(found(&world), None);
}

/// P2: the run ended early, and the process reported all the same. Its claim still has the stamps of the recovery.
#[test]
fn one_that_came_back_by_itself_is_finished_by_any_run() {
    let (mut world, _) = two();
    let record = world.record(&["storage-1"]);
    run_until(&mut world, &record, "await");
    for ids in [&["storage-2"][..], &[]] {
        let mut world = world.clone();
        let record = world.goal(ids).unwrap().record;
        assert!(record.has("storage-1"), "{ids:?}: {record:?}");
        world.run(&record);
        assert_eq!(world.claims[0]["metadata"]["annotations"], json!({ keys::RECOVERED_AT: NOW }), "{ids:?}");
        assert_eq!(world.goal(&["storage-1"]).unwrap().recovered.len(), 1, "{ids:?}");
    }
}

/// P1: a pass of the operator that cannot read the database marks none that the spec names, and counts all the same.
#[test]
fn one_that_goes_is_marked_before_the_operator_goes_on() {
    let mut world = World::suspended();
    world.groups().sort_by_key(|group| group["processGroupID"].to_string());
    let record = world.record(&["storage-1"]);
    run_until(&mut world, &record, "status");
    let marked = |world: &mut World| {
        let marked = world.groups().iter().filter(|group| group["removalTimestamp"].is_string());
        marked.map(|group| group["processGroupID"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(marked(&mut world), ["storage-4"]);
    // Another mark is the operator's, and it stays; one of an edit that was lost is set once more.
    world.groups()[3].as_object_mut().unwrap().remove("removalTimestamp");
    assert_eq!(words(&world, &record, RunState { settled: true, ..RunState::default() })[..2], ["status", "include"]);
    world.groups()[3]["removalTimestamp"] = json!(REMOVAL);
    world.run(&record);
    assert_eq!(world.groups()[3]["removalTimestamp"], json!(REMOVAL));
}

/// P3: what goes in exchange is not meant by `--all-suspended`, while the record names it, and afterwards.
#[test]
fn what_went_in_exchange_is_known() {
    let exchanged =
        |world: &World| world.with(|facts| facts.cluster.groups().iter().filter(|one| facts.is_exchanged(one)).count());
    let (mut world, record) = begun();
    assert_eq!(exchanged(&world), 0);
    for last in ["resume", "clear"] {
        let mut world = world.clone();
        run_until(&mut world, &record, last);
        assert_eq!(exchanged(&world), 1, "{last}");
        let refused = world.goal_with(&["storage-4"], &ReplacementMode::Find).unwrap_err();
        let goes = "storage-4 goes in exchange for storage-1, whose recovery is not finished: run this with -c sample and no group first";
        let is_so = matches!(refused.as_slice(), [one] if one.to_string().starts_with(goes));
        assert_eq!(is_so, last == "resume", "{last}: {refused:?}");
    }
    // Suspended in its turn, brought back by its name, and removed by a user.
    world.run(&record);
    world.pods.retain(|pod| name_of(pod) != pod_of("storage-4"));
    world.count(4);
    world.now = at("2026-11-21T18:40:00Z");
    let back = world.record(&["storage-4"]);
    world.run(&back);
    world.groups()[3]["removalTimestamp"] = json!("2026-11-21T18:50:00Z");
    assert!(!world.with(|facts| facts.is_exchanged(facts.cluster.group("storage-4").unwrap())));
}
