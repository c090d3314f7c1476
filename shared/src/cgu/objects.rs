//! The objects that an upgrade creates on the hub, and their names: the Placement and `PlacementBinding` that enforce a
//! policy on some clusters (section 4), views and actions (section 9.4).

use std::collections::BTreeMap;

use kube::ResourceExt as _;
use serde_json::{Value, json};

use super::api::{ClusterGroupUpgrade, Reference};
use super::view::{InstallPlan, ViewRequest};
use super::wire::{UPGRADE, UPGRADE_NAMESPACE};

/// Annotation of an upgrade: the suffix of the names of its objects.
pub const NAME_SUFFIX: &str = "cluster-group-upgrades-operator/name-suffix";
/// Annotation of an object: its name before it was made short and unique.
const DESIRED_NAME: &str = "cluster-group-upgrades-operator/rname";
/// Open Cluster Management's name of the hub as a cluster of its own: an action there would change the hub.
pub const LOCAL_CLUSTER: &str = "local-cluster";
/// Limit for name and namespace of an object together, in bytes.
const MAX_NAME: usize = 253;
/// Characters of the value of a label.
pub(super) const MAX_LABEL: usize = 63;
/// Characters of the upgrade's UID in a suffix.
const SUFFIX: usize = 5;

/// Name and namespace of the Placement and the `PlacementBinding` for a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    pub namespace: String,
    /// The name before it is shortened and made unique.
    pub desired: String,
    pub actual: String,
}

impl Names {
    /// The names for a policy. The status holds those that we or TALM have chosen before. A new one ends in the upgrade's
    /// UID, not in random characters as TALM's does: after a crash it is the same again.
    pub fn of(upgrade: &ClusterGroupUpgrade, policy: &Reference) -> Self {
        let desired = format!("{}-{}-placement", upgrade.name_any(), policy.name).to_lowercase();
        let known = upgrade.status.as_ref().map(|status| &status.safe_resource_names);
        let known = known.and_then(|names| names.get(&format!("{}/{desired}", policy.namespace)));
        let actual = known.cloned().unwrap_or_else(|| safe(&desired, &policy.namespace, &suffix(upgrade)));
        Self { namespace: policy.namespace.clone(), desired, actual }
    }

    /// Key of `status.safeResourceNames`.
    pub fn key(&self) -> String {
        format!("{}/{}", self.namespace, self.desired)
    }

    fn metadata(&self, upgrade: &ClusterGroupUpgrade) -> Value {
        json!({
            "name": self.actual,
            "namespace": self.namespace,
            "labels": {
                "app": "openshift-cluster-group-upgrades",
                UPGRADE: upgrade.metadata.name,
                UPGRADE_NAMESPACE: upgrade.metadata.namespace,
                "velero.io/exclude-from-backup": "true",
            },
            "annotations": { DESIRED_NAME: self.key() },
        })
    }
}

fn suffix(upgrade: &ClusterGroupUpgrade) -> String {
    let given = upgrade.annotations().get(NAME_SUFFIX).filter(|one| !one.is_empty());
    let uid = || upgrade.uid().unwrap_or_default().chars().take(SUFFIX).collect();
    given.cloned().unwrap_or_else(uid)
}

/// Desired and actual name of the view of a Subscription, the same on every cluster. `known`: names that were chosen
/// before.
pub fn view_name(
    upgrade: &ClusterGroupUpgrade,
    known: &BTreeMap<String, String>,
    kind: &str,
    object: &str,
) -> (String, String) {
    let Reference { name, namespace } = Reference::to(upgrade);
    let desired = format!("{name}-{namespace}-{kind}-{object}").to_lowercase();
    let actual = known.get(&format!("/{desired}")).cloned().unwrap_or_else(|| safe(&desired, "", &suffix(upgrade)));
    (desired, actual)
}

