//! The double of the FoundationDB operator in the special cases of a recovery, and when two write at once (the rest of
//! section 4, and section 5, of docs/reference/fdb.md).

#![allow(clippy::unwrap_used, clippy::panic)] // a helper of a test is part of the test

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::Api;
use kube::api::{DeleteParams, DynamicObject, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::json;
use testbed::FdbOptions;
use testbed::fdb::common::{Held, IDLE, SOON, applied, held, held_storage, removed_again, services, untimed};
use testbed::fdb::database::Log;
use testbed::fdb::operator::api::Group;
use testbed::fdb::operator::pass::Point;

use crate::fdb_recovery::{raise, undo};

#[tokio::test(flavor = "multi_thread")]
async fn without_its_service_a_recovery_deadlocks() {
    let options = FdbOptions { wait_between: Some(0), ..services() };
    let held = held_storage("deadlock", options).await;
    let db = &held.db;
    assert!(db.service(&held.id).await.unwrap().is_none());
    undo(&held, "storage").await;
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
    let pods: Api<Pod> = Api::namespaced(hub.clone(), db.namespace());
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
    let options = FdbOptions { wait_between: Some(0), ..services() };
    let held = held("kept", "storage", &["persistentvolumeclaims", "services"], options).await;
    let address = |service: Option<Service>| service.unwrap().spec.unwrap().cluster_ip.unwrap();
    let before = address(held.db.service(&held.id).await.unwrap());
    undo(&held, "storage").await;
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
    raise(&held, "storage").await;
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
    undo(&held, "log").await;
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
    let line = [&line[..], &["fdbcli", "--timeout", "1", "--exec", "include 10.128.0.1"]].concat();
    let ran = held.world.kubectl(&line).await.unwrap();
    assert_eq!((ran.code, ran.stdout.as_str()), (1, ""), "{ran:?}");
    assert!(ran.stderr.contains("Specified timeout reached -- exiting..."), "{ran:?}");
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
async fn edit_meanwhile(name: &str, options: FdbOptions) -> (Held, bool) {
    let held = held_storage(name, options).await;
    held.db.hold(Point::Status).await.unwrap();
    held.db.remove(&[&held.replacement]).await.unwrap();
    held.db.wait_held(Point::Status, SOON).await.unwrap();
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
    let conflicts = |log: Log| -> Vec<Option<f64>> {
        log.passes.iter().filter(|pass| pass.result.contains("has been modified")).map(|pass| pass.again).collect()
    };
    assert_eq!(conflicts(update.db.log().await.unwrap()), [Some(3.0)], "one 409, tried again after 60 s");
    assert!(conflicts(apply.db.log().await.unwrap()).is_empty());
    // The other way round, an edit that comes after the operator's write is refused in both modes.
    for held in [&update, &apply] {
        let old = held.db.get().await.unwrap().metadata.resource_version;
        held.db.patch(&json!({"metadata": {"labels": {"moved": "on"}}})).await.unwrap();
        let api = Api::<DynamicObject>::namespaced_with(
            held.world.hub().await.unwrap(),
            held.db.namespace(),
            &testbed::fdb::resource(),
        );
        let late = json!({"metadata": {"resourceVersion": old}, "status": {"configured": false}});
        let late = Patch::Merge(&late);
        let refused = api.patch_status(held.db.name(), &PatchParams::default(), &late).await.unwrap_err();
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
