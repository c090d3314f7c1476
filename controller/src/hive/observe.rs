//! Fills in the facts that a decision asks for.

use std::time::Duration;

use jiff::Timestamp;
use shared::cloud::{CloudError, Inventory, Priority};
use shared::hive::api::{ClusterDeployment, Desired};
use shared::hive::conditions::{HIBERNATING, READY};
use shared::hive::decide::{Facts, Need, Served, Sync, needs};

use super::drivers::platform;
use super::memory::Memory;
use super::{Context, spokes};
use crate::cloud_registry::PLATFORMS;
use crate::metrics::CloudCall;

/// Looks at everything that the decision about `cluster` needs.
pub async fn facts<'a>(
    context: &Context,
    cluster: &'a ClusterDeployment,
    sync: Sync,
    memory: &mut Memory,
) -> Facts<'a> {
    let mut facts = Facts {
        cluster,
        served: Served::platform(cluster.spec.platform.name(), PLATFORMS),
        sync,
        machines: None,
        tried: memory.tried.clone(),
        failed_looks: memory.failed_looks,
        spoke: None,
        asked_for: None,
        upgrade: None,
        settings: context.settings,
        now: Timestamp::now(),
    };
    while let Some(need) = needs(&facts) {
        match need {
            Need::Machines { max_age } => facts.machines = Some(machines(context, cluster, memory, max_age).await),
            Need::Spoke => facts.spoke = Some(Box::pin(spokes::look(context, cluster, memory)).await),
            Need::Upgrade => facts.upgrade = Some(Box::pin(spokes::upgrade(context, cluster)).await),
        }
        facts.now = Timestamp::now();
    }
    facts.asked_for = memory.spoke.as_ref().map(|connection| connection.opened.elapsed());
    facts
}

async fn machines(
    context: &Context,
    cluster: &ClusterDeployment,
    memory: &mut Memory,
    max_age: Duration,
) -> Result<Inventory, CloudError> {
    if let Some(machines) = memory.machines(max_age) {
        return Ok(machines);
    }
    let result = list(context, cluster).await;
    let label = CloudCall {
        cloud: platform(cluster),
        call: "list",
        result: result.as_ref().map_or_else(|error| error.kind.into(), |_| "ok"),
    };
    context.metrics.called(&label);
    match &result {
        Ok(machines) => {
            memory.listed();
            memory.saw_machines(machines);
        }
        Err(error) => {
            memory.failed_looks = memory.failed_looks.saturating_add(1);
            // Where nobody waits, the next look is soon enough to read the Secret again.
            let waited_for = priority(cluster) != Priority::Idle;
            memory.doubt(error, || context.drivers.doubt(cluster).filter(|_| waited_for));
        }
    }
    result
}

async fn list(context: &Context, cluster: &ClusterDeployment) -> Result<Inventory, CloudError> {
    let target = context.drivers.target(cluster)?;
    let driver = Box::pin(context.drivers.of(cluster)).await?;
    Ok(Inventory::new(driver.profile(&target.cluster), driver.list(&target, priority(cluster)).await?))
}

/// Who is waited for goes first: a cluster that is where it should be is looked at when nobody else has to be.
fn priority(cluster: &ClusterDeployment) -> Priority {
    let (there, on_the_way) = match cluster.desired() {
        Desired::Hibernating => (HIBERNATING, Priority::Sleeping),
        Desired::Running => (READY, Priority::Waking),
    };
    let is_there = cluster.condition(there).is_some_and(|condition| condition.status == "True");
    if is_there { Priority::Idle } else { on_the_way }
}
