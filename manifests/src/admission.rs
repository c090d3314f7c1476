//! Which writes reach the webhook, and what happens to them while it is down.

use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, RuleWithOperations, ValidatingWebhookConfiguration,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde_json::{Value, json};
use shared::admission::cel::{self, INTO_SLEEP, POWER_STATE_CHANGES, annotation_changes, condition, list, not};
use shared::annotation::keys;

use crate::entry::{ClientConfig, FAIL, IGNORE, mutating_entry, rule, validating_entry};
use crate::names::{NAMESPACE, WEBHOOK, cluster_wide, strings};
use crate::{fdb, rollout};

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

/// Writes of the object itself. `clusterdeployments/status` is another resource and stays out.
fn cluster_deployments() -> RuleWithOperations {
    rule("hive.openshift.io", &["v1"], &["CREATE", "UPDATE"], &["clusterdeployments"])
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
