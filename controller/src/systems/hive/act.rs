//! Runs the actions of a plan, in order: those on machines, and once the status is written those on the spoke. An action
//! never decides; its outcome becomes a fact.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::json;
use shared::annotation::keys;
use shared::cloud::{CloudError, CloudErrorKind, Outcome, Refusal, Verb};
use shared::hive::api::ClusterDeployment;
use shared::hive::conditions::READY;
use shared::hive::decide::{Action, Facts, LastAttempt, Plan};
use shared::power::Power;
use shared::text::{name_some, sanitize};
use tracing::{info, warn};

use super::drivers::called;
use super::{Hive, Target, preflight, spokes};
use crate::runtime::hub::full_name;
use crate::runtime::{Class, ReconcileError, Reconciled, clock};

/// How often a call that is under way is checked for whether it is still wanted.
const WANTED_PERIOD: Duration = Duration::from_millis(200);

/// Most machines that a log line names.
const MAX_LOGGED: usize = 10;

/// Runs actions, in order, and writes their outcome into the facts. Returns the object if an action wrote it.
///
/// An action that moves no machine, or not all of its machines yet, ends the sequence: what comes after it must follow it.
pub async fn run(
    hive: &Hive,
    facts: &mut Facts<'_>,
    target: &mut Target,
    actions: &[Action],
) -> Reconciled<Option<ClusterDeployment>> {
    let mut written = None;
    let mut moves = Moves { before: target.state.tried.clone(), ..Moves::default() };
    for action in actions {
        if !hive.handle.hub.claim.holds() {
            return Err(ReconcileError::not_leader());
        }
        let wanted = written.as_ref().unwrap_or(facts.cluster);
        if hive.is_outdated(wanted) {
            return Err(outdated());
        }
        match action {
            Action::SetPowerState(to, because) => {
                written = Some(set_power_state(hive, facts.cluster, target, *to, because).await?);
            }
            Action::Move(verb, ids) => {
                if !move_machines(hive, wanted, facts, target, &mut moves, *verb, ids).await? {
                    break;
                }
            }
            Action::Settle => settle(hive, facts).await,
        }
    }
    Ok(written)
}

/// Carries out what follows the status. Returns the object if it was written once more.
///
/// The status comes first: no API server of a tenant holds it up, and it says what was found before anything is changed
/// at the spoke. The answer of a preflight is a condition of the same object, so it is written over that version. The
/// connection is kept or closed before it is written through.
///
/// # Errors
/// When the answer of a preflight could not be written. A spoke that is silent or refuses is logged: the next reconcile
/// tries again.
pub async fn after_report(
    hive: &Hive,
    facts: &Facts<'_>,
    cluster: &ClusterDeployment,
    target: &mut Target,
    plan: &Plan,
) -> Reconciled<Option<ClusterDeployment>> {
    let machines = facts.machines.as_ref();
    // The status may have changed what the plan was made of.
    let is_due = plan.preflight && preflight::is_due(cluster, &target.state);
    let answered = if is_due {
        preflight::answer(hive, cluster, machines, &mut target.state).await?
    } else {
        target.state.drop_unwritten();
        None
    };
    if let Some(answered) = &answered {
        target.wrote(answered);
    }
    let (cluster, state) = (answered.as_ref().unwrap_or(cluster), &mut target.state);
    spokes::keep(hive, facts, cluster, state, plan.watch).await;
    if let Some(Ok(machines)) = machines {
        if plan.replace_spot {
            spokes::replace_spot(hive, cluster, state, machines).await;
        }
        if plan.name_machines {
            spokes::name_machines(hive, cluster, state, machines).await;
        }
    }
    Ok(answered)
}

/// The desired state has changed since the decision, or the machines are those of another object.
fn outdated() -> ReconcileError {
    let action = "spec.powerState or the owner of the machines changed during the reconcile";
    ReconcileError::new("Outdated", Class::Outdated, action)
}

/// Writes the intent, if the object still is the one that was decided about.
async fn set_power_state(
    hive: &Hive,
    cluster: &ClusterDeployment,
    target: &mut Target,
    to: Power,
    because: &str,
) -> Reconciled<ClusterDeployment> {
    let patch = json!({
        "metadata": {"annotations": {keys::REASON: because, keys::WAKE_AT: null}},
        "spec": {"powerState": to.to_string()},
    });
    let failed = ReconcileError::of_target("Intent", "write spec.powerState");
    let written = hive.handle.hub.patch(cluster, patch).await.map_err(failed)?;
    info!(cluster = full_name(cluster), %to, because, "power state set");
    target.wrote(&written);
    Ok(written)
}

