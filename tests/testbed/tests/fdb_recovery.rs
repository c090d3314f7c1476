//! The double of the FoundationDB operator when a removal is undone by editing: what the real one did, row by row
//! (section 4 of docs/reference/fdb.md). The special cases are in `fdb_special.rs`.

#![allow(clippy::unwrap_used, clippy::panic)] // a helper of a test is part of the test

use std::collections::BTreeSet;
use std::time::Duration;

use serde_json::json;
use testbed::FdbOptions;
use testbed::fdb::common::{
    Held, IDLE, SOON, applied, clear, fdbcli, held_storage, removed_again, uid, untimed, world,
};
use testbed::fdb::denier::Denier;
use testbed::fdb::operator::api::{Group, MARKED_AS_EXCLUDED, RESOURCES_TERMINATING};

/// Asks for one group more than there were, and takes the held one off the list.
pub(crate) async fn raise(held: &Held, class: &str) {
    let change = json!({"spec": {"processCounts": {class: 4}, "processGroupsToRemove": []}});
    held.db.patch(&change).await.unwrap();
}

/// Clears the held group's entry, but for what `left` puts back of it.
async fn clear_but(held: &Held, left: impl FnOnce(&Group, &mut Group)) {
    let edit = |groups: &mut Vec<Group>| {
        let at = groups.iter().position(|group| group.id == held.id).unwrap();
        let old = groups[at].clone();
        clear(groups, &held.id);
        left(&old, &mut groups[at]);
    };
    held.db.edit_groups(edit).await.unwrap();
}

/// All steps under skip, with a count that is one higher.
pub(crate) async fn undo(held: &Held, class: &str) {
    held.skip().await;
    raise(held, class).await;
    held.clear().await;
    held.include_it().await;
    held.unskip().await;
}

