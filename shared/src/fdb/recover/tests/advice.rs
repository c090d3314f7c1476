//! What a refusal, or a recovery that cannot be finished, advises is done, and the recovery goes on.

use crate::annotation::keys;
use crate::object::name_of;
use crate::record::RecordError;
use serde_json::json;

use super::super::check::{Place, Refusal};
use super::super::replace::{ReplaceError, ReplacementMode};
use super::super::*;
use super::world::*;

/// The world after what a refusal advises, and what is asked for then.
type Next = (World, Vec<String>, ReplacementMode);

fn word_after(text: &str, words: &str) -> String {
    let rest = text.split_once(words).unwrap_or_else(|| panic!("no {words:?} in {text}")).1;
    rest.split([' ', ',']).next().unwrap().to_owned()
}

/// The merge patch of a command that is printed for a person.
fn patch_of(text: &str) -> Value {
    let (_, rest) = text.split_once("--type merge -p '").unwrap();
    serde_json::from_str(rest.split_once('\'').unwrap().0).unwrap()
}

/// Each way out that a refusal names; none where there is nothing to be done.
fn ways_out(world: &World, ids: &[&str], refusal: &Refusal) -> Vec<Next> {
    let (message, ids) = (refusal.to_string(), ids.iter().map(|&id| id.to_owned()).collect::<Vec<_>>());
    let after = |change: &dyn Fn(&mut World)| {
        let mut world = world.clone();
        change(&mut world);
        (world, ids.clone(), ReplacementMode::Find)
    };
    match refusal {
        Refusal::Unknown { .. } => {
            vec![(world.clone(), vec![word_after(&message, "suspended groups: ")], ReplacementMode::Find)]
        }
        Refusal::PodRuns { pod, .. } => vec![after(&|world| world.pods.retain(|object| name_of(object) != pod))],
        Refusal::Skipped { .. } => vec![after(&|world| json_patch::merge(&mut world.cluster, &patch_of(&message)))],
        Refusal::Unreadable { why, .. } if !matches!(why, RecordError::Version(_)) => {
            let key = word_after(&message, "annotation ");
            assert!(message.ends_with("remove it, and set spec.skip to false"), "{message}");
            let edit = json!({ "metadata": { "annotations": { key: null } }, "spec": { "skip": false } });
            vec![after(&|world| json_patch::merge(&mut world.cluster, &edit))]
        }
        Refusal::Replace(ReplaceError::TooMany { .. }) => {
            let (class, count) = (word_after(&message, "Raise spec.processCounts."), word_after(&message, " to "));
            let raised = json!({ "spec": { "processCounts": { class: count.parse::<i64>().unwrap() } } });
            assert!(message.contains(", or pass --replacement ID"), "{message}");
            let named = ReplacementMode::These(vec!["storage-2".to_owned()]);
            vec![after(&|world| json_patch::merge(&mut world.cluster, &raised)), (world.clone(), ids.clone(), named)]
        }
        Refusal::Replace(ReplaceError::Recorded { .. }) => {
            assert!(message.ends_with("run this again without --replacement"), "{message}");
            vec![after(&|_| {})]
        }
        // InExchange: what_went_in_exchange_is_known. Unreadable: the release that wrote it reads it.
        Refusal::InExchange { .. }
        | Refusal::Unreadable { .. }
        | Refusal::NotMarked { .. }
        | Refusal::Stateless { .. }
        | Refusal::Gone { .. }
        | Refusal::Going { .. }
        | Refusal::OddId(_)
        | Refusal::Deleted { .. }
        | Refusal::Replace(
            ReplaceError::Unknown(_)
            | ReplaceError::OtherClass { .. }
            | ReplaceError::Marked(_)
            | ReplaceError::Taken(_)
            | ReplaceError::Idle(_),
        ) => Vec::new(),
    }
}

/// The refusal of a recovery; of one that may only hold the volumes, too.
fn refused(world: &World, ids: &[&str], wanted: &ReplacementMode) -> Option<Refusal> {
    let place = || Place { namespace: "db".to_owned(), name: "sample".to_owned() };
    match world.goal_with(ids, wanted) {
        Ok(goal) => goal.skipped.then(|| Refusal::Skipped { place: place(), held: true }),
        Err(refusals) => refusals.into_iter().next(),
    }
}

/// A recovery of `storage-1` that was interrupted once it had the operator skip the cluster.
fn interrupted(world: &mut World) {
    let record = world.record(&["storage-1"]);
    let mut done = RunState::default();
    for last in ["hold", "skip"] {
        let step = world.steps(&record, done).unwrap().remove(0);
        assert_eq!(word(&step), last);
        world.carry_out(&step, &mut done);
    }
}

