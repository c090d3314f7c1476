//! Events and log lines about what changed.

use kube::runtime::events::EventType;
use shared::hive::api::{ClusterDeployment, Condition};
use shared::hive::conditions::{HIBERNATING, PROGRESS, READY, reason};
use shared::hive::decide::{Notice, sleep_history};
use shared::savings::ledger::LEDGER;
use shared::text::sanitize;
use tracing::{info, warn};

use super::Hive;
use crate::runtime::hub::full_name;

/// Tells what a status write changed: one log line, and one Event if the power state is a new one.
pub async fn transition(hive: &Hive, before: &ClusterDeployment, after: &ClusterDeployment) {
    let (from, to, progress) = (before.power_state(), after.power_state(), after.message(PROGRESS));
    let word = primary_condition(after);
    let message = word.and_then(|word| word.message.as_deref()).unwrap_or_default();
    info!(
        cluster = full_name(after),
        from,
        to,
        says = sanitize(message),
        progress = sanitize(progress),
        "status written"
    );
    let failed = reason::is_failure(to);
    if before.message(LEDGER) != after.message(LEDGER) {
        hive.handle.hub.metrics.savings.ledger_written(&sleep_history(before), &sleep_history(after));
    }
    if from != to {
        hive.handle.hub.metrics.transitioned(before, after);
    }
    if from != to || (failed && word != primary_condition(before)) {
        let type_ = if failed { EventType::Warning } else { EventType::Normal };
        hive.handle.publish(after, type_, to, message).await;
    }
}

/// Tells what the status cannot. Whether the Event is written.
pub async fn notice(hive: &Hive, cluster: &ClusterDeployment, notice: &Notice) -> bool {
    let Notice { warning, reason, message } = notice;
    warn!(cluster = full_name(cluster), reason, says = sanitize(message), "notice");
    let type_ = if *warning { EventType::Warning } else { EventType::Normal };
    hive.handle.publish(cluster, type_, reason, message).await
}

/// Of the two conditions, the one that does not point to the other.
fn primary_condition(cluster: &ClusterDeployment) -> Option<&Condition> {
    let is_asleep = matches!(cluster.reason(READY), "" | reason::STOPPING_OR_HIBERNATING);
    cluster.condition(if is_asleep { HIBERNATING } else { READY })
}
