//! The double of the FoundationDB operator does what the real one was seen to do: removing, being denied, being woken,
//! deleting (sections 1 to 3, 5 and 6 of docs/reference/fdb.md). What happens when a removal is undone is in
//! `fdb_recovery.rs`.

#![allow(clippy::unwrap_used, clippy::panic)] // a helper of a test is part of the test

use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::core::GroupVersionKind;
use serde_json::{Value, json};
use testbed::FdbOptions;
use testbed::fdb::common::{IDLE, SOON, applied, dropped, held, held_storage, services, uid, untimed, world};
use testbed::fdb::denier::MESSAGE;
use testbed::fdb::operator::api::{Condition, Group, RESOURCES_TERMINATING};

/// Section 1.
#[tokio::test(flavor = "multi_thread")]
async fn a_removal_without_a_webhook() {
    let db = world().await.fdb("removal", services()).await.unwrap();
    let before = db.ids("storage").await.unwrap();
    let id = before[0].clone();
    let name = db.pod_name(&id);
    db.remove(&[&id]).await.unwrap();
    let replaced = async || Ok(db.ids("storage").await?.into_iter().find(|id| !before.contains(id)));
    let replacement = db.wait("replacement", SOON, replaced).await.unwrap();
    // While the entry is there, the new generation counts as reconciled.
    db.wait_for("pending removal", SOON, |status| {
        let generation = |name: &str| status.generations.get(name).copied();
        generation("hasPendingRemoval").is_some() && generation("hasPendingRemoval") == generation("reconciled")
    })
    .await
    .unwrap();
    assert!(db.group(&id).await.unwrap().is_some());
    dropped(&db, &id).await;
    let log = db.log().await.unwrap();
    let sent: Vec<(&str, &str)> = log.deletes.iter().map(|d| (d.kind.as_str(), d.name.as_str())).collect();
    let claim = format!("{name}-data");
    assert_eq!(sent, [("Pod", name.as_str()), ("PersistentVolumeClaim", claim.as_str()), ("Service", name.as_str())]);
    assert!(log.deletes.iter().all(|delete| delete.pass == log.deletes[0].pass), "all in one pass");
    let results: Vec<&str> = log.passes.iter().map(|pass| pass.result.as_str()).collect();
    assert!(results.iter().any(|result| result.contains("last recovery was 0.0")), "{results:?}");
    assert!(
        results.iter().any(|result| result.contains("not allowed to remove process groups, waiting:")),
        "{results:?}"
    );
    // The entry is dropped, and the exclusion taken back, only 60 s after the removal, which is three here.
    let include = log.commands.iter().find(|command| command.text.starts_with("include")).unwrap();
    assert!(include.at - log.deletes[0].at >= 1.9, "{log:?}");
    assert!(db.database().await.unwrap().exclusions.is_empty());
    assert!(db.pvc(&id).await.unwrap().is_none() && db.service(&id).await.unwrap().is_none());
    assert!(db.service(&replacement).await.unwrap().is_some());
    let gone = db.database().await.unwrap().gone;
    assert!(gone.len() == 1 && gone[0].drained, "its data was moved first: {gone:?}");
}

