//! Which writes reach the webhook, and what happens to them while it is down.

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
    ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement, ObjectMeta};
use serde_json::{Value, json};
use shared::admission::cel::{self, INTO_SLEEP, POWER_STATE_CHANGES, annotation_changes, condition, list, not};
use shared::annotation::keys;

use crate::names::{NAMESPACE, WEBHOOK, cluster_wide, strings};
use crate::{fdb, rollout};

/// How the API server reaches the webhook.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClientConfig {
    /// Through the Service of the manifests.
    Service,
    /// At a base URL such as `https://127.0.0.1:9443`, for a webhook outside the cluster.
    Url(String),
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

/// The Validating- and the `MutatingWebhookConfiguration` of the default installation.
///
/// Neither holds a caBundle: the webhook's certificate task owns that field and fills it in, and applying these objects
/// again leaves it alone.
pub fn webhook_configurations(client: &ClientConfig) -> Vec<Value> {
    let mut judging = validating(client);
    judging.webhooks.get_or_insert_default().extend(fdb::validating(client));
    vec![json!(judging), json!(mutating(client))]
}

/// Those of the base, which knows no FoundationDB clusters.
pub(crate) fn base() -> Vec<Value> {
    vec![json!(validating(&ClientConfig::Service)), json!(mutating(&ClientConfig::Service))]
}

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

/// An entry that stamps or records. It refuses only an object whose annotations cannot be read, unless the write is a wake.
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

pub(crate) fn validating(client: &ClientConfig) -> ValidatingWebhookConfiguration {
    ValidatingWebhookConfiguration {
        metadata: cluster_wide(WEBHOOK, WEBHOOK),
        webhooks: Some(vec![
            validating_entry(
                client,
                "into-sleep.hibernate.sh",
                FAIL,
                cluster_deployments(),
                vec![condition("into-sleep", INTO_SLEEP), condition("not-exempt", not(&cel::is_exempt()))],
            ),
            validating_entry(
                client,
                "hive.hibernate.sh",
                IGNORE,
                cluster_deployments(),
                vec![
                    condition("judged-fields-change", judged_fields_change()),
                    // What the entry above takes is not asked twice.
                    condition("not-into-sleep-or-exempt", format!("{}\n|| {}", not(INTO_SLEEP), cel::is_exempt())),
                ],
            ),
            rollout::validating(client),
        ]),
    }
}

pub(crate) fn mutating(client: &ClientConfig) -> MutatingWebhookConfiguration {
    MutatingWebhookConfiguration {
        metadata: cluster_wide(WEBHOOK, WEBHOOK),
        webhooks: Some(vec![
            mutating_entry(
                client,
                "stamp.hibernate.sh",
                IGNORE,
                vec![cluster_deployments()],
                vec![condition("power-state-or-hold-changes", stamped_fields_change())],
                None,
            ),
            mutating_entry(
                client,
                "replicas.hibernate.sh",
                IGNORE,
                WORKLOADS.iter().map(Workload::rule).collect(),
                vec![condition("asleep-before-or-after", replicas_change())],
                Some(recorded_namespaces()),
            ),
            rollout::mutating(client),
        ]),
    }
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

/// Writes of the object itself. `clusterdeployments/status` is another resource and stays out.
fn cluster_deployments() -> RuleWithOperations {
    rule("hive.openshift.io", &["v1"], &["CREATE", "UPDATE"], &["clusterdeployments"])
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

/// Kinds whose replica count is recorded.
struct Workload {
    group: &'static str,
    /// `*` where the fields that we read are the same in every version.
    version: &'static str,
    resources: &'static [&'static str],
}

const WORKLOADS: &[Workload] = &[
    Workload {
        group: "apps",
        version: "v1",
        resources: &["deployments", "deployments/scale", "statefulsets", "statefulsets/scale"],
    },
    Workload {
        group: "cluster.x-k8s.io",
        version: "*",
        resources: &["machinedeployments", "machinedeployments/scale"],
    },
    Workload { group: "cluster.k8s.io", version: "*", resources: &["machinedeployments", "machinedeployments/scale"] },
];

impl Workload {
    fn rule(&self) -> RuleWithOperations {
        rule(self.group, &[self.version], &["UPDATE"], self.resources)
    }
}

/// A field that a rule judges is another one than before, or the object is new.
fn judged_fields_change() -> String {
    format!(
        "oldObject == null
|| object.?spec.?powerState.orValue('') != oldObject.?spec.?powerState.orValue('')
|| object.?spec.?hibernateAfter != oldObject.?spec.?hibernateAfter
|| {}.exists(key,
  object.metadata.?annotations[?key] != oldObject.metadata.?annotations[?key])",
        list(keys::TARGET_ANNOTATIONS)
    )
}

/// A field changes whose author is stamped.
fn stamped_fields_change() -> String {
    let annotations = [keys::HOLD_AWAKE_UNTIL, keys::WAKE_AT].map(annotation_changes).join("\n|| ");
    format!("{POWER_STATE_CHANGES}\n|| {annotations}")
}

/// Replicas go to 0 or leave 0, or the record is edited while they stay 0. Ordinary rollouts and scaling stay away.
///
/// An absent count is 1 on a workload and 0 on a `Scale`, which drops zeroes.
fn replicas_change() -> String {
    let replicas =
        |object: &str| format!("{object}.?spec.?replicas.orValue(request.?subResource.orValue('') == 'scale' ? 0 : 1)");
    let (new, old) = (replicas("object"), replicas("oldObject"));
    let record = |object: &str| format!("{object}.metadata.?annotations[?'{}']", keys::REPLICAS);
    format!(
        "({new} == 0)
!= ({old} == 0)
|| ({new} == 0
  && {} != {})",
        record("object"),
        record("oldObject")
    )
}

/// Namespaces that asked for it, but never those in which the webhook itself could be kept from starting.
fn recorded_namespaces() -> LabelSelector {
    LabelSelector {
        match_labels: Some([(keys::RECORD_REPLICAS.to_owned(), "true".to_owned())].into()),
        match_expressions: Some(vec![LabelSelectorRequirement {
            key: "kubernetes.io/metadata.name".to_owned(),
            operator: "NotIn".to_owned(),
            values: Some(strings(&[NAMESPACE, "kube-system"])),
        }]),
    }
}
