//! A hundred clusters of one seed on a paused clock, with a hub in memory: how many are at work at once, and what each
//! costs the seed.

mod claims;

use serde_json::{Value, json};
use shared::kkp::phase::Limited;
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::*;
use crate::runtime::clock;
use crate::runtime::testing::MemoryHub;

const CLUSTERS: &str = "/apis/kubermatic.k8c.io/v1/clusters/";
const ALL: usize = 100;
const WAKES: usize = 5;
/// How long a wake waits for the API server of a user cluster; here it never answers.
const API: Duration = Duration::from_mins(3);
/// Workloads of a control plane: resource, name, replicas.
const WORKLOADS: [(&str, &str, u64); 3] =
    [("deployments", "apiserver", 2), ("deployments", "scheduler", 1), ("statefulsets", "etcd", 3)];

fn cluster(number: usize) -> String {
    format!("{CLUSTERS}{number}")
}

fn record(number: usize) -> String {
    format!("/api/v1/namespaces/cluster-{number}/configmaps/{}", keys::RECORD.0)
}

fn workload(number: usize, resource: &str, name: &str) -> String {
    format!("/apis/apps/v1/namespaces/cluster-{number}/{resource}/{name}")
}

/// A seed whose clusters sleep.
fn seed() -> MemoryHub {
    let hub = MemoryHub::default();
    let now = clock::now().to_string();
    for number in 0..ALL {
        let condition = json!({
            "status": "True", "reason": "Dehydrated", "kubermaticVersion": "v", "lastHeartbeatTime": "2026-11-22T18:00:00Z",
        });
        hub.put(
            &cluster(number),
            json!({
                "apiVersion": "kubermatic.k8c.io/v1", "kind": "Cluster",
                "metadata": {
                    "name": number.to_string(), "uid": number.to_string(),
                    "annotations": { keys::POWER_STATE: "Hibernating", keys::PAUSED_BY_SLEEP: format!("{number}/{now}") },
                },
                "spec": { "humanReadableName": "a", "version": "1", "cloud": { "dc": "d", "providerName": "aws" }, "pause": true, "pauseReason": keys::PAUSED_BY_US },
                "status": { "phase": "Running", "conditions": { keys::DEHYDRATED: condition } },
            }),
        );
        let counts = json!({ "Deployment/apiserver": 2, "Deployment/scheduler": 1, "StatefulSet/etcd": 3 });
        let text = json!({ "v": 1, "uid": number.to_string(), "at": now, "phase": "Dehydrated", "entered": now, "controlPlane": counts });
        let data = json!({ keys::RECORD.1: text.to_string() });
        hub.put(&record(number), json!({ "metadata": { "name": keys::RECORD.0 }, "data": data }));
        for (resource, name, _) in WORKLOADS {
            let template = json!({ "replicas": 0, "selector": {}, "template": {}, "serviceName": name });
            let object = json!({ "metadata": { "name": name }, "spec": template, "status": { "replicas": 0 } });
            hub.put(&workload(number, resource, name), object);
        }
    }
    hub
}

fn start(hub: &MemoryHub) -> JoinHandle<()> {
    let mut limits = Limits::default();
    limits[Limited::Api] = API;
    let settings = KkpSettings { limits, sleeps: 10, wakes: WAKES, worker_name: String::new() };
    let kind = hub.term().watch().with(|handle| Kkp::new(handle, Network::default(), settings));
    tokio::spawn(kind.run_on(hub.watch::<Cluster>(CLUSTERS)))
}

/// KKP and the kubelets of the seed: what is not paused gets its counts, but not etcd (row 8), and everything becomes
/// ready.
fn kkp(hub: &MemoryHub, number: usize) {
    let paused = hub.get(&cluster(number))["spec"]["pause"] == true;
    for (resource, name, count) in WORKLOADS {
        let path = workload(number, resource, name);
        let object = hub.get(&path);
        let raised = !paused && name != "etcd";
        let wanted = if raised { count } else { object["spec"]["replicas"].as_u64().unwrap_or_default() };
        if object["status"]["readyReplicas"] != wanted {
            hub.edit(&path, |object| {
                object["spec"]["replicas"] = json!(wanted);
                object["status"] = json!({ "replicas": wanted, "readyReplicas": wanted, "observedGeneration": 9 });
            });
        }
    }
}

fn phase(hub: &MemoryHub, number: usize) -> (Phase, Timestamp) {
    let text = hub.get(&record(number))["data"][keys::RECORD.1].as_str().unwrap_or_default().to_owned();
    let record: Value = serde_json::from_str(&text).unwrap();
    let at = |key: &str| record[key].as_str().unwrap_or_default().to_owned();
    (at("phase").parse().unwrap(), at("entered").parse().unwrap())
}

#[test]
fn an_answer_stays_until_it_is_written() {
    let answer = Condition { status: "True".to_owned(), ..Condition::default() };
    let mut state = TargetState { answer: Some(("one".to_owned(), answer.clone())), ..TargetState::default() };
    for _ in 0..2 {
        assert_eq!(state.answer_to(Some("one")), Some(answer.clone()), "a read after it may have failed");
    }
    assert_eq!((state.answer_to(Some("two")), state.answer_to(Some("one"))), (None, None), "another request");
}

#[tokio::test(start_paused = true)]
async fn a_cluster_that_sleeps_costs_the_seed_four_reads_a_minute() {
    let hub = seed();
    (0..ALL).for_each(|number| kkp(&hub, number));
    let work = start(&hub);
    sleep(Duration::from_secs(90)).await;
    let (before, writes) = (hub.requests(|_, _| true), hub.patches());
    sleep(Duration::from_mins(10)).await;
    let calls = hub.requests(|_, _| true) - before;
    assert!((3_600..=4_400).contains(&calls), "{calls} calls for {ALL} clusters in 10 minutes");
    assert_eq!(hub.patches(), writes, "and no write");
    work.abort();
}