/// Section 2: the suspended picture, and one timed retry.
async fn denied(name: &str, options: FdbOptions) {
    let held = held_storage(name, options).await;
    let db = &held.db;
    let group = db.group(&held.id).await.unwrap().unwrap();
    assert!(group.removal_timestamp.is_some() && group.exclusion_timestamp.is_some() && !group.exclusion_skipped);
    assert!(!group.addresses.is_empty() && !group.fault_domain.is_empty(), "{group:?}");
    let conditions: Vec<&str> = group.process_group_conditions.iter().map(|c| c.type_.as_str()).collect();
    assert_eq!(conditions, [RESOURCES_TERMINATING]);
    let (status, generation) = (db.status().await.unwrap(), db.get().await.unwrap().metadata.generation.unwrap());
    let both = ["reconciled", "hasPendingRemoval"].map(|name| (name.to_owned(), generation));
    assert_eq!(status.generations, both.into());
    assert_eq!(uid(db, &held.id).await, held.uid);
    assert!(db.pvc(&held.id).await.unwrap().unwrap().metadata.deletion_timestamp.is_none());
    assert!(db.service(&held.id).await.unwrap().is_none(), "nobody held the Service");
    assert!(db.database().await.unwrap().exclusions.contains(&format!("locality_instance_id:{}", held.id)));
    let deletes = db.pvc_deletes(&held.id).await.unwrap();
    assert!(deletes.iter().all(|delete| delete.error.as_ref().unwrap().contains(MESSAGE)), "{deletes:?}");
    let [first, second] = deletes.as_slice() else { unreachable!("not one retry: {deletes:?}") };
    assert!(second.at - first.at >= 1.9, "60 s later, which is three here, less the fraction of a second: {deletes:?}");
    let log = db.log().await.unwrap();
    assert_eq!(log.passes.last().unwrap().result, "Reconciliation complete");
    let text = format!("{:?}{:?}", status, db.get().await.unwrap().metadata.annotations);
    assert!(!text.contains(MESSAGE), "the error is only logged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_delete_leaves_the_volume_and_is_tried_once_more() {
    let applying = FdbOptions { settings: applied().settings, ..services() };
    tokio::join!(denied("denied", services()), denied("denied-apply", applying));
}

/// Section 2: without a wait there is no timed retry, but one DELETE per event.
async fn unwaited(name: &str, options: FdbOptions) {
    let held = held_storage(name, options).await;
    let deletes = held.db.pvc_deletes(&held.id).await.unwrap();
    assert!((2..=5).contains(&deletes.len()), "{deletes:?}");
    assert!(held.db.log().await.unwrap().passes.last().unwrap().again.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_wait_each_event_tries_again() {
    let all = FdbOptions { removal_mode: "All".to_owned(), ..FdbOptions::default() };
    tokio::join!(unwaited("unwaited", untimed()), unwaited("all", all));
}

/// Section 2: a cluster that is unreconciled for another reason repeats the DELETE, and each pass excludes again.
#[tokio::test(flavor = "multi_thread")]
async fn an_unreconciled_cluster_tries_again_and_again() {
    let held = held_storage("restless", untimed()).await;
    let other = held.db.ids("log").await.unwrap()[0].clone();
    let left = Condition { type_: RESOURCES_TERMINATING.to_owned(), timestamp: 0 };
    let edit = |groups: &mut Vec<Group>| {
        groups.iter_mut().find(|group| group.id == other).unwrap().process_group_conditions.push(left);
    };
    held.db.edit_groups(edit).await.unwrap();
    held.db.wake().await.unwrap();
    let before = held.deletes().await;
    let more = async || Ok((held.deletes().await >= before + 4).then_some(()));
    held.db.wait("DELETE after DELETE", SOON, more).await.unwrap();
    let log = held.db.log().await.unwrap();
    let excludes = log.commands.iter().filter(|command| command.text.contains(&held.id)).count();
    assert!(excludes >= 4, "{:?}", log.commands);
}

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

/// Section 2: a second group, while one is suspended.
#[tokio::test(flavor = "multi_thread")]
async fn a_second_group_waits_for_the_first() {
    let held = held_storage("second", FdbOptions::default()).await;
    let other = held.db.ids("log").await.unwrap()[0].clone();
    let before = held.deletes().await;
    held.db.remove(&[&other]).await.unwrap();
    held.db.wait_suspended(&other, SOON).await.unwrap();
    assert!(
        held.deletes().await > before && !held.db.pvc_deletes(&other).await.unwrap().is_empty(),
        "both get DELETEs"
    );
    let third = held.db.ids("storage").await.unwrap()[0].clone();
    held.db.remove(&[&third]).await.unwrap();
    held.db.wait_suspended(&third, SOON).await.unwrap();
    let at = async |id: &str| held.db.pvc_deletes(id).await.unwrap()[0].at;
    assert!(at(&third).await - at(&other).await >= 1.9, "a suspension younger than 60 s delays the next one");
}

/// Section 6: the cluster is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn deleting_the_cluster_takes_everything_once_it_may() {
    let world = world().await;
    let held = held_storage("deleted", untimed()).await;
    let ns = held.db.namespace();
    let hub = world.hub().await.unwrap();
    let api: Api<DynamicObject> = Api::namespaced_with(hub.clone(), ns, &testbed::fdb::resource());
    api.delete("deleted", &DeleteParams::foreground()).await.unwrap();
    let left = async || {
        let claims =
            Api::<PersistentVolumeClaim>::namespaced(hub.clone(), ns).list(&ListParams::default()).await?.items.len();
        let pods = Api::<Pod>::namespaced(hub.clone(), ns).list(&ListParams::default()).await?.items.len();
        let cluster = api.get_opt("deleted").await?.is_some();
        anyhow::Ok((claims, pods, cluster))
    };
    let only_claims = async || Ok((left().await? == (7, 0, false)).then_some(()));
    held.db.wait("claims alone", SOON, only_claims).await.unwrap();
    held.denier.deny(false);
    let nothing = async || Ok((left().await? == (0, 0, false)).then_some(()));
    held.db.wait("nothing", SOON, nothing).await.unwrap();
}

/// Section 6: the namespace is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn deleting_the_namespace_says_why_it_waits() {
    let world = world().await;
    let held = held("namespace", "log", &["persistentvolumeclaims"], untimed()).await;
    let namespaces: Api<Namespace> = Api::all(world.hub().await.unwrap());
    namespaces.delete(held.db.namespace(), &DeleteParams::default()).await.unwrap();
    let says = async || {
        let namespace = namespaces.get(held.db.namespace()).await?;
        let conditions = namespace.status.and_then(|status| status.conditions).unwrap_or_default();
        let failed =
            conditions.into_iter().find(|c| c.type_ == "NamespaceDeletionContentFailure" && c.status == "True");
        Ok(failed.filter(|condition| condition.message.as_ref().is_some_and(|message| message.contains(MESSAGE))))
    };
    held.db.wait("condition with the message", SOON, says).await.unwrap();
    held.denier.deny(false);
    let gone = async || Ok(namespaces.get_opt(held.db.namespace()).await?.is_none().then_some(()));
    held.db.wait("end of the namespace", Duration::from_secs(85), gone).await.unwrap();
}