/// The outcome of the calls of one plan, which all have the same verb.
#[derive(Default)]
struct Moves {
    /// What was tried before this plan.
    before: Option<LastAttempt>,
    /// What the cloud had accepted and given up when they began.
    given_up: Vec<Refusal>,
    refused: Vec<Refusal>,
    error: Option<CloudError>,
}

impl Moves {
    fn tried(&self, verb: Verb, at: Timestamp) -> LastAttempt {
        let failure = self.error.clone().or_else(|| CloudError::of_refusals(&self.refused));
        let before = self.before.as_ref().filter(|tried| tried.verb == verb).map_or(0, |tried| tried.failures);
        let in_vain = failure.is_some() || !self.given_up.is_empty();
        let failures = if in_vain { before.saturating_add(1) } else { 0 };
        LastAttempt { verb, at, failure, failures, given_up: self.given_up.clone() }
    }
}

/// Moves machines as `wanted` wants it. Returns whether the next action may follow.
async fn move_machines(
    hive: &Hive,
    wanted: &ClusterDeployment,
    facts: &mut Facts<'_>,
    target: &mut Target,
    moves: &mut Moves,
    verb: Verb,
    ids: &[String],
) -> Reconciled<bool> {
    let cluster = facts.cluster;
    if moves.given_up.is_empty() {
        moves.given_up = facts.given_up(verb);
    }
    let instances = sanitize(&name_some(ids, MAX_LOGGED));
    info!(cluster = full_name(cluster), %verb, count = ids.len(), instances, "moving machines");
    let outcome = call_while_wanted(hive, wanted, verb, ids).await?;
    called(&hive.handle.hub.metrics, cluster, verb.into(), &outcome);

    let goes_on = match outcome {
        Ok(outcome) => {
            if let Some(Ok(machines)) = &mut facts.machines {
                machines.moved(&outcome.moved);
            }
            let all_refused = outcome.moved.is_empty() && !outcome.refused.is_empty();
            moves.refused.extend(outcome.refused);
            !all_refused && !outcome.unfinished
        }
        Err(error) if error.kind == CloudErrorKind::NotLeader => return Err(ReconcileError::not_leader()),
        Err(error) => {
            target.state.doubt(&error, || hive.clouds.doubt(cluster));
            moves.error = Some(error);
            false
        }
    };
    facts.now = clock::now();
    target.state.tried = Some(moves.tried(verb, facts.now));
    facts.tried.clone_from(&target.state.tried);
    Ok(goes_on)
}

/// The call, dropped when the desired state changes. While the cloud throttles, the call is queued, and a call dropped
/// from the queue is never sent. A call in flight cannot be canceled: the next lists show its effect.
async fn call_while_wanted(
    hive: &Hive,
    wanted: &ClusterDeployment,
    verb: Verb,
    ids: &[String],
) -> Reconciled<Result<Outcome, CloudError>> {
    let call = async {
        let (driver, target) = hive.clouds.of(wanted).await?;
        driver.advance(&target, verb, ids).await
    };
    let mut call = std::pin::pin!(call);
    loop {
        tokio::select! {
            outcome = &mut call => return Ok(outcome),
            () = tokio::time::sleep(WANTED_PERIOD) => {}
        }
        if hive.is_outdated(wanted) {
            return Err(outdated());
        }
    }
}

/// Lets the driver remove what a transition left behind, once every Machine names its instance. The next list shows what
/// it could not.
async fn settle(hive: &Hive, facts: &Facts<'_>) {
    let cluster = facts.cluster;
    let is_awake = cluster.is_true(READY);
    if let Some(Ok(machines)) = facts.machines.as_ref().filter(|_| is_awake)
        && !spokes::all_named(hive, cluster, machines).await
    {
        return;
    }
    let result = async {
        let (driver, target) = hive.clouds.of(cluster).await?;
        driver.settle(&target).await
    };
    let result = result.await;
    called(&hive.handle.hub.metrics, cluster, "settle", &result);
    if let Err(error) = result {
        let name = full_name(cluster);
        if let Some(left_out) = hive.handle.hub.warnings.due("cleanup", &name) {
            warn!(cluster = name, error = sanitize(&error), left_out, "cleanup after the transition failed");
        }
    }
}
