//! What is read of the hub's objects of governance. Owners of policies and agents of managed clusters write them: only
//! what an upgrade needs is built, and a field of another form is absent.

use std::collections::BTreeMap;

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use serde::de::{Deserializer, IgnoredAny};
use serde::{Deserialize, Serialize};

use super::precache::spec::PreCachingConfigSpec;
use super::templates::{Name, PolicyTemplates, Templates, policy_templates};
use crate::hub_kinds;
use crate::read::{any_text, lenient, lenient_types};
use crate::visit::fold;

/// Label of an object: name of its upgrade.
pub const UPGRADE: &str = "openshift-cluster-group-upgrades/clusterGroupUpgrade";
/// Label of an object: namespace of its upgrade.
pub const UPGRADE_NAMESPACE: &str = "openshift-cluster-group-upgrades/clusterGroupUpgradeNamespace";

hub_kinds! {
    /// A `ManagedCluster`.
    ManagedClusterObject: ClusterResourceScope =
        "cluster.open-cluster-management.io", "v1", "ManagedCluster", "managedclusters"; OBJECT {
        /// Its conditions.
        status: Status,
    }

    /// A policy: a root, or its copy for a cluster.
    PolicyObject: NamespaceResourceScope = "policy.open-cluster-management.io", "v1", "Policy", "policies"; FLEET + of_templates {
        /// What it is to be.
        spec: PolicySpec,
        /// Which clusters comply.
        status: PolicyStatus,
    }

    /// A Placement.
    PlacementObject: NamespaceResourceScope =
        "cluster.open-cluster-management.io", "v1beta1", "Placement", "placements"; FLEET {
        /// What it selects.
        spec: PlacementSpec,
        /// Its conditions.
        status: Status,
    }

    /// A `PlacementBinding`, of which nothing is read.
    BindingObject: NamespaceResourceScope =
        "policy.open-cluster-management.io", "v1", "PlacementBinding", "placementbindings"; OBJECT {}

    /// A `ManagedClusterAction`, of which nothing is read.
    ActionObject: NamespaceResourceScope =
        "action.open-cluster-management.io", "v1beta1", "ManagedClusterAction", "managedclusteractions"; OBJECT {}

    /// A `ManagedClusterView`.
    ViewObject: NamespaceResourceScope =
        "view.open-cluster-management.io", "v1beta1", "ManagedClusterView", "managedclusterviews"; OBJECT {
        /// What it asks for.
        spec: ViewSpec,
        /// What the cluster has answered.
        status: ViewStatus,
    }

    /// A `PreCachingConfig`.
    PreCachingConfigObject: NamespaceResourceScope =
        "ran.openshift.io", "v1alpha1", "PreCachingConfig", "precachingconfigs"; OBJECT {
        /// Settings of pulls.
        spec: PreCachingConfigSpec,
    }

    /// An `ImageBasedGroupUpgrade`, of which only the UID is read.
    ImageBasedGroupUpgrade: NamespaceResourceScope =
        "lcm.openshift.io", "v1alpha1", "ImageBasedGroupUpgrade", "imagebasedgroupupgrades"; OBJECT {}

    /// The definition of a kind.
    Definition: ClusterResourceScope =
        "apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"; OBJECT {
        /// Its versions.
        spec: DefinitionSpec,
    }

    /// An upgrade, of which only the clusters are read that it works on.
    UpgradeObject: NamespaceResourceScope =
        "ran.openshift.io", "v1alpha1", "ClusterGroupUpgrade", "clustergroupupgrades"; FLEET {
        /// How far it is.
        status: UpgradeStatus,
    }
}

