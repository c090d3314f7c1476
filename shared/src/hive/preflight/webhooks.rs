//! Which webhooks of a cluster would stand in the way of its own start.
//!
//! After a sleep no pod runs, so a webhook that is served by one of them does not answer, and with failurePolicy Fail
//! it refuses everything that it is asked about: also the pods, leases and endpoints that it would need to come up
//! itself. The resources and limits are those by which Gardener judges whether a cluster can be hibernated.

use std::collections::BTreeMap;

use k8s_openapi::api::admissionregistration::v1::RuleWithOperations;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};

/// What the preflight reads of a webhook, validating or mutating.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WebhookObservation {
    /// Name of the configuration and of the webhook in it.
    pub name: String,
    /// `Fail` if absent.
    pub failure_policy: Option<String>,
    /// Seconds; 10 if absent.
    pub timeout: Option<i32>,
    /// The Service that answers, as `namespace/name`; none if it is reached by a URL.
    pub service: Option<String>,
    /// What it is asked about.
    pub rules: Vec<RuleWithOperations>,
    /// In which namespaces.
    pub namespaces: LabelSelector,
    /// About which objects.
    pub objects: LabelSelector,
}

/// Seconds of a timeout that holds nothing up: a webhook that is ignored when it fails still delays each call by as
/// long.
pub(super) const LONGEST_DELAY: i32 = 15;

/// Resources by API group.
pub type Resources = &'static [(&'static str, &'static [&'static str])];

/// What a cluster has to write to come up.
const WAKE_CRITICAL: Resources = &[
    ("", &["pods", "pods/status", "nodes", "nodes/status"]),
    ("", &["configmaps", "secrets", "serviceaccounts", "services", "endpoints", "namespaces"]),
    ("apps", &["deployments", "daemonsets", "replicasets"]),
    ("coordination.k8s.io", &["leases"]),
    ("rbac.authorization.k8s.io", &["roles", "rolebindings", "clusterroles", "clusterrolebindings"]),
    ("apiextensions.k8s.io", &["customresourcedefinitions"]),
    ("apiregistration.k8s.io", &["apiservices"]),
    ("certificates.k8s.io", &["certificatesigningrequests", "certificatesigningrequests/approval"]),
    ("discovery.k8s.io", &["endpointslices"]),
    ("networking.k8s.io", &["networkpolicies"]),
    ("scheduling.k8s.io", &["priorityclasses"]),
];

impl WebhookObservation {
    /// The first resource whose writes this webhook would hold up during a wake. `kube_system` are the labels of that
    /// namespace, `more` is what this kind of cluster writes besides.
    pub fn holds_up(&self, kube_system: &BTreeMap<String, String>, more: Resources) -> Option<&'static str> {
        let fails = self.failure_policy.as_deref() != Some("Ignore");
        let slow = self.timeout.unwrap_or(10) > LONGEST_DELAY;
        // An object selector that an object without labels does not meet is for objects that ask for it.
        let matches = selects(&self.namespaces, kube_system) && selects(&self.objects, &BTreeMap::new());
        if self.service.is_none() || !(fails || slow) || !matches {
            return None;
        }
        self.rules.iter().find_map(|rule| critical(rule, more))
    }

    /// Whether a drain deletes no Pod unless this webhook allows it, although its own Pods are drained, too. In which
    /// namespaces does not matter: a drain ends the Pods of all.
    pub fn holds_up_drain(&self) -> bool {
        let fails = self.failure_policy.as_deref() != Some("Ignore");
        let asks = |rule: &RuleWithOperations| {
            has(rule.operations.as_deref(), &["DELETE"])
                && has(rule.api_groups.as_deref(), &[""])
                && is_about(rule, "pods")
        };
        self.service.is_some() && fails && self.rules.iter().any(asks)
    }
}

fn critical(rule: &RuleWithOperations, more: Resources) -> Option<&'static str> {
    if !has(rule.operations.as_deref(), &["CREATE", "UPDATE"]) {
        return None;
    }
    let groups = WAKE_CRITICAL.iter().chain(more).filter(|(group, _)| has(rule.api_groups.as_deref(), &[group]));
    groups.flat_map(|(_, resources)| resources.iter().copied()).find(|resource| is_about(rule, resource))
}

fn has(list: Option<&[String]>, wanted: &[&str]) -> bool {
    list.into_iter().flatten().any(|entry| entry == "*" || wanted.contains(&entry.as_str()))
}

fn is_about(rule: &RuleWithOperations, resource: &str) -> bool {
    rule.resources.iter().flatten().any(|pattern| covers(pattern, resource))
}

/// `*/*` is everything, `*` everything but subresources, `pods/*` pods with all of theirs, `*/status` that of all.
fn covers(pattern: &str, resource: &str) -> bool {
    let ((wanted, wanted_sub), (name, sub)) = (split(pattern), split(resource));
    (wanted == "*" || wanted == name) && (wanted_sub == Some("*") || wanted_sub == sub)
}

