//! What a cluster says of its sleep.

use super::api::ClusterDeployment;
use super::conditions::reason::DRIFT;
use super::conditions::{HIBERNATING, PROGRESS};
use crate::savings::ledger::LEDGER;
use crate::savings::usage::Account;

/// The account of a cluster. While it reports that a machine runs, it does not sleep.
pub fn account(cluster: &ClusterDeployment) -> Account {
    let ledger = cluster.condition(LEDGER).and_then(|condition| condition.message.as_deref());
    let platform = &cluster.spec.platform;
    Account {
        resource: cluster.spec.cluster_metadata.as_ref().map(|of| of.infra_id.clone()).unwrap_or_default(),
        platform: platform.name().to_owned(),
        region: platform.region().unwrap_or_default().to_owned(),
        asleep_since: cluster.true_since(HIBERNATING).filter(|_| cluster.reason(PROGRESS) != DRIFT),
        ..Account::new(&cluster.metadata, ledger)
    }
}
