//! What a record can do that is forged, of another Cluster, or ahead of our condition.

use http::Method;

use super::*;

/// A cluster that runs, is protected and paused by another client, and has this record.
fn forged(uid: &str, phase: &str) -> MemoryHub {
    let hub = seed();
    for number in 1..ALL {
        hub.remove(&cluster(number));
    }
    hub.edit(&cluster(0), |object| {
        object["metadata"]["annotations"] = json!({ shared::annotation::keys::PROTECTED: "true" });
        object["spec"]["pauseReason"] = json!("maintenance");
        object["status"]["conditions"] = json!({});
    });
    let text = json!({
        "v": 1, "uid": uid, "at": "2026-11-22T18:00:00Z", "phase": phase, "entered": "2026-11-22T18:00:00Z",
        "controlPlane": { "Deployment/apiserver": 9, "StatefulSet/etcd": 9 },
    });
    let requested = json!({ keys::POWER_STATE: "Hibernating", keys::POWER_STATE_AT: "2126-11-22T18:00:00Z" });
    hub.put(
        &record(0),
        json!({
            "metadata": { "name": keys::RECORD.0, "annotations": requested }, "data": { keys::RECORD.1: text.to_string() },
        }),
    );
    (0..WORKLOADS.len()).for_each(|at| {
        let (resource, name, count) = WORKLOADS[at];
        hub.edit(&workload(0, resource, name), |object| {
            object["spec"]["replicas"] = json!(count);
            object["status"] = json!({ "replicas": count, "readyReplicas": count, "observedGeneration": 9 });
        });
    });
    hub
}

fn condition(hub: &MemoryHub) -> Value {
    hub.get(&cluster(0))["status"]["conditions"][keys::DEHYDRATED].clone()
}

fn rest(hub: &MemoryHub) -> Vec<Value> {
    let paths = WORKLOADS.map(|(resource, name, _)| workload(0, resource, name)).into_iter().chain([record(0)]);
    let spec = |path: &str| hub.get(path)["spec"].clone();
    paths.map(|path| hub.get(&path)).chain([spec(&cluster(0))]).collect()
}

#[tokio::test(start_paused = true)]
async fn a_record_without_our_condition_changes_nothing_but_the_condition_until_it_is_deleted() {
    for (uid, reason) in [("0", "RecordUnconfirmed"), ("u-2", "RecordForeign")] {
        for phase in ["Draining", "ScalingDownControlPlane", "Dehydrated", "StartingControlPlane", "AwakePaused"] {
            let hub = forged(uid, phase);
            let before = rest(&hub);
            let work = start(&hub);
            sleep(Duration::from_mins(5)).await;
            let found = condition(&hub);
            assert_eq!(found["reason"], reason, "{phase}: {found}");
            assert!(found["message"].as_str().unwrap().contains("elete it"), "{found}");
            assert_eq!(rest(&hub), before, "{phase}");
            assert_eq!(hub.requests(|method, _| method != Method::GET && method != Method::PATCH), 0);
            assert_eq!(hub.patches(), 1, "the condition alone, and once");
            hub.remove(&record(0));
            sleep(Duration::from_mins(2)).await;
            assert_eq!((condition(&hub), &rest(&hub)[..3]), (Value::Null, &before[..3]), "{phase}");
            work.abort();
        }
    }
}

/// The record enters a phase before the condition does, and nothing of the phase is done until both are there: not
/// after a crash, a conflict or a failure between the two either.
#[tokio::test(start_paused = true)]
async fn nothing_of_a_phase_is_done_before_record_and_condition_name_it() {
    for (fails, recorded) in [("/status", Phase::StartingControlPlane), (keys::RECORD.0, Phase::Dehydrated)] {
        let hub = seed();
        (1..ALL).for_each(|number| drop(hub.remove(&cluster(number))));
        let work = start(&hub);
        sleep(Duration::from_secs(5)).await;
        hub.inject(move |method, path, _| (method == Method::PATCH && path.ends_with(fails)).then_some(500));
        hub.edit(&cluster(0), |object| object["metadata"]["annotations"][keys::POWER_STATE] = json!("Running"));
        sleep(Duration::from_mins(2)).await;
        assert_eq!(phase(&hub, 0).0, recorded, "{fails}");
        assert_eq!(condition(&hub)["reason"], "Dehydrated", "{fails}");
        assert_eq!(hub.get(&workload(0, "statefulsets", "etcd"))["spec"]["replicas"], 0);
        assert_eq!(hub.get(&cluster(0))["spec"]["pause"], true);
        hub.heal();
        sleep(Duration::from_mins(1)).await;
        assert_eq!(hub.get(&workload(0, "statefulsets", "etcd"))["spec"]["replicas"], 3, "{fails}");
        assert_eq!(hub.get(&cluster(0))["spec"]["pause"], false);
        work.abort();
    }
}

/// Whoever may write the `ConfigMaps` of the namespace cannot keep a cluster asleep. The request may stand on that very
/// record (row 27).
#[tokio::test(start_paused = true)]
async fn a_record_that_is_replaced_holds_up_no_wake() {
    let foreign = json!({
        "v": 1, "uid": "u-2", "at": "2026-11-22T18:00:00Z", "phase": "Draining", "entered": "2026-11-22T18:00:00Z",
        "controlPlane": { "StatefulSet/etcd": 9 },
    });
    for (text, reason, immutable, on_record) in [
        ("not JSON".to_owned(), "RecordUnreadable", false, false),
        (r#"{"v":2}"#.to_owned(), "RecordUnreadable", true, true),
        (foreign.to_string(), "RecordForeign", false, true),
        (foreign.to_string(), "RecordForeign", true, false),
    ] {
        let hub = seed();
        (1..ALL).for_each(|number| drop(hub.remove(&cluster(number))));
        for (resource, name, count) in WORKLOADS {
            hub.edit(&workload(0, resource, name), |object| {
                object["metadata"]["annotations"] = json!({ keys::DEHYDRATED_REPLICAS: count.to_string() });
            });
        }
        hub.put(
            &record(0),
            json!({ "metadata": { "name": keys::RECORD.0 }, "immutable": immutable, "data": { keys::RECORD.1: text } }),
        );
        let work = start(&hub);
        sleep(Duration::from_mins(2)).await;
        assert_eq!(condition(&hub)["reason"], reason, "the sleep is held");
        let running = json!({ keys::POWER_STATE: "Running", keys::POWER_STATE_AT: "2026-11-22T18:00:00Z" });
        let place = if on_record { record(0) } else { cluster(0) };
        hub.edit(&place, |object| json_patch::merge(&mut object["metadata"]["annotations"], &running));
        for _ in 0..60 {
            sleep(Duration::from_secs(3)).await;
            kkp(&hub, 0);
        }
        assert_eq!(hub.get(&workload(0, "statefulsets", "etcd"))["spec"]["replicas"], 3, "{reason}");
        assert_eq!(hub.get(&cluster(0))["spec"]["pause"], false, "{reason}");
        let rebuilt = hub.get(&record(0));
        let detail: Value = serde_json::from_str(rebuilt["data"][keys::RECORD.1].as_str().unwrap()).unwrap();
        assert_eq!((&detail["uid"], &detail["phase"]), (&json!("0"), &json!("WaitingForApi")), "{detail}");
        assert!(rebuilt["immutable"] != true, "{rebuilt}");
        assert!(hub.events().iter().any(|(event, note)| event == "RecordRebuilt" && note.contains(reason)));
        work.abort();
    }
}
