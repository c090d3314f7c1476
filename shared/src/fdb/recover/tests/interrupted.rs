//! Runs that meet other runs, a database that fails, groups that are gone, and the end of their own process.

use crate::annotation::keys;
use serde_json::json;

use super::super::*;
use super::world::*;

/// `storage-1` and `storage-2` are suspended.
fn two() -> (World, Record) {
    let mut world = World::suspended();
    world.suspend_another();
    let record = world.record(&["storage-1", "storage-2"]);
    (world, record)
}

#[test]
fn what_another_run_has_recorded_while_include_ran_stays() {
    let (mut world, _) = two();
    let (first, second) = (world.record(&["storage-1"]), world.record(&["storage-2"]));
    run_until(&mut world, &first, "status");
    let done = RunState { settled: true, ..RunState::default() };
    let step = world.steps(&first, done).unwrap().remove(0);
    let Step::Include(_, planned) = step else { panic!("{step:?}") };
    assert!(!planned.has("storage-2"), "{planned:?}");
    run_until(&mut world, &second, "skip");
    let before = world.with(|facts| facts.record().unwrap());
    world.remember(&planned);
    let after = world.with(|facts| facts.record().unwrap());
    let included: Vec<_> = after.groups.iter().map(|held| (held.group.as_str(), held.included)).collect();
    assert_eq!(included, [("storage-1", true), ("storage-2", false)]);
    assert_eq!((after.replacements, after.spared, after.skipped), (before.replacements, before.spared, true));
}

/// The Pod of `storage-2` stays Pending for a while.
#[test]
fn a_failed_include_is_retried_for_each_group_once_its_pod_runs() {
    let (mut world, record) = two();
    let mut done = RunState::default();
    loop {
        let step = world.steps(&record, done).unwrap().remove(0);
        match &step {
            Step::Include(_, planned) => world.with(|facts| done.include_failed(facts, planned)),
            Step::Await(_) => break,
            step => world.carry_out(step, &mut done),
        }
    }
    assert_eq!(done.include_failures, 1);
    for (id, next) in [("storage-1", Some("await")), ("storage-2", None)] {
        world.pods.push(pod(id, "Running"));
        let step = world.steps(&record, done).unwrap().remove(0);
        let Step::Include(orders, planned) = &step else { panic!("{id}: {step:?}") };
        assert_eq!(*orders, ["include locality_instance_id:storage-1 locality_instance_id:storage-2"]);
        world.with(|facts| done.include_failed(facts, planned));
        assert_eq!(words(&world, &record, done).first().copied(), next, "{id}");
    }
    // The next run has one try more.
    assert_eq!(words(&world, &record, RunState::default())[0], "include");
}

/// As FoundationDB's own plugin has it. For this alone the operator is not paused.
#[test]
fn ids_of_groups_that_are_gone_leave_the_lists_with_the_next_edit() {
    let (mut world, record) = begun();
    world.cluster["spec"]["processGroupsToRemove"] = json!(["log-9", "storage-1", "storage-2", "*"]);
    world.cluster["spec"]["processGroupsToRemoveWithoutExclusion"] = json!(["log-8"]);
    let lists = |world: &World| world.with(|facts| patch::lists(facts.cluster, &record.completed(facts)).unwrap());
    let patch = lists(&world).unwrap();
    world.patch_cluster(&patch);
    assert_eq!(world.cluster["spec"]["processGroupsToRemove"], json!(["storage-2", "*"]));
    assert_eq!(world.cluster["spec"]["processGroupsToRemoveWithoutExclusion"], json!([]));
    world.cluster["spec"]["processGroupsToRemoveWithoutExclusion"] = json!(["log-8"]);
    assert_eq!(lists(&world), None);
}

/// A run was killed between the writes of R12.
#[test]
fn a_record_of_which_nothing_is_open_is_taken_off() {
    let (world, record) = until("await");
    let mut steps = world.steps(&record, RunState::default()).unwrap();
    let Some(Step::Clear(edits, _)) = steps.pop() else { panic!("{steps:?}") };
    assert_eq!(edits.len(), 2, "{edits:?}");
    for written in 0..=edits.len() {
        let mut world = world.clone();
        edits.iter().take(written).for_each(|edit| world.edit(edit));
        let record = world.record(&[]);
        assert_eq!(record.groups.is_empty(), written == edits.len());
        assert_eq!(world.run(&record), ["clear"], "{written}");
        assert_eq!(world.cluster["metadata"]["annotations"], json!({}), "{written}");
        assert_eq!(world.claims[0]["metadata"]["annotations"], json!({ keys::RECOVERED_AT: NOW }), "{written}");
        assert_eq!(world.claims[3]["metadata"]["annotations"], json!({ keys::EXCHANGED_AT: NOW }), "{written}");
    }
}
