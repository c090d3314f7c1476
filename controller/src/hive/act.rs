//! Runs the actions of a plan, in order. An action never decides; what came of it becomes a fact.

use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;
use shared::cloud::{CloudError, CloudErrorKind, Outcome};
use shared::hive::api::{ClusterDeployment, Desired};
use shared::hive::decide::{Action, Facts, Tried, Verb};
use shared::keys;
use tracing::info;

use super::drivers::platform;
use super::memory::Memory;
use super::{Context, LookError, full_name, observe};
use crate::metrics::CloudCall;

/// Runs one action and writes its outcome into the facts. Returns the object if the action wrote it.
pub async fn run(
    context: &Context,
    facts: &mut Facts<'_>,
    memory: &mut Memory,
    action: &Action,
) -> Result<Option<ClusterDeployment>, LookError> {
    if !context.claim.holds() {
        return Err(LookError::NotLeader);
    }
    match action {
        Action::SetPowerState { to, because } => {
            set_power_state(context, facts.cluster, memory, *to, because).await.map(Some)
        }
        Action::Stop(ids) => move_machines(context, facts, memory, Verb::Stop, ids).await,
        Action::Start(ids) => move_machines(context, facts, memory, Verb::Start, ids).await,
    }
}

/// Writes the intent, if the object still is the one that was decided about.
async fn set_power_state(
    context: &Context,
    cluster: &ClusterDeployment,
    memory: &mut Memory,
    to: Desired,
    because: &str,
) -> Result<ClusterDeployment, LookError> {
    let patch = json!({
        "metadata": {
            "resourceVersion": cluster.metadata.resource_version,
            "annotations": {keys::REASON: because, keys::WAKE_AT: null},
        },
        "spec": {"powerState": to.to_string()},
    });
    let written = api(context, cluster).patch(&cluster.name_any(), &as_controller(), &Patch::Merge(patch)).await;
    let written = written.map_err(|source| LookError::Intent { source: Box::new(source) })?;
    info!(cluster = full_name(cluster), %to, because, "power state set");
    memory.wrote(&written);
    Ok(written)
}

async fn move_machines(
    context: &Context,
    facts: &mut Facts<'_>,
    memory: &mut Memory,
    verb: Verb,
    ids: &[String],
) -> Result<Option<ClusterDeployment>, LookError> {
    let cluster = facts.cluster;
    info!(cluster = full_name(cluster), %verb, count = ids.len(), instances = ids.join(","), "moving machines");
    let outcome = call(context, cluster, verb, ids).await;
    let result = outcome.as_ref().map_or_else(|error| error.kind.into(), |_| "ok");
    let label = CloudCall { cloud: platform(cluster), call: verb.into(), result };
    context.metrics.called(&label);

    let failure = match outcome {
        Ok(outcome) => {
            if let Some(Ok(machines)) = &mut facts.machines {
                machines.moved(&outcome.moved);
            }
            refused(&outcome)
        }
        Err(error) => Some(error),
    };
    if failure.as_ref().is_some_and(|failure| failure.kind == CloudErrorKind::NotLeader) {
        return Err(LookError::NotLeader);
    }
    if failure.as_ref().is_some_and(|failure| failure.kind == CloudErrorKind::Denied) {
        context.drivers.doubt(cluster);
    }
    facts.now = Timestamp::now();
    let before = memory.tried.as_ref().filter(|tried| tried.verb == verb).map_or(0, |tried| tried.failures);
    let failures = if failure.is_some() { before.saturating_add(1) } else { 0 };
    memory.tried = Some(Tried { verb, at: facts.now, failure, failures });
    facts.tried.clone_from(&memory.tried);
    Ok(None)
}

async fn call(
    context: &Context,
    cluster: &ClusterDeployment,
    verb: Verb,
    ids: &[String],
) -> Result<Outcome, CloudError> {
    observe::metadata(cluster)?;
    let driver = context.drivers.of(cluster).await?;
    match verb {
        Verb::Stop => driver.stop(ids).await,
        Verb::Start => driver.start(ids).await,
    }
}

/// Single instances that were refused, as one failure that names each of them.
fn refused(outcome: &Outcome) -> Option<CloudError> {
    if outcome.refused.is_empty() {
        return None;
    }
    let mut refused: Vec<String> = outcome.refused.iter().map(ToString::to_string).collect();
    refused.sort();
    let more = refused.len().saturating_sub(5);
    refused.truncate(5);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    Some(CloudError { kind: CloudErrorKind::Refused, message: refused.join("; ") + &more })
}

/// Parameters of a write under our field manager.
pub fn as_controller() -> PatchParams {
    PatchParams { field_manager: Some(keys::CONTROLLER.to_owned()), ..PatchParams::default() }
}

/// The API for the cluster's namespace.
pub fn api(context: &Context, cluster: &ClusterDeployment) -> Api<ClusterDeployment> {
    Api::namespaced(context.client.clone(), &cluster.namespace().unwrap_or_default())
}
