//! The operator is as hard on a removal that is undone as the real one was seen to be (docs/reference/fdb.md): no test
//! of the product would notice one that is kinder. What the product itself runs into, the tests of the product show.

use super::*;
use crate::database::LOCALITY;
use crate::operator::api::{Group, RESOURCES_TERMINATING, Status};

impl Memory {
    /// A group of a new cluster is removed under a webhook that denies. The operator sleeps. Answers its ID.
    fn held(class: &str, list: &str) -> (Self, String) {
        let options = json!({ "waitBetweenRemovalsSeconds": 0 });
        let spec =
            json!({ "version": "7.3.69", "processCounts": { "storage": 3, "log": 3 }, "automationOptions": options });
        let objects = Objects::new("sample", "db", &spec, "2026-11-21T17:00:00Z".parse().unwrap());
        let mut memory = Self::new(Box::new(objects), 1, |_, _| true);
        memory.tick_for(30);
        let groups = memory.status().process_groups;
        let id = groups.into_iter().find(|group| group.process_class == class).unwrap().id;
        memory.spec(&json!({ list: [id] }));
        memory.tick_for(60);
        assert!(memory.group(&id).is_leaving() && memory.sleeps(), "{}", memory.state().log.join("\n"));
        (memory, id)
    }

    fn tick_for(&mut self, seconds: u32) {
        (0..seconds).for_each(|_| self.tick());
    }

    fn sleeps(&self) -> bool {
        self.state().log.last().is_some_and(|line| line.contains("Reconciliation complete"))
    }

    fn status(&self) -> Status {
        Cluster::new(self.state().objects.cluster.clone()).unwrap().status
    }

    fn group(&self, id: &str) -> Group {
        self.status().process_groups.into_iter().find(|group| group.id == id).unwrap()
    }

    /// What the administrator writes wakes the operator.
    fn spec(&self, spec: &Value) {
        let mut state = self.state();
        json_patch::merge(&mut state.objects.cluster["spec"], spec);
        bump(&mut state.objects.cluster);
        state.is_dirty = true;
    }

    /// Edits a group in the status, which wakes nobody.
    fn edit(&self, id: &str, edit: impl Fn(&mut Group)) {
        let mut status = self.status();
        status.process_groups.iter_mut().filter(|group| group.id == id).for_each(edit);
        let mut state = self.state();
        state.objects.cluster["status"] = json!(status);
        bump(&mut state.objects.cluster);
    }

    /// Takes off what the removal has put there, but for these conditions.
    fn clear(&self, id: &str, left: &[&str]) {
        self.edit(id, |group| {
            (group.removal_timestamp, group.exclusion_timestamp, group.exclusion_skipped) = (None, None, false);
            group.process_group_conditions.retain(|condition| left.contains(&condition.type_.as_str()));
        });
    }

    fn include(&self, id: &str) {
        self.state().database.include(&[format!("{LOCALITY}{id}")], 0.0);
    }

    fn excludes(&self, id: &str) -> bool {
        self.state().database.exclusions.contains(&format!("{LOCALITY}{id}"))
    }

    /// All steps under skip, with a count that is one higher.
    fn undo(&mut self, id: &str, left: &[&str]) {
        self.spec(&json!({ "skip": true, "processCounts": { "storage": 4, "log": 4 }, "processGroupsToRemove": null,
            "processGroupsToRemoveWithoutExclusion": null }));
        self.tick_for(5);
        self.clear(id, left);
        self.include(id);
        self.spec(&json!({ "skip": false }));
        self.tick_for(30);
        assert!(self.state().database.processes.contains_key(id));
    }

    /// Edits the spec, and answers what the pass does that this causes, up to the DELETE of the group's volume.
    fn removed_by(&mut self, spec: &Value, id: &str) -> Vec<String> {
        let before = self.state().log.len();
        self.spec(spec);
        self.tick();
        let lines = self.state().log.split_off(before);
        let pass = lines.iter().position(|line| line.contains("pass ends")).unwrap();
        let delete = format!("DELETE PersistentVolumeClaim sample-{id}-data: denied");
        let delete = lines[..pass].iter().position(|line| line.ends_with(&delete));
        lines[..delete.unwrap_or_else(|| panic!("{lines:#?}"))].to_vec()
    }
}

