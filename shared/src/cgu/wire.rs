//! What is read of the hub's objects of governance. Owners of policies and agents of managed clusters write them: only
//! what an upgrade needs is built, and a field of another form is absent.

use std::collections::BTreeMap;

use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny};
use serde_json::value::RawValue;

use super::policy::{Compliance, Templates};
use super::precache::spec::PreCachingConfigSpec;
use super::version::PLACEHOLDER;
use super::view::Scope;
use crate::hub_kinds;
use crate::read::{self, Limits, any_text, lenient};
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

/// Conditions of an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    /// All of them.
    #[serde(deserialize_with = "lenient")]
    pub conditions: Option<Vec<Condition>>,
}

/// A condition of any object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Condition {
    /// Its type.
    #[serde(rename = "type", deserialize_with = "any_text")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    #[serde(deserialize_with = "any_text")]
    pub status: String,
    /// One word why.
    #[serde(deserialize_with = "any_text")]
    pub reason: String,
    /// One sentence why.
    #[serde(deserialize_with = "any_text")]
    pub message: String,
}

impl Status {
    /// The first condition for which this holds.
    pub fn find(&self, is: impl Fn(&Condition) -> bool) -> Option<&Condition> {
        self.conditions.iter().flatten().find(|one| is(one))
    }
}

/// What an upgrade works on.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UpgradeStatus {
    /// Its conditions.
    #[serde(deserialize_with = "lenient")]
    pub conditions: Vec<Condition>,
    /// What became of its clusters.
    #[serde(deserialize_with = "lenient")]
    pub clusters: Vec<UpgradedCluster>,
    /// Its clusters, batch by batch.
    #[serde(deserialize_with = "lenient")]
    pub remediation_plan: Vec<Vec<String>>,
}

/// What became of a cluster.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct UpgradedCluster {
    /// Its name.
    #[serde(deserialize_with = "any_text")]
    pub name: String,
    /// `complete` or `timedout`.
    #[serde(deserialize_with = "any_text")]
    pub state: String,
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

/// What a `ManagedClusterView` asks for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ViewSpec {
    /// The object.
    #[serde(deserialize_with = "lenient")]
    pub scope: Scope,
}

/// What a cluster has answered: its agent writes what it likes.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ViewStatus {
    /// Its conditions.
    #[serde(deserialize_with = "lenient")]
    pub conditions: Option<Vec<Condition>>,
    /// The object that was asked for.
    #[serde(deserialize_with = "lenient")]
    pub result: ViewResult,
}

/// The object that a view asks for: a Subscription, an `InstallPlan` or a Job.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ViewResult {
    /// Its metadata.
    #[serde(deserialize_with = "lenient")]
    pub metadata: Version,
    /// Of an `InstallPlan`: what it installs.
    #[serde(deserialize_with = "lenient")]
    pub spec: InstallPlanSpec,
    /// How far it is.
    #[serde(deserialize_with = "lenient")]
    pub status: ResultStatus,
}

/// The version of an object.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Version {
    /// Of etcd.
    #[serde(deserialize_with = "any_text")]
    pub resource_version: String,
}

/// What an `InstallPlan` installs.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstallPlanSpec {
    /// `Manual` or `Automatic`.
    #[serde(deserialize_with = "any_text")]
    pub approval: String,
    /// Whether it is approved.
    #[serde(deserialize_with = "lenient")]
    pub approved: bool,
    /// What it installs; empty texts for what are none.
    #[serde(deserialize_with = "lenient")]
    pub cluster_service_version_names: Vec<AnyText>,
}

/// How far a Subscription or a Job is.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct ResultStatus {
    /// Of a Subscription.
    #[serde(deserialize_with = "any_text")]
    pub state: String,
    /// Its `InstallPlan`.
    #[serde(deserialize_with = "lenient")]
    pub installplan: Name,
    /// Pods of a Job that run.
    #[serde(deserialize_with = "lenient")]
    pub active: u64,
    /// Pods of a Job that have succeeded.
    #[serde(deserialize_with = "lenient")]
    pub succeeded: u64,
    /// Conditions of a Job.
    #[serde(deserialize_with = "lenient")]
    pub conditions: Vec<Condition>,
}

/// A name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Name {
    /// The name.
    #[serde(deserialize_with = "any_text")]
    pub name: String,
    /// The namespace.
    #[serde(deserialize_with = "any_text")]
    pub namespace: String,
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

/// An object of a policy, of any kind.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct TemplateObject {
    #[serde(deserialize_with = "any_text")]
    pub(super) kind: String,
    #[serde(deserialize_with = "any_text")]
    pub(super) api_version: String,
    #[serde(deserialize_with = "lenient")]
    pub(super) metadata: Name,
    pub(super) status: Option<IgnoredAny>,
    #[serde(deserialize_with = "lenient")]
    pub(super) spec: Option<ObjectSpec>,
}

/// The spec of such an object: a Subscription, a `CatalogSource` or a `ClusterVersion`.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ObjectSpec {
    #[serde(deserialize_with = "any_text")]
    pub(super) name: String,
    #[serde(deserialize_with = "any_text")]
    pub(super) channel: String,
    #[serde(deserialize_with = "any_text")]
    pub(super) image: String,
    #[serde(deserialize_with = "any_text")]
    pub(super) upstream: String,
    #[serde(deserialize_with = "lenient")]
    pub(super) desired_update: DesiredUpdate,
}

/// The release of a `ClusterVersion`.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct DesiredUpdate {
    #[serde(deserialize_with = "any_text")]
    pub(super) version: String,
    #[serde(deserialize_with = "any_text")]
    pub(super) image: String,
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
