//! What is read of the hub's objects of governance. Owners of policies and agents of managed clusters write them: only
//! what an upgrade needs is built, and a field of another form is absent.

use std::collections::BTreeMap;

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use serde::de::{Deserializer, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::keys::PLACEHOLDER;
use super::precache::spec::PreCachingConfigSpec;
use super::template::{Name, TemplateObject};
use super::templates::Templates;
use crate::hub_kinds;
use crate::read::{self, Limits, any_text, lenient, lenient_types};
use crate::visit::fold;

/// Bytes of one `object-templates-raw`.
const MAX_RAW: usize = 1 << 20;

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

/// What a Placement selects.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct PlacementSpec {
    #[serde(deserialize_with = "lenient")]
    predicates: Vec<Predicate>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Predicate {
    required_cluster_selector: Selector,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Selector {
    label_selector: LabelSelector,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct LabelSelector {
    match_expressions: Vec<Expression>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Expression {
    values: Vec<String>,
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

/// What is kept of a policy's templates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyTemplates {
    /// Its objects; `None`: one of the templates cannot be used, or there is none.
    pub usable: Option<Templates>,
    /// A template of the hub could not be resolved: it stands in the text.
    pub is_unresolved: bool,
}

/// Bytes that are kept of a policy's templates, which readers of their own read.
fn of_templates(policy: &PolicyObject) -> usize {
    policy.spec.templates.usable.as_ref().map_or(0, Templates::kept)
}

/// Each template has metadata and a spec with one list of objects, plain or as text. Its text is gone when the next one is
/// read.
fn policy_templates<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PolicyTemplates, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Template {
        #[serde(rename = "objectDefinition")]
        definition: Option<Box<RawValue>>,
    }

    let take = |all: &mut Option<PolicyTemplates>, Template { definition }: Template| {
        let first = PolicyTemplates { usable: Some(Templates::default()), is_unresolved: false };
        let all = all.get_or_insert(first);
        let text = definition.as_ref().map_or("", |definition| definition.get());
        all.is_unresolved |= text.contains("{{hub");
        let read = read::json::<TemplateDefinition>(text.as_bytes(), &Limits::FLEET);
        let objects = read.ok().and_then(|read| read.value.objects());
        let both = all.usable.take().zip(objects).map(|(known, objects)| known.and(objects));
        all.usable = both.filter(Templates::is_few);
    };
    Ok(fold(deserializer, take)?.unwrap_or_default())
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TemplateDefinition {
    metadata: Option<IgnoredAny>,
    spec: Option<TemplateSpec>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct TemplateSpec {
    #[serde(rename = "object-templates")]
    objects: Option<ObjectTemplates>,
    #[serde(rename = "object-templates-raw")]
    raw: Option<String>,
}

impl TemplateDefinition {
    fn objects(self) -> Option<Templates> {
        self.metadata?;
        match self.spec? {
            TemplateSpec { objects: Some(objects), raw: None } => Some(objects.0).filter(|_| !objects.1),
            TemplateSpec { objects: None, raw: Some(raw) } => {
                Some(read::yaml::read::<ObjectTemplates>(&without_templates(&raw), MAX_RAW).ok()?.0)
            }
            TemplateSpec { .. } => None,
        }
    }
}

/// What is kept of the objects of a template, and whether one of them has no definition.
struct ObjectTemplates(Templates, bool);

impl<'de> Deserialize<'de> for ObjectTemplates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        struct Template {
            #[serde(deserialize_with = "any_text")]
            compliance_type: String,
            #[serde(rename = "objectDefinition")]
            definition: Option<TemplateObject>,
        }

        let take = |(all, lacks): &mut (Templates, bool), Template { compliance_type, definition }: Template| {
            *lacks |= definition.is_none();
            // One that must not exist is neither a Subscription to watch nor a release (9.4).
            all.add(definition.unwrap_or_default(), compliance_type == "mustnothave");
        };
        let (found, lacks) = fold(deserializer, take)?;
        Ok(Self(found, lacks))
    }
}

/// `object-templates-raw` as YAML: a value from a template (`{{ .a }}`, `{{ $a }}`) becomes a word, any other template
/// goes.
pub(super) fn without_templates(raw: &str) -> String {
    let (mut plain, mut rest) = (String::with_capacity(raw.len()), raw);
    while let Some((before, after)) = rest.split_once("{{")
        && let Some((inner, next)) = after.split_once("}}")
    {
        plain.push_str(before);
        let is_value = |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._".contains(&byte));
        if inner.trim().strip_prefix(['.', '$']).is_some_and(is_value) {
            plain.push_str(PLACEHOLDER);
        }
        rest = next;
    }
    plain + rest
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
pub(super) fn of<K: read::Foreign>(object: &serde_json::Value) -> K {
    read::json(object.to_string().as_bytes(), &K::LIMITS).unwrap().value
}
