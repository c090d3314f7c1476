//! What a hub needs before a rollout is created on it: the type, a controller that works, and no other one that does
//! the same.

use hub::error::HubError;
use hub::{HubClient, Resource};
use jiff::Timestamp;
use serde_json::Value;
use shared::annotation::keys;
use shared::kinds::{POWER_ROLLOUT, Rival};
use view::installed::installed_in;
use view::protection::WEBHOOKS;

use crate::error::{Problem, RolloutError};
use crate::output;
use crate::read::{LEASE, held};

/// Refuses a rollout of this name that could not work. A paused one only needs the type: it waits for the rest.
///
/// # Errors
/// [`RolloutError`] where it could not work, or why the hub cannot be asked.
pub(crate) async fn check(hub: &HubClient, name: &str, paused: bool, rival: Option<&Rival>) -> Result<(), Problem> {
    match hub.get(Resource::preferred(&POWER_ROLLOUT.kind), "", name).await {
        // Whoever may not read rollouts may still create one.
        Ok(_) | Err(HubError::NoObject { .. } | HubError::Forbidden { .. }) => {}
        Err(HubError::NoKind(_)) => return Err(RolloutError::NoDefinition.into()),
        Err(error) => return Err(error.into()),
    }
    if paused {
        return Ok(());
    }
    if let Some(why) = no_controller(hub).await? {
        return Err(RolloutError::NoController(why).into());
    }
    match warning(hub, rival).await {
        Some(why) => Err(RolloutError::Rival(why).into()),
        None => Ok(()),
    }
}

/// Warns if a rollout that goes on could not work. It is stored already, and starts once the hub is ready.
pub(crate) async fn warn(hub: &HubClient, rival: Option<&Rival>) {
    match no_controller(hub).await {
        Ok(None) => {}
        Ok(Some(why)) => output::warning(&format!("{why}; no target starts until hibernate-controller runs")),
        Err(error) => output::warning(&format!("whether hibernate-controller runs is unknown: {error}")),
    }
    if let Some(text) = warning(hub, rival).await {
        output::warning(&text);
    }
}

/// Why no controller would work on a rollout.
async fn no_controller(hub: &HubClient) -> Result<Option<String>, HubError> {
    let (webhooks, is_known) = match hub.get(Resource::preferred(&WEBHOOKS), "", keys::WEBHOOK).await {
        Ok(webhooks) => (webhooks, true),
        Err(HubError::NoObject { .. }) => (Value::Null, true),
        Err(HubError::Forbidden { .. }) => (Value::Null, false),
        Err(error) => return Err(error),
    };
    let namespace = installed_in(&webhooks);
    match hub.get(Resource::preferred(&LEASE), namespace, keys::CONTROLLER).await {
        Ok(lease) => Ok(held(&lease, Timestamp::now())
            .err()
            .map(|why| format!("no controller runs: the Lease {} in namespace {namespace} {why}", keys::CONTROLLER))),
        Err(HubError::NoObject { .. }) if !is_known => {
            output::warning(
                "whether hibernate-controller runs is unknown: you may not read the webhook configuration, which names its namespace",
            );
            Ok(None)
        }
        Err(HubError::NoObject { .. }) => {
            Ok(Some(format!("no controller runs: there is no Lease {} in namespace {namespace}", keys::CONTROLLER)))
        }
        Err(error @ HubError::Forbidden { .. }) => {
            output::warning(&format!("whether hibernate-controller runs is unknown: {error}"));
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// That another controller would change the targets, too, by its settings. On a hub without these, or for a user who may
/// not read them, there is no cheap sign: hibernate-controller itself then stops at targets that another one changes.
async fn warning(hub: &HubClient, rival: Option<&Rival>) -> Option<String> {
    let Rival { name, settings: (kind, object), is_disabled, remedy } = rival?;
    match hub.get(Resource::preferred(kind), "", object).await {
        Ok(settings) if !is_disabled(&settings) => {
            return Some(format!("{name} is enabled and would change the clusters too; {remedy}"));
        }
        Ok(_) | Err(HubError::NoKind(_) | HubError::NoObject { .. }) => {}
        Err(error) => hub.note(&format!("whether {name} is disabled is unknown: {error}")),
    }
    None
}
