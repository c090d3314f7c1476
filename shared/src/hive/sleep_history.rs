//! The sleep history of a cluster.

use super::api::ClusterDeployment;
use super::conditions::reason::DRIFT;
use super::conditions::{HIBERNATING, PROGRESS};
use crate::savings::history::SleepHistory;
use crate::savings::ledger::LEDGER;

/// The message of its ledger.
pub fn ledger(cluster: &ClusterDeployment) -> Option<&str> {
    cluster.condition(LEDGER)?.message.as_deref()
}

/// The sleep history of a cluster. While it reports that a machine runs, it does not sleep.
pub fn sleep_history(cluster: &ClusterDeployment) -> SleepHistory {
    let platform = &cluster.spec.platform;
    SleepHistory {
        resource: cluster.spec.cluster_metadata.as_ref().map(|of| of.infra_id.clone()).unwrap_or_default(),
        platform: platform.name().to_owned(),
        region: platform.region().unwrap_or_default().to_owned(),
        asleep_since: cluster.true_since(HIBERNATING).filter(|_| cluster.reason(PROGRESS) != DRIFT),
        ..SleepHistory::new(&cluster.metadata, ledger(cluster))
    }
}
