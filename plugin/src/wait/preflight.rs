//! A fresh preflight of the controller: requested by an annotation, answered in a condition.

use std::pin::pin;
use std::slice;
use std::time::Duration;

use hub::error::HubError;
use hub::watch::Scope;
use hub::{HubClient, Write};
use jiff::Timestamp;
use serde_json::Value;
use shared::kinds::confirmation::{Briefing, Preflight, Request};
use tokio::time::{Instant, timeout, timeout_at};
use view::age::elapsed;
use view::target::Target;

use super::until;
use crate::error::Problem;
use crate::output;

/// How long an answer is waited for before a change. A controller reads the user cluster for it, which takes a few
/// seconds.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
/// After this long, a line says what the plugin waits for.
const PATIENCE: Duration = Duration::from_secs(2);

/// What became of a request for a preflight.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The controller's answer, and the object that has it.
    Answered { briefing: Briefing, object: Value },
    /// There was no answer in time.
    Silent,
    /// No preflight can be made now, and why.
    Impossible(String),
    /// The hub refused the request.
    Refused(HubError),
}

/// Requests a preflight, and waits for the answer for no longer than `limit`.
///
/// # Errors
/// When the hub stops answering, or the target is deleted.
pub(crate) async fn ask(
    hub: &HubClient,
    target: &Target,
    preflight: &'static dyn Preflight,
    now: Timestamp,
    write: &Write,
    limit: Option<Duration>,
) -> Result<Outcome, Problem> {
    let (id, patch) = match preflight.request(&target.object, now)? {
        Request::Write { id, patch } => (id, patch),
        Request::Impossible(why) => return Ok(Outcome::Impossible(why)),
    };
    let object = match hub.patch(target.resource, &target.namespace, &target.name, &patch, write).await {
        Ok(object) => object,
        Err(error) => return Ok(Outcome::Refused(error)),
    };
    let end = limit.and_then(|limit| Instant::now().checked_add(limit));
    let mut followed = pin!(follow(hub, target, object, |object| {
        let answer = preflight.answer(object, &id)?;
        Ok(answer.map(|briefing| Outcome::Answered { briefing, object: object.clone() }))
    }));
    let first = limit.map_or(PATIENCE, |limit| limit.min(PATIENCE));
    if let Ok(answer) = timeout(first, &mut followed).await {
        return answer;
    }
    let up_to = limit.map(|limit| format!(" up to {}", elapsed(limit))).unwrap_or_default();
    output::note(&format!("{}: waiting{up_to} for a preflight", target.full_name()));
    match end {
        None => followed.await,
        Some(end) => timeout_at(end, followed).await.unwrap_or(Ok(Outcome::Silent)),
    }
}

/// Follows a target from the object given until `probe` finds what it looks for. The caller sets the deadline.
///
/// # Errors
/// When the target is deleted, or the hub refuses to be asked.
pub(crate) async fn follow<T>(
    hub: &HubClient,
    target: &Target,
    object: Value,
    probe: impl Fn(&Value) -> Result<Option<T>, Problem>,
) -> Result<T, Problem> {
    if let Some(found) = probe(&object)? {
        return Ok(found);
    }
    let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or("0");
    let (namespace, names) = (Some(target.namespace.as_str()), slice::from_ref(&target.name));
    let watcher = hub.watcher_from(Scope { namespace, names, ..Scope::of(target.resource) }, version);
    until(watcher, |object| object.map_or(Ok(None), |object| probe(&object))).await
}
