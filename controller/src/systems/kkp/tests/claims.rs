//! What a record can do that is replaced, or ahead of our condition.

use http::Method;

use super::*;

fn condition(hub: &MemoryHub) -> Value {
    hub.get(&cluster(0))["status"]["conditions"][keys::DEHYDRATED].clone()
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

/// Whoever may write the `ConfigMaps` of the namespace cannot keep a cluster asleep, nor make the record immutable. The
/// request may stand on that very record (row 27).
#[tokio::test(start_paused = true)]
async fn a_record_that_is_replaced_holds_up_no_wake() {
    let hub = seed();
    (1..ALL).for_each(|number| drop(hub.remove(&cluster(number))));
    for (resource, name, count) in WORKLOADS {
        hub.edit(&workload(0, resource, name), |object| {
            object["metadata"]["annotations"] = json!({ keys::DEHYDRATED_REPLICAS: count.to_string() });
        });
    }
    let data = json!({ keys::RECORD.1: r#"{"v":2}"# });
    hub.put(&record(0), json!({ "metadata": { "name": keys::RECORD.0 }, "immutable": true, "data": data }));
    let work = start(&hub);
    sleep(Duration::from_mins(2)).await;
    assert_eq!(condition(&hub)["reason"], "RecordUnreadable", "the sleep is held");
    let running = json!({ keys::POWER_STATE: "Running", keys::POWER_STATE_AT: "2026-11-22T18:00:00Z" });
    hub.edit(&record(0), |object| json_patch::merge(&mut object["metadata"]["annotations"], &running));
    for _ in 0..60 {
        sleep(Duration::from_secs(3)).await;
        kkp(&hub, 0);
    }
    assert_eq!(hub.get(&workload(0, "statefulsets", "etcd"))["spec"]["replicas"], 3);
    assert_eq!(hub.get(&cluster(0))["spec"]["pause"], false);
    let rebuilt = hub.get(&record(0));
    let detail: Value = serde_json::from_str(rebuilt["data"][keys::RECORD.1].as_str().unwrap()).unwrap();
    assert_eq!((&detail["uid"], &detail["phase"]), (&json!("0"), &json!("WaitingForApi")), "{detail}");
    assert!(rebuilt["immutable"] != true, "{rebuilt}");
    assert!(hub.events().iter().any(|(event, note)| event == "RecordRebuilt" && note.contains("RecordUnreadable")));
    work.abort();
}
