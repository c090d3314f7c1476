//! Suspensions on a paused clock, with a hub in memory: hours pass in milliseconds, and the controller is killed after
//! every write.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use shared::fdb::api::FoundationDBCluster;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::runtime::testing::MemoryHub;

const CLUSTERS: &str = "/apis/apps.foundationdb.org/v1beta2/namespaces/db/foundationdbclusters/";
const CLUSTER: &str = "/apis/apps.foundationdb.org/v1beta2/namespaces/db/foundationdbclusters/prod";
const VOLUMES: &str = "/api/v1/namespaces/db/persistentvolumeclaims";
const SERVICES: &str = "/api/v1/namespaces/db/services";
const MINIMUM: Duration = Duration::from_hours(1);

/// A cluster with one removed process group, whose Pod is gone.
fn database() -> MemoryHub {
    let hub = MemoryHub::default();
    let removed = (clock::now() - jiff::SignedDuration::from_mins(5)).to_string();
    hub.put(
        CLUSTER,
        json!({
            "apiVersion": "apps.foundationdb.org/v1beta2", "kind": "FoundationDBCluster",
            "metadata": {"name": "prod", "namespace": "db", "uid": "u1", "generation": 1},
            "spec": {"version": "7.3.69", "routing": {"publicIPSource": "service"}},
            "status": {"processGroups": [{
                "processGroupID": "storage-1", "processClass": "storage", "removalTimestamp": removed,
                "exclusionTimestamp": removed, "addresses": ["10.0.0.1"], "faultDomain": "z1",
            }]},
        }),
    );
    for (collection, name) in objects() {
        let object = json!({"metadata": {
            "name": name, "namespace": "db", "uid": name,
            "labels": {"foundationdb.org/fdb-process-group-id": "storage-1", "foundationdb.org/fdb-cluster-name": "prod"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "FoundationDBCluster", "name": "prod", "uid": "u1"}],
        }});
        hub.put(&format!("{collection}/{name}"), object);
    }
    hub
}

fn objects() -> [(&'static str, &'static str); 3] {
    [(VOLUMES, "storage-1-data"), (VOLUMES, "storage-1-log"), (SERVICES, "storage-1")]
}

/// A controller, as a new process has it.
fn start(hub: &MemoryHub) -> JoinHandle<()> {
    let kind = hub.term().watch().with(|handle| Fdb::new(handle, MINIMUM));
    tokio::spawn(kind.run_on(hub.watch::<FoundationDBCluster>(CLUSTERS)))
}

/// An annotation of every object.
fn annotations(hub: &MemoryHub, key: &str) -> Vec<Option<String>> {
    let read = |(collection, name)| {
        let object: Value = hub.get(&format!("{collection}/{name}"));
        object["metadata"]["annotations"][key].as_str().map(str::to_owned)
    };
    objects().map(read).to_vec()
}

fn lists(hub: &MemoryHub) -> usize {
    hub.requests(|method, path| *method == http::Method::GET && path == VOLUMES)
}

#[tokio::test(start_paused = true)]
async fn what_is_held_is_listed_once_a_minute_and_no_more_than_twice_a_second() {
    let hub = database();
    let work = start(&hub);
    sleep(Duration::from_mins(30)).await;
    let quiet = lists(&hub);
    assert!((30..=34).contains(&quiet), "{quiet} lists in 30 minutes");
    let way_out = ". To recover a group: kubectl hibernate recover process-groups -n db -c prod ID";
    let is_told = |(reason, note): &(String, String)| reason == "Suspended" && note.ends_with(way_out);
    assert!(hub.events().iter().any(is_told), "{:?}", hub.events());
    for beat in 0..100 {
        hub.edit(CLUSTER, |cluster| cluster["status"]["generations"] = json!({"reconciled": beat}));
        sleep(Duration::from_millis(50)).await;
    }
    let busy = lists(&hub) - quiet;
    assert!((8..=12).contains(&busy), "{busy} lists in 5 seconds of 100 status writes");
    work.abort();
}

/// Until it is released, with a kill after the `point`-th write: what the dying process still asks for is not answered.
/// Answers how many writes there were.
async fn release(point: usize) -> usize {
    let hub = database();
    let (written, killed) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (count, dead) = (written.clone(), killed.clone());
    hub.inject(move |method, path, _| {
        if count.load(Ordering::Relaxed) >= point && !dead.load(Ordering::Relaxed) {
            return Some(503);
        }
        let writes = *method == http::Method::PATCH && path.starts_with("/api/v1/");
        count.fetch_add(usize::from(writes), Ordering::Relaxed);
        None
    });
    let mut work = start(&hub);
    let mut since = vec![];
    for second in 0..3 * 3_600 {
        sleep(Duration::from_secs(1)).await;
        if written.load(Ordering::Relaxed) >= point && !killed.swap(true, Ordering::Relaxed) {
            work.abort();
            work = start(&hub);
        }
        let (stamped, released) = (annotations(&hub, keys::SUSPENDED_AT), annotations(&hub, keys::RELEASED_AT));
        if since.is_empty() && stamped.iter().all(Option::is_some) {
            since = stamped;
        } else if !since.is_empty() {
            assert_eq!(stamped, since, "a stamp keeps its time, killed after {point}");
        }
        if released.iter().any(Option::is_some) {
            assert!(second >= 3_599, "released after {second} s, killed after {point}");
        }
        if released.iter().all(Option::is_some) {
            break;
        }
    }
    sleep(Duration::from_secs(5)).await;
    assert!(annotations(&hub, keys::RELEASED_AT).iter().all(Option::is_some), "released, killed after {point}");
    work.abort();
    written.load(Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn killed_after_any_write_a_group_is_stamped_once_and_released_once() {
    let undisturbed = release(usize::MAX).await;
    assert_eq!(undisturbed, 6, "three stamps, three releases");
    for point in 1..=6 {
        assert_eq!(release(point).await, undisturbed, "killed after write {point}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_stamp_is_told_and_tried_again_and_nothing_is_released() {
    let hub = database();
    hub.inject(|method, path, _| (*method == http::Method::PATCH && path.starts_with("/api/v1/")).then_some(422));
    let work = start(&hub);
    sleep(Duration::from_mins(10)).await;
    assert!(hub.events().iter().any(|(reason, _)| reason == "WriteRefused"), "{:?}", hub.events());
    let tries = hub.patches();
    assert!(tries <= 3 * 10, "{tries} tries in 10 minutes");
    hub.heal();
    sleep(Duration::from_mins(6)).await;
    assert!(annotations(&hub, keys::SUSPENDED_AT).iter().all(Option::is_some));
    assert!(annotations(&hub, keys::RELEASED_AT).iter().all(Option::is_none));
    work.abort();
}
