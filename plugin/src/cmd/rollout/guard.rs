//! What a hub needs before a rollout is created on it: the type, a controller that works, and no other one that does
//! the same.

use hub::error::HubError;
use hub::{HubClient, Resource};
use jiff::Timestamp;
use serde_json::Value;
use shared::annotation::keys;
use shared::kinds::{CLUSTER_DEPLOYMENT, POWER_ROLLOUT, TargetKind};
use view::protection::WEBHOOKS;

use crate::error::{Problem, RolloutError};
use crate::output;
use crate::read::installation::{HIVE, HIVE_CONFIG, LEASE, held, installed_in, is_disabled};

/// Refuses a rollout of this name that could not work. A paused one only needs the type: it waits for the rest.
///
/// # Errors
/// [`RolloutError`] where it could not work, or why the hub cannot be asked.
pub(crate) async fn check(hub: &HubClient, name: &str, paused: bool, row: &TargetKind) -> Result<(), Problem> {
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
    if has_rival(hub, row).await { Err(RolloutError::HiveController.into()) } else { Ok(()) }
}

/// Warns if a rollout that goes on could not work. It is stored already, and starts once the hub is ready.
pub(crate) async fn warn(hub: &HubClient, row: &TargetKind) {
    match no_controller(hub).await {
        Ok(None) => {}
        Ok(Some(why)) => output::warning(&format!("{why}; no target starts until hibernate-controller runs")),
        Err(error) => output::warning(&format!("whether hibernate-controller runs is unknown: {error}")),
    }
    if has_rival(hub, row).await {
        output::warning(
            "Hive's own hibernation controller is enabled and would change the clusters too; add \"hibernation\" to \
             spec.disabledControllers of the HiveConfig",
        );
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

/// Whether another controller would change objects of this kind, too.
async fn has_rival(hub: &HubClient, row: &TargetKind) -> bool {
    *row == CLUSTER_DEPLOYMENT && hive_runs(hub).await
}

/// Hive says in its `HiveConfig` whether its own hibernation controller runs. On a hub without one, or for a user who
/// may not read it, there is no cheap sign: hibernate-controller itself then stops at targets that another controller
/// changes.
async fn hive_runs(hub: &HubClient) -> bool {
    match hub.get(Resource::preferred(&HIVE_CONFIG), "", HIVE).await {
        Ok(config) => !is_disabled(&config),
        Err(error) if !matches!(error, HubError::NoKind(_) | HubError::NoObject { .. }) && hub.verbose => {
            output::note(&format!("whether Hive's own hibernation controller is disabled is unknown: {error}"));
            false
        }
        Err(_) => false,
    }
}