lenient_types! {
    /// Conditions of an object.
    Status {
        /// All of them.
        conditions: Option<Vec<Condition>>,
    }

    /// A condition of any object.
    Condition {
        ;
        /// Its type.
        #[serde(rename = "type")]
        type_,
        /// `True`, `False` or `Unknown`.
        status,
        /// One word why.
        reason,
        /// One sentence why.
        message,
    }

    /// What an upgrade works on.
    UpgradeStatus {
        /// Its conditions.
        conditions: Vec<Condition>,
        /// What became of its clusters.
        clusters: Vec<UpgradedCluster>,
        /// Its clusters, batch by batch.
        remediation_plan: Vec<Vec<String>>,
    }

    /// What became of a cluster.
    UpgradedCluster {
        ;
        /// Its name.
        name,
        /// `complete` or `timedout`.
        state,
    }

    /// What a Placement selects.
    PlacementSpec {
        /// The first one selects.
        predicates: Vec<Predicate>,
    }

    /// A condition of a Placement.
    Predicate {
        /// Which clusters it is for.
        required_cluster_selector: ClusterSelector,
    }

    /// A selector of clusters.
    ClusterSelector {
        /// By their labels.
        label_selector: LabelSelector,
    }

    /// A selector by labels.
    LabelSelector {
        /// The first one selects, by the label `name`.
        match_expressions: Vec<Expression>,
    }

    /// An expression of a selector.
    Expression {
        /// Names of clusters.
        values: Vec<String>,
    }

    /// What a `ManagedClusterView` asks for.
    ViewSpec {
        /// The object.
        scope: Scope,
    }

    /// What a cluster has answered: its agent writes what it likes.
    ViewStatus {
        /// Its conditions.
        conditions: Option<Vec<Condition>>,
        /// The object that was asked for.
        result: ViewResult,
    }

    /// The object that a view asks for: a Subscription, an `InstallPlan` or a Job.
    ViewResult {
        /// Its metadata.
        metadata: Version,
        /// Of an `InstallPlan`: what it installs.
        spec: InstallPlanSpec,
        /// How far it is.
        status: ResultStatus,
    }

    /// The version of an object.
    Version {
        ;
        /// Of etcd.
        resource_version,
    }

    /// What an `InstallPlan` installs.
    InstallPlanSpec {
        /// Whether it is approved.
        approved: bool,
        /// What it installs; empty texts for what are none.
        cluster_service_version_names: Vec<AnyText>,
        ;
        /// `Manual` or `Automatic`.
        approval,
    }

    /// How far a Subscription or a Job is.
    ResultStatus {
        /// Its `InstallPlan`.
        installplan: Name,
        /// Pods of a Job that run.
        active: u64,
        /// Pods of a Job that have succeeded.
        succeeded: u64,
        /// Conditions of a Job.
        conditions: Vec<Condition>,
        ;
        /// Of a Subscription.
        state,
    }
}

impl Status {
    /// The first condition for which this holds.
    pub fn find(&self, is: impl Fn(&Condition) -> bool) -> Option<&Condition> {
        self.conditions.iter().flatten().find(|one| is(one))
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

/// What a definition is to be.
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

/// The object that a view asks for.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Scope {
    /// Its kind, with its group where that is needed.
    pub resource: String,
    /// Its name.
    pub name: String,
    /// Its namespace.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// How often the cluster reads it again, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_interval_seconds: Option<u64>,
}

/// A text, or an empty one for anything else.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(transparent)]
pub struct AnyText(#[serde(deserialize_with = "any_text")] pub String);

/// What a policy is to be.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PolicySpec {
    /// `inform` or `enforce`.
    #[serde(deserialize_with = "any_text")]
    pub remediation_action: String,
    /// What has to come first.
    #[serde(deserialize_with = "lenient")]
    pub dependencies: Vec<Name>,
    /// Its objects.
    #[serde(rename = "policy-templates", deserialize_with = "policy_templates")]
    pub templates: PolicyTemplates,
}

/// Bytes that are kept of a policy's templates, which readers of their own read.
fn of_templates(policy: &PolicyObject) -> usize {
    policy.spec.templates.usable.as_ref().map_or(0, Templates::bytes)
}

/// Whether a cluster complies with a policy.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Compliance {
    /// It does.
    Compliant,
    /// It does not, or that is not known yet.
    #[serde(alias = "Pending")]
    NonCompliant,
    /// The policy is not for this cluster.
    #[serde(other)]
    NotMatched,
}

/// Which clusters comply with a policy.
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
    // A list without entries is a status; null is none. Of a cluster the first entry counts.
    let entries = Option::<Vec<Entry>>::deserialize(deserializer)?;
    Ok(entries.map(|all| all.into_iter().rev().filter_map(known).collect()))
}

/// Reads an object as the controller does.
#[cfg(test)]
pub(super) fn of<K: crate::read::Foreign>(object: &serde_json::Value) -> K {
    crate::read::json(object.to_string().as_bytes(), &K::LIMITS).unwrap().value
}
