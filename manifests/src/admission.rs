//! Which writes reach the webhook, and what happens to them while it is down.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde_json::Value;
use shared::admission::cel::{
    INTO_SLEEP, POWER_STATE_CHANGES, annotation_changes, annotations_dropped, condition, list, not,
};
use shared::admission::stamp::STAMPS;
use shared::annotation::keys;

use crate::entry::{ClientConfig, Entry, FAIL, IGNORE, configurations, entry, is_exempt, rule};
use crate::names::NAMESPACE;
use crate::{fdb, rollout};

/// The Validating- and the `MutatingWebhookConfiguration` of the default installation.
///
/// Neither holds a caBundle: the webhook's certificate task owns that field and fills it in, and applying these objects
/// again leaves it alone.
pub fn webhook_configurations(client: &ClientConfig) -> Vec<Value> {
    configurations(client, &[validating(), fdb::validating()].concat(), &mutating())
}

/// Those of the base, which knows no FoundationDB clusters.
pub(crate) fn base() -> Vec<Value> {
    configurations(&ClientConfig::Service, &validating(), &mutating())
}

pub(crate) fn validating() -> Vec<Entry> {
    vec![
        entry(
            "into-sleep.hibernate.sh",
            FAIL,
            vec![cluster_deployments()],
            vec![condition("into-sleep", INTO_SLEEP), condition("not-exempt", not(&is_exempt()))],
        ),
        entry(
            "hive.hibernate.sh",
            IGNORE,
            vec![cluster_deployments()],
            vec![
                condition("judged-fields-change", judged_fields_change()),
                // What the entry above takes is not asked twice.
                condition("not-into-sleep-or-exempt", format!("{}\n|| {}", not(INTO_SLEEP), is_exempt())),
            ],
        ),
        rollout::validating(),
    ]
}

pub(crate) fn mutating() -> Vec<Entry> {
    let stamped = vec![condition("power-state-hold-or-stamp-changes", stamped_fields_change())];
    let recorded = vec![condition("asleep-before-or-after", replicas_change())];
    let records = entry("replicas.hibernate.sh", IGNORE, workloads(), recorded);
    vec![
        entry("stamp.hibernate.sh", IGNORE, vec![cluster_deployments()], stamped),
        Entry { namespaces: Some(recorded_namespaces()), ..records },
        rollout::mutating(),
    ]
}

/// Writes of the object itself. `clusterdeployments/status` is another resource and stays out.
fn cluster_deployments() -> Value {
    rule("Namespaced", "hive.openshift.io", &["v1"], &["CREATE", "UPDATE"], &["clusterdeployments"])
}

/// Kinds whose replica count is recorded. The version is `*` where the fields that we read are the same in each.
fn workloads() -> Vec<Value> {
    let update =
        |group: &str, version: &str, resources: &[&str]| rule("Namespaced", group, &[version], &["UPDATE"], resources);
    let machines = &["machinedeployments", "machinedeployments/scale"];
    vec![
        update("apps", "v1", &["deployments", "deployments/scale", "statefulsets", "statefulsets/scale"]),
        update("cluster.x-k8s.io", "*", machines),
        update("cluster.k8s.io", "*", machines),
    ]
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

/// A field changes whose author is stamped, or a stamp is dropped.
fn stamped_fields_change() -> String {
    let annotations = [keys::HOLD_AWAKE_UNTIL, keys::WAKE_AT].map(annotation_changes).join("\n|| ");
    format!("{POWER_STATE_CHANGES}\n|| {annotations}\n|| {}", annotations_dropped(STAMPS))
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
            values: Some([NAMESPACE, "kube-system"].map(str::to_owned).into()),
        }]),
    }
}