/// A `ManagedClusterView`, which is in the namespace of its cluster.
pub fn view(upgrade: &ClusterGroupUpgrade, request: &ViewRequest) -> Value {
    json!({
        "apiVersion": "view.open-cluster-management.io/v1beta1",
        "kind": "ManagedClusterView",
        "metadata": {
            "name": request.name,
            "namespace": request.cluster,
            "labels": { UPGRADE: upgrade.metadata.name, UPGRADE_NAMESPACE: upgrade.metadata.namespace },
            "annotations": { DESIRED_NAME: format!("{}/{}", request.cluster, request.desired) },
        },
        "spec": { "scope": request.scope },
    })
}

/// Value of label [`UPGRADE`] of an action: namespace and name of its upgrade, as TALM has it. Where that is too long
/// for a label, it is cut and gets the suffix of the upgrade's objects.
pub fn action_label(upgrade: &ClusterGroupUpgrade) -> String {
    let Reference { name, namespace } = Reference::to(upgrade);
    let label = format!("{namespace}-{name}");
    if label.len() <= MAX_LABEL {
        return label;
    }
    let suffix = suffix(upgrade);
    let base: String = label.chars().take(MAX_LABEL.saturating_sub(suffix.len() + 1)).collect();
    format!("{}-{suffix}", base.trim_end_matches(['.', '-']))
}

pub fn action(upgrade: &ClusterGroupUpgrade, (cluster, name): (&str, &str), spec: &Value) -> Value {
    json!({
        "apiVersion": "action.open-cluster-management.io/v1beta1",
        "kind": "ManagedClusterAction",
        "metadata": { "name": name, "namespace": cluster, "labels": { UPGRADE: action_label(upgrade) } },
        "spec": spec,
    })
}

/// The approval of an `InstallPlan` on a cluster, in this namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    pub cluster: String,
    pub name: String,
    pub namespace: String,
    pub plan: InstallPlan,
}

/// The action that carries out an approval.
pub fn approval(upgrade: &ClusterGroupUpgrade, approval: &Approval) -> Value {
    let template = json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "InstallPlan",
        "metadata": { "name": approval.name, "resourceVersion": approval.plan.resource_version },
        "spec": { "approval": "Manual", "approved": true, "clusterServiceVersionNames": approval.plan.versions },
    });
    let kube = json!({ "resource": "installplan", "namespace": approval.namespace, "template": template });
    action(upgrade, (&approval.cluster, &approval.name), &json!({ "actionType": "Update", "kube": kube }))
}

/// A name with this suffix that fits into the limit.
fn safe(desired: &str, namespace: &str, suffix: &str) -> String {
    let room = MAX_NAME.saturating_sub(suffix.len() + namespace.len() + 1);
    let base: String = desired.chars().take(room).collect();
    format!("{}-{suffix}", base.trim_end_matches(|last: char| !last.is_ascii_alphanumeric() && last != '-'))
}

/// A Placement that selects these clusters by their label `name`, available or not.
pub fn placement(upgrade: &ClusterGroupUpgrade, policy: &Reference, names: &Names, clusters: &[String]) -> Value {
    let mut metadata = names.metadata(upgrade);
    metadata["labels"]["openshift-cluster-group-upgrades/forPolicy"] = json!(policy.name);
    let tolerate =
        |key: &str| json!({ "key": format!("cluster.open-cluster-management.io/{key}"), "operator": "Exists" });
    json!({
        "apiVersion": "cluster.open-cluster-management.io/v1beta1",
        "kind": "Placement",
        "metadata": metadata,
        "spec": {
            "predicates": [{ "requiredClusterSelector": { "labelSelector": { "matchExpressions": [match_names(clusters)] } } }],
            "tolerations": [tolerate("unavailable"), tolerate("unreachable")],
        },
    })
}

/// The expression that selects these clusters; without `values` if there are none, as TALM writes it (row 48).
pub fn match_names(clusters: &[String]) -> Value {
    let mut expression = json!({ "key": "name", "operator": "In" });
    if !clusters.is_empty() {
        expression["values"] = json!(clusters);
    }
    expression
}

