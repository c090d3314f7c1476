//! What an entry of the webhook configurations is made of.

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, RuleWithOperations, ServiceReference, ValidatingWebhook, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use crate::names::{NAMESPACE, WEBHOOK, strings};

/// How the API server reaches the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientConfig {
    /// Through the Service of the manifests.
    Service,
    /// At a base URL such as `https://127.0.0.1:9443`, for a webhook outside the cluster.
    Url(String),
}

impl ClientConfig {
    fn at(&self, path: &str) -> WebhookClientConfig {
        match self {
            Self::Service => WebhookClientConfig {
                service: Some(ServiceReference {
                    name: WEBHOOK.to_owned(),
                    namespace: NAMESPACE.to_owned(),
                    path: Some(path.to_owned()),
                    port: Some(443),
                }),
                ..WebhookClientConfig::default()
            },
            Self::Url(base) => WebhookClientConfig {
                url: Some(format!("{}{path}", base.trim_end_matches('/'))),
                ..WebhookClientConfig::default()
            },
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

/// Metadata of both configurations in a patch.
pub(crate) fn by_name() -> ObjectMeta {
    ObjectMeta { name: Some(WEBHOOK.to_owned()), ..ObjectMeta::default() }
}

/// An entry that judges.
pub(crate) fn validating_entry(
    client: &ClientConfig,
    name: &str,
    failure: Failure,
    rule: RuleWithOperations,
    conditions: Vec<MatchCondition>,
) -> ValidatingWebhook {
    ValidatingWebhook {
        name: name.to_owned(),
        admission_review_versions: strings(&["v1"]),
        client_config: client.at("/validate"),
        failure_policy: Some(failure.policy.to_owned()),
        match_conditions: Some(conditions).filter(|conditions| !conditions.is_empty()),
        match_policy: Some("Equivalent".to_owned()),
        rules: Some(vec![rule]),
        side_effects: "None".to_owned(),
        timeout_seconds: Some(failure.timeout),
        ..ValidatingWebhook::default()
    }
}

/// An entry that stamps or records. It refuses only an object whose annotations cannot be read, unless the write is a
/// wake.
pub(crate) fn mutating_entry(
    client: &ClientConfig,
    name: &str,
    failure: Failure,
    rules: Vec<RuleWithOperations>,
    conditions: Vec<MatchCondition>,
    namespaces: Option<LabelSelector>,
) -> MutatingWebhook {
    MutatingWebhook {
        name: name.to_owned(),
        admission_review_versions: strings(&["v1"]),
        client_config: client.at("/mutate"),
        failure_policy: Some(failure.policy.to_owned()),
        match_conditions: Some(conditions),
        match_policy: Some("Equivalent".to_owned()),
        namespace_selector: namespaces,
        // Another webhook may change the power state or the replicas after ours has looked.
        reinvocation_policy: Some("IfNeeded".to_owned()),
        rules: Some(rules),
        side_effects: "None".to_owned(),
        timeout_seconds: Some(failure.timeout),
        ..MutatingWebhook::default()
    }
}

pub(crate) fn rule(group: &str, versions: &[&str], operations: &[&str], resources: &[&str]) -> RuleWithOperations {
    RuleWithOperations {
        api_groups: Some(strings(&[group])),
        api_versions: Some(strings(versions)),
        operations: Some(strings(operations)),
        resources: Some(strings(resources)),
        scope: Some("Namespaced".to_owned()),
    }
}
