//! The double of the FoundationDB operator does what the real one was seen to do: bringing up, removing, being denied, being woken,
//! deleting. What happens when a removal is undone is in `testbed_fdb_recovery.rs`.

mod fdb_common;

use std::{collections::BTreeSet, time::Duration};

use fdb_common::{IDLE, SOON, fdbcli, held, held_storage, uid, untimed, world};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PersistentVolumeClaim, Pod, Service};
use kube::{
    Api,
    api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams, PropagationPolicy},
};
use serde_json::{Value, json};
use testbed::{
    FdbCluster, FdbOptions,
    fdb::{
        denier::{Denier, MESSAGE},
        operator::{api::RESOURCES_TERMINATING, pass::Point},
        options::{Runner, Settings, UpdateMode},
    },
};

fn services() -> FdbOptions {
    FdbOptions { public_ip_source: "service".to_owned(), ..FdbOptions::default() }
}

fn applied(options: FdbOptions) -> FdbOptions {
    FdbOptions { settings: Settings { update_mode: UpdateMode::Apply, ..options.settings.clone() }, ..options }
}

async fn dropped(db: &FdbCluster, id: &str) {
    let gone = async || Ok(db.group(id).await?.is_none().then_some(()));
    db.wait(&format!("end of {id}"), SOON, gone).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_comes_up() {
    let db = world().await.fdb("plain", FdbOptions::default()).await.unwrap();
    let mut markers = BTreeSet::new();
    for id in [db.ids("storage").await.unwrap(), db.ids("log").await.unwrap()].concat() {
        markers.insert(db.marker(&id).await.unwrap().unwrap());
        let claim = db.pvc(&id).await.unwrap().unwrap();
        let owner = &claim.metadata.owner_references.as_ref().unwrap()[0];
        assert_eq!(
            (owner.kind.as_str(), owner.controller, owner.block_owner_deletion),
            (testbed::fdb::KIND, Some(true), None)
        );
        assert_eq!(claim.metadata.labels.unwrap()["foundationdb.org/fdb-process-group-id"], id);
    }
    assert_eq!(markers.len(), 6);
    let stateless = db.ids("cluster_controller").await.unwrap();
    assert!(stateless.len() == 1 && db.pvc(&stateless[0]).await.unwrap().is_none());
    assert!(db.pod_name(&stateless[0]).starts_with("plain-cluster-controller-"));
    let zones: BTreeSet<String> = db.groups().await.unwrap().into_iter().map(|group| group.fault_domain).collect();
    assert_eq!(zones.len(), 3, "{zones:?}");
    // A Pod that is lost is made again, on its volume.
    let id = db.ids("storage").await.unwrap()[0].clone();
    let (volume, pod) = (uid(&db, &id).await, db.pod(&id).await.unwrap().unwrap().metadata.uid);
    let pods: Api<Pod> = Api::namespaced(world().await.hub().await.unwrap(), db.namespace());
    pods.delete(&db.pod_name(&id), &DeleteParams::default()).await.unwrap();
    let new = async || Ok(db.pod(&id).await?.filter(|new| new.metadata.uid != pod));
    db.wait("another Pod", SOON, new).await.unwrap();
    db.wait_reconciled(SOON).await.unwrap();
    assert_eq!(uid(&db, &id).await, volume);
}

#[tokio::test(flavor = "multi_thread")]
async fn prefixes_labels_and_classes_are_free() {
    let options = FdbOptions {
        prefix: Some("dc1-a".to_owned()),
        labels: json!({
            "matchLabels": {"team": "data"}, "resourceLabels": {"team": "data", "tier": "db"},
            "processGroupIDLabels": ["example.com/id"], "processClassLabels": ["example.com/class"],
        }),
        classes: [("transaction".to_owned(), 1), ("coordinator".to_owned(), 3)].into(),
        storage: 2,
        log: 1,
        ..untimed()
    };
    let db = world().await.fdb("free", options).await.unwrap();
    let id = db.ids("storage").await.unwrap()[0].clone();
    assert!(id.starts_with("dc1-a-storage-"), "{id}");
    let claim = db.pvc(&id).await.unwrap().unwrap();
    let labels = claim.metadata.labels.unwrap();
    let expected = [("team", "data"), ("tier", "db"), ("example.com/id", &id), ("example.com/class", "storage")];
    assert!(labels.len() == 4 && expected.iter().all(|(key, value)| labels[*key] == *value), "{labels:?}");
    assert_eq!(db.database().await.unwrap().coordinators, db.ids("coordinator").await.unwrap().into_iter().collect());
    db.remove(&[&id]).await.unwrap();
    dropped(&db, &id).await;
}

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
    assert!((1.9..4.5).contains(&(second.at - first.at)), "60 s later, which is three here: {deletes:?}");
    let log = db.log().await.unwrap();
    assert_eq!(log.passes.last().unwrap().result, "Reconciliation complete");
    let text = format!("{:?}{:?}", status, db.get().await.unwrap().metadata.annotations);
    assert!(!text.contains(MESSAGE), "the error is only logged");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denied_delete_leaves_the_volume_and_is_tried_once_more() {
    tokio::join!(denied("denied", services()), denied("denied-apply", applied(services())));
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
    held.db.patch(&json!({"spec": {"buggify": {"blockRemoval": [other]}}})).await.unwrap();
    held.db.remove(&[&other]).await.unwrap();
    let before = held.deletes().await;
    let more = async || Ok((held.deletes().await >= before + 4).then_some(()));
    held.db.wait("DELETE after DELETE", SOON, more).await.unwrap();
    let log = held.db.log().await.unwrap();
    let excludes = log.commands.iter().filter(|command| command.text.contains(&held.id)).count();
    assert!(excludes >= 4, "{:?}", log.commands);
    assert_eq!(held.db.pvc_deletes(&other).await.unwrap(), []);
}

/// Section 2: what wakes a sleeping operator, and what does not.
#[tokio::test(flavor = "multi_thread")]
async fn what_wakes_and_what_does_not() {
    let held = held_storage("wakes", FdbOptions { public_ip_source: "service".to_owned(), ..untimed() }).await;
    let (db, hub) = (&held.db, held.world.hub().await.unwrap());
    let claim = format!("{}-data", db.pod_name(&held.id));
    let other = db.pod_name(&held.replacement);
    let annotation = json!({"metadata": {"annotations": {"example.com/poke": "1"}}});
    let label = json!({"metadata": {"labels": {"example.com/poke": "1"}}});
    let without = json!({"metadata": {"annotations": {"example.com/poke": null}}});
    let cases: [(&str, &str, &str, &Value, usize); 13] = [
        ("annotation on the volume", "PersistentVolumeClaim", &claim, &annotation, 1),
        ("annotation taken off the volume", "PersistentVolumeClaim", &claim, &without, 1),
        ("label on the volume", "PersistentVolumeClaim", &claim, &label, 1),
        ("annotation on the cluster", "FoundationDBCluster", "wakes", &annotation, 1),
        ("label on the cluster", "FoundationDBCluster", "wakes", &label, 1),
        ("the spec", "FoundationDBCluster", "wakes", &json!({"spec": {"version": "7.3.70"}}), 1),
        ("annotation on another volume", "PersistentVolumeClaim", &format!("{other}-data"), &annotation, 1),
        ("annotation on a Pod", "Pod", &other, &annotation, 1),
        ("annotation on a Service", "Service", &other, &annotation, 1),
        ("annotation on the ConfigMap", "ConfigMap", "wakes-config", &annotation, 1),
        (
            "a finalizer of the volume",
            "PersistentVolumeClaim",
            &claim,
            &json!({"metadata": {"finalizers": [
            "kubernetes.io/pvc-protection", "example.com/keep"]}}),
            0,
        ),
        (
            "no finalizer of the volume",
            "PersistentVolumeClaim",
            &claim,
            &json!({"metadata": {"finalizers": [
            "kubernetes.io/pvc-protection"]}}),
            0,
        ),
        ("the status of the cluster", "status", "wakes", &json!({"status": {"desiredProcessGroups": 7}}), 0),
    ];
    for (what, kind, name, patch, expected) in cases {
        let before = held.deletes().await;
        let (params, patch) = (PatchParams::default(), Patch::Merge(patch));
        let clusters: Api<DynamicObject> = Api::namespaced_with(hub.clone(), db.namespace(), &testbed::fdb::resource());
        let ns = db.namespace();
        match kind {
            "PersistentVolumeClaim" => {
                let api: Api<PersistentVolumeClaim> = Api::namespaced(hub.clone(), ns);
                api.patch(name, &params, &patch).await.map(drop)
            }
            "Pod" => Api::<Pod>::namespaced(hub.clone(), ns).patch(name, &params, &patch).await.map(drop),
            "Service" => Api::<Service>::namespaced(hub.clone(), ns).patch(name, &params, &patch).await.map(drop),
            "ConfigMap" => Api::<ConfigMap>::namespaced(hub.clone(), ns).patch(name, &params, &patch).await.map(drop),
            "status" => clusters.patch_status(name, &params, &patch).await.map(drop),
            _ => clusters.patch(name, &params, &patch).await.map(drop),
        }
        .unwrap();
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
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(hub, db.namespace());
    claims.patch(&claim, &PatchParams::default(), &Patch::Merge(&poke)).await.unwrap();
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

/// Fdb.md, section 2: the modes of removal and what stops one.
#[tokio::test(flavor = "multi_thread")]
async fn removals_go_zone_by_zone_or_one_by_one_or_not_at_all() {
    let passes = async |name: &str, mode: &str| {
        let options =
            FdbOptions { storage: 6, removal_mode: mode.to_owned(), wait_between: Some(40), ..FdbOptions::default() };
        let db = world().await.fdb(name, options).await.unwrap();
        let groups = db.groups().await.unwrap().into_iter().filter(|group| group.process_class == "storage");
        let (mut zones, mut ids) = (std::collections::BTreeMap::<String, usize>::new(), Vec::new());
        for group in groups {
            // Two of one zone, one of each other.
            let taken = zones.entry(group.fault_domain.clone()).or_default();
            *taken += 1;
            if *taken == 1 || group.fault_domain == "fdb-node-0" {
                ids.push(group.id);
            }
        }
        assert_eq!(ids.len(), 4);
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        db.remove(&ids).await.unwrap();
        if mode == "None" {
            let excluded = async || {
                let marked = db.groups().await?.into_iter().filter(testbed::fdb::operator::api::Group::is_leaving);
                Ok((marked.count() == 4).then_some(()))
            };
            db.wait("exclusion", SOON, excluded).await.unwrap();
            tokio::time::sleep(IDLE).await;
            return (db.log().await.unwrap().deletes.len(), Vec::new());
        }
        for id in &ids {
            dropped(&db, id).await;
        }
        let mut sizes = std::collections::BTreeMap::<u64, usize>::new();
        for delete in db.log().await.unwrap().deletes.iter().filter(|delete| delete.kind == "Pod") {
            *sizes.entry(delete.pass).or_default() += 1;
        }
        (4, sizes.into_values().collect())
    };
    let (all, zone, group, none) = tokio::join!(
        passes("mode-all", "All"),
        passes("mode-zone", "Zone"),
        passes("mode-group", "ProcessGroup"),
        passes("mode-none", "None"),
    );
    assert_eq!(all.1, [4]);
    assert_eq!(zone.1, [2, 1, 1], "the largest zone first");
    assert_eq!(group.1, [1, 1, 1, 1]);
    assert_eq!(none.0, 0);
}

/// Fdb.md, section 2: an isolated Pod, a claim too many, a database that could not bear it.
#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_a_group_from_its_removal() {
    let world = world().await;
    let db = world.fdb("keeps", untimed()).await.unwrap();
    let hub = world.hub().await.unwrap();
    let ids = db.ids("storage").await.unwrap();
    let marked = async |id: &str| {
        let leaving = async || Ok(db.group(id).await?.filter(testbed::fdb::operator::api::Group::is_leaving));
        db.wait("exclusion", SOON, leaving).await.unwrap();
        tokio::time::sleep(IDLE).await;
    };
    db.turn(&json!({"faultTolerant": false})).await.unwrap();
    db.remove(&[&ids[0]]).await.unwrap();
    marked(&ids[0]).await;
    assert_eq!(db.log().await.unwrap().deletes, []);
    let pods: Api<Pod> = Api::namespaced(hub.clone(), db.namespace());
    let isolated =
        |is: Option<&str>| json!({"metadata": {"annotations": {"foundationdb.org/isolate-process-group": is}}});
    pods.patch(&db.pod_name(&ids[0]), &PatchParams::default(), &Patch::Merge(&isolated(Some("true")))).await.unwrap();
    db.turn(&json!({"faultTolerant": true})).await.unwrap();
    tokio::time::sleep(IDLE).await;
    assert_eq!(db.log().await.unwrap().deletes, []);
    // A second claim with the same ID.
    let claims: Api<PersistentVolumeClaim> = Api::namespaced(hub, db.namespace());
    let mut twin = db.pvc(&ids[0]).await.unwrap().unwrap();
    twin.metadata = kube::api::ObjectMeta {
        name: Some("twin".to_owned()),
        labels: twin.metadata.labels,
        owner_references: twin.metadata.owner_references,
        ..kube::api::ObjectMeta::default()
    };
    twin.status = None;
    claims.create(&PostParams::default(), &twin).await.unwrap();
    pods.patch(&db.pod_name(&ids[0]), &PatchParams::default(), &Patch::Merge(&isolated(None))).await.unwrap();
    let pod = db.pod_name(&ids[0]);
    db.wait("DELETE of the Pod", SOON, async || Ok(db.deletes("Pod", &pod).await?.pop())).await.unwrap();
    tokio::time::sleep(IDLE).await;
    assert_eq!(db.pvc_deletes(&ids[0]).await.unwrap(), [], "of two claims it deletes neither");
    claims.delete("twin", &DeleteParams::default()).await.unwrap();
    dropped(&db, &ids[0]).await;
}

/// What the feature is for: the operator removes a group with the only copy of its data.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_gone_wrong_loses_data() {
    let options = FdbOptions { settings: Settings { wrong: true, ..Settings::fast() }, ..untimed() };
    let db = world().await.fdb("wrong", options).await.unwrap();
    let id = db.ids("storage").await.unwrap()[0].clone();
    let marker = db.marker(&id).await.unwrap().unwrap();
    db.remove(&[&id]).await.unwrap();
    dropped(&db, &id).await;
    let database = db.database().await.unwrap();
    assert!(database.gone.iter().any(|volume| volume.marker == marker && !volume.drained), "{:?}", database.gone);
    assert!(db.log().await.unwrap().commands.iter().all(|command| !command.text.contains(&id)), "never excluded");
}

/// The volume stays as long as its Pod, as everywhere.
#[tokio::test(flavor = "multi_thread")]
async fn a_volume_in_use_outlives_its_delete() {
    let settings = Settings { terminate_delay: testbed::delay::Delay::secs(2), ..Settings::fast() };
    let db = world().await.fdb("in-use", FdbOptions { settings, ..untimed() }).await.unwrap();
    let id = db.ids("storage").await.unwrap()[0].clone();
    db.remove(&[&id]).await.unwrap();
    let terminating = async || Ok(db.pvc(&id).await?.filter(|claim| claim.metadata.deletion_timestamp.is_some()));
    db.wait("terminating claim", SOON, terminating).await.unwrap();
    assert!(db.pod(&id).await.unwrap().unwrap().metadata.deletion_timestamp.is_some());
    dropped(&db, &id).await;
    assert!(db.pvc(&id).await.unwrap().is_none());
}

/// Fdb.md, section 5: a claim without an entry is a group, and a new one.
#[tokio::test(flavor = "multi_thread")]
async fn an_orphaned_volume_becomes_a_group() {
    let held = held_storage("orphan", untimed()).await;
    held.skip().await;
    held.db.patch(&json!({"spec": {"processCounts": {"storage": 4}, "processGroupsToRemove": []}})).await.unwrap();
    held.include_it().await;
    held.db.edit_groups(|groups| groups.retain(|group| group.id != held.id)).await.unwrap();
    held.unskip().await;
    held.wait_back().await;
    assert!(!held.db.group(&held.id).await.unwrap().unwrap().is_marked());
    held.db.wait_reconciled(SOON).await.unwrap();
}

/// Services of their own go when Pods get addresses of their own.
#[tokio::test(flavor = "multi_thread")]
async fn services_go_with_their_reason() {
    let db = world().await.fdb("reason", services()).await.unwrap();
    let id = db.ids("storage").await.unwrap()[0].clone();
    assert!(db.service(&id).await.unwrap().is_some());
    db.patch(&json!({"spec": {"routing": {"publicIPSource": "pod"}}})).await.unwrap();
    db.wait_reconciled(SOON).await.unwrap();
    assert!(db.service(&id).await.unwrap().is_none());
}

/// Not tested on the real one: the operator dies, freezes or is started again in the middle of a removal.
#[tokio::test(flavor = "multi_thread")]
async fn an_operator_that_dies_goes_on_where_it_was() {
    let world = world().await;
    for (name, runner) in [("dies", Runner::Task), ("dies-program", Runner::Program)] {
        let db = world.fdb(name, FdbOptions { runner, ..untimed() }).await.unwrap();
        let id = db.ids("storage").await.unwrap()[0].clone();
        db.hold(Point::Claim).await.unwrap();
        db.remove(&[&id]).await.unwrap();
        let pod = db.pod_name(&id);
        db.wait("DELETE of the Pod", SOON, async || Ok(db.deletes("Pod", &pod).await?.pop())).await.unwrap();
        db.kill_operator().await.unwrap();
        db.release().await.unwrap();
        db.wait("end of the Pod", SOON, async || Ok(db.pod(&id).await?.is_none().then_some(()))).await.unwrap();
        tokio::time::sleep(IDLE).await;
        assert_eq!(db.pvc_deletes(&id).await.unwrap(), []);
        assert!(db.database().await.unwrap().exclusions.len() == 1, "the database outlives its operator");
        db.restart_operator().await.unwrap();
        dropped(&db, &id).await;
        if runner == Runner::Program {
            world.signal(&db.info().process(), "freeze").await.unwrap();
            db.wake().await.unwrap();
            let passes = db.log().await.unwrap().passes.len();
            tokio::time::sleep(IDLE).await;
            assert_eq!(db.log().await.unwrap().passes.len(), passes);
            world.signal(&db.info().process(), "thaw").await.unwrap();
            let again = async || Ok((db.log().await?.passes.len() > passes).then_some(()));
            db.wait("a pass after the thaw", SOON, again).await.unwrap();
        }
    }
}

/// fdbcli by a real exec, in both of the protocols.
#[tokio::test(flavor = "multi_thread")]
async fn fdbcli_answers_through_the_api_server() {
    let world = world().await;
    let db = world.fdb("exec", untimed()).await.unwrap();
    let id = db.ids("storage").await.unwrap()[0].clone();
    let minimal = fdbcli(&world, &db, &id, "status minimal").await;
    assert_eq!((minimal.code, minimal.stdout.as_str()), (0, "The database is available.\n"), "{minimal:?}");
    let locality = format!("locality_instance_id:{id}");
    let excluded = fdbcli(&world, &db, &id, &format!("exclude {locality}")).await;
    assert!(excluded.stdout.contains("Successfully excluded"), "{excluded:?}");
    let json: Value = serde_json::from_str(&fdbcli(&world, &db, &id, "status json").await.ok().unwrap()).unwrap();
    let processes = json["cluster"]["processes"].as_object().unwrap();
    let ours = processes.values().find(|process| process["locality"]["instance_id"] == id).unwrap();
    assert!(processes.len() == 7 && ours["excluded"] == true, "{json}");
    let mut spdy = world.command("kubectl");
    let line = format!("fdbcli --exec 'include {locality}; status minimal'");
    spdy.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false").args(["exec", &db.pod_name(&id), "-n", db.namespace()]);
    spdy.args(["-c", "foundationdb", "--", "bash", "-c", &line]);
    let spdy = world.run(spdy).await.unwrap();
    assert_eq!((spdy.code, spdy.stdout.as_str()), (0, "The database is available.\n"), "{spdy:?}");
    assert!(!db.database().await.unwrap().is_excluded(&id));
    let wrong = fdbcli(&world, &db, &id, "include storage-1").await;
    assert!(wrong.code == 1 && wrong.stdout.contains("neither a valid network endpoint"), "{wrong:?}");
    let other = ["exec", &db.pod_name(&id), "-n", db.namespace(), "-c", "foundationdb", "--", "ls"];
    assert_eq!(world.kubectl(&other).await.unwrap().code, 127);
    let commands = db.log().await.unwrap().commands;
    let by_hand: Vec<&str> = commands.iter().filter(|c| c.by == db.pod_name(&id)).map(|c| c.text.as_str()).collect();
    assert_eq!(by_hand.len(), 6, "{by_hand:?}");
}

/// Section 6: the cluster is deleted.
#[tokio::test(flavor = "multi_thread")]
async fn deleting_the_cluster_takes_everything_once_it_may() {
    let world = world().await;
    let held = held_storage("deleted", untimed()).await;
    let ns = held.db.namespace();
    let hub = world.hub().await.unwrap();
    let api: Api<DynamicObject> = Api::namespaced_with(hub.clone(), ns, &testbed::fdb::resource());
    let foreground =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..DeleteParams::default() };
    api.delete("deleted", &foreground).await.unwrap();
    let left = async || {
        let claims =
            Api::<PersistentVolumeClaim>::namespaced(hub.clone(), ns).list(&Default::default()).await?.items.len();
        let pods = Api::<Pod>::namespaced(hub.clone(), ns).list(&Default::default()).await?.items.len();
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

/// What holds volumes here is itself a test's part.
#[tokio::test(flavor = "multi_thread")]
async fn the_denier_denies_its_own_namespace_only() {
    let world = world().await;
    let options =
        || FdbOptions { storage: 1, log: 0, cluster_controller: 0, runner: Runner::Nobody, ..FdbOptions::default() };
    let (one, two) = (world.fdb("one", options()).await.unwrap(), world.fdb("two", options()).await.unwrap());
    let _denier = Denier::start(&world, one.namespace(), &["persistentvolumeclaims"]).await.unwrap();
    let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
    let claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "x"}, "spec": spec});
    for (db, denied) in [(&one, true), (&two, false)] {
        let api: Api<PersistentVolumeClaim> = Api::namespaced(world.hub().await.unwrap(), db.namespace());
        api.create(&PostParams::default(), &serde_json::from_value(claim.clone()).unwrap()).await.unwrap();
        assert_eq!(api.delete("x", &DeleteParams::default()).await.is_err(), denied);
    }
}
