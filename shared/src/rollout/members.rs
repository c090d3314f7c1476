//! Which objects are members of a rollout, and of which of its groups.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt};

use super::api::{PowerRolloutSpec, TargetGroup, TargetName, Targets};
use super::member::{State, Target};
use super::report::{MAX_LISTED, MAX_NAME};
use super::selector::compile;
use super::status::NotFound;
use crate::kinds::View;
use crate::text::sanitize_to;

/// The label that every namespace has, with its name.
pub const NAMESPACE_NAME: &str = "kubernetes.io/metadata.name";

/// Labels of namespaces, by name.
pub type NamespaceLabels = BTreeMap<String, BTreeMap<String, String>>;

/// A selector that the API server accepted and this code cannot read, such as an operator of a later version.
#[derive(Debug, thiserror::Error)]
#[error("{field}: {why}")]
pub struct SelectorError {
    field: String,
    why: String,
}

/// The selectors of a rollout, parsed.
#[derive(Debug)]
pub struct Members {
    targets: Scope,
    namespaces: Option<Selector>,
    /// Whether that selector reads labels, and not only names.
    reads_labels: bool,
    groups: Vec<Scope>,
}

#[derive(Debug)]
enum Scope {
    Names(BTreeSet<TargetName>),
    Labels(Selector),
    All,
}

impl Scope {
    fn covers(&self, object: &View) -> bool {
        let identity = &object.identity;
        match self {
            Self::Names(names) => {
                names.contains(&TargetName { namespace: identity.namespace.clone(), name: identity.name.clone() })
            }
            Self::Labels(selector) => selector.matches(&identity.labels),
            Self::All => true,
        }
    }
}

impl Members {
    /// Parses what a rollout selects by, and its groups.
    ///
    /// # Errors
    /// When one of them cannot be read.
    pub fn of(targets: &Targets, groups: &[TargetGroup]) -> Result<Self, SelectorError> {
        let names = |names: &[TargetName]| Scope::Names(names.iter().cloned().collect());
        let parse =
            |selector: &LabelSelector, field: String| compile(selector).map_err(|why| SelectorError { field, why });
        let reads_labels = needs_namespaces(targets);
        let namespaces = targets.namespace_selector.as_ref();
        let namespaces = namespaces.map(|one| parse(one, "spec.targets.namespaceSelector".to_owned())).transpose()?;
        let targets = match &targets.selector {
            _ if !targets.names.is_empty() => names(&targets.names),
            Some(selector) => Scope::Labels(parse(selector, "spec.targets.selector".to_owned())?),
            None if targets.all || namespaces.is_some() => Scope::All,
            // Such as in a copy of the object from which the names were left out.
            None => Scope::Names(BTreeSet::new()),
        };
        let group = |(index, group): (usize, &TargetGroup)| match &group.selector {
            Some(selector) => Ok(Scope::Labels(parse(selector, format!("spec.groups[{index}].selector"))?)),
            None => Ok(names(&group.names)),
        };
        let groups = groups.iter().enumerate().map(group).collect::<Result<_, SelectorError>>()?;
        Ok(Self { targets, namespaces, reads_labels, groups })
    }

    /// Whether the rollout selects this object.
    pub fn cover(&self, object: &View, namespaces: &NamespaceLabels) -> bool {
        let in_namespace = |selector: &Selector| {
            // Of a namespace that was not read nothing is known: a selector such as `env notin (prod)` would select it.
            if self.reads_labels && !namespaces.contains_key(&object.identity.namespace) {
                return false;
            }
            let mut labels = namespaces.get(&object.identity.namespace).cloned().unwrap_or_default();
            labels.insert(NAMESPACE_NAME.to_owned(), object.identity.namespace.clone());
            selector.matches(&labels)
        };
        self.targets.covers(object) && self.namespaces.as_ref().is_none_or(in_namespace)
    }

    /// The index of its group: the first one that selects it, or the last group of the remaining targets.
    pub fn group(&self, object: &View) -> usize {
        self.groups.iter().position(|group| group.covers(object)).unwrap_or(self.groups.len())
    }
}

/// The targets and canaries that the rollout names and no object has.
pub(super) fn not_found<'a>(spec: &PowerRolloutSpec, objects: impl Iterator<Item = &'a View>) -> Option<NotFound> {
    let named = spec.targets.names.iter().chain(spec.groups.iter().flat_map(|group| &group.names));
    let mut unknown: BTreeSet<_> = named.map(|one| (one.namespace.as_str(), one.name.as_str())).collect();
    if !unknown.is_empty() {
        for object in objects {
            unknown.remove(&(object.identity.namespace.as_str(), object.identity.name.as_str()));
        }
    }
    let name = |(namespace, name): &(&str, &str)| {
        let slash = if namespace.is_empty() { "" } else { "/" };
        sanitize_to(&format!("{namespace}{slash}{name}"), MAX_NAME)
    };
    let count = u32::try_from(unknown.len()).unwrap_or(u32::MAX);
    (count > 0).then(|| NotFound { count, names: unknown.iter().take(MAX_LISTED).map(name).collect() })
}

/// Whether the labels of namespaces have to be read to tell which objects are selected.
pub fn needs_namespaces(targets: &Targets) -> bool {
    let Some(selector) = &targets.namespace_selector else { return false };
    let labels = selector.match_labels.iter().flatten().map(|(key, _)| key);
    let expressions = selector.match_expressions.iter().flatten().map(|expression| &expression.key);
    labels.chain(expressions).any(|key| key != NAMESPACE_NAME)
}

/// Fills up canary groups: where nothing of a group has to change, it proves nothing, and the first of the remaining
/// targets take its place.
///
/// `natives`: the group that selects each target. Those that stand in already, because their claim says so, count: the
/// result is the same for every leader. `last`: the index of the group of the remaining targets.
pub fn place(targets: &mut [Target], natives: &[usize], last: usize) {
    // A group that is behind the one that has begun is over.
    let begun = targets.iter().filter(|target| target.started.is_some()).map(|target| target.group).max().unwrap_or(0);
    for group in begun..last {
        let is_native = |index: &usize| natives.get(*index) == Some(&group);
        let members: Vec<usize> = (0..targets.len()).filter(is_native).collect();
        if members.iter().any(|index| targets[*index].state != State::Excluded) {
            continue;
        }
        let stand_ins = (0..targets.len()).filter(|index| targets[*index].group == group && !is_native(index)).count();
        let mut rest: Vec<&mut Target> =
            targets.iter_mut().filter(|target| target.group == last && target.state == State::Pending).collect();
        rest.sort_by(|one, other| one.name.cmp(&other.name));
        for target in rest.into_iter().take(members.len().saturating_sub(stand_ins)) {
            target.group = group;
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_selector_of_what_no_label_can_be_is_named_with_its_field() {
        let selector = json!({ "matchExpressions": [{ "key": "env", "operator": "NotIn", "values": ["prod "] }] });
        for (field, targets) in [
            ("selector", json!({ "selector": selector })),
            ("namespaceSelector", json!({ "all": true, "namespaceSelector": selector })),
        ] {
            let spec = json!({ "action": "Hibernate", "targets": targets, "maxTargets": 1, "notAfter": "2026-11-21T18:00:00Z" });
            let spec: PowerRolloutSpec = serde_json::from_value(spec).unwrap();
            let error = Members::of(&spec.targets, &spec.groups).unwrap_err().to_string();
            let expected = format!(r#"spec.targets.{field}: key env: "prod " is not the value of a label"#);
            assert!(error.starts_with(&expected), "{error}");
        }
    }
}
