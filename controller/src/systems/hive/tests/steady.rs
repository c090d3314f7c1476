//! What does not move a cluster that is where it should be, and for how long.

use super::*;

/// As with a valid key of another account.
#[tokio::test(start_paused = true)]
async fn a_cloud_that_shows_no_machines_for_a_while_moves_no_cluster_that_runs() {
    for (ends, power_state) in [(true, "Running"), (false, "FailedToStartMachines")] {
        let (hub, cloud) = (MemoryHub::default(), Arc::new(Cloud::default()));
        hub.put(CLUSTER, running());
        let (hub, work) = at_work(hub, &cloud);
        sleep(Duration::from_mins(1)).await;
        cloud.empty.store(true, Ordering::Relaxed);
        sleep(Duration::from_mins(25)).await;
        let status = hub.get(CLUSTER)["status"].to_string();
        assert_eq!(power_state_of(&hub), ("Running".to_owned(), LONG_AGO.to_owned()), "{status}");
        assert!(status.contains("nothing matches tag demo-1"), "{status}");
        let noted = hub.events().into_iter().filter(|(reason, _)| reason == "NoInstances").count();
        assert_eq!(noted, 1, "{:?}", hub.events());
        cloud.empty.store(!ends, Ordering::Relaxed);
        sleep(Duration::from_mins(20)).await;
        let (found, since) = power_state_of(&hub);
        assert_eq!((found.as_str(), since == LONG_AGO), (power_state, ends));
        work.abort();
    }
}

/// The Secret with its kubeconfig is gone, or the hub does not give it.
#[tokio::test(start_paused = true)]
async fn a_due_sleep_waits_an_hour_for_a_spoke_that_does_not_say_and_for_the_hub_as_long_as_it_fails() {
    for hub_fails in [false, true] {
        let hub = MemoryHub::default();
        let mut due = running();
        due["spec"]["hibernateAfter"] = json!("8h");
        hub.put(CLUSTER, due);
        hub.inject(move |_, path, _| (hub_fails && path == "/api/v1/namespaces/ns/secrets/k").then_some(403));
        let (hub, work) = at_work(hub, &Arc::new(Cloud::default()));
        let wanted = || hub.get(CLUSTER)["spec"]["powerState"].clone();
        sleep(Duration::from_mins(59)).await;
        assert_eq!(wanted(), "Running", "{hub_fails}");
        let noted = hub.events().into_iter().filter(|(reason, _)| reason == "UpgradeUnknown").count();
        assert_eq!(noted, 1, "{:?}", hub.events());
        sleep(Duration::from_mins(10)).await;
        assert_eq!(wanted(), if hub_fails { "Running" } else { "Hibernating" });
        work.abort();
    }
}

/// The power state, and since when R has its status.
fn power_state_of(hub: &MemoryHub) -> (String, String) {
    let cluster: ClusterDeployment = serde_json::from_value(hub.get(CLUSTER)).unwrap();
    let since = cluster.changed_at(shared::hive::conditions::READY).map(|since| since.to_string());
    (power_state(hub), since.unwrap_or_default())
}
