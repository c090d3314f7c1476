//! `--fresh`: requests a new preflight by an annotation, and waits for the answer in a condition.

use std::{pin::pin, time::Duration};

use futures::StreamExt;
use jiff::Timestamp;
use kube::api::WatchEvent;
use serde::Deserialize;
use serde_json::{Value, json};
use shared::{
    annotation::{format, keys},
    hive::{
        api::ClusterDeployment,
        preflight::{answers, is_left_alone, request_time},
    },
};
use tokio::time::Instant;

use crate::{
    api::{Hub, Write},
    cli::{PlanArgs, duration::elapsed},
    error::{Problem, WaitError},
    select::target::Target,
};

/// Pause after a failed request; the hub may be restarting.
const PAUSE: Duration = Duration::from_millis(500);

/// Asks and waits. Returns the object with the answer.
///
/// # Errors
/// [`Problem::Wait`] when there is no answer in time, or none to be expected.
pub(crate) async fn ask(hub: &Hub, args: &PlanArgs, target: &Target) -> Result<Value, Problem> {
    let limit = args.timeout.0.unwrap_or(Duration::MAX);
    let cluster = read(&target.object)?;
    if is_left_alone(&cluster) {
        let why =
            "hibernate-controller does not reconcile it: it is paused, not installed yet, or being deleted".to_owned();
        return Err(WaitError::Lost { after: elapsed(Duration::ZERO), why }.into());
    }
    let requested = format::seconds(request_time(&cluster, Timestamp::now()));
    let patch = json!({ "metadata": { "annotations": { keys::PREFLIGHT_REQUESTED_AT: requested } } });
    let write = Write { dry_run: false, manager: args.field_manager.clone() };
    let object = hub.patch(target.resource, &target.namespace, &target.name, &patch, &write).await?;
    // What was written counts, at the precision in which it was written.
    let requested = format::time(&requested).unwrap_or_default();
    let begin = Instant::now();
    if let Ok(answer) = tokio::time::timeout(limit, answer(hub, target, object, requested)).await {
        return answer;
    }
    let platform = cluster.spec.platform.name();
    let state = format!(
        "hibernate-controller has not answered; is it running, and does it serve the platform {platform}? The findings \
         shown are from an earlier check"
    );
    Err(WaitError::TimedOut { after: elapsed(begin.elapsed()), state }.into())
}

fn read(object: &Value) -> Result<ClusterDeployment, Problem> {
    ClusterDeployment::deserialize(object).map_err(Problem::unreadable)
}

/// Follows the object until the condition is as new as the request.
async fn answer(hub: &Hub, target: &Target, mut object: Value, requested: Timestamp) -> Result<Value, Problem> {
    loop {
        if answers(&read(&object)?, requested) {
            return Ok(object);
        }
        match next(hub, target, &object, requested).await {
            Ok(Some(newer)) => return Ok(newer),
            Ok(None) => {}
            Err(Problem::Hub(error)) if error.is_transient() => tokio::time::sleep(PAUSE).await,
            Err(problem) => return Err(problem),
        }
        object = hub.get(target.resource, &target.namespace, &target.name).await?;
    }
}

/// The object with the answer, or none when the watch ended before.
async fn next(hub: &Hub, target: &Target, object: &Value, requested: Timestamp) -> Result<Option<Value>, Problem> {
    let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or("0");
    let fields = format!("metadata.name={}", target.name);
    let watch = hub.watch(target.resource, Some(&target.namespace), (&fields, ""), version).await?;
    let mut changes = pin!(watch);
    while let Some(event) = changes.next().await {
        match event? {
            WatchEvent::Added(newer) | WatchEvent::Modified(newer) => {
                if answers(&read(&newer)?, requested) {
                    return Ok(Some(newer));
                }
            }
            WatchEvent::Deleted(_) => {
                let why = "it does not exist any more".to_owned();
                return Err(WaitError::Lost { after: elapsed(Duration::ZERO), why }.into());
            }
            WatchEvent::Bookmark(_) => {}
            WatchEvent::Error(_) => return Ok(None),
        }
    }
    Ok(None)
}
