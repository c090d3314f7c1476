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

/// The power state, and since when R has its status.
fn power_state_of(hub: &MemoryHub) -> (String, String) {
    let cluster: ClusterDeployment = serde_json::from_value(hub.get(CLUSTER)).unwrap();
    let since = cluster.changed_at(shared::hive::conditions::READY).map(|since| since.to_string());
    (power_state(hub), since.unwrap_or_default())
}
