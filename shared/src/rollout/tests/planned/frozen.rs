//! Members are frozen when a rollout starts, by UID: labels, claims and new objects of tenants change nothing.

use proptest::prelude::{any, prop, prop_assert, prop_assert_eq, proptest};

use super::*;

/// Selects the label `env: dev`, one at a time, canaries by label.
fn labeled(names: &[&str]) -> Hub {
    let spec = json!({
        "targets": { "all": false, "selector": { "matchLabels": { "env": "dev" } } }, "maxConcurrency": 1,
        "maxTargets": names.len(), "maxFailures": "0%",
        "groups": [{ "name": "canary", "selector": { "matchLabels": { "tier": "canary" } } }],
    });
    let mut hub = Hub::of(&spec, names);
    relabel(&mut hub, names[0], "tier", "canary");
    hub
}

fn relabel(hub: &mut Hub, name: &str, key: &str, value: &str) {
    for one in hub.clusters.iter_mut().filter(|one| one.metadata.name.as_deref() == Some(name)) {
        one.metadata.labels.get_or_insert_default().insert(key.to_owned(), value.to_owned());
    }
}

fn counts(hub: &Hub) -> BTreeMap<String, u32> {
    hub.rollout.status.as_ref().unwrap().counts.clone()
}

#[test]
fn what_others_write_makes_no_member_and_halts_nothing() {
    let mut hub = labeled(&["a", "b", "c"]);
    assert_eq!(hub.settle(), ["a"]);
    let (claim, total) = (hub.mark("a"), counts(&hub));
    let forged = json!({ "hibernate.sh/rollout": claim.text() });
    let failed = json!({ "hibernate.sh/rollout": claim.end(Outcome::Failed, "", now()).text() });
    for (what, object) in [
        ("created later", json!({ "metadata": { "creationTimestamp": "2026-11-24T12:00:05Z" } })),
        ("relabeled into the selector", json!({})),
        ("with a claim, selected or not", json!({ "metadata": { "annotations": forged, "labels": { "env": "x" } } })),
        ("with a claim, relabeled as well", json!({ "metadata": { "annotations": forged } })),
        ("with a record of a failed canary", json!({ "metadata": { "annotations": failed } })),
    ] {
        let (rollout, snapshot) = (hub.rollout.clone(), hub.snapshot.clone());
        let mut tried = Hub { rollout, snapshot, snapshot_of: hub.snapshot_of, ..labeled(&["a"]) };
        tried.clusters = [hub.clusters.clone(), vec![cluster("other", &object)]].concat();
        assert!(tried.settle().is_empty(), "{what}");
        assert_eq!((tried.state("other").0, counts(&tried)), (String::new(), total.clone()), "{what}");
        tried.later(10);
        tried.reaches("a", asleep());
        assert_eq!((tried.settle(), tried.phase()), (vec!["b".to_owned()], RolloutPhase::Progressing), "{what}");
    }
}

#[test]
fn a_member_stays_one_whatever_its_labels_and_goes_with_its_object() {
    let mut hub = labeled(&["a", "b", "c", "d"]);
    hub.settle();
    // One is relabeled out, one into the group of canaries, one is deleted and created again.
    relabel(&mut hub, "b", "env", "prod");
    relabel(&mut hub, "c", "tier", "canary");
    hub.clusters.retain(|one| one.metadata.name.as_deref() != Some("d"));
    hub.clusters.push(cluster("d", &json!({ "metadata": { "uid": uid("another d") } })));
    hub.settle();
    let expected = [("Pending", 2), ("Progressing", 1), ("Removed", 1)];
    assert_eq!(counts(&hub), expected.map(|(state, count)| (state.to_owned(), count)).into());
    let mut started = Vec::new();
    for name in ["a", "b", "c"] {
        hub.later(10);
        hub.reaches(name, asleep());
        started.extend(hub.settle());
    }
    assert_eq!((started, hub.mark("c").group), (vec!["b".to_owned(), "c".to_owned()], 1));
    assert_eq!((hub.phase(), counts(&hub)["Succeeded"]), (RolloutPhase::Finished, 3));
}

/// As of a kind that is not watched any more.
#[test]
fn what_was_last_known_of_members_stays_while_nothing_is_known_and_the_rollout_can_end() {
    let why = "kind Cluster is not watched";
    let expected: BTreeMap<String, u32> = [("Pending".to_owned(), 2), ("Progressing".to_owned(), 1)].into();
    for (abort, phase) in [(true, RolloutPhase::Aborted), (false, RolloutPhase::Finished)] {
        let mut hub = labeled(&["a", "b", "c"]);
        assert_eq!(hub.settle(), ["a"]);
        hub.clusters.clear();
        hub.blocked = Some(why);
        assert!(hub.settle().is_empty());
        assert_eq!((hub.phase(), hub.message().as_str()), (RolloutPhase::Progressing, why));
        assert_eq!((counts(&hub), hub.state("a").0.as_str()), (expected.clone(), "Progressing"));
        if abort {
            hub.rollout.spec.abort = true;
        } else {
            hub.jump(3 * 3_600);
        }
        assert!(hub.settle().is_empty());
        let ended = format!("0 of 3 targets are in their state; {why}");
        assert_eq!((hub.phase(), hub.message(), counts(&hub)), (phase, ended, expected.clone()));
        assert!(is_over(&hub.rollout));
    }
}

