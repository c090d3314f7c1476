//! What an upgrade needs of a policy's templates and of the objects in them.

use serde::de::{Deserializer, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::version::{PLACEHOLDER, Release};
use crate::read::{self, Limits, any_text, lenient_types};
use crate::visit::fold;

/// Limit for one `object-templates-raw`, in bytes.
const MAX_RAW: usize = 1 << 20;
/// Objects of a kind that a policy may have: there is a view of each Subscription on each cluster.
const MAX_OBJECTS: usize = 100;

/// What an upgrade needs of a policy's objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Templates {
    /// One of them has a status: the policy waits for something, and is never skipped.
    pub has_status: bool,
    /// Their `InstallPlan`s are approved.
    pub subscriptions: Vec<Subscription>,
    /// From `ClusterVersion`s.
    pub releases: Vec<Release>,
    /// `PACKAGE:CHANNEL` of the Subscriptions.
    pub packages: Vec<String>,
    /// Images of `CatalogSource`s.
    pub indexes: Vec<String>,
}

/// A Subscription in a policy, as `managedPoliciesContent` has it.
#[derive(Clone, Debug, Default, Deserialize, Serialize, PartialEq, Eq)]
#[serde(rename_all = "camelCase", default)]
pub struct Subscription {
    pub kind: String,
    pub name: String,
    pub api_version: String,
    pub namespace: String,
}

impl Templates {
    fn add(&mut self, object: TemplateObject, must_not_exist: bool) {
        self.has_status |= object.status.is_some();
        if must_not_exist {
            return;
        }
        let TemplateObject { kind, api_version, metadata: Name { name, namespace }, spec, .. } = object;
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        match kind.as_str() {
            "ClusterVersion" => add(&mut self.releases, spec.map(release)),
            "CatalogSource" => add(&mut self.indexes, spec.and_then(|spec| given(spec.image))),
            "Subscription" => {
                if let Some((package, channel)) = spec.and_then(|spec| given(spec.name).zip(given(spec.channel))) {
                    add(&mut self.packages, [format!("{package}:{channel}")]);
                }
                if let Some((name, namespace)) = given(name).zip(given(namespace)) {
                    add(&mut self.subscriptions, [Subscription { kind, name, api_version, namespace }]);
                }
            }
            _ => {}
        }
    }

    fn merge(mut self, other: Self) -> Self {
        self.has_status |= other.has_status;
        add(&mut self.subscriptions, other.subscriptions);
        add(&mut self.releases, other.releases);
        add(&mut self.packages, other.packages);
        add(&mut self.indexes, other.indexes);
        self
    }

    /// Whether an upgrade can enforce a policy with so many objects.
    fn is_within_limits(&self) -> bool {
        let counts = [self.subscriptions.len(), self.releases.len(), self.packages.len(), self.indexes.len()];
        counts.into_iter().all(|count| count <= MAX_OBJECTS)
    }

    /// Upper bound of the memory that it takes, in bytes.
    pub(super) fn bytes(&self) -> usize {
        let of_subscriptions =
            self.subscriptions.iter().flat_map(|one| [&one.kind, &one.name, &one.api_version, &one.namespace]);
        let of_releases = self.releases.iter().flat_map(|one| [&one.upstream, &one.channel, &one.version, &one.image]);
        let texts = of_subscriptions.chain(of_releases).chain(&self.packages).chain(&self.indexes);
        // Lists grow by doubling.
        texts.map(|text| 3 * size_of::<String>() + text.len()).sum()
    }
}

fn release(ObjectSpec { upstream, channel, desired_update, .. }: ObjectSpec) -> Release {
    Release { upstream, channel, version: desired_update.version, image: desired_update.image }
}

/// Adds to a list up to one more than the limit, which shows that it is exceeded.
fn add<T>(all: &mut Vec<T>, more: impl IntoIterator<Item = T>) {
    let room = (MAX_OBJECTS + 1).saturating_sub(all.len());
    all.extend(more.into_iter().take(room));
}

lenient_types! {
    /// Name and namespace of an object.
    Name {
        ;
        name,
        namespace,
    }

    /// An object in a policy, of any kind.
    TemplateObject {
        metadata: Name,
        status: Option<IgnoredAny>,
        spec: Option<ObjectSpec>,
        ;
        kind,
        api_version,
    }

    /// The spec of such an object: a Subscription, a `CatalogSource` or a `ClusterVersion`.
    ObjectSpec {
        desired_update: DesiredUpdate,
        ;
        /// Package of a Subscription.
        name,
        /// Channel of either.
        channel,
        /// Image of a catalog.
        image,
        /// URL of the update graph.
        upstream,
    }

    /// The release of a `ClusterVersion`.
    DesiredUpdate {
        ;
        version,
        image,
    }
}

/// The templates of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PolicyTemplates {
    /// `None`: one of the templates cannot be used, or there is none.
    pub usable: Option<Templates>,
    /// A hub template could not be resolved, so its text is still there.
    pub is_unresolved: bool,
}

/// Each template has metadata and a spec with one list of objects, plain or as text. Templates are read one by one: the
/// text of only one is in memory.
pub(super) fn policy_templates<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PolicyTemplates, D::Error> {
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
        let both = all.usable.take().zip(objects).map(|(known, objects)| known.merge(objects));
        all.usable = both.filter(Templates::is_within_limits);
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

/// The objects of a template, and whether one of them has no definition.
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
            // An object that must not exist is neither a Subscription to watch nor a release (9.4).
            all.add(definition.unwrap_or_default(), compliance_type == "mustnothave");
        };
        let (found, lacks) = fold(deserializer, take)?;
        Ok(Self(found, lacks))
    }
}

/// `object-templates-raw` as YAML: a template that gives a value (`{{ .a }}`, `{{ $a }}`) becomes a word, any other is
/// removed.
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
