//! Fills in the facts that a decision asks for.

use std::time::Duration;

use shared::cloud::{CloudError, Inventory, Priority};
use shared::hive::api::ClusterDeployment;
use shared::hive::conditions::{HIBERNATING, READY};
use shared::hive::decide::{Facts, Need, SyncSetState, needs};
use shared::hive::identity::Older;
use shared::power::Power;

use super::drivers::called;
use super::state::TargetState;
use super::{Hive, spokes};
use crate::cloud_registry::PLATFORMS;
use crate::runtime::clock;

/// Fills in everything that the decision about `cluster` needs.
pub async fn facts<'a>(
    hive: &Hive,
    cluster: &'a ClusterDeployment,
    sync: SyncSetState,
    identity_taken: Option<Older>,
    state: &mut TargetState,
) -> Facts<'a> {
    let mut facts = Facts {
        cluster,
        served: PLATFORMS.contains(&cluster.spec.platform.name()),
        sync,
        identity_taken,
        machines: None,
        unknown_for: Duration::ZERO,
        empty_for: Duration::ZERO,
        stopped: state.stopped,
        tried: state.tried.clone(),
        failed_lists: state.failed_lists,
        spoke: None,
        connected_for: None,
        upgrade: None,
        upgrade_unknown_for: Duration::ZERO,
        preflight_age: state.preflight_age(),
        settings: hive.settings,
        now: clock::now(),
    };
    while let Some(need) = needs(&facts) {
        match need {
            Need::Machines(max_age) => {
                facts.machines = Some(machines(hive, cluster, state, max_age).await);
                (facts.unknown_for, facts.empty_for) = (state.unknown_for(), state.empty_for());
                facts.stopped = state.stopped;
            }
            Need::Spoke => facts.spoke = Some(Box::pin(spokes::observe(hive, cluster, state)).await),
            Need::Upgrade => {
                let answer = Box::pin(spokes::upgrade(&hive.handle.hub, &hive.network, cluster)).await;
                state.saw_upgrade(Some(&answer));
                (facts.upgrade, facts.upgrade_unknown_for) = (Some(answer), state.upgrade_unknown_for());
            }
        }
        facts.now = clock::now();
    }
    if facts.upgrade.is_none() {
        state.saw_upgrade(None);
    }
    facts.connected_for = state.spoke.as_ref().map(|connection| connection.opened.elapsed());
    facts
}

async fn machines(
    hive: &Hive,
    cluster: &ClusterDeployment,
    state: &mut TargetState,
    max_age: Duration,
) -> Result<Inventory, CloudError> {
    if let Some(machines) = state.machines(max_age) {
        return Ok(machines);
    }
    let result = list(hive, cluster).await;
    called(&hive.handle.hub.metrics, cluster, "list", &result);
    match &result {
        Ok(machines) => {
            state.listed();
            state.saw_machines(machines, hive.settings.steady);
        }
        Err(error) => {
            state.failed_lists = state.failed_lists.saturating_add(1);
            // For a steady cluster, the next reconcile is soon enough to read the Secret again.
            let waited_for = priority(cluster) != Priority::Idle;
            state.doubt(error, || hive.clouds.doubt(cluster).filter(|_| waited_for));
        }
    }
    result
}

/// Lists the machines, whatever is known of them. From then on it is known which account they are in.
pub async fn list(hive: &Hive, cluster: &ClusterDeployment) -> Result<Inventory, CloudError> {
    let (driver, target) = Box::pin(hive.clouds.of(cluster)).await?;
    let listing = driver.list(&target, priority(cluster)).await?;
    hive.ownership.found_in(cluster, driver.domain());
    Ok(Inventory::new(driver.profile(&target.cluster), listing))
}

/// Clusters in transition go first; steady clusters use what is left of the rate limit.
fn priority(cluster: &ClusterDeployment) -> Priority {
    let (there, on_the_way) = match cluster.desired() {
        Power::Hibernating => (HIBERNATING, Priority::Sleeping),
        Power::Running => (READY, Priority::Waking),
    };
    if cluster.is_true(there) { Priority::Idle } else { on_the_way }
}
