//! A fresh preflight of the controller: requested by an annotation, answered in a condition.

use std::pin::pin;
use std::time::Duration;

use hub::error::HubError;
use hub::{HubClient, Write};
use jiff::Timestamp;
use serde_json::Value;
use shared::kinds::confirmation::{Briefing, Preflight, Request};
use tokio::time::{Instant, timeout, timeout_at};
use view::target::Target;

use crate::cli::duration::elapsed;
use crate::error::Problem;
use crate::output;
use crate::wait::answer::follow;

/// How long an answer is waited for before a change. A controller reads the user cluster for it, which takes a few
/// seconds.
pub(crate) const LIMIT: Duration = Duration::from_secs(30);
/// After this long, a line says what the plugin waits for.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a request for a preflight came to.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The controller's answer.
    Answered {
        /// What it says.
        briefing: Briefing,
        /// The object with the answer.
        object: Value,
    },
    /// None in time.
    Silent,
    /// None can be made now, and why.
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