/// Killed every 10 s it sees no 15 s without a raised count by itself: since when there is none is on the record.
#[tokio::test(start_paused = true)]
async fn a_controller_that_is_killed_again_and_again_stops_etcd_all_the_same() {
    let hub = seed();
    (1..ALL).for_each(|number| drop(hub.remove(&cluster(number))));
    let etcd = workload(0, "statefulsets", "etcd");
    hub.edit(&cluster(0), |object| {
        object["status"]["conditions"][keys::DEHYDRATED]["reason"] = json!("ScalingDownControlPlane");
    });
    hub.edit(&etcd, |object| object["spec"]["replicas"] = json!(3));
    for number in 0..4 {
        let work = start(&hub);
        sleep(Duration::from_secs(10)).await;
        work.abort();
        assert!(number > 0 || hub.get(&etcd)["spec"]["replicas"] == 3, "not before the time");
    }
    assert_eq!(hub.get(&etcd)["spec"]["replicas"], 0);
    assert_eq!(hub.get(&etcd)["metadata"]["annotations"][keys::DEHYDRATED_REPLICAS], "3");
}

/// As by a policy of the seed, or where the controller's rights are too small.
#[tokio::test(start_paused = true)]
async fn a_write_to_the_control_plane_that_is_refused_has_one_event_in_the_words_of_the_api_server() {
    for code in [403, 409, 422] {
        let hub = seed();
        (1..ALL).for_each(|number| drop(hub.remove(&cluster(number))));
        hub.inject(move |method, path, _| (*method == "PATCH" && path.ends_with("/statefulsets/etcd")).then_some(code));
        let work = start(&hub);
        hub.edit(&cluster(0), |object| object["metadata"]["annotations"][keys::POWER_STATE] = json!("Running"));
        for _ in 0..120 {
            sleep(Duration::from_secs(5)).await;
            kkp(&hub, 0);
        }
        let events: Vec<_> = hub.events().into_iter().filter(|(reason, _)| reason == "WriteRefused").collect();
        assert_eq!(events.len(), 1, "{events:?}");
        let start = "cannot write StatefulSet cluster-0/etcd: the API server refused the write: ";
        assert!(events[0].1.starts_with(start), "{events:?}");
        let condition = hub.get(&cluster(0))["status"]["conditions"][keys::DEHYDRATED].clone();
        let message = condition["message"].as_str().unwrap_or_default();
        assert!(message.contains("; retried after an error: write StatefulSet cluster-0/etcd"), "{condition}");
        hub.heal();
        for _ in 0..120 {
            sleep(Duration::from_secs(5)).await;
            kkp(&hub, 0);
        }
        assert_eq!(hub.get(&workload(0, "statefulsets", "etcd"))["spec"]["replicas"], 3, "{code}");
        work.abort();
    }
}

/// As of a webhook that puts another word into each denial: the watch brings our own status back.
#[tokio::test(start_paused = true)]
async fn an_error_with_another_text_each_time_is_retried_no_faster() {
    let hub = seed();
    (1..ALL).for_each(|number| drop(hub.remove(&cluster(number))));
    let mut calls = 0_u32;
    hub.inject(move |method, path, _| {
        let is_etcd = *method == "PATCH" && path.ends_with("/statefulsets/etcd");
        calls += u32::from(is_etcd);
        // The clock of the test stands still while one reconcile follows the other at once.
        is_etcd.then_some(if calls < 1_000 && calls.is_multiple_of(2) { 500 } else { 503 })
    });
    let work = start(&hub);
    hub.edit(&cluster(0), |object| object["metadata"]["annotations"][keys::POWER_STATE] = json!("Running"));
    sleep(Duration::from_mins(4)).await;
    let passes = hub.requests(|method, path| *method == "GET" && path.ends_with(keys::RECORD.0));
    // Every 2 to 5 s, and after each message.
    assert!((40..=200).contains(&passes), "{passes}");
    work.abort();
}

#[tokio::test(start_paused = true)]
async fn five_of_a_hundred_wake_at_once_and_every_one_in_its_turn() {
    let hub = seed();
    (0..ALL).for_each(|number| kkp(&hub, number));
    let work = start(&hub);
    sleep(Duration::from_secs(5)).await;
    for number in 0..ALL {
        hub.edit(&cluster(number), |object| object["metadata"]["annotations"][keys::POWER_STATE] = json!("Running"));
    }
    let mut most = 0;
    for _ in 0..1_200 {
        sleep(Duration::from_secs(5)).await;
        (0..ALL).for_each(|number| kkp(&hub, number));
        let now = clock::now();
        let phases: Vec<_> = (0..ALL).map(|number| phase(&hub, number)).collect();
        let is_under_way = |(phase, entered): &&(Phase, Timestamp)| match phase {
            Phase::StartingControlPlane => true,
            Phase::WaitingForApi => Duration::try_from(now - *entered).is_ok_and(|lasted| lasted <= API),
            _ => false,
        };
        let under_way = phases.iter().filter(is_under_way).count();
        assert!(under_way <= WAKES, "{under_way} at once");
        most = most.max(under_way);
        if phases.iter().all(|(phase, _)| *phase == Phase::WaitingForApi) {
            break;
        }
    }
    assert_eq!(most, WAKES);
    for number in 0..ALL {
        let paused = hub.get(&cluster(number))["spec"]["pause"] == true;
        assert!(!paused && phase(&hub, number).0 == Phase::WaitingForApi, "{number}");
    }
    work.abort();
}
