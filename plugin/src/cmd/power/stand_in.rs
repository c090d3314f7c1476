//! A request that the target's own system refuses to store: its companion takes it instead.

use serde_json::Value;
use shared::target::{Companion, Intent};

use super::ATTEMPTS;
use crate::api::error::HubError;
use crate::api::{Hub, Resource, Write};
use crate::error::{Problem, StandInError};
use crate::read::companion;
use crate::select::target::Target;

/// Whether the target's own system refused a write, whatever was written. A denial by our webhook, or by a policy, is
/// about the request.
pub(crate) fn is_by_system(target: &Target, error: &HubError) -> bool {
    let webhook = target.row.companion.zip(error.webhook());
    webhook.is_some_and(|(companion, webhook)| companion.is_webhook_of_system(webhook))
}

/// The companion that takes the request instead.
///
/// # Errors
/// The refusal, if there is no companion or it cannot be read.
pub(crate) async fn read(
    hub: &Hub,
    target: &Target,
    refusal: HubError,
) -> Result<(&'static dyn Companion, Value, HubError), Problem> {
    let Some(companion) = target.row.companion else { return Err(refusal.into()) };
    match companion::get(hub, companion, &target.object).await {
        Ok(Some(found)) => Ok((companion, found, refusal)),
        Ok(None) => {
            let (namespace, name) = companion.place(&target.object);
            let what = format!("{} in namespace {namespace}", companion.kind().full_name(&name));
            let why = format!("{what} does not exist, so nothing can take the request instead");
            Err(StandInError { refusal, why }.into())
        }
        Err(error) => Err(StandInError { refusal, why: error.to_string() }.into()),
    }
}

/// Writes the request to the companion. Returns what to warn of.
///
/// # Errors
/// The refusal, and why the companion does not take the request either.
pub(crate) async fn write(
    hub: &Hub,
    target: &Target,
    intent: &Intent<'_>,
    settings: &Write,
    mut refusal: HubError,
) -> Result<String, Problem> {
    for _ in 0..ATTEMPTS {
        let (companion, found, refused) = read(hub, target, refusal).await?;
        refusal = refused;
        let mut object = target.object.clone();
        companion.overlay(&mut object, &found);
        let patch = match companion.request(&object, &found, intent) {
            Ok(patch) => patch,
            Err(error) => return Err(StandInError { refusal, why: error.to_string() }.into()),
        };
        let (namespace, name) = companion.place(&target.object);
        match hub.patch(Resource::preferred(companion.kind()), &namespace, &name, &patch, settings).await {
            Ok(_) => {
                let what = companion.kind().full_name(&name);
                return Ok(format!(
                    "the Cluster cannot be updated; the request was written to {what} in namespace {namespace} instead ({refusal})"
                ));
            }
            Err(HubError::Conflict { .. }) => {}
            Err(error) => return Err(StandInError { refusal, why: error.to_string() }.into()),
        }
    }
    Err(Problem::Contended(ATTEMPTS))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use shared::target::{CLUSTER_DEPLOYMENT, KKP_CLUSTER};

    use super::*;

    /// Row 27 of docs/reference/kkp.md.
    #[test]
    fn only_the_systems_own_webhooks_make_way_for_the_companion() {
        let refused = |by: &str| HubError::Refused {
            object: "x/abc".to_owned(),
            by: by.to_owned(),
            message: "invalid datacenter name".to_owned(),
            denials: Vec::new(),
        };
        let down = |message: &str| HubError::WebhookDown { object: "x/abc".to_owned(), message: message.to_owned() };
        let cluster = Target::new(&KKP_CLUSTER, "v1", json!({ "metadata": { "name": "abc" } }));
        let hive = Target::new(&CLUSTER_DEPLOYMENT, "v1", json!({ "metadata": { "name": "abc" } }));
        for (error, by_system) in [
            (refused("admission webhook \"clusters.kubermatic.io\""), true),
            (
                down("Internal error occurred: failed calling webhook \"clusters.kubermatic.io\": connection refused"),
                true,
            ),
            (refused("admission webhook \"into-sleep.hibernate.sh\""), false),
            (
                down("Internal error occurred: failed calling webhook \"into-sleep.hibernate.sh\": connection refused"),
                false,
            ),
            (refused("policy 'clusters.kubermatic.io'"), false),
            (refused("the schema"), false),
            (HubError::Forbidden { object: "x/abc".to_owned(), message: "clusters.kubermatic.io".to_owned() }, false),
        ] {
            assert_eq!(is_by_system(&cluster, &error), by_system, "{error}");
            assert!(!is_by_system(&hive, &error), "{error}");
        }
    }
}
