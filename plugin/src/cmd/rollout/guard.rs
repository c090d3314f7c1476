//! What a hub needs before a rollout is created on it: the type, a controller that works, and no other one that does
//! the same.

use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use shared::annotation::{format, keys};
use shared::target::{CLUSTER_DEPLOYMENT, Kind, POWER_ROLLOUT, TargetKind};

use crate::api::error::HubError;
use crate::api::{Hub, Resource};
use crate::cli::values::is_namespace;
use crate::error::{Problem, RolloutError};
use crate::output;
use crate::output::age::age;
use crate::read::protection::WEBHOOKS;

static LEASE: Kind = Kind::namespaced("coordination.k8s.io", &["v1"], "Lease", "leases");
static HIVE_CONFIG: Kind = Kind::cluster_scoped("hive.openshift.io", &["v1"], "HiveConfig", "hiveconfigs");
/// The only `HiveConfig` that Hive reads.
const HIVE: &str = "hive";
/// What `spec.disabledControllers` of a `HiveConfig` calls Hive's hibernation controller.
const HIBERNATION: &str = "hibernation";
/// How long a Lease is held, if it does not say.
const HELD: i64 = 15;

/// Refuses a rollout of this name that could not work. A paused one only needs the type: it waits for the rest.
///
/// # Errors
/// [`RolloutError`] where it could not work, or why the hub cannot be asked.
pub(crate) async fn check(hub: &Hub, name: &str, paused: bool, row: &TargetKind) -> Result<(), Problem> {
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
pub(crate) async fn warn(hub: &Hub, row: &TargetKind) {
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
async fn no_controller(hub: &Hub) -> Result<Option<String>, HubError> {
    let (webhooks, is_known) = match hub.get(Resource::preferred(&WEBHOOKS), "", keys::WEBHOOK).await {
        Ok(webhooks) => (webhooks, true),
        Err(HubError::NoObject { .. }) => (Value::Null, true),
        Err(HubError::Forbidden { .. }) => (Value::Null, false),
        Err(error) => return Err(error),
    };
    let namespace = installed_in(&webhooks);
    match hub.get(Resource::preferred(&LEASE), namespace, keys::CONTROLLER).await {
        Ok(lease) => Ok(held(&lease, namespace, Timestamp::now()).err()),
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

/// Our namespace: that of the webhook's Service, and the default one for users who may not read the webhook
/// configuration.
fn installed_in(webhooks: &Value) -> &str {
    let service = webhooks.pointer("/webhooks/0/clientConfig/service/namespace").and_then(Value::as_str);
    service.filter(|name| is_namespace(name)).unwrap_or(keys::NAMESPACE)
}

/// Whether a Lease is held now, or why not.
fn held(lease: &Value, namespace: &str, now: Timestamp) -> Result<(), String> {
    let text = |field: &str| lease.get("spec")?.get(field)?.as_str().filter(|text| !text.is_empty());
    let name = format!("the Lease {} in namespace {namespace}", keys::CONTROLLER);
    if text("holderIdentity").is_none() {
        return Err(format!("no controller runs: nobody holds {name}"));
    }
    let Some(renewed) = text("renewTime").and_then(format::time) else {
        return Err(format!("no controller runs: {name} was never renewed"));
    };
    let length = lease.pointer("/spec/leaseDurationSeconds").and_then(Value::as_i64).unwrap_or(HELD);
    match renewed.checked_add(SignedDuration::from_secs(length)) {
        Ok(end) if end < now => {
            let ago = age(renewed, now);
            Err(format!("no controller runs: {name} was last renewed {ago} ago, by this machine's clock"))
        }
        _ => Ok(()),
    }
}

/// Whether another controller would change objects of this kind, too.
async fn has_rival(hub: &Hub, row: &TargetKind) -> bool {
    *row == CLUSTER_DEPLOYMENT && hive_runs(hub).await
}

/// Hive says in its `HiveConfig` whether its own hibernation controller runs. On a hub without one, or for a user who
/// may not read it, there is no cheap sign: hibernate-controller itself then stops at targets that another controller
/// changes.
async fn hive_runs(hub: &Hub) -> bool {
    match hub.get(Resource::preferred(&HIVE_CONFIG), "", HIVE).await {
        Ok(config) => !is_disabled(&config),
        Err(error) if !matches!(error, HubError::NoKind(_) | HubError::NoObject { .. }) && hub.verbose => {
            output::note(&format!("whether Hive's own hibernation controller is disabled is unknown: {error}"));
            false
        }
        Err(_) => false,
    }
}

fn is_disabled(config: &Value) -> bool {
    let disabled = config.pointer("/spec/disabledControllers").and_then(Value::as_array);
    disabled.is_some_and(|names| names.iter().any(|name| name == HIBERNATION))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_lease_counts_while_it_is_held() {
        let now = "2026-11-24T18:00:00Z".parse().unwrap();
        let lease = |holder: &str, renewed: &str, length: Option<i64>| json!({ "spec": { "holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": length } });
        for (lease, part) in [
            (lease("a", "2026-11-24T17:59:50.123456Z", Some(15)), None),
            (lease("a", "2026-11-24T17:59:46.000000Z", None), None),
            (lease("a", "2026-11-24T18:00:30.000000Z", Some(15)), None),
            (lease("a", "2026-11-24T17:59:44.000000Z", Some(15)), Some("was last renewed 16s ago")),
            (lease("", "2026-11-24T17:59:50.123456Z", Some(15)), Some("nobody holds")),
            (json!({ "spec": { "holderIdentity": "a" } }), Some("was never renewed")),
            (json!({}), Some("nobody holds")),
        ] {
            let held = held(&lease, keys::NAMESPACE, now);
            match part {
                None => assert_eq!(held, Ok(()), "{lease}"),
                Some(part) => assert!(held.unwrap_err().contains(part), "{lease}"),
            }
        }
    }

    #[test]
    fn the_lease_is_looked_for_where_the_webhook_is_installed() {
        let at = |client: Value| json!({ "webhooks": [{ "clientConfig": client }] });
        for (webhooks, expected) in [
            (at(json!({ "service": { "namespace": "sleep", "name": "hibernate-webhook" } })), "sleep"),
            (at(json!({ "service": { "namespace": "../x" } })), keys::NAMESPACE),
            (at(json!({ "url": "https://127.0.0.1" })), keys::NAMESPACE),
            (Value::Null, keys::NAMESPACE),
        ] {
            assert_eq!(installed_in(&webhooks), expected, "{webhooks}");
        }
    }

    #[test]
    fn hives_controller_is_disabled_by_its_name() {
        for (spec, disabled) in [
            (json!({}), false),
            (json!({ "disabledControllers": [] }), false),
            (json!({ "disabledControllers": ["clusterpool"] }), false),
            (json!({ "disabledControllers": ["clusterpool", "hibernation"] }), true),
        ] {
            assert_eq!(is_disabled(&json!({ "spec": spec })), disabled, "{spec}");
        }
    }
}
