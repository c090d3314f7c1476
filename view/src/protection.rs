//! Whether the webhook guards the volumes of a cluster, as far as the user may see that.

use std::collections::BTreeMap;

use hub::{HubClient, Resource};
use k8s_openapi::api::admissionregistration::v1::{MatchCondition, RuleWithOperations, ValidatingWebhook};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::ResourceExt;
use serde::Deserialize;
use serde_json::Value;
use shared::annotation::keys;
use shared::fdb::admission::OWNED_BY_FDB;
use shared::fdb::api::FoundationDBCluster;
use shared::kinds::Kind;
use shared::rollout::selector;

use super::resolve::NAMESPACE;

/// Which writes are judged, by whom.
pub static WEBHOOKS: Kind = Kind::cluster_scoped(
    "admissionregistration.k8s.io",
    &["v1"],
    "ValidatingWebhookConfiguration",
    "validatingwebhookconfigurations",
);

/// Which writes are stamped, by whom.
pub static MUTATING_WEBHOOKS: Kind = Kind::cluster_scoped(
    "admissionregistration.k8s.io",
    &["v1"],
    "MutatingWebhookConfiguration",
    "mutatingwebhookconfigurations",
);

/// What is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Deletes of its volumes go through the webhook, which keeps them if suspension is on.
    Yes,
    /// They do not, and why.
    No(String),
    /// The user may not see it, or it does not show; why.
    Unknown(String),
}

/// Looks.
pub async fn of(hub: &HubClient, namespace: &str, cluster: &FoundationDBCluster) -> Protection {
    let webhooks = match hub.list(Resource::preferred(&WEBHOOKS), None, "", "").await {
        Ok(list) => list.items,
        Err(error) => return Protection::Unknown(format!("the webhook configurations cannot be read: {error}")),
    };
    let labels = hub.get(Resource::preferred(&NAMESPACE), "", namespace).await.ok();
    judge(cluster, namespace, &webhooks, labels.as_ref().map(|object| &object["metadata"]["labels"]))
}

/// `labels` are those of the namespace, if they could be read.
fn judge(
    cluster: &FoundationDBCluster,
    namespace: &str,
    configurations: &[Value],
    labels: Option<&Value>,
) -> Protection {
    let (mut selectors, mut weaknesses) = (Vec::new(), Vec::new());
    for entry in configurations.iter().flat_map(entries).filter(guards) {
        match weakness(&entry) {
            Some(why) => weaknesses.push(why),
            None => selectors.push(entry.namespace_selector.unwrap_or_default()),
        }
    }
    if selectors.is_empty() && weaknesses.is_empty() {
        return Protection::No(
            "no webhook of kubectl-hibernate guards the deletion of PersistentVolumeClaims".to_owned(),
        );
    }
    if selectors.is_empty() {
        return Protection::No(format!("{}: install the manifests", weaknesses.join("; ")));
    }
    let labels = labels.map(|labels| BTreeMap::deserialize(labels).unwrap_or_default());
    match labels {
        _ if selectors.iter().any(is_empty) => {}
        None => {
            return Protection::Unknown(format!(
                "the webhook guards some namespaces, and the labels of {namespace} cannot be read"
            ));
        }
        Some(labels) if selectors.iter().any(|selector| selector::selects(selector, &labels)) => {}
        Some(_) => {
            return Protection::No(format!(
                "the namespaceSelector of the webhook does not select namespace {namespace}"
            ));
        }
    }
    match cluster.annotations().get(keys::MINIMUM_SUSPENSION) {
        Some(_) => Protection::Yes,
        None => Protection::Unknown(format!(
            "the cluster has no annotation {}, and the webhook's default is not visible to the plugin",
            keys::MINIMUM_SUSPENSION
        )),
    }
}

fn entries(configuration: &Value) -> Vec<ValidatingWebhook> {
    Vec::deserialize(&configuration["webhooks"]).unwrap_or_default()
}

/// Whether a webhook is ours and asked about deleted claims.
fn guards(webhook: &ValidatingWebhook) -> bool {
    let has = |list: &[String], word: &str| list.iter().any(|one| one == word || one == "*");
    let deletes = |RuleWithOperations { operations, resources, .. }: &RuleWithOperations| {
        has(operations.as_deref().unwrap_or_default(), "DELETE")
            && has(resources.as_deref().unwrap_or_default(), "persistentvolumeclaims")
    };
    webhook.name.ends_with(".hibernate.sh") && webhook.rules.iter().flatten().any(deletes)
}

/// Why a webhook of ours lets deletions pass: its name alone guards nothing.
fn weakness(webhook: &ValidatingWebhook) -> Option<String> {
    let expression = |condition: &MatchCondition| condition.expression == OWNED_BY_FDB;
    let wrong = match () {
        () if webhook.failure_policy.as_ref().is_some_and(|policy| policy != "Fail") => {
            "failurePolicy: found another one, must be Fail"
        }
        () if webhook.object_selector.as_ref().is_some_and(|selector| !is_empty(selector)) => {
            "objectSelector: found one, must be none"
        }
        () if !webhook.match_conditions.iter().flatten().all(expression) => {
            "matchConditions: found another expression than in the manifests"
        }
        () => return None,
    };
    Some(format!("the webhook {} does not guard: {wrong}", webhook.name))
}