/// The controller ends after the record of the members and before the status, and the spec is edited then: the edit
/// counts.
#[test]
fn an_edit_before_the_start_is_not_ignored_for_members_that_were_recorded_before_it() {
    for crash in [None, Some(1)] {
        let mut hub = labeled(&["a", "b", "c"]);
        let plan = hub.plan();
        hub.carry_out(&plan, Some(1));
        hub.adopted = crash.is_none(); // the same leader, whose status was refused, or another one
        assert!(hub.snapshot.is_some() && !has_begun(&hub.rollout));
        hub.rollout.spec.groups[0].selector =
            serde_json::from_value(json!({ "matchLabels": { "tier": "new" } })).unwrap();
        hub.rollout.metadata.generation = Some(2);
        relabel(&mut hub, "b", "tier", "new");
        assert_eq!(hub.settle(), ["b"], "{crash:?}");
        let status = hub.rollout.status.clone().unwrap();
        assert_eq!((status.members_generation, hub.snapshot_of), (Some(2), Some(2)));
        // An edit after the start changes no member.
        hub.rollout.metadata.generation = Some(3);
        hub.reaches("b", asleep());
        assert_eq!(hub.settle(), ["a"]);
        assert_eq!(hub.rollout.status.clone().unwrap().members_generation, Some(2));
    }
}

#[test]
fn a_claim_puts_no_member_into_another_group() {
    let mut hub = labeled(&["a", "b", "c"]);
    hub.settle();
    hub.reaches("a", asleep());
    assert_eq!(hub.settle(), ["b"]);
    // The canary's record says that it was one of the remaining targets.
    let (group, ended) = (1, hub.mark("a").end(Outcome::Failed, "", now()).ended);
    let forged = Mark { group, ended, ..hub.mark("a") }.end(Outcome::Failed, "", now());
    let record = Mark {
        ended: forged.ended.map(|ended| crate::annotation::mark::Ended { result: Outcome::Failed, ..ended }),
        ..forged
    };
    let annotations = hub.clusters[0].metadata.annotations.as_mut().unwrap();
    annotations.insert("hibernate.sh/rollout".to_owned(), record.text());
    hub.settle();
    assert!(hub.message().starts_with("too many failures in group canary"), "{}", hub.message());
}

#[test]
fn a_restore_whose_record_is_overwritten_is_overridden_and_not_removed() {
    let mut sleep = Hub::of(&json!({}), &["a", "b"]);
    sleep.settle();
    for name in ["a", "b"] {
        sleep.reaches(name, asleep());
    }
    sleep.settle();
    let spec = json!({
        "action": "Restore", "restoreOf": { "name": "night", "uid": "ours" }, "maxConcurrency": 1,
    });
    let mut undo = Hub::new(&spec, sleep.clusters.clone());
    undo.rollout.metadata.uid = Some("undo".into());
    undo.jump(100);
    assert_eq!(undo.settle(), ["a"]);
    undo.clusters[1].metadata.annotations.get_or_insert_default().clear();
    undo.settle();
    let (state, why) = undo.state("b");
    assert_eq!(
        (state.as_str(), why.as_str()),
        ("Overridden", "the record of the undone rollout is gone: not restored")
    );
    assert_eq!(counts(&undo).get("Removed"), None);
}

proptest! {
    /// Wherever the controller ends, and whatever tenants do to labels and objects meanwhile: what was recorded first
    /// stays, nothing else starts, and the counts are exact.
    #[test]
    fn members_are_recorded_once_and_counted_exactly(
        events in prop::collection::vec((0_usize..6, 0_usize..4, any::<bool>(), 0_usize..4), 1..40),
    ) {
        let names = ["t0", "t1", "t2", "t3", "t4", "t5"];
        let mut hub = labeled(&names);
        hub.rollout.spec.max_failures = None;
        let (mut recorded, mut gone) = (None, 0);
        for (number, (target, what, crashes, writes)) in events.into_iter().enumerate() {
            let index = hub.clusters.iter().position(|one| one.metadata.name.as_deref() == Some(names[target])).unwrap();
            match what {
                0 => relabel(&mut hub, names[target], "env", "dev"),
                1 => relabel(&mut hub, names[target], "env", "prod"),
                2 => relabel(&mut hub, names[target], "tier", "canary"),
                _ => {
                    let fresh = json!({ "metadata": { "uid": uid(&format!("{target} {number}")) } });
                    let old = std::mem::replace(&mut hub.clusters[index], cluster(names[target], &fresh));
                    let old = crate::rollout::snapshot::Uid::parse(old.metadata.uid.as_deref().unwrap());
                    let was_counted = has_begun(&hub.rollout);
                    let is_member = hub.snapshot.as_ref().is_some_and(|snapshot| snapshot.group(old).is_some());
                    gone += u32::from(was_counted && is_member);
                }
            }
            let plan = hub.plan();
            for name in hub.carry_out(&plan, crashes.then_some(writes)) {
                let found = hub.observed().into_iter().find(|one| one.identity.name == name).unwrap();
                let snapshot = hub.snapshot.as_ref().unwrap();
                prop_assert!(snapshot.group(found.identity.uid).is_some(), "{} was no member", name);
            }
            prop_assert!(recorded.is_none() || recorded == hub.snapshot, "recorded twice");
            recorded.clone_from(&hub.snapshot);
            hub.jump(1);
        }
        hub.pass();
        hub.pass();
        let status = hub.rollout.status.clone().unwrap();
        if let Some(total) = status.total {
            prop_assert_eq!(status.counts.values().sum::<u32>(), total);
            prop_assert_eq!(status.counts.get("Removed").copied().unwrap_or_default(), gone);
        }
    }
}
