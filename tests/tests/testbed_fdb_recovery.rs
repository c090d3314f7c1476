//! The double of the FoundationDB operator when a removal is undone by editing: what the real one did, row by row.

mod fdb_common;

use std::{collections::BTreeSet, time::Duration};

use fdb_common::{IDLE, SOON, clear, fdbcli, held, held_storage, uid, untimed};
use k8s_openapi::api::core::v1::Service;
use kube::{
    Api,
    api::{DeleteParams, ObjectMeta, PostParams},
};
use serde_json::json;
use testbed::{
    FdbOptions,
    fdb::{
        database::Delete,
        operator::api::{Group, INCORRECT_POD_METADATA, MARKED_AS_EXCLUDED, RESOURCES_TERMINATING},
        options::{Settings, UpdateMode},
    },
};

/// The default database with an operator that writes by server-side apply.
fn applied() -> FdbOptions {
    FdbOptions { settings: Settings { update_mode: UpdateMode::Apply, ..Settings::fast() }, ..untimed() }
}

async fn steps_under_skip_with_a_higher_count(name: &str, options: FdbOptions) {
    let held = held_storage(name, options).await;
    held.skip().await;
    held.db.patch(&json!({"spec": {"processCounts": {"storage": 4}, "processGroupsToRemove": []}})).await.unwrap();
    held.clear().await;
    held.include_it().await;
    let before = held.deletes().await;
    held.unskip().await;
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
    held.db
        .edit_groups(|groups| {
            let kept = groups.iter().find(|group| group.id == held.id).unwrap().process_group_conditions.clone();
            clear(groups, &held.id);
            let group = groups.iter_mut().find(|group| group.id == held.id).unwrap();
            group.process_group_conditions = kept.into_iter().filter(|c| left.contains(&c.type_.as_str())).collect();
        })
        .await
        .unwrap();
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

/// The pass after a sleep that has sent the second round of DELETEs, for Pod and claim alike.
async fn removed_again(held: &fdb_common::Held, before: usize) -> (Delete, Delete) {
    let again = async || Ok(held.db.pvc_deletes(&held.id).await?.into_iter().nth(before));
    let claim = held.db.wait("another DELETE", SOON, again).await.unwrap();
    let pods = held.db.deletes("Pod", &held.db.pod_name(&held.id)).await.unwrap();
    (pods.last().unwrap().clone(), claim)
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
        let (before, slept) = (held.deletes().await, held.db.wait_asleep(Duration::ZERO, SOON).await.unwrap());
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
async fn block_removal_only_delays() {
    let held = held_storage("block", untimed()).await;
    held.skip().await;
    let change = json!({"spec": {"processGroupsToRemove": [], "buggify": {"blockRemoval": [held.id]}}});
    held.db.patch(&change).await.unwrap();
    held.clear().await;
    held.include_it().await;
    let before = held.deletes().await;
    held.unskip().await;
    held.wait_back().await;
    let excluded = held.db.group(&held.id).await.unwrap().unwrap();
    assert!(excluded.is_leaving(), "{excluded:?}");
    let database = held.db.database().await.unwrap();
    assert!(database.volumes[held.uid.as_ref().unwrap()].drained, "its data is moved elsewhere");
    let slept = held.db.log().await.unwrap().passes.len();
    held.db.wait_for("needsShrink", SOON, |status| status.generations.contains_key("needsShrink")).await.unwrap();
    let again = async || Ok((held.db.log().await?.passes.len() > slept + 3).then_some(()));
    held.db.wait("pass after pass", SOON, again).await.unwrap();
    assert_eq!(held.deletes().await, before);
    held.db.patch(&json!({"spec": {"buggify": {"blockRemoval": []}}})).await.unwrap();
    removed_again(&held, before).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_higher_count_without_skip_is_filled_up() {
    let held = held_storage("fill", untimed()).await;
    held.db.patch(&json!({"spec": {"processCounts": {"storage": 4}, "processGroupsToRemove": []}})).await.unwrap();
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
    held.db.patch(&json!({"spec": {"processCounts": {"storage": 4}, "processGroupsToRemove": []}})).await.unwrap();
    held.db
        .edit_groups(|groups| {
            let stamp = groups.iter().find(|group| group.id == held.id).unwrap().exclusion_timestamp.clone();
            clear(groups, &held.id);
            groups.iter_mut().find(|group| group.id == held.id).unwrap().exclusion_timestamp = stamp;
        })
        .await
        .unwrap();
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
    held.db.patch(&json!({"spec": {"processCounts": {"storage": 4}, "processGroupsToRemove": []}})).await.unwrap();
    held.db
        .edit_groups(|groups| {
            let group = groups.iter_mut().find(|group| group.id == held.id).unwrap();
            (group.removal_timestamp, group.exclusion_timestamp) = (None, None);
        })
        .await
        .unwrap();
    held.include_it().await;
    held.unskip().await;
    held.wait_back().await;
    let types = |group: &Group| -> Vec<String> {
        group.process_group_conditions.iter().map(|condition| condition.type_.clone()).collect()
    };
    let both = async || {
        let group = held
            .db
            .group(&held.id)
            .await?
            .filter(|group| types(group) == [INCORRECT_POD_METADATA, RESOURCES_TERMINATING]);
        Ok(group)
    };
    held.db.wait("both conditions", SOON, both).await.unwrap();
    let passes = held.db.log().await.unwrap().passes.len();
    let again = async || Ok((held.db.log().await?.passes.len() > passes + 3).then_some(()));
    held.db.wait("pass after pass", SOON, again).await.unwrap();
    assert_eq!(held.db.group(&held.id).await.unwrap().map(|group| types(&group)).unwrap().len(), 2);
    held.db.edit_groups(|groups| clear(groups, &held.id)).await.unwrap();
    held.db.wait_reconciled(SOON).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_stays_excluded_is_replaced() {
    let held = held_storage("excluded", FdbOptions { failure_detection: Some(60), ..untimed() }).await;
    held.skip().await;
    held.db.patch(&json!({"spec": {"processCounts": {"storage": 4}, "processGroupsToRemove": []}})).await.unwrap();
    held.clear().await;
    let before = held.deletes().await;
    held.unskip().await;
    held.wait_back().await;
    let marked = async || {
        Ok(held
            .db
            .group(&held.id)
            .await?
            .filter(|group| group.since(MARKED_AS_EXCLUDED).is_some() && !group.is_marked()))
    };
    held.db.wait("condition", SOON, marked).await.unwrap();
    removed_again(&held, before).await;
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
    let world = fdb_common::world().await;
    let db = world.fdb("dangerous", untimed()).await.unwrap();
    let denier =
        testbed::fdb::denier::Denier::start(&world, db.namespace(), &["persistentvolumeclaims"]).await.unwrap();
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

#[tokio::test(flavor = "multi_thread")]
async fn without_its_service_a_recovery_deadlocks() {
    let options = FdbOptions { public_ip_source: "service".to_owned(), ..untimed() };
    let held = held_storage("deadlock", options).await;
    let db = &held.db;
    assert!(db.service(&held.id).await.unwrap().is_none());
    held.skip().await;
    db.patch(&json!({"spec": {"processCounts": {"storage": 4}, "processGroupsToRemove": []}})).await.unwrap();
    held.clear().await;
    held.include_it().await;
    held.unskip().await;
    let name = db.pod_name(&held.id);
    let stuck = async || {
        let passes = db.log().await?.passes;
        let failed = passes.iter().filter(|pass| pass.result.contains(&format!("Service \"{name}\" not found")));
        Ok((failed.count() >= 5).then(|| passes.last().cloned()).flatten())
    };
    db.wait("deadlock", SOON, stuck).await.unwrap();
    assert!(db.pod(&held.id).await.unwrap().is_none() && db.service(&held.id).await.unwrap().is_none());
    // Nothing else of the cluster gets any further, either.
    let other = db.ids("log").await.unwrap()[0].clone();
    let hub = held.world.hub().await.unwrap();
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(hub.clone(), db.namespace());
    pods.delete(&db.pod_name(&other), &DeleteParams::default()).await.unwrap();
    db.wait("end of another Pod", SOON, async || Ok(db.pod(&other).await?.is_none().then_some(()))).await.unwrap();
    tokio::time::sleep(IDLE).await;
    assert!(db.pod(&other).await.unwrap().is_none());
    // The cure: the Service by hand, as its siblings are.
    let sibling = db.service(&held.replacement).await.unwrap().unwrap();
    let swap = |text: String| text.replace(&held.replacement, &held.id);
    let labels = sibling.metadata.labels.unwrap().into_iter().map(|(key, value)| (key, swap(value))).collect();
    let mut spec = sibling.spec.unwrap();
    let selector = spec.selector.unwrap().into_iter().map(|(key, value)| (key, swap(value))).collect();
    (spec.cluster_ip, spec.cluster_ips, spec.selector) = (None, None, Some(selector));
    let metadata = ObjectMeta {
        name: Some(name),
        labels: Some(labels),
        owner_references: sibling.metadata.owner_references,
        ..ObjectMeta::default()
    };
    let services: Api<Service> = Api::namespaced(hub, db.namespace());
    services.create(&PostParams::default(), &Service { metadata, spec: Some(spec), status: None }).await.unwrap();
    held.wait_back().await;
    db.wait("the other Pod", SOON, async || db.pod(&other).await).await.unwrap();
    db.wait_reconciled(SOON).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn with_its_service_kept_a_recovery_is_clean() {
    let options = FdbOptions { public_ip_source: "service".to_owned(), ..untimed() };
    let held = held("kept", "storage", &["persistentvolumeclaims", "services"], options).await;
    let address = |service: Option<Service>| service.unwrap().spec.unwrap().cluster_ip.unwrap();
    let before = address(held.db.service(&held.id).await.unwrap());
    held.skip().await;
    held.db.patch(&json!({"spec": {"processCounts": {"storage": 4}, "processGroupsToRemove": []}})).await.unwrap();
    held.clear().await;
    held.include_it().await;
    held.unskip().await;
    held.wait_back().await;
    held.db.wait_reconciled(SOON).await.unwrap();
    assert_eq!(address(held.db.service(&held.id).await.unwrap()), before);
    assert_eq!(held.db.group(&held.id).await.unwrap().unwrap().addresses, [before]);
}

#[tokio::test(flavor = "multi_thread")]
async fn excluded_by_address_it_comes_back_with_another() {
    let held = held_storage("address", FdbOptions { localities: false, ..untimed() }).await;
    let address = held.db.group(&held.id).await.unwrap().unwrap().addresses[0].clone();
    assert_eq!(held.db.database().await.unwrap().exclusions, BTreeSet::from([address.clone()]));
    held.skip().await;
    held.db.patch(&json!({"spec": {"processCounts": {"storage": 4}, "processGroupsToRemove": []}})).await.unwrap();
    held.clear().await;
    held.unskip().await;
    held.wait_back().await;
    held.db.wait_reconciled(SOON).await.unwrap();
    let database = held.db.database().await.unwrap();
    assert!(!database.is_excluded(&held.id) && database.exclusions.contains(&address), "{database:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_group_leaves_its_old_address_behind() {
    let held = held("logs", "log", &["persistentvolumeclaims"], untimed()).await;
    let address = held.db.group(&held.id).await.unwrap().unwrap().addresses[0].clone();
    let database = held.db.database().await.unwrap();
    let both = BTreeSet::from([format!("locality_instance_id:{}", held.id), address.clone()]);
    assert_eq!(database.exclusions, both);
    assert!(
        !database.coordinators.contains(&held.id),
        "it was a coordinator, as all logs were: others were chosen first"
    );
    let log = held.db.log().await.unwrap();
    let chosen = log.commands.iter().filter(|command| command.text.starts_with("coordinators")).next_back().unwrap();
    let delete = &held.db.pvc_deletes(&held.id).await.unwrap()[0];
    assert!(chosen.at < delete.at && !chosen.text.contains(&held.id));
    held.skip().await;
    held.db.patch(&json!({"spec": {"processCounts": {"log": 4}, "processGroupsToRemove": []}})).await.unwrap();
    held.clear().await;
    held.include_it().await;
    held.unskip().await;
    held.wait_back().await;
    held.db.wait_reconciled(SOON).await.unwrap();
    let database = held.db.database().await.unwrap();
    assert_eq!((database.is_excluded(&held.id), database.exclusions), (false, BTreeSet::from([address])));
}

#[tokio::test(flavor = "multi_thread")]
async fn while_the_database_is_down_it_comes_back_but_is_marked() {
    let held = held_storage("down", untimed()).await;
    held.skip().await;
    held.list(&[]).await;
    held.clear().await;
    held.include_it().await;
    held.db.set_available(false).await.unwrap();
    let line = ["exec", &held.db.pod_name(&held.replacement), "-n", held.db.namespace(), "-c", "foundationdb", "--"];
    let line = [&line[..], &["fdbcli", "--timeout", "1", "--exec", "include all"]].concat();
    let ran = held.world.kubectl(&line).await.unwrap();
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{ran:?}");
    assert!(ran.stderr.contains("Specified timeout reached -- exiting..."), "{ran:?}");
    let minimal = fdbcli(&held.world, &held.db, &held.replacement, "status minimal").await;
    assert!(minimal.code == 0 && minimal.stdout.contains("The database is unavailable"), "{minimal:?}");
    let before = held.deletes().await;
    held.unskip().await;
    held.wait_back().await;
    let marked = async || Ok(held.db.group(&held.id).await?.filter(|group| group.is_marked() && !group.is_excluded()));
    held.db.wait("marked group", SOON, marked).await.unwrap();
    tokio::time::sleep(IDLE).await;
    assert_eq!(held.deletes().await, before, "nothing is removed as long as nothing can be excluded");
    held.db.set_available(true).await.unwrap();
    removed_again(&held, before).await;
}

/// Holds the operator just before it writes a status, edits the same status, and lets it go on.
async fn edit_meanwhile(name: &str, options: FdbOptions) -> (fdb_common::Held, bool) {
    let held = held_storage(name, options).await;
    let passes = held.db.log().await.unwrap().passes.len();
    held.db.hold(testbed::fdb::operator::pass::Point::Status).await.unwrap();
    held.db.remove(&[&held.replacement]).await.unwrap();
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(held.db.log().await.unwrap().passes.len(), passes, "held in the middle of its pass");
    let edit = |groups: &mut Vec<Group>| {
        groups.iter_mut().find(|group| group.id == held.id).unwrap().exclusion_skipped = true;
    };
    held.db.edit_groups(edit).await.unwrap();
    held.db.release().await.unwrap();
    let marked = async || Ok(held.db.group(&held.replacement).await?.filter(Group::is_marked));
    held.db.wait("the operator's own edit", SOON, marked).await.unwrap();
    let ours = held.db.group(&held.id).await.unwrap().unwrap().exclusion_skipped;
    (held, ours)
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edit_during_a_pass_is_kept_or_silently_lost() {
    let ((update, kept), (apply, lost)) =
        tokio::join!(edit_meanwhile("edit-update", untimed()), edit_meanwhile("edit-apply", applied()));
    assert!(kept && !lost);
    let conflicts = |log: testbed::fdb::database::Log| -> Vec<Option<f64>> {
        log.passes.iter().filter(|pass| pass.result.contains("has been modified")).map(|pass| pass.again).collect()
    };
    assert_eq!(conflicts(update.db.log().await.unwrap()), [Some(3.0)], "one 409, tried again after 60 s");
    assert!(conflicts(apply.db.log().await.unwrap()).is_empty());
    // The other way round, an edit that comes after the operator's write is refused in both modes.
    for held in [&update, &apply] {
        let old = held.db.get().await.unwrap().metadata.resource_version;
        held.db.patch(&json!({"metadata": {"labels": {"moved": "on"}}})).await.unwrap();
        let api = Api::<kube::api::DynamicObject>::namespaced_with(
            held.world.hub().await.unwrap(),
            held.db.namespace(),
            &testbed::fdb::resource(),
        );
        let late = json!({"metadata": {"resourceVersion": old}, "status": {"configured": false}});
        let late = kube::api::Patch::Merge(&late);
        let refused = api.patch_status(held.db.name(), &kube::api::PatchParams::default(), &late).await.unwrap_err();
        assert!(matches!(refused, kube::Error::Api(status) if status.is_conflict()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_side_apply_owns_the_status() {
    let held = held_storage("owner", applied()).await;
    let edit = |groups: &mut Vec<Group>| {
        groups.iter_mut().find(|group| group.id == held.id).unwrap().exclusion_skipped = true;
    };
    held.db.edit_groups(edit).await.unwrap();
    tokio::time::sleep(IDLE).await;
    assert!(held.db.group(&held.id).await.unwrap().unwrap().exclusion_skipped, "a sleeping operator reverts nothing");
    held.db.patch(&json!({"spec": {"processCounts": {"storage": 4}}})).await.unwrap();
    held.db
        .wait("filled up", SOON, async || Ok((held.db.ids("storage").await?.len() == 4).then_some(())))
        .await
        .unwrap();
    let owners: Vec<(String, String)> = held
        .db
        .get()
        .await
        .unwrap()
        .metadata
        .managed_fields
        .unwrap()
        .into_iter()
        .filter(|entry| entry.subresource.as_deref() == Some("status"))
        .map(|entry| (entry.manager.unwrap(), entry.operation.unwrap()))
        .collect();
    assert_eq!(owners, [("fdb-operator".to_owned(), "Apply".to_owned())]);
}