fn is_empty(selector: &LabelSelector) -> bool {
    let LabelSelector { match_labels, match_expressions } = selector;
    match_labels.as_ref().is_none_or(BTreeMap::is_empty) && match_expressions.as_ref().is_none_or(Vec::is_empty)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn cluster(minimum: Option<&str>) -> FoundationDBCluster {
        let annotations = minimum.map(|text| json!({ keys::MINIMUM_SUSPENSION: text }));
        serde_json::from_value(json!({
            "apiVersion": "apps.foundationdb.org/v1beta2", "kind": "FoundationDBCluster",
            "metadata": { "name": "sample", "annotations": annotations }, "spec": { "version": "7.3.69" },
        }))
        .unwrap()
    }

    fn webhook(name: &str, selector: &Value) -> Value {
        json!({ "webhooks": [{ "name": name, "namespaceSelector": selector, "rules": [
            { "operations": ["DELETE"], "resources": ["persistentvolumeclaims", "services"] }] }] })
    }

    #[test]
    fn protection_is_judged_by_what_the_api_server_would_ask() {
        let ours = |selector: Value| vec![webhook("fdb.hibernate.sh", &selector)];
        let guarded = json!({ "matchLabels": { "fdb": "yes" } });
        let not_system =
            json!({ "matchExpressions": [{ "key": "name", "operator": "NotIn", "values": ["kube-system"] }] });
        let two_hours = Some("2h");
        for (minimum, webhooks, labels, expected) in [
            (two_hours, ours(json!({})), None, "yes"),
            (two_hours, ours(Value::Null), Some(json!({})), "yes"),
            (two_hours, ours(guarded.clone()), Some(json!({ "fdb": "yes" })), "yes"),
            (
                two_hours,
                ours(guarded.clone()),
                Some(json!({ "fdb": "no" })),
                "no: the namespaceSelector of the webhook does not select namespace db",
            ),
            (two_hours, ours(guarded.clone()), Some(Value::Null), "no: the namespaceSelector"),
            (two_hours, ours(guarded), None, "unknown: the webhook guards some namespaces"),
            (two_hours, ours(not_system.clone()), Some(Value::Null), "yes"),
            (two_hours, ours(not_system), Some(json!({ "name": "kube-system" })), "no: the namespaceSelector"),
            (two_hours, vec![], Some(Value::Null), "no: no webhook of kubectl-hibernate"),
            (two_hours, vec![webhook("other.example.com", &json!({}))], Some(Value::Null), "no: no webhook"),
            // What a recovery holds is guarded, too.
            (Some("0"), ours(json!({})), None, "yes"),
            (Some("0"), vec![], None, "no: no webhook"),
            (Some("soon"), ours(json!({})), None, "yes"),
            (None, ours(json!({})), None, "unknown: the cluster has no annotation"),
        ] {
            let found = match judge(&cluster(minimum), "db", &webhooks, labels.as_ref()) {
                Protection::Yes => "yes".to_owned(),
                Protection::No(why) => format!("no: {why}"),
                Protection::Unknown(why) => format!("unknown: {why}"),
            };
            assert!(found.starts_with(expected), "{minimum:?} {webhooks:?} {labels:?}: {found}");
        }
    }

    /// A webhook of our name that lets deletions pass does not protect.
    #[test]
    fn a_weaker_entry_does_not_protect() {
        let owned = json!([{ "name": "owned", "expression": OWNED_BY_FDB }]);
        let never =
            json!([{ "name": "owned", "expression": OWNED_BY_FDB }, { "name": "never", "expression": "false" }]);
        for (field, value, expected) in [
            ("failurePolicy", json!("Fail"), None),
            ("matchConditions", owned, None),
            ("objectSelector", json!({}), None),
            ("failurePolicy", json!("Ignore"), Some("failurePolicy: ")),
            ("matchConditions", never, Some("matchConditions: ")),
            ("objectSelector", json!({ "matchLabels": { "a": "b" } }), Some("objectSelector: ")),
        ] {
            let mut weaker = webhook("suspend.hibernate.sh", &json!({}));
            weaker["webhooks"][0][field] = value;
            let judged = |all: &[Value]| judge(&cluster(Some("2h")), "db", all, None);
            match expected {
                None => assert_eq!(judged(&[weaker]), Protection::Yes, "{field}"),
                Some(part) => {
                    let Protection::No(why) = judged(std::slice::from_ref(&weaker)) else { panic!("{field}") };
                    assert!(
                        why.starts_with(&format!("the webhook suspend.hibernate.sh does not guard: {part}")),
                        "{why}"
                    );
                    // Another that guards makes up for it.
                    assert_eq!(judged(&[weaker, webhook("fdb.hibernate.sh", &json!({}))]), Protection::Yes);
                }
            }
        }
    }
}
