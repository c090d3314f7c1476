//! The hub's governance objects, as they are read. Owners of policies and agents of managed clusters write them: only the
//! fields that an upgrade needs are built, and a field of another form counts as absent.

use std::collections::BTreeMap;

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use serde::de::{Deserializer, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::precache::spec::PreCachingConfigSpec;
use super::templates::{Name, PolicyTemplates, Templates, policy_templates};
use crate::hub_kinds;
use crate::read::{any_text, lenient, lenient_types};
use crate::visit::fold;

/// Label of an object: the name of its upgrade.
pub const UPGRADE: &str = "openshift-cluster-group-upgrades/clusterGroupUpgrade";
/// Label of an object: the namespace of its upgrade.
pub const UPGRADE_NAMESPACE: &str = "openshift-cluster-group-upgrades/clusterGroupUpgradeNamespace";

hub_kinds! {
    ManagedClusterObject: ClusterResourceScope =
        "cluster.open-cluster-management.io", "v1", "ManagedCluster", "managedclusters"; OBJECT {
        status: Status,
    }

    /// A policy: a root, or its copy for a cluster.
    PolicyObject: NamespaceResourceScope = "policy.open-cluster-management.io", "v1", "Policy", "policies"; FLEET + template_bytes {
        spec: PolicySpec,
        status: PolicyStatus,
    }

    PlacementObject: NamespaceResourceScope =
        "cluster.open-cluster-management.io", "v1beta1", "Placement", "placements"; FLEET {
        spec: PlacementSpec,
        status: Status,
    }

    /// A `PlacementBinding`, of which nothing is read.
    BindingObject: NamespaceResourceScope =
        "policy.open-cluster-management.io", "v1", "PlacementBinding", "placementbindings"; OBJECT {}

    /// A `ManagedClusterAction`, of which nothing is read.
    ActionObject: NamespaceResourceScope =
        "action.open-cluster-management.io", "v1beta1", "ManagedClusterAction", "managedclusteractions"; OBJECT {}

    ViewObject: NamespaceResourceScope =
        "view.open-cluster-management.io", "v1beta1", "ManagedClusterView", "managedclusterviews"; OBJECT {
        spec: ViewSpec,
        status: ViewStatus,
    }

    PreCachingConfigObject: NamespaceResourceScope =
        "ran.openshift.io", "v1alpha1", "PreCachingConfig", "precachingconfigs"; OBJECT {
        spec: PreCachingConfigSpec,
    }

    /// An `ImageBasedGroupUpgrade`, of which only the UID is read.
    ImageBasedGroupUpgrade: NamespaceResourceScope =
        "lcm.openshift.io", "v1alpha1", "ImageBasedGroupUpgrade", "imagebasedgroupupgrades"; OBJECT {}

    Definition: ClusterResourceScope =
        "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"; OBJECT {
        spec: DefinitionSpec,
    }

    /// An upgrade, for those that only need the clusters that it works on.
    UpgradeObject: NamespaceResourceScope =
        "ran.openshift.io", "v1alpha1", "ClusterGroupUpgrade", "clustergroupupgrades"; FLEET {
        status: UpgradeStatus,
    }
}

lenient_types! {
    Status {
        conditions: Option<Vec<Condition>>,
    }

    Condition {
        ;
        #[serde(rename = "type")]
        type_,
        status,
        reason,
        message,
    }

    UpgradeStatus {
        conditions: Vec<Condition>,
        clusters: Vec<UpgradedCluster>,
        remediation_plan: Vec<Vec<String>>,
    }

    UpgradedCluster {
        ;
        name,
        /// `complete` or `timedout`.
        state,
    }

    PlacementSpec {
        /// The first one selects.
        predicates: Vec<Predicate>,
    }

    Predicate {
        required_cluster_selector: ClusterSelector,
    }

    ClusterSelector {
        label_selector: LabelSelector,
    }

    LabelSelector {
        /// The first one selects, by the label `name`.
        match_expressions: Vec<Expression>,
    }

    Expression {
        /// Names of clusters.
        values: Vec<String>,
    }

    ViewSpec {
        scope: Scope,
    }

    /// The answer of a cluster, whose agent may write anything.
    ViewStatus {
        conditions: Option<Vec<Condition>>,
        result: ViewResult,
    }

    /// The object that a view requests: a Subscription, an `InstallPlan` or a Job.
    ViewResult {
        metadata: Version,
        spec: InstallPlanSpec,
        status: ResultStatus,
    }

    Version {
        ;
        resource_version,
    }

    InstallPlanSpec {
        approved: bool,
        /// What it installs; an entry that is no text is empty.
        cluster_service_version_names: Vec<AnyText>,
        ;
        /// `Manual` or `Automatic`.
        approval,
    }

    /// The status of a Subscription or a Job.
    ResultStatus {
        installplan: Name,
        /// Running Pods of a Job.
        active: u64,
        /// Pods of a Job that have succeeded.
        succeeded: u64,
        conditions: Vec<Condition>,
        ;
        /// Of a Subscription.
        state,
    }
}

impl PlacementSpec {
    /// Names of the clusters that a Placement of an upgrade selects.
    pub fn into_clusters(self) -> Vec<String> {
        let predicate = self.predicates.into_iter().next().unwrap_or_default();
        let expressions = predicate.required_cluster_selector.label_selector.match_expressions;
        expressions.into_iter().next().unwrap_or_default().values
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct DefinitionSpec {
    /// Whether a version has `status.placements`.
    #[serde(rename = "versions", deserialize_with = "has_placements")]
    pub has_placements: bool,
}

fn has_placements<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default, rename_all = "camelCase")]
    struct Level {
        schema: Option<Box<Self>>,
        #[serde(rename = "openAPIV3Schema")]
        open_api: Option<Box<Self>>,
        properties: Option<Box<Self>>,
        status: Option<Box<Self>>,
        placements: Option<IgnoredAny>,
    }

    fn take(found: &mut bool, version: Level) {
        let status = || version.schema?.open_api?.properties?.status;
        *found |= status().and_then(|status| status.properties?.placements).is_some();
    }

    fold(deserializer, take)
}

