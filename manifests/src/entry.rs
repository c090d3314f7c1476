//! What the webhook configurations and their entries are made of.

use k8s_openapi::api::admissionregistration::v1::MatchCondition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Value, json};
use shared::admission::cel::list;
use shared::hive::exempt;

use crate::names::{NAMESPACE, WEBHOOK, cluster_wide};

/// How the API server reaches the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientConfig {
    /// Through the Service of the manifests.
    Service,
    /// At a base URL such as `https://127.0.0.1:9443`, for a webhook outside the cluster.
    Url(String),
}

impl ClientConfig {
    fn at(&self, path: &str) -> Value {
        match self {
            Self::Service => json!({"service": {"name": WEBHOOK, "namespace": NAMESPACE, "path": path, "port": 443}}),
            Self::Url(base) => json!({"url": format!("{}{path}", base.trim_end_matches('/'))}),
        }
    }
}

/// What happens to a write while the webhook is down, and how many seconds the write may wait for it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Failure {
    policy: &'static str,
    timeout: i32,
}

/// It is refused.
pub(crate) const FAIL: Failure = Failure { policy: "Fail", timeout: 5 };
/// It passes.
pub(crate) const IGNORE: Failure = Failure { policy: "Ignore", timeout: 3 };

/// The configuration of entries that judge.
pub(crate) const VALIDATING: (&str, &str) = ("ValidatingWebhookConfiguration", "/validate");
/// The configuration of entries that stamp or record. They refuse only an object whose annotations cannot be read,
/// unless the write is a wake.
pub(crate) const MUTATING: (&str, &str) = ("MutatingWebhookConfiguration", "/mutate");

/// An entry of a configuration.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) failure: Failure,
    pub(crate) rules: Vec<Value>,
    pub(crate) conditions: Vec<MatchCondition>,
    /// Namespaces; all if absent.
    pub(crate) namespaces: Option<LabelSelector>,
}

/// An entry about every namespace.
pub(crate) fn entry(name: &'static str, failure: Failure, rules: Vec<Value>, conditions: Vec<MatchCondition>) -> Entry {
    Entry { name, failure, rules, conditions, namespaces: None }
}

/// What an entry is about: `Namespaced` or `Cluster`, group, versions, operations, resources.
pub(crate) fn rule(scope: &str, group: &str, versions: &[&str], operations: &[&str], resources: &[&str]) -> Value {
    json!({
        "apiGroups": [group],
        "apiVersions": versions,
        "operations": operations,
        "resources": resources,
        "scope": scope,
    })
}

/// Both configurations with these entries, validating and mutating.
pub(crate) fn configurations(client: &ClientConfig, validating: &[Entry], mutating: &[Entry]) -> Vec<Value> {
    let metadata = json!(cluster_wide(WEBHOOK, WEBHOOK));
    [(VALIDATING, validating), (MUTATING, mutating)]
        .map(|(kind, entries)| configuration(kind, &metadata, client, entries))
        .into()
}

/// The patch that adds entries to a configuration of the base.
pub(crate) fn patch(kind: (&str, &str), entries: &[Entry]) -> Vec<Value> {
    vec![configuration(kind, &json!({"name": WEBHOOK}), &ClientConfig::Service, entries)]
}

fn configuration((kind, path): (&str, &str), metadata: &Value, client: &ClientConfig, entries: &[Entry]) -> Value {
    let webhook = |entry: &Entry| {
        let mut webhook = json!({
            "name": entry.name,
            "admissionReviewVersions": ["v1"],
            "clientConfig": client.at(path),
            "failurePolicy": entry.failure.policy,
            "matchPolicy": "Equivalent",
            "rules": entry.rules,
            "sideEffects": "None",
            "timeoutSeconds": entry.failure.timeout,
        });
        if !entry.conditions.is_empty() {
            webhook["matchConditions"] = json!(entry.conditions);
        }
        if let Some(namespaces) = &entry.namespaces {
            webhook["namespaceSelector"] = json!(namespaces);
        }
        if (kind, path) == MUTATING {
            // Another webhook may change the power state or the replicas after ours has looked.
            webhook["reinvocationPolicy"] = json!("IfNeeded");
        }
        webhook
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": metadata,
        "webhooks": entries.iter().map(webhook).collect::<Vec<_>>(),
    })
}

/// The user is one of those who are never denied.
pub(crate) fn is_exempt() -> String {
    format!("{}\n|| {}", is_exempt_user(), is_exempt_member())
}

/// The user is a member of a group whose members are never denied.
pub(crate) fn is_exempt_member() -> String {
    format!("request.userInfo.?groups.orValue([]).exists(group, group in {})", list(exempt::GROUPS))
}

/// The user is our controller. Members of the groups write no Clusters of KKP and no claims of rollouts.
pub(crate) fn is_exempt_user() -> String {
    format!("request.userInfo.username in {}", list(exempt::USERS))
}
