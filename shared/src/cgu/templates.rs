//! What an upgrade needs of a policy's objects.

use serde::{Deserialize, Serialize};

use super::template::{Name, TemplateObject};
use super::version::Release;

/// Most objects of a kind in a policy that an upgrade can enforce: there is a view of each Subscription on each cluster.
const MAX_OBJECTS: usize = 100;

/// What an upgrade needs of a policy's objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Templates {
    /// One of them has a status: the policy waits for something, and is never skipped.
    pub has_status: bool,
    /// Subscriptions, whose `InstallPlan`s are approved.
    pub subscriptions: Vec<Subscription>,
    /// Releases of `ClusterVersion`s.
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
    /// `Subscription`.
    pub kind: String,
    /// Its name on the cluster.
    pub name: String,
    /// Group and version.
    pub api_version: String,
    /// Its namespace on the cluster.
    pub namespace: String,
}

impl Templates {
    /// Adds an object.
    pub(super) fn add(&mut self, object: TemplateObject, must_not_exist: bool) {
        self.has_status |= object.status.is_some();
        if must_not_exist {
            return;
        }
        let TemplateObject { kind, api_version, metadata: Name { name, namespace }, spec, .. } = object;
        let given = |text: String| Some(text).filter(|text| !text.is_empty());
        match kind.as_str() {
            "ClusterVersion" => add(&mut self.releases, spec.map(Release::from)),
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

    /// Adds those of another template.
    pub(super) fn and(mut self, other: Self) -> Self {
        self.has_status |= other.has_status;
        add(&mut self.subscriptions, other.subscriptions);
        add(&mut self.releases, other.releases);
        add(&mut self.packages, other.packages);
        add(&mut self.indexes, other.indexes);
        self
    }

    /// Whether there are no more than an upgrade can enforce.
    pub(super) fn is_few(&self) -> bool {
        let counts = [self.subscriptions.len(), self.releases.len(), self.packages.len(), self.indexes.len()];
        counts.into_iter().all(|count| count <= MAX_OBJECTS)
    }

    /// Bytes that it takes, at most.
    pub(super) fn kept(&self) -> usize {
        let of_subscriptions =
            self.subscriptions.iter().flat_map(|one| [&one.kind, &one.name, &one.api_version, &one.namespace]);
        let of_releases = self.releases.iter().flat_map(|one| [&one.upstream, &one.channel, &one.version, &one.image]);
        let texts = of_subscriptions.chain(of_releases).chain(&self.packages).chain(&self.indexes);
        // Lists grow by doubling.
        texts.map(|text| 3 * size_of::<String>() + text.len()).sum()
    }
}

/// Adds to a list. One too many stays, which shows that there are more.
fn add<T>(all: &mut Vec<T>, more: impl IntoIterator<Item = T>) {
    let room = (MAX_OBJECTS + 1).saturating_sub(all.len());
    all.extend(more.into_iter().take(room));
}