/// A resource and its subresource.
fn split(text: &str) -> (&str, Option<&str>) {
    text.split_once('/').map_or((text, None), |(resource, sub)| (resource, Some(sub)))
}

/// Whether a selector selects something with these labels. One that cannot be understood does: better a warning too
/// many.
fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    Selector::try_from(selector.clone()).ok().is_none_or(|selector| selector.matches(labels))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn webhook(change: &Value) -> WebhookObservation {
        let mut webhook = json!({
            "failurePolicy": "Fail", "namespaces": {}, "objects": {}, "service": "policy/webhook",
            "rule": { "apiGroups": [""], "resources": ["pods"], "operations": ["CREATE"], "apiVersions": ["v1"] },
        });
        for (pointer, value) in change.as_object().into_iter().flatten() {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            webhook.pointer_mut(parent).unwrap()[key] = value.clone();
        }
        let read = |key: &str| serde_json::from_value(webhook[key].clone()).unwrap();
        WebhookObservation {
            name: "policy/check".to_owned(),
            failure_policy: read("failurePolicy"),
            timeout: serde_json::from_value(webhook["timeout"].clone()).unwrap(),
            service: serde_json::from_value(webhook["service"].clone()).unwrap(),
            rules: vec![serde_json::from_value(webhook["rule"].clone()).unwrap()],
            namespaces: serde_json::from_value(webhook["namespaces"].clone()).unwrap(),
            objects: serde_json::from_value(webhook["objects"].clone()).unwrap(),
        }
    }

    #[test]
    fn only_what_a_start_needs_is_held_up() {
        let own = |operator: &str, values: Value| json!({ "matchExpressions": [{ "key": "kubernetes.io/metadata.name", "operator": operator, "values": values }] });
        for (case, change, expected) in [
            ("plain", json!({}), Some("pods")),
            ("policy absent", json!({ "/failurePolicy": null }), Some("pods")),
            ("ignored", json!({ "/failurePolicy": "Ignore" }), None),
            ("ignored, but slow", json!({ "/failurePolicy": "Ignore", "/timeout": 30 }), Some("pods")),
            ("outside", json!({ "/service": null }), None),
            ("deletes only", json!({ "/rule/operations": ["DELETE"] }), None),
            (
                "everything",
                json!({ "/rule/apiGroups": ["*"], "/rule/resources": ["*/*"], "/rule/operations": ["*"] }),
                Some("pods"),
            ),
            ("status of pods", json!({ "/rule/resources": ["pods/status"] }), Some("pods/status")),
            ("all of nodes", json!({ "/rule/resources": ["nodes/*"] }), Some("nodes")),
            ("exec", json!({ "/rule/resources": ["pods/exec"] }), None),
            ("leases", json!({ "/rule/apiGroups": ["coordination.k8s.io"], "/rule/resources": ["*"] }), Some("leases")),
            ("wrong group", json!({ "/rule/apiGroups": ["apps"] }), None),
            ("its own kind", json!({ "/rule/apiGroups": ["example.com"], "/rule/resources": ["*"] }), None),
            ("not kube-system", json!({ "/namespaces": own("NotIn", json!(["kube-system"])) }), None),
            ("not others", json!({ "/namespaces": own("NotIn", json!(["shop"])) }), Some("pods")),
            ("only others", json!({ "/namespaces": own("In", json!(["shop"])) }), None),
            ("labeled namespaces", json!({ "/namespaces": { "matchLabels": { "inject": "yes" } } }), None),
            ("labeled objects", json!({ "/objects": { "matchLabels": { "inject": "yes" } } }), None),
            (
                "objects not labeled",
                json!({ "/objects": { "matchExpressions": [{ "key": "skip", "operator": "DoesNotExist" }] } }),
                Some("pods"),
            ),
        ] {
            let kube_system = [("kubernetes.io/metadata.name".to_owned(), "kube-system".to_owned())].into();
            assert_eq!(webhook(&change).holds_up(&kube_system, &[]), expected, "{case}");
        }
    }

    #[test]
    fn a_drain_is_held_up_by_what_it_has_to_call_in_the_cluster() {
        let rule =
            |operation: &str, resource: &str| json!({ "/rule/operations": [operation], "/rule/resources": [resource] });
        let with = |key: &str, value: Value| {
            let mut change = rule("DELETE", "pods");
            change[key] = value;
            change
        };
        for (case, change, expected) in [
            ("created only", json!({}), false),
            ("deleted", rule("DELETE", "pods"), true),
            ("everything", rule("*", "*/*"), true),
            ("evicted, which no drain here asks for", rule("CREATE", "*/*"), false),
            ("an eviction is only created", rule("DELETE", "pods/eviction"), false),
            ("its status", rule("*", "pods/status"), false),
            ("of another group", with("/rule/apiGroups", json!(["apps"])), false),
            ("policy absent", with("/failurePolicy", Value::Null), true),
            ("ignored", with("/failurePolicy", json!("Ignore")), false),
            ("outside of the cluster", with("/service", Value::Null), false),
        ] {
            assert_eq!(webhook(&change).holds_up_drain(), expected, "{case}");
        }
    }
}
