//! The controller dies at every request that changes something.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use http::Method;
use serde_json::json;
use testbed::proxy::faults::{Effect, Rule};
use testbed::{Options, World};

use crate::openstack::{clean, cluster, likeness};

/// Every request of the controller that changes something.
const CHANGES: [(&str, &str); 6] = [
    ("nova", "POST"),
    ("nova", "DELETE"),
    ("neutron", "POST"),
    ("neutron", "PUT"),
    ("glance", "PATCH"),
    ("glance", "DELETE"),
];

/// The controller dies at each of its requests that change something: OpenStack does what was asked, and the answer is
/// lost.
#[tokio::test]
async fn a_controller_that_dies_at_any_request_loses_nothing() -> Result<()> {
    let world = World::up(Options { openstack: true, ..Options::shared() }).await?;
    let (cluster, openstack) = cluster(&world, "kill", 2).await?;
    let infra_id = cluster.info().infra_id.clone();
    let before = likeness(&openstack, &infra_id).await?;
    for (state, least) in [("Hibernating", 8), ("Running", 4)] {
        cluster.request(state).await?;
        let mut deaths = 0;
        let begun = Instant::now();
        while cluster.power_state().await? != state {
            ensure!(begun.elapsed() < Duration::from_mins(8), "{deaths} deaths, and not {state}");
            let mut rules = Vec::new();
            for (service, method) in CHANGES {
                let cut = Rule::new(Effect::Cut { after_upstream: true }).method(method).count(1);
                rules.push((service, world.inject(service, &cut.user_agent("hibernate-controller/")).await?.id));
            }
            let dies = testbed::eventually(Duration::from_secs(20), "a request, or the end", async || {
                let mut hits = 0;
                for (service, id) in &rules {
                    hits += world.hits(service, id).await?;
                }
                ensure!(hits > 0 || cluster.power_state().await? == state);
                Ok(hits > 0)
            });
            if matches!(dies.await, Ok(true)) {
                world.signal("controller", "kill").await?;
                // Or the next process would leave the cluster alone for a while: it looks like the one to blame.
                std::fs::remove_dir_all(world.dir().join("state"))?;
                world.signal("controller", "restart").await?;
                deaths += 1;
            }
            for service in ["nova", "neutron", "glance"] {
                world.heal(service, None).await?;
            }
        }
        if state == "Hibernating" {
            let limits = openstack.compute(Method::GET, "/limits", None).await?["limits"]["absolute"].clone();
            for used in ["totalInstancesUsed", "totalCoresUsed", "totalRAMUsed"] {
                ensure!(limits[used] == 0, "{limits}");
            }
        }
        eprintln!("{state} after {deaths} deaths and {:?}", begun.elapsed());
        ensure!(deaths >= least, "{state}: {deaths} deaths");
    }
    clean(&world, &cluster, &openstack).await?;
    let after = likeness(&openstack, &infra_id).await?;
    ensure!(before == after, "before:\n{:#}\nafter:\n{:#}", json!(before), json!(after));
    Ok(())
}
