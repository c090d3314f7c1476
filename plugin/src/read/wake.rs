//! What may reject the wake of a namespace: quotas, and webhooks that are served from it.

use hub::error::HubError;
use hub::{HubClient, ObjectList, Resource};
use serde_json::Value;
use shared::kinds::Kind;
use shared::object::{items, name_of, text};
use shared::quantity;
use view::protection::{MUTATING_WEBHOOKS, WEBHOOKS};

use crate::output;

static QUOTA: Kind = Kind::namespaced("", &["v1"], "ResourceQuota", "resourcequotas");

/// Prints quotas and webhooks that may reject the wake. `recorded`: replicas that a wake starts.
pub(crate) async fn note(hub: &HubClient, namespace: &str, recorded: u32) {
    let quotas = hub.list(Resource::preferred(&QUOTA), Some(namespace), "", "").await;
    for quota in known(hub, quotas) {
        for text in over(&quota, recorded) {
            output::note(&text);
        }
    }
    for kind in [&WEBHOOKS, &MUTATING_WEBHOOKS] {
        let list = hub.list(Resource::preferred(kind), None, "", "").await;
        for configuration in known(hub, list) {
            for text in served(kind, &configuration, namespace) {
                output::note(&text);
            }
        }
    }
}

/// What was listed; without the right to list, nothing.
fn known(hub: &HubClient, list: Result<ObjectList, HubError>) -> Vec<Value> {
    match list {
        Ok(list) => list.items,
        Err(error) => {
            hub.note(&format!("cannot list what may reject the wake: {error}"));
            Vec::new()
        }
    }
}

/// Limits that are lower than what runs, and than what a wake starts.
fn over(quota: &Value, recorded: u32) -> Vec<String> {
    let hard = quota.pointer("/status/hard").and_then(Value::as_object);
    let exceeded = |(resource, limit): (&String, &Value)| {
        let (limit, found) = (limit.as_str()?, quota["status"]["used"][resource].as_str()?);
        let more = if resource == "pods" || resource == "count/pods" { f64::from(recorded) } else { 0.0 };
        let used = quantity::parse(found)? + more;
        let wake = if more > 0.0 { format!(" and {recorded} more on wake") } else { String::new() };
        (used > quantity::parse(limit)?).then(|| {
            format!(
                "resourcequota/{}: {resource}: used {found}{wake} exceed the limit {limit}: the quota will reject Pods of \
                 the wake",
                name_of(quota)
            )
        })
    };
    hard.into_iter().flatten().filter_map(exceeded).collect()
}

/// Webhooks of a configuration that this namespace serves and without which the hub refuses writes.
fn served(kind: &Kind, configuration: &Value, namespace: &str) -> Vec<String> {
    let is_here = |webhook: &&Value| {
        text(webhook, "/clientConfig/service/namespace") == namespace && webhook["failurePolicy"] != "Ignore"
    };
    let webhooks = items(configuration, "/webhooks").filter(is_here);
    let line = |webhook: &Value| {
        format!(
            "{} serves webhook {} from this namespace: while it sleeps, the hub refuses each write that the webhook judges",
            kind.full_name(name_of(configuration)),
            text(webhook, "/name")
        )
    };
    webhooks.map(line).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_quota_counts_what_runs_and_what_a_wake_starts() {
        let quota =
            |hard: Value, used: Value| json!({ "metadata": { "name": "q" }, "status": { "hard": hard, "used": used } });
        for (quota, recorded, expected) in [
            (quota(json!({ "pods": "10" }), json!({ "pods": "4" })), 6, ""),
            (
                quota(json!({ "pods": "10" }), json!({ "pods": "4" })),
                7,
                "pods: used 4 and 7 more on wake exceed the limit 10",
            ),
            (
                quota(json!({ "requests.cpu": "1500m" }), json!({ "requests.cpu": "2" })),
                0,
                "requests.cpu: used 2 exceed the limit 1500m:",
            ),
            (quota(json!({ "requests.memory": "1Gi" }), json!({ "requests.memory": "1000Mi" })), 9, ""),
            (quota(json!({ "pods": "x" }), json!({ "pods": "4" })), 7, ""),
        ] {
            let found = over(&quota, recorded).concat();
            assert_eq!(found.is_empty(), expected.is_empty(), "{found}");
            assert!(found.contains(expected), "{found}");
        }
    }

    #[test]
    fn a_webhook_that_fails_closed_and_is_served_here_is_named() {
        let webhook = |namespace: &str, policy: &str| json!({ "name": "a.b.c", "failurePolicy": policy, "clientConfig": { "service": { "namespace": namespace } } });
        let all = json!({
            "metadata": { "name": "guard" },
            "webhooks": [webhook("shop", "Fail"), webhook("other", "Fail"), webhook("shop", "Ignore"), { "name": "url", "clientConfig": { "url": "https://x" } }],
        });
        let found = served(&WEBHOOKS, &all, "shop");
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(
            found[0]
                .starts_with("validatingwebhookconfiguration.admissionregistration.k8s.io/guard serves webhook a.b.c"),
            "{found:?}"
        );
    }
}
