//! Waits until a controller has answered on an object.

use std::{pin::pin, time::Duration};

use futures::StreamExt;
use kube::api::WatchEvent;
use serde_json::Value;

use crate::{
    api::Hub,
    cli::duration::elapsed,
    error::{Problem, WaitError},
    select::target::Target,
};

/// Pause after a failed request; the hub may be restarting.
const PAUSE: Duration = Duration::from_millis(500);

/// Follows an object from the state given until `probe` finds what it looks for.
///
/// # Errors
/// When the object is deleted, or the hub refuses to be asked.
pub(crate) async fn follow<T>(
    hub: &Hub,
    target: &Target,
    mut object: Value,
    probe: impl Fn(&Value) -> Result<Option<T>, Problem>,
) -> Result<T, Problem> {
    loop {
        if let Some(found) = probe(&object)? {
            return Ok(found);
        }
        match next(hub, target, &object, &probe).await {
            Ok(Some(found)) => return Ok(found),
            Ok(None) => {}
            Err(Problem::Hub(error)) if error.is_transient() => tokio::time::sleep(PAUSE).await,
            Err(problem) => return Err(problem),
        }
        object = read(hub, target).await?;
    }
}

/// The object as it is now. A transient error is retried: the caller sets the deadline.
async fn read(hub: &Hub, target: &Target) -> Result<Value, Problem> {
    loop {
        match hub.get(target.resource, &target.namespace, &target.name).await {
            Ok(object) => return Ok(object),
            Err(error) if error.is_transient() => tokio::time::sleep(PAUSE).await,
            Err(error) => return Err(error.into()),
        }
    }
}

/// What `probe` finds, or none when the watch ended before.
async fn next<T>(
    hub: &Hub,
    target: &Target,
    object: &Value,
    probe: &impl Fn(&Value) -> Result<Option<T>, Problem>,
) -> Result<Option<T>, Problem> {
    let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or("0");
    let fields = format!("metadata.name={}", target.name);
    let watch = hub.watch(target.resource, Some(&target.namespace), (&fields, ""), version).await?;
    let mut changes = pin!(watch);
    while let Some(event) = changes.next().await {
        match event? {
            WatchEvent::Added(newer) | WatchEvent::Modified(newer) => {
                if let Some(found) = probe(&newer)? {
                    return Ok(Some(found));
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