/// The binding that enforces a policy on the clusters of its Placement.
pub fn binding(upgrade: &ClusterGroupUpgrade, policy: &Reference, names: &Names) -> Value {
    json!({
        "apiVersion": "policy.open-cluster-management.io/v1",
        "kind": "PlacementBinding",
        "metadata": names.metadata(upgrade),
        "subFilter": "restricted",
        "bindingOverrides": { "remediationAction": "enforce" },
        "placementRef": {
            "name": names.actual, "kind": "Placement", "apiGroup": "cluster.open-cluster-management.io",
        },
        "subjects": [{ "name": policy.name, "kind": "Policy", "apiGroup": "policy.open-cluster-management.io" }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgu::wire::PlacementObject;

    fn upgrade(annotations: &Value, safe_names: &Value) -> ClusterGroupUpgrade {
        serde_json::from_value(json!({
            "apiVersion": "ran.openshift.io/v1alpha1", "kind": "ClusterGroupUpgrade",
            "metadata": {
                "name": "CGU", "namespace": "ztp", "uid": "0f3c9a11-2222", "annotations": annotations,
            },
            "spec": { "remediationStrategy": { "maxConcurrency": 1 } },
            "status": { "safeResourceNames": safe_names },
        }))
        .unwrap()
    }

    fn policy() -> Reference {
        Reference { name: "common".to_owned(), namespace: "policies".to_owned() }
    }

    /// `SafeResourceName` of section 5.2: what is cut, and what the end is.
    #[test]
    fn names_fit_and_are_the_same_again() {
        let names = |annotations: Value, known: Value| Names::of(&upgrade(&annotations, &known), &policy());
        let found = names(Value::Null, json!({}));
        assert_eq!(
            (found.actual.as_str(), found.key().as_str()),
            ("cgu-common-placement-0f3c9", "policies/cgu-common-placement")
        );
        let given = names(json!({ NAME_SUFFIX: "kuttl" }), json!({}));
        assert_eq!(given.actual, "cgu-common-placement-kuttl");
        let kept = names(json!({ NAME_SUFFIX: "kuttl" }), json!({ "policies/cgu-common-placement": "cgu-x-abcde" }));
        assert_eq!(kept.actual, "cgu-x-abcde", "TALM's own");

        let long = "x".repeat(300);
        assert_eq!(safe(&long, "ztp-install", "kuttl").len() + "ztp-install".len(), MAX_NAME);
        let dotted = format!("{}.{long}", "x".repeat(235));
        assert!(safe(&dotted, "ztp-install", "kuttl").ends_with("x-kuttl"), "no dot before the end");

        let mut upgrade = upgrade(&Value::Null, &json!({}));
        assert_eq!(action_label(&upgrade), "ztp-CGU");
        upgrade.metadata.name = Some(format!("{}-{long}", "x".repeat(52)));
        assert_eq!(action_label(&upgrade), format!("ztp-{}-0f3c9", "x".repeat(52)));
        upgrade.metadata.name = Some("x".repeat(253));
        assert_eq!(action_label(&upgrade).len(), MAX_LABEL);
    }

    #[test]
    fn a_placement_selects_by_name_and_holds_who_it_is_for() {
        let upgrade = upgrade(&Value::Null, &json!({}));
        let names = Names::of(&upgrade, &policy());
        let selected = ["a".to_owned(), "b".to_owned()];
        let found = placement(&upgrade, &policy(), &names, &selected);
        let clusters =
            |object: &Value| serde_json::from_value::<PlacementObject>(object.clone()).unwrap().spec.into_clusters();
        assert_eq!(clusters(&found), selected);
        let labels = &found["metadata"]["labels"];
        assert_eq!((&labels[UPGRADE], &labels[UPGRADE_NAMESPACE]), (&json!("CGU"), &json!("ztp")));
        let none = placement(&upgrade, &policy(), &names, &[]);
        let expression = "/spec/predicates/0/requiredClusterSelector/labelSelector/matchExpressions/0";
        assert_eq!(none.pointer(expression), Some(&json!({ "key": "name", "operator": "In" })));
        assert_eq!(clusters(&none), [""; 0]);
        let binding = binding(&upgrade, &policy(), &names);
        assert_eq!(
            (&binding["placementRef"]["name"], &binding["subFilter"]),
            (&json!(names.actual), &json!("restricted"))
        );
    }
}
