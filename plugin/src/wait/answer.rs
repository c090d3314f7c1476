//! Waits until a controller has answered on an object.

use std::slice;
use std::time::Instant;

use hub::HubClient;
use hub::watch::{Event, Scope};
use serde_json::Value;
use view::target::Target;

use crate::error::{Problem, WaitError};

/// Follows an object from the state given until `probe` finds what it looks for. The caller sets the deadline.
///
/// # Errors
/// When the object is deleted, or the hub refuses to be asked.
pub(crate) async fn follow<T>(
    hub: &HubClient,
    target: &Target,
    object: Value,
    probe: impl Fn(&Value) -> Result<Option<T>, Problem>,
) -> Result<T, Problem> {
    let begin = Instant::now();
    let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or("0");
    let (namespace, names) = (Some(target.namespace.as_str()), slice::from_ref(&target.name));
    let mut watcher = hub.watcher_from(Scope { namespace, names, ..Scope::of(target.resource) }, version);
    let mut event = Event::Applied(object);
    loop {
        match event {
            Event::Applied(object) => {
                if let Some(found) = probe(&object)? {
                    return Ok(found);
                }
            }
            Event::Deleted(_) => return Err(WaitError::deleted(begin.elapsed()).into()),
            Event::Tick => {}
        }
        event = watcher.next().await?;
    }
}