#[test]
fn without_a_guard_it_is_removed_in_the_pass_that_makes_its_pod() {
    for (skips, includes) in [(false, true), (true, false)] {
        let (mut memory, id) = Memory::held("storage", "processGroupsToRemove");
        memory.spec(&json!({ "skip": skips, "processGroupsToRemove": null }));
        memory.tick_for(20);
        memory.clear(&id, &[]);
        if includes {
            memory.include(&id);
        }
        let lines = memory.removed_by(&json!({ "skip": false }), &id);
        assert!(lines.iter().any(|line| line.ends_with(&format!("DELETE Pod sample-{id}"))), "{lines:#?}");
        assert!(memory.group(&id).is_leaving());
    }
}

#[test]
fn a_left_condition_keeps_it_unreconciled() {
    let (mut memory, id) = Memory::held("storage", "processGroupsToRemove");
    memory.undo(&id, &[RESOURCES_TERMINATING]);
    for _ in 0..5 {
        memory.tick_for(10);
        assert!(!memory.sleeps() && memory.group(&id).since(RESOURCES_TERMINATING).is_some());
    }
    memory.clear(&id, &[]);
    memory.tick_for(10);
    assert!(memory.sleeps());
}

#[test]
fn one_that_the_spec_still_names_is_marked_again() {
    let (mut memory, id) = Memory::held("storage", "processGroupsToRemove");
    let old = memory.group(&id);
    memory.spec(&json!({ "skip": true }));
    memory.tick_for(5);
    memory.clear(&id, &[]);
    memory.removed_by(&json!({ "skip": false }), &id);
    let new = memory.group(&id);
    assert!(new.removal_timestamp > old.removal_timestamp && new.exclusion_timestamp > old.exclusion_timestamp);
}

#[test]
fn a_left_skipped_exclusion_is_dangerous() {
    let (mut memory, id) = Memory::held("storage", "processGroupsToRemoveWithoutExclusion");
    assert!(memory.group(&id).exclusion_skipped && memory.group(&id).exclusion_timestamp.is_some());
    assert!(memory.excludes(&id), "later passes exclude it all the same");
    memory.undo(&id, &[]);
    memory.edit(&id, |group| {
        (group.exclusion_skipped, group.exclusion_timestamp) = (true, Some("2026-01-01T00:00:00Z".to_owned()));
    });
    memory.spec(&json!({ "version": "7.3.70" }));
    memory.tick_for(20);
    assert!(memory.sleeps() && memory.group(&id).exclusion_timestamp.is_some(), "it looks healthy");
    let lines = memory.removed_by(&json!({ "processGroupsToRemove": [id] }), &id);
    assert!(!lines.iter().any(|line| line.contains("exclude ")), "{lines:#?}");
    let state = memory.state();
    let volume = state.database.volumes.values().find(|volume| volume.group == id).unwrap();
    assert!(!volume.drained, "all its data was still there");
}

#[test]
fn without_skip_the_spec_edit_repeats_the_delete_and_undoes_the_include() {
    let (mut memory, id) = Memory::held("storage", "processGroupsToRemove");
    memory.include(&id);
    memory.removed_by(&json!({ "processGroupsToRemove": null }), &id);
    assert!(memory.excludes(&id), "excluded again by the same pass");
}

#[test]
fn a_log_group_leaves_its_old_address_behind() {
    let (mut memory, id) = Memory::held("log", "processGroupsToRemove");
    let address = memory.group(&id).addresses.remove(0);
    memory.undo(&id, &[]);
    let state = memory.state();
    let exclusions = &state.database.exclusions;
    assert!(!state.database.is_excluded(&id) && exclusions.iter().eq([&address]), "{exclusions:?}");
}
