//! Runs the actions of a plan, in order. An action never decides; what came of it becomes a fact.

use std::time::Duration;

use jiff::Timestamp;
use kube::api::Patch;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use shared::annotation::keys;
use shared::cloud::{CloudError, CloudErrorKind, Outcome, Refusal, Verb};
use shared::hive::api::{ClusterDeployment, Desired};
use shared::hive::decide::{Action, Facts, Tried};
use tracing::{info, warn};

use super::drivers::platform;
use super::memory::Memory;
use super::{Context, LookError};
use crate::hub::{as_controller, full_name};
use crate::metrics::CloudCall;

/// How often it is looked whether a call that is under way is still wanted.
const LOOK_ABOUT: Duration = Duration::from_millis(200);

/// Runs actions, in order, and writes their outcome into the facts. Returns the object if an action wrote it.
///
/// An action that moves no machine ends the row: what comes after it was to follow, not to go first.
pub async fn run(
    context: &Context,
    facts: &mut Facts<'_>,
    memory: &mut Memory,
    actions: &[Action],
) -> Result<Option<ClusterDeployment>, LookError> {
    let mut written = None;
    let mut moves = Moves { before: memory.tried.clone(), ..Moves::default() };
    for action in actions {
        if !context.claim.holds() {
            return Err(LookError::NotLeader);
        }
        if context.is_outdated(written.as_ref().unwrap_or(facts.cluster)) {
            return Err(LookError::Outdated);
        }
        let (verb, ids) = match action {
            Action::SetPowerState { to, because } => {
                written = Some(set_power_state(context, facts.cluster, memory, *to, because).await?);
                continue;
            }
            Action::Stop(ids) => (Verb::Stop, ids),
            Action::Start(ids) => (Verb::Start, ids),
            Action::Terminate(ids) => (Verb::Terminate, ids),
            Action::Settle => {
                settle(context, facts.cluster).await;
                continue;
            }
        };
        let wanted = written.as_ref().unwrap_or(facts.cluster);
        if !move_machines(context, wanted, facts, memory, &mut moves, verb, ids).await? {
            break;
        }
    }
    Ok(written)
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

/// What came of the calls of one plan, which all do the same.
#[derive(Default)]
struct Moves {
    /// What was tried before this plan.
    before: Option<Tried>,
    refused: Vec<Refusal>,
    error: Option<CloudError>,
}

impl Moves {
    fn tried(&self, verb: Verb, at: Timestamp) -> Tried {
        let failure = self.error.clone().or_else(|| CloudError::of_refusals(&self.refused));
        let before = self.before.as_ref().filter(|tried| tried.verb == verb).map_or(0, |tried| tried.failures);
        let failures = if failure.is_some() { before.saturating_add(1) } else { 0 };
        Tried { verb, at, failure, failures }
    }
}

/// Moves machines as `wanted` wants it. Returns whether the next action may follow.
async fn move_machines(
    context: &Context,
    wanted: &ClusterDeployment,
    facts: &mut Facts<'_>,
    memory: &mut Memory,
    moves: &mut Moves,
    verb: Verb,
    ids: &[String],
) -> Result<bool, LookError> {
    let cluster = facts.cluster;
    info!(cluster = full_name(cluster), %verb, count = ids.len(), instances = ids.join(","), "moving machines");
    let outcome = call_while_wanted(context, wanted, verb, ids).await?;
    let result = outcome.as_ref().map_or_else(|error| error.kind.into(), |_| "ok");
    let label = CloudCall { cloud: platform(cluster), call: verb.into(), result };
    context.metrics.called(&label);

    let goes_on = match outcome {
        Ok(outcome) => {
            if let Some(Ok(machines)) = &mut facts.machines {
                machines.moved(&outcome.moved);
            }
            let stuck = outcome.moved.is_empty() && !outcome.refused.is_empty();
            moves.refused.extend(outcome.refused);
            !stuck
        }
        Err(error) if error.kind == CloudErrorKind::NotLeader => return Err(LookError::NotLeader),
        Err(error) => {
            memory.doubt(&error, || context.drivers.doubt(cluster));
            moves.error = Some(error);
            false
        }
    };
    facts.now = Timestamp::now();
    memory.tried = Some(moves.tried(verb, facts.now));
    facts.tried.clone_from(&memory.tried);
    Ok(goes_on)
}

/// The call, given up once somebody wants otherwise. It may have to wait for its turn for as long as the cloud is throttled,
/// and what is given up before that is never sent. What has been sent is not taken back: the next looks see what it did.
async fn call_while_wanted(
    context: &Context,
    wanted: &ClusterDeployment,
    verb: Verb,
    ids: &[String],
) -> Result<Result<Outcome, CloudError>, LookError> {
    let mut call = std::pin::pin!(call(context, wanted, verb, ids));
    loop {
        tokio::select! {
            outcome = &mut call => return Ok(outcome),
            () = tokio::time::sleep(LOOK_ABOUT) => {}
        }
        if context.is_outdated(wanted) {
            return Err(LookError::Outdated);
        }
    }
}

async fn call(
    context: &Context,
    cluster: &ClusterDeployment,
    verb: Verb,
    ids: &[String],
) -> Result<Outcome, CloudError> {
    let target = context.drivers.target(cluster)?;
    context.drivers.of(cluster).await?.advance(&target, verb, ids).await
}

/// Lets the driver remove what a transition left behind. The next list shows what it could not.
async fn settle(context: &Context, cluster: &ClusterDeployment) {
    let result = async {
        let target = context.drivers.target(cluster)?;
        context.drivers.of(cluster).await?.settle(&target).await
    };
    let result = result.await;
    let label = CloudCall {
        cloud: platform(cluster),
        call: "settle",
        result: result.as_ref().map_or_else(|error: &CloudError| error.kind.into(), |()| "ok"),
    };
    context.metrics.called(&label);
    if let Err(error) = result {
        warn!(
            cluster = full_name(cluster),
            error = &error as &dyn std::error::Error,
            "cleanup after the transition failed"
        );
    }
}

/// Applies a JSON patch to the status, in turn with others.
pub async fn write_status(
    context: &Context,
    cluster: &ClusterDeployment,
    patch: Value,
) -> Result<ClusterDeployment, LookError> {
    let failed = |source| LookError::Status { source: Box::new(source) };
    let patch: json_patch::Patch =
        serde_json::from_value(patch).map_err(|error| failed(kube::Error::SerdeError(error)))?;
    let patch = Patch::Json::<()>(patch);
    let _turn = context.writes.acquire().await;
    // Not before: the turn may have been long in coming.
    if !context.claim.holds() {
        return Err(LookError::NotLeader);
    }
    api(context, cluster).patch_status(&cluster.name_any(), &as_controller(), &patch).await.map_err(failed)
}

/// The API for the cluster's namespace.
pub fn api(context: &Context, cluster: &ClusterDeployment) -> Api<ClusterDeployment> {
    Api::namespaced(context.client.clone(), &cluster.namespace().unwrap_or_default())
}
