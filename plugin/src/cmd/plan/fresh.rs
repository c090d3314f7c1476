//! `--fresh`: requests a new preflight by an annotation, and waits for the answer in a condition.

use std::time::Duration;

use hub::{HubClient, Write};
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use shared::annotation::{format, keys};
use shared::hive::api::ClusterDeployment;
use shared::hive::preflight::{answers, is_left_alone, request_time, unanswered};
use tokio::time::Instant;

use crate::cli::PlanArgs;
use crate::error::{Problem, WaitError};
use crate::select::target::Target;
use crate::wait::answer::follow;

/// Asks and waits. Returns the object with the answer.
///
/// # Errors
/// [`Problem::Wait`] when there is no answer in time, or none to be expected.
pub(crate) async fn ask(hub: &HubClient, args: &PlanArgs, target: &Target) -> Result<Value, Problem> {
    let limit = args.timeout.0.unwrap_or(Duration::MAX);
    let cluster = read(&target.object)?;
    if is_left_alone(&cluster) {
        let why =
            "hibernate-controller does not reconcile it: it is paused, not installed yet, or being deleted".to_owned();
        return Err(WaitError::Impossible(why).into());
    }
    let requested = format::seconds(request_time(&cluster, Timestamp::now()));
    let patch = json!({ "metadata": { "annotations": { keys::PREFLIGHT_REQUESTED_AT: requested } } });
    let write = Write { dry_run: false, manager: args.field_manager.clone() };
    let object = hub.patch(target.resource, &target.namespace, &target.name, &patch, &write).await?;
    // What was written counts, at the precision in which it was written.
    let requested = format::time(&requested).unwrap_or_default();
    let begin = Instant::now();
    let answered = |object: &Value| Ok(answers(&read(object)?, requested).then(|| object.clone()));
    if let Ok(answer) = tokio::time::timeout(limit, follow(hub, target, object, answered)).await {
        return answer;
    }
    let state = format!("{} The findings shown are from an earlier check", unanswered(&cluster));
    Err(WaitError::TimedOut { after: begin.elapsed(), state }.into())
}

fn read(object: &Value) -> Result<ClusterDeployment, Problem> {
    ClusterDeployment::deserialize(object).map_err(Problem::unreadable)
}