#[test]
fn what_a_refusal_advises_works() {
    type Change = fn(&mut World);
    let cases: [(&str, Change, ReplacementMode, usize); 6] = [
        ("storage-7", |_| {}, ReplacementMode::Find, 1),
        ("storage-1", |world| world.pods.push(pod("storage-1", "Running")), ReplacementMode::Find, 1),
        ("storage-1", |world| world.cluster["spec"]["skip"] = json!(true), ReplacementMode::Find, 1),
        (
            "storage-1",
            |world| {
                world.cluster["metadata"]["annotations"] = json!({ keys::RECOVERY: "mine" });
                world.cluster["spec"]["skip"] = json!(true);
            },
            ReplacementMode::Find,
            1,
        ),
        (
            "storage-1",
            |world| world.claims[3] = claim("storage-4", "storage", "2026-11-21T17:59:52Z"),
            ReplacementMode::Find,
            2,
        ),
        ("storage-1", interrupted, ReplacementMode::None, 1),
    ];
    for (id, change, wanted, ways) in cases {
        let mut world = World::suspended();
        change(&mut world);
        let refusal = refused(&world, &[id], &wanted).unwrap_or_else(|| panic!("{id} is not refused"));
        let ways_out = ways_out(&world, &[id], &refusal);
        assert_eq!(ways_out.len(), ways, "{refusal}");
        for (world, ids, wanted) in ways_out {
            let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
            assert_eq!(refused(&world, &ids, &wanted), None, "after: {refusal}");
            assert!(world.goal_with(&ids, &wanted).unwrap().record.has("storage-1"), "after: {refusal}");
        }
    }
}

/// While a recovery is unfinished, another one is refused: the command without groups finishes it, even if its volume
/// is lost.
#[test]
fn the_command_without_groups_finishes_what_was_begun() {
    for lost in [false, true] {
        let mut world = World::suspended();
        interrupted(&mut world);
        if lost {
            world.claims.remove(0);
            assert!(matches!(refused(&world, &["storage-1"], &ReplacementMode::Find), Some(Refusal::Gone { .. })));
        }
        assert!(refused(&world, &["storage-7"], &ReplacementMode::Find).is_some());
        let record = world.record(&[]);
        assert_eq!(record.has("storage-1"), !lost);
        world.run(&record);
        assert_eq!(world.cluster["spec"]["skip"], json!(false), "lost: {lost}");
        assert_eq!(world.cluster["metadata"]["annotations"], json!({}), "lost: {lost}");
    }
}

#[test]
fn what_a_recovery_that_cannot_be_finished_advises_works() {
    let mut alone = World::suspended();
    alone.cluster["spec"]["routing"] = json!({ "publicIPSource": "service" });
    let mut skipped = World::suspended();
    let record = skipped.record(&["storage-1"]);
    skipped.cluster["spec"]["skip"] = json!(true);
    let mut full = World::suspended();
    let others: Vec<String> = (0..500).map(|number| format!("stateless-{number}")).collect();
    full.groups().extend(others.iter().map(|id| group(id, "stateless")));
    full.cluster["spec"]["processGroupsToRemove"] = json!(others);
    for mut world in [alone, skipped, full] {
        // The volumes are held first.
        let hold = world.steps(&record, RunState::default()).unwrap().remove(0);
        world.carry_out(&hold, &mut RunState::default());
        let lost = world.steps(&record, RunState::default()).unwrap_err();
        let message = lost.to_string();
        match lost {
            Unrecoverable::NoSibling { service: wanted, .. } => {
                assert_eq!(word_after(&message, "create Service "), wanted);
                world.services.push(service("storage-1", "storage"));
                assert_eq!(name_of(&world.services[0]), wanted);
            }
            Unrecoverable::ForeignSkip => {
                assert!(
                    message.ends_with("to hold them longer, or set spec.skip to false and run it at once"),
                    "{message}"
                );
                let mut later = world.clone();
                later.now = at("2026-11-21T18:36:00Z");
                let held = later.steps(&record, RunState::default()).unwrap();
                assert!(matches!(held.as_slice(), [Step::Hold(_)]), "{held:?}");
                world.cluster["spec"]["skip"] = json!(false);
            }
            Unrecoverable::ListFull { count, most } => {
                assert_eq!((count, most), (501, 500));
                assert!(message.contains("take IDs off the list"), "{message}");
                world.cluster["spec"]["processGroupsToRemove"].as_array_mut().unwrap().pop();
            }
            Unrecoverable::NoClaim { .. } | Unrecoverable::ClaimGoing { .. } | Unrecoverable::OtherClaim { .. } => {
                panic!("{lost} advises nothing")
            }
        }
        assert_eq!(world.run(&record).last(), Some(&"clear"), "after: {message}");
    }
}