/// The object that a view requests.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Scope {
    pub resource: String,
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// How often the cluster refreshes it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_interval_seconds: Option<u64>,
}

/// A text, or an empty one for anything else.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct AnyText(#[serde(deserialize_with = "any_text")] pub String);

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PolicySpec {
    /// `inform` or `enforce`.
    #[serde(deserialize_with = "any_text")]
    pub remediation_action: String,
    /// Policies that have to come before.
    #[serde(deserialize_with = "lenient")]
    pub dependencies: Vec<Name>,
    #[serde(rename = "policy-templates", deserialize_with = "policy_templates")]
    pub templates: PolicyTemplates,
}

/// Bytes of a policy's templates, which have their own reader.
fn template_bytes(policy: &PolicyObject) -> usize {
    policy.spec.templates.usable.as_ref().map_or(0, Templates::bytes)
}

/// Whether a cluster complies with a policy.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Compliance {
    Compliant,
    /// Or not known yet.
    #[serde(alias = "Pending")]
    NonCompliant,
    /// The policy is not for this cluster.
    #[serde(other)]
    NotMatched,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PolicyStatus {
    /// By the name of the cluster; `None` while there is no status.
    #[serde(rename = "status", deserialize_with = "compliance")]
    pub compliance: Option<BTreeMap<String, Compliance>>,
}

fn compliance<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<BTreeMap<String, Compliance>>, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Entry {
        #[serde(deserialize_with = "lenient")]
        clustername: Option<String>,
        #[serde(deserialize_with = "lenient")]
        compliant: Option<Compliance>,
    }

    let known = |Entry { clustername, compliant }: Entry| {
        let compliance = compliant.unwrap_or(Compliance::NonCompliant);
        clustername.map(|name| (name, compliance)).filter(|_| compliance != Compliance::NotMatched)
    };
    // An empty list is a status, null is none. The first entry of a cluster counts.
    let entries = Option::<Vec<Entry>>::deserialize(deserializer)?;
    Ok(entries.map(|all| all.into_iter().rev().filter_map(known).collect()))
}

/// Reads an object as the controller does.
#[cfg(test)]
pub(super) fn parse<K: crate::read::Foreign>(object: &serde_json::Value) -> K {
    crate::read::json(object.to_string().as_bytes(), &K::LIMITS).unwrap().value
}