async fn steps_under_skip_with_a_higher_count(name: &str, options: FdbOptions) {
    let held = held_storage(name, options).await;
    let before = held.deletes().await;
    undo(&held, "storage").await;
    held.wait_back().await;
    held.db.wait_reconciled(SOON).await.unwrap();
    assert_eq!(held.deletes().await, before);
    assert_eq!(held.db.ids("storage").await.unwrap().len(), 4);
    // Lowering the count and naming the replacement in one patch removes exactly that one.
    held.denier.deny(false);
    let change = json!({"spec": {"processCounts": {"storage": 3}, "processGroupsToRemove": [held.replacement]}});
    held.db.patch(&change).await.unwrap();
    held.db.wait_reconciled(SOON).await.unwrap();
    let left = held.db.ids("storage").await.unwrap();
    assert!(left.len() == 3 && left.contains(&held.id) && !left.contains(&held.replacement), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_steps_under_skip_with_a_higher_count() {
    tokio::join!(
        steps_under_skip_with_a_higher_count("count", untimed()),
        steps_under_skip_with_a_higher_count("count-apply", applied()),
    );
}

/// `left` stays in the entry of the recovered group.
async fn swap(name: &str, options: FdbOptions, left: &[&str]) {
    let held = held_storage(name, options).await;
    let before: BTreeSet<String> = held.db.ids("storage").await.unwrap().into_iter().collect();
    held.skip().await;
    held.list(&[&held.replacement]).await;
    clear_but(&held, |old, group| {
        let kept = old.process_group_conditions.iter().filter(|condition| left.contains(&condition.type_.as_str()));
        group.process_group_conditions = kept.cloned().collect();
    })
    .await;
    held.include_it().await;
    held.db.turn(&json!({"reportDelay": "2s"})).await.unwrap();
    held.unskip().await;
    held.db.wait("Pod", SOON, async || Ok(held.db.pod(&held.id).await?)).await.unwrap();
    held.db
        .wait_for("marked replacement", SOON, |status| {
            status.process_groups.iter().any(|group| group.id == held.replacement && group.is_marked())
        })
        .await
        .unwrap();
    assert!(held.db.pvc_deletes(&held.replacement).await.unwrap().is_empty(), "removed before the other one reported");
    held.wait_back().await;
    held.db.wait_suspended(&held.replacement, SOON).await.unwrap();
    held.denier.deny(false);
    if left.is_empty() {
        held.db.wake().await.unwrap();
        held.db.wait_reconciled(SOON).await.unwrap();
    }
    let dropped = async || Ok(held.db.group(&held.replacement).await?.is_none().then_some(()));
    held.db.wait("dropped replacement", SOON, dropped).await.unwrap();
    let mut expected = before;
    expected.remove(&held.replacement);
    expected.insert(held.id.clone());
    assert_eq!(held.db.ids("storage").await.unwrap().into_iter().collect::<BTreeSet<_>>(), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn all_steps_under_skip_with_the_replacement_to_go() {
    tokio::join!(swap("swap", untimed(), &[]), swap("swap-rt", applied(), &[RESOURCES_TERMINATING]));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_guard_it_is_removed_in_the_pass_that_makes_its_pod() {
    for (name, skips, includes) in [("bare", false, true), ("bare-skip", true, false)] {
        let held = held_storage(name, untimed()).await;
        if skips {
            held.skip().await;
        }
        held.list(&[]).await;
        held.db.wait_asleep(IDLE, SOON).await.unwrap();
        held.clear().await;
        if includes {
            held.include_it().await;
        }
        // The include is a recovery of the database, and a removal waits until that is old enough.
        let (before, slept) = (held.deletes().await, held.db.wait_asleep(IDLE, SOON).await.unwrap());
        assert!(held.db.pod(&held.id).await.unwrap().is_none());
        if skips {
            held.unskip().await;
        } else {
            held.db.wake().await.unwrap();
        }
        let (pod, claim) = removed_again(&held, before).await;
        assert_eq!((pod.pass, claim.pass), (slept + 1, slept + 1), "{name}: one pass makes and removes");
        assert!(claim.error.unwrap().contains("held by the test"));
        let group = held.db.group(&held.id).await.unwrap().unwrap();
        assert!(group.is_leaving(), "{group:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_higher_count_without_skip_is_filled_up() {
    let held = held_storage("fill", untimed()).await;
    raise(&held, "storage").await;
    held.db
        .wait("filled up", SOON, async || Ok((held.db.ids("storage").await?.len() == 4).then_some(())))
        .await
        .unwrap();
    held.db.wait_asleep(IDLE, SOON).await.unwrap();
    held.clear().await;
    held.include_it().await;
    let before = held.deletes().await;
    held.db.wake().await.unwrap();
    removed_again(&held, before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_left_exclusion_timestamp_does_no_harm() {
    let held = held_storage("stamp", applied()).await;
    held.skip().await;
    raise(&held, "storage").await;
    clear_but(&held, |old, group| group.exclusion_timestamp.clone_from(&old.exclusion_timestamp)).await;
    held.include_it().await;
    held.unskip().await;
    held.wait_back().await;
    held.db.wait_reconciled(SOON).await.unwrap();
    assert_eq!(held.db.group(&held.id).await.unwrap().unwrap().exclusion_timestamp, None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_left_condition_keeps_it_unreconciled() {
    let held = held_storage("condition", untimed()).await;
    held.skip().await;
    raise(&held, "storage").await;
    clear_but(&held, |old, group| group.process_group_conditions.clone_from(&old.process_group_conditions)).await;
    held.include_it().await;
    held.unskip().await;
    held.wait_back().await;
    let passes = held.db.log().await.unwrap().passes.len();
    let again = async || Ok((held.db.log().await?.passes.len() > passes + 3).then_some(()));
    held.db.wait("pass after pass", SOON, again).await.unwrap();
    assert!(held.db.group(&held.id).await.unwrap().unwrap().since(RESOURCES_TERMINATING).is_some());
    held.db.edit_groups(|groups| clear(groups, &held.id)).await.unwrap();
    held.db.wait_reconciled(SOON).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_stays_excluded_counts_as_unhealthy() {
    let held = held_storage("excluded", untimed()).await;
    held.skip().await;
    raise(&held, "storage").await;
    held.clear().await;
    held.unskip().await;
    held.wait_back().await;
    let marked = async || Ok(held.db.group(&held.id).await?.filter(|group| group.since(MARKED_AS_EXCLUDED).is_some()));
    let group = held.db.wait("condition", SOON, marked).await.unwrap();
    assert!(!group.is_marked(), "{group:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_the_spec_still_names_is_marked_again() {
    let held = held_storage("named", untimed()).await;
    let old = held.db.group(&held.id).await.unwrap().unwrap();
    held.skip().await;
    held.clear().await;
    let before = held.deletes().await;
    held.unskip().await;
    removed_again(&held, before).await;
    let new = held.db.wait_suspended(&held.id, SOON).await.unwrap();
    assert!(new.removal_timestamp > old.removal_timestamp && new.exclusion_timestamp > old.exclusion_timestamp);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_left_skipped_exclusion_is_dangerous() {
    let world = world().await;
    let db = world.fdb("dangerous", untimed()).await.unwrap();
    let denier = Denier::start(&world, db.namespace(), &["persistentvolumeclaims"]).await.unwrap();
    let id = db.ids("storage").await.unwrap()[0].clone();
    let volume = uid(&db, &id).await;
    db.remove_without_exclusion(&[&id]).await.unwrap();
    let group = db.wait_suspended(&id, SOON).await.unwrap();
    assert!(group.exclusion_skipped && group.exclusion_timestamp.is_some());
    db.wait_asleep(IDLE, SOON).await.unwrap();
    let locality = format!("locality_instance_id:{id}");
    assert!(db.database().await.unwrap().exclusions.contains(&locality), "later passes exclude it all the same");
    let change = json!({"spec": {
        "skip": true, "processCounts": {"storage": 4}, "processGroupsToRemoveWithoutExclusion": [],
    }});
    db.patch(&change).await.unwrap();
    db.wait_asleep(Duration::from_millis(300), SOON).await.unwrap();
    db.edit_groups(|groups| {
        clear(groups, &id);
        let group = groups.iter_mut().find(|other| other.id == id).unwrap();
        (group.exclusion_skipped, group.exclusion_timestamp) = (true, Some("2026-01-01T00:00:00Z".to_owned()));
    })
    .await
    .unwrap();
    let other = db.ids("log").await.unwrap()[0].clone();
    fdbcli(&world, &db, &other, &format!("include {locality}")).await.ok().unwrap();
    db.patch(&json!({"spec": {"skip": false}})).await.unwrap();
    db.wait_reconciled(SOON).await.unwrap();
    let group = db.group(&id).await.unwrap().unwrap();
    assert!(group.exclusion_timestamp.is_some() && !group.is_marked(), "it looks healthy: {group:?}");
    let (before, commands) = (db.pvc_deletes(&id).await.unwrap().len(), db.log().await.unwrap().commands.len());
    db.remove(&[&id]).await.unwrap();
    let again = async || Ok(db.pvc_deletes(&id).await?.into_iter().nth(before));
    let delete = db.wait("DELETE", SOON, again).await.unwrap();
    let log = db.log().await.unwrap();
    let excludes = log.commands.iter().skip(commands).filter(|command| command.text.contains(&locality));
    assert!(excludes.into_iter().all(|command| command.at > delete.at), "{:?}", log.commands);
    assert!(!db.database().await.unwrap().volumes[volume.as_ref().unwrap()].drained, "all its data was still there");
    drop(denier);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_status_patch_alone_wakes_nobody() {
    let held = held_storage("unpoked", untimed()).await;
    held.skip().await;
    held.list(&[]).await;
    held.db.wait_asleep(IDLE, SOON).await.unwrap();
    let passes = held.db.log().await.unwrap().passes.len();
    held.clear().await;
    tokio::time::sleep(IDLE).await;
    assert_eq!(held.db.log().await.unwrap().passes.len(), passes);
    // Passes during a skip return at once: no DELETE, no exclusion, however often they are woken.
    let (deletes, commands) = (held.deletes().await, held.db.log().await.unwrap().commands.len());
    for _ in 0..5 {
        held.db.wake().await.unwrap();
    }
    held.db.wait_asleep(Duration::from_millis(300), SOON).await.unwrap();
    let log = held.db.log().await.unwrap();
    assert!(log.passes.len() > passes && log.passes[passes..].iter().all(|pass| pass.result == "skipped"));
    assert_eq!((held.deletes().await, log.commands.len()), (deletes, commands));
}

#[tokio::test(flavor = "multi_thread")]
async fn without_skip_the_spec_edit_repeats_the_delete_and_undoes_the_include() {
    let held = held_storage("undone", untimed()).await;
    let (before, locality) = (held.deletes().await, format!("locality_instance_id:{}", held.id));
    held.include_it().await;
    assert!(!held.db.database().await.unwrap().exclusions.contains(&locality));
    held.list(&[]).await;
    removed_again(&held, before).await;
    assert!(held.db.database().await.unwrap().exclusions.contains(&locality), "excluded again by the same pass");
}
