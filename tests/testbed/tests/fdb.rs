//! The double of the FoundationDB operator is as hard on a removal that is undone as the real one was seen to be
//! (docs/reference/fdb.md): no test of the product would notice a double that is kinder. What the product itself runs
//! into, the tests of the product show.

#![allow(clippy::unwrap_used, clippy::panic)] // a helper of a test is part of the test

use std::collections::BTreeSet;
use std::time::Duration;

use kube::Api;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use testbed::FdbOptions;
use testbed::denier::Denier;
use testbed::fdb::common::{
    Held, IDLE, SOON, applied, clear, dropped, fdbcli, held, held_storage, removed_again, uid, untimed, world,
};
use testbed::fdb::operator::api::{Group, RESOURCES_TERMINATING};

/// Section 2: what wakes a sleeping operator, and what does not.
#[tokio::test(flavor = "multi_thread")]
async fn what_wakes_and_what_does_not() {
    let held = held_storage("wakes", FdbOptions { public_ip_source: "service".to_owned(), ..untimed() }).await;
    let (db, hub) = (&held.db, held.world.hub().await.unwrap());
    let core = |kind: &str| -> Api<DynamicObject> {
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
        Api::namespaced_with(hub.clone(), db.namespace(), &kind)
    };
    let (claims, pods, services) = (core("PersistentVolumeClaim"), core("Pod"), core("Service"));
    let cluster: Api<DynamicObject> = Api::namespaced_with(hub.clone(), db.namespace(), &testbed::fdb::resource());
    let (claim, other) = (format!("{}-data", db.pod_name(&held.id)), db.pod_name(&held.replacement));
    let other_claim = format!("{other}-data");
    let annotation = json!({"metadata": {"annotations": {"example.com/poke": "1"}}});
    let label = json!({"metadata": {"labels": {"example.com/poke": "1"}}});
    let without = json!({"metadata": {"annotations": {"example.com/poke": null}}});
    let finalizers = |more: &[&str]| {
        let all = [&["kubernetes.io/pvc-protection"], more].concat();
        json!({"metadata": {"finalizers": all}})
    };
    let cases: [(&str, &Api<DynamicObject>, &str, &Value, usize); 12] = [
        ("annotation on the volume", &claims, &claim, &annotation, 1),
        ("annotation taken off the volume", &claims, &claim, &without, 1),
        ("label on the volume", &claims, &claim, &label, 1),
        ("annotation on the cluster", &cluster, "wakes", &annotation, 1),
        ("label on the cluster", &cluster, "wakes", &label, 1),
        ("the spec", &cluster, "wakes", &json!({"spec": {"version": "7.3.70"}}), 1),
        ("annotation on another volume", &claims, &other_claim, &annotation, 1),
        ("annotation on a Pod", &pods, &other, &annotation, 1),
        ("annotation on a Service", &services, &other, &annotation, 1),
        ("a finalizer of the volume", &claims, &claim, &finalizers(&["example.com/keep"]), 0),
        ("no finalizer of the volume", &claims, &claim, &finalizers(&[]), 0),
        ("the status of the cluster", &cluster, "wakes", &json!({"status": {"desiredProcessGroups": 7}}), 0),
    ];
    let params = PatchParams::default();
    for (what, api, name, patch, expected) in cases {
        let before = held.deletes().await;
        let merge = Patch::Merge(patch);
        let is_status = patch.get("status").is_some();
        let patched = if is_status {
            api.patch_status(name, &params, &merge).await
        } else {
            api.patch(name, &params, &merge).await
        };
        patched.unwrap();
        if expected > 0 {
            db.wait(what, SOON, async || Ok((held.deletes().await > before).then_some(()))).await.unwrap();
        }
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert_eq!(held.deletes().await - before, expected, "{what}");
    }
    // The webhook's change of mind is nothing that the operator could see.
    let before = held.deletes().await;
    held.denier.deny(false);
    tokio::time::sleep(IDLE).await;
    assert_eq!(held.deletes().await, before);
    // Section 3: allowed and woken, it is over in two passes.
    let poke = json!({"metadata": {"annotations": {"example.com/poke": "2"}}});
    claims.patch(&claim, &params, &Patch::Merge(&poke)).await.unwrap();
    dropped(db, &held.id).await;
    let last = db.pvc_deletes(&held.id).await.unwrap().into_iter().last().unwrap();
    assert_eq!((held.deletes().await, last.error), (before + 1, None));
    db.wait_reconciled(SOON).await.unwrap();
    assert!(db.database().await.unwrap().exclusions.is_empty());
}

/// All steps under skip, with a count that is one higher. These conditions are left in the group's entry.
async fn undo(held: &Held, class: &str, left: &[&str]) {
    held.skip().await;
    held.db.patch(&json!({"spec": {"processCounts": {class: 4}, "processGroupsToRemove": []}})).await.unwrap();
    let edit = |groups: &mut Vec<Group>| {
        let at = groups.iter().position(|group| group.id == held.id).unwrap();
        let mut conditions = groups[at].process_group_conditions.clone();
        conditions.retain(|condition| left.contains(&condition.type_.as_str()));
        clear(groups, &held.id);
        groups[at].process_group_conditions = conditions;
    };
    held.db.edit_groups(edit).await.unwrap();
    held.include_it().await;
    held.unskip().await;
    held.wait_back().await;
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
async fn a_left_condition_keeps_it_unreconciled() {
    let held = held_storage("condition", untimed()).await;
    undo(&held, "storage", &[RESOURCES_TERMINATING]).await;
    let passes = held.db.log().await.unwrap().passes.len();
    let again = async || Ok((held.db.log().await?.passes.len() > passes + 3).then_some(()));
    held.db.wait("pass after pass", SOON, again).await.unwrap();
    assert!(held.db.group(&held.id).await.unwrap().unwrap().since(RESOURCES_TERMINATING).is_some());
    held.db.edit_groups(|groups| clear(groups, &held.id)).await.unwrap();
    held.db.wait_reconciled(SOON).await.unwrap();
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
    let denier = Denier::of_deletes(&world, db.namespace(), &["persistentvolumeclaims"]).await.unwrap();
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
async fn a_log_group_leaves_its_old_address_behind() {
    let held = held("logs", "log", &["persistentvolumeclaims"], untimed()).await;
    let address = held.db.group(&held.id).await.unwrap().unwrap().addresses[0].clone();
    let database = held.db.database().await.unwrap();
    let both = BTreeSet::from([format!("locality_instance_id:{}", held.id), address.clone()]);
    assert_eq!(database.exclusions, both);
    undo(&held, "log", &[]).await;
    held.db.wait_reconciled(SOON).await.unwrap();
    let database = held.db.database().await.unwrap();
    assert_eq!((database.is_excluded(&held.id), database.exclusions), (false, BTreeSet::from([address])));
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
    let filled = async || Ok((held.db.ids("storage").await?.len() == 4).then_some(()));
    held.db.wait("filled up", SOON, filled).await.unwrap();
    let fields = held.db.get().await.unwrap().metadata.managed_fields.unwrap();
    let of_status = fields.into_iter().filter(|entry| entry.subresource.as_deref() == Some("status"));
    let owners: Vec<_> = of_status.map(|entry| (entry.manager.unwrap(), entry.operation.unwrap())).collect();
    assert_eq!(owners, [("fdb-operator".to_owned(), "Apply".to_owned())]);
}
