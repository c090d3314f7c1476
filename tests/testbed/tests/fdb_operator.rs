//! The double of the FoundationDB operator as a whole: databases of every shape, modes of removal, what stops one, an
//! operator that dies or goes wrong, and fdbcli. Sections are those of docs/reference/fdb.md.

#![allow(clippy::unwrap_used, clippy::panic)] // a helper of a test is part of the test

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::Api;
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use testbed::FdbOptions;
use testbed::delay::Delay;
use testbed::fdb::common::{IDLE, SOON, dropped, fdbcli, held_storage, services, uid, untimed, world};
use testbed::fdb::denier::Denier;
use testbed::fdb::operator::api::Group;
use testbed::fdb::operator::pass::Point;
use testbed::fdb::options::{Runner, Settings};

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

/// Section 7: the modes of removal and what stops one.
#[tokio::test(flavor = "multi_thread")]
async fn removals_go_zone_by_zone_or_one_by_one_or_not_at_all() {
    let passes = async |name: &str, mode: &str| {
        let options =
            FdbOptions { storage: 6, removal_mode: mode.to_owned(), wait_between: Some(40), ..FdbOptions::default() };
        let db = world().await.fdb(name, options).await.unwrap();
        let groups = db.groups().await.unwrap().into_iter().filter(|group| group.process_class == "storage");
        let (mut zones, mut ids) = (BTreeMap::<String, usize>::new(), Vec::new());
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
                let marked = db.groups().await?.into_iter().filter(Group::is_leaving);
                Ok((marked.count() == 4).then_some(()))
            };
            db.wait("exclusion", SOON, excluded).await.unwrap();
            tokio::time::sleep(IDLE).await;
            return (db.log().await.unwrap().deletes.len(), Vec::new());
        }
        for id in &ids {
            dropped(&db, id).await;
        }
        let mut sizes = BTreeMap::<u64, usize>::new();
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

/// Section 7: an isolated Pod, a claim too many, a database that could not bear it.
#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_a_group_from_its_removal() {
    let world = world().await;
    let db = world.fdb("keeps", untimed()).await.unwrap();
    let hub = world.hub().await.unwrap();
    let ids = db.ids("storage").await.unwrap();
    let marked = async |id: &str| {
        let leaving = async || Ok(db.group(id).await?.filter(Group::is_leaving));
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
    twin.metadata = ObjectMeta {
        name: Some("twin".to_owned()),
        labels: twin.metadata.labels,
        owner_references: twin.metadata.owner_references,
        ..ObjectMeta::default()
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
    let settings = Settings { terminate_delay: Delay::secs(2), ..Settings::fast() };
    let db = world().await.fdb("in-use", FdbOptions { settings, ..untimed() }).await.unwrap();
    let id = db.ids("storage").await.unwrap()[0].clone();
    db.remove(&[&id]).await.unwrap();
    let terminating = async || Ok(db.pvc(&id).await?.filter(|claim| claim.metadata.deletion_timestamp.is_some()));
    db.wait("terminating claim", SOON, terminating).await.unwrap();
    assert!(db.pod(&id).await.unwrap().unwrap().metadata.deletion_timestamp.is_some());
    dropped(&db, &id).await;
    assert!(db.pvc(&id).await.unwrap().is_none());
}

/// Section 7: a claim without an entry is a group, and a new one.
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

/// Services of their own stay when Pods get addresses of their own.
#[tokio::test(flavor = "multi_thread")]
async fn services_outlive_their_reason() {
    let db = world().await.fdb("reason", services()).await.unwrap();
    let id = db.ids("storage").await.unwrap()[0].clone();
    assert!(db.service(&id).await.unwrap().is_some());
    db.patch(&json!({"spec": {"routing": {"publicIPSource": "pod"}}})).await.unwrap();
    db.wait_reconciled(SOON).await.unwrap();
    tokio::time::sleep(IDLE).await;
    assert!(db.service(&id).await.unwrap().is_some());
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
        db.wait_held(Point::Claim, SOON).await.unwrap();
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
