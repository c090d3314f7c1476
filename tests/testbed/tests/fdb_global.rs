//! The double of the FoundationDB operator in global synchronisation mode: not observed, but read in the source of
//! release 2.33 (`internal/coordination`, and what uses it).

#![allow(clippy::unwrap_used, clippy::panic)] // a helper of a test is part of the test

use std::collections::BTreeSet;

use serde_json::json;
use testbed::FdbCluster;
use testbed::fdb::common::{Held, SOON, blocked, dropped, fdbcli, global, held_storage, off_the_lists, untimed, world};
use testbed::fdb::database::{Command, Database};
use testbed::fdb::denier::Denier;

/// Removes a group without a volume, so that nothing of it is held.
async fn remove_another(db: &FdbCluster) -> String {
    let id = db.ids("cluster_controller").await.unwrap()[0].clone();
    db.remove(&[&id]).await.unwrap();
    id
}

/// What the operator has included.
async fn included(db: &FdbCluster) -> Vec<Command> {
    let commands = db.log().await.unwrap().commands.into_iter();
    commands.filter(|command| command.by == "operator" && command.text.starts_with("include")).collect()
}

/// The localities of these groups.
fn localities(ids: &[&String]) -> BTreeSet<String> {
    ids.iter().map(|id| format!("locality_instance_id:{id}")).collect()
}

/// What a command was about.
fn targets(command: &Command) -> BTreeSet<String> {
    command.text.split(' ').skip(1).map(str::to_owned).collect()
}

fn is_on(database: &Database, list: &str, id: &str) -> bool {
    database.list(list, "").contains_key(id)
}

#[tokio::test(flavor = "multi_thread")]
async fn in_local_mode_what_is_gone_is_included_beside_what_is_held() {
    let Held { db, id, denier, .. } = held_storage("beside", untimed()).await;
    let other = remove_another(&db).await;
    dropped(&db, &other).await;
    let commands = included(&db).await;
    assert_eq!(commands.iter().map(targets).collect::<Vec<_>>(), [localities(&[&other])]);
    let database = db.database().await.unwrap();
    assert_eq!((database.exclusions, database.keys.len()), (localities(&[&id]), 0));
    assert!(db.group(&id).await.unwrap().is_some());
    drop(denier);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_global_mode_what_is_gone_waits_for_what_is_held() {
    let Held { db, id, denier, .. } = held_storage("waits", global()).await;
    let database = db.database().await.unwrap();
    assert!(is_on(&database, "pendingForInclusion", &id) && is_on(&database, "pendingForRemoval", &id));
    assert_eq!(database.keys.len(), 2, "excluded it is, and ready it is not: {:?}", database.keys);
    let other = remove_another(&db).await;
    blocked(&db, &id).await;
    let database = db.database().await.unwrap();
    assert!(is_on(&database, "readyForInclusion", &other) && !is_on(&database, "readyForInclusion", &id));
    assert_eq!(database.exclusions, localities(&[&id, &other]));
    assert_eq!((db.pod(&other).await.unwrap(), included(&db).await), (None, vec![]));
    assert!(db.group(&other).await.unwrap().unwrap().is_leaving(), "nothing of it is left but its entry");
    // There is no timeout, only one pass after another, each with a DELETE of what is held.
    let (passes, deletes) = (db.log().await.unwrap().passes.len(), db.pvc_deletes(&id).await.unwrap().len());
    let again = async || Ok((db.log().await?.passes.len() >= passes + 2).then_some(()));
    db.wait("two more passes", SOON, again).await.unwrap();
    assert_eq!((db.pvc_deletes(&id).await.unwrap().len() > deletes, included(&db).await), (true, vec![]));
    denier.deny(false);
    for id in [&id, &other] {
        dropped(&db, id).await;
    }
    db.wait_reconciled(SOON).await.unwrap();
    let commands = included(&db).await;
    assert_eq!(commands.iter().map(targets).collect::<Vec<_>>(), [localities(&[&id, &other])], "both at once");
    let went = db.pvc_deletes(&id).await.unwrap().pop().unwrap();
    assert!(went.error.is_none() && went.at + 1.4 <= commands[0].at, "30 s after the last one was ready: {commands:?}");
    let database = db.database().await.unwrap();
    assert!(database.exclusions.is_empty() && database.keys.is_empty(), "{database:?}");
}

/// Two that are ready although they are held: one that was removed without exclusion, and one that was held before the
/// mode was global. They are included together with what is gone, and the next pass excludes them again.
#[tokio::test(flavor = "multi_thread")]
async fn who_was_not_excluded_or_is_late_blocks_nobody() {
    let world = world().await;
    let skipped = world.fdb("skipped", global()).await.unwrap();
    let _denier = Denier::start(&world, skipped.namespace(), &["persistentvolumeclaims"]).await.unwrap();
    let id = skipped.ids("storage").await.unwrap()[0].clone();
    skipped.remove_without_exclusion(&[&id]).await.unwrap();
    skipped.wait_suspended(&id, SOON).await.unwrap();
    let late = held_storage("late", untimed()).await;
    late.db.patch(&json!({"spec": {"automationOptions": {"synchronizationMode": "global"}}})).await.unwrap();
    for (db, id) in [(&skipped, &id), (&late.db, &late.id)] {
        let ready = async || Ok(is_on(&db.database().await?, "readyForInclusion", id).then_some(()));
        db.wait("held group that is ready", SOON, ready).await.unwrap();
        let other = remove_another(db).await;
        dropped(db, &other).await;
        let commands = included(db).await;
        assert_eq!(commands.iter().map(targets).collect::<Vec<_>>(), [localities(&[id, &other])]);
        assert!(db.pvc(id).await.unwrap().is_some() && db.group(id).await.unwrap().unwrap().is_leaving());
        db.wake().await.unwrap();
        let again = async || Ok((db.database().await?.exclusions == localities(&[id])).then_some(()));
        db.wait("exclusion once more", SOON, again).await.unwrap();
    }
}

/// Whoever undoes a removal has to clear the group's keys, too: the operator clears those of groups that are in the
/// status no more.
#[tokio::test(flavor = "multi_thread")]
async fn who_is_marked_no_longer_stays_on_the_lists_and_blocks() {
    let held = held_storage("unmarked", global()).await;
    held.skip().await;
    held.list(&[&held.replacement]).await;
    held.clear().await;
    held.include_it().await;
    held.unskip().await;
    held.wait_back().await;
    held.db.wait_suspended(&held.replacement, SOON).await.unwrap();
    held.denier.deny(false);
    held.db.wake().await.unwrap();
    blocked(&held.db, &held.id).await;
    let database = held.db.database().await.unwrap();
    assert!(["pendingForRemoval", "pendingForInclusion"].iter().all(|list| is_on(&database, list, &held.id)));
    assert!(!database.is_excluded(&held.id), "{:?}", database.exclusions);
    assert_eq!(included(&held.db).await, []);
    fdbcli(&held.world, &held.db, &held.id, &off_the_lists(&held.id)).await.ok().unwrap();
    dropped(&held.db, &held.replacement).await;
    held.db.wait_reconciled(SOON).await.unwrap();
    let commands = included(&held.db).await;
    assert_eq!(commands.iter().map(targets).collect::<Vec<_>>(), [localities(&[&held.replacement])]);
    assert!(held.db.database().await.unwrap().keys.is_empty());
}
