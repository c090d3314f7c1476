//! `--canary`: which targets go first.

use std::collections::BTreeMap;

use hub::{is_name, is_namespace};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use shared::rollout::api::{TargetGroup, TargetName};
use shared::rollout::selector::{self, selects};
use view::target::Target;

use crate::error::RolloutError;

/// Marks a selector that has no operator: targets with a label, whatever its value.
const LABEL: &str = "label:";
/// The name of the first group. The others have a number.
const GROUP: &str = "canary";
/// Most groups of a rollout.
const MAX: usize = 20;

/// One `--canary`, as it was written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Canary {
    text: String,
    who: Who,
}

#[derive(Clone, Debug, PartialEq)]
enum Who {
    Name { namespace: Option<String>, name: String },
    Labels(LabelSelector),
}

/// A group of canaries and its members.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct CanaryGroup {
    pub(crate) group: TargetGroup,
    pub(crate) members: Vec<TargetName>,
}

/// Reads all `--canary`.
///
/// # Errors
/// When one is neither a name nor a label selector, or there are too many.
pub(crate) fn read(texts: &[String]) -> Result<Vec<Canary>, RolloutError> {
    if texts.len() > MAX {
        return Err(RolloutError::TooManyCanaries { found: texts.len(), max: MAX });
    }
    texts.iter().map(|text| Ok(Canary { text: text.clone(), who: who(text)? })).collect()
}

/// | form | canaries |
/// |---|---|
/// | `label:` and a selector | targets with these labels |
/// | with `=`, `!`, or a list in parentheses | targets with these labels |
/// | `NAMESPACE/NAME` | this target |
/// | `NAME` | the target of this name in the chosen namespace; with `-A` the only one of this name |
fn who(text: &str) -> Result<Who, RolloutError> {
    let labels = text.strip_prefix(LABEL).or_else(|| text.contains(['=', '!', '(']).then_some(text));
    if let Some(labels) = labels {
        let invalid = |source| RolloutError::CanarySelector { text: text.to_owned(), source };
        return selector::parse(labels).map(Who::Labels).map_err(invalid);
    }
    let (namespace, name) = match text.split_once('/') {
        Some((namespace, name)) => (Some(namespace), name),
        None => (None, text),
    };
    if !is_name(name) || !namespace.is_none_or(is_namespace) {
        return Err(RolloutError::NotACanary { text: text.to_owned() });
    }
    Ok(Who::Name { namespace: namespace.map(str::to_owned), name: name.to_owned() })
}

/// Finds the canaries among the targets. A target belongs to the first group that selects it.
///
/// # Errors
/// When some are not among them, when a name means several, or when a group is left without a target.
pub(crate) fn find(
    canaries: &[Canary],
    namespace: Option<&str>,
    pause_after: bool,
    targets: &[&Target],
) -> Result<Vec<CanaryGroup>, RolloutError> {
    let found = canaries.iter().map(|canary| canary.among(namespace, targets)).collect::<Result<Vec<_>, _>>()?;
    let missing = canaries.iter().zip(&found).filter(|(_, members)| members.is_empty());
    let missing: Vec<String> = missing.map(|(canary, _)| canary.text.clone()).collect();
    if !missing.is_empty() {
        return Err(RolloutError::NoCanaries { canaries: missing, targets: targets.len() });
    }
    let mut groups: Vec<CanaryGroup> = Vec::new();
    for (at, (canary, mut members)) in canaries.iter().zip(found).enumerate() {
        members.retain(|member| !groups.iter().any(|group| group.members.contains(member)));
        if members.is_empty() {
            return Err(RolloutError::Repeated { text: canary.text.clone() });
        }
        let name = if at == 0 { GROUP.to_owned() } else { format!("{GROUP}-{}", at + 1) };
        let (selector, names) = match &canary.who {
            Who::Labels(labels) => (Some(labels.clone()), Vec::new()),
            Who::Name { .. } => (None, members.clone()),
        };
        groups.push(CanaryGroup {
            group: TargetGroup { name, selector, names, max_failures: None, pause_after },
            members,
        });
    }
    Ok(groups)
}

impl Canary {
    fn among(&self, chosen: Option<&str>, targets: &[&Target]) -> Result<Vec<TargetName>, RolloutError> {
        let is_meant = |target: &&Target| match &self.who {
            Who::Labels(labels) => selects(labels, &labels_of(target)),
            Who::Name { namespace, name } => {
                let namespace = namespace.as_deref().or(chosen);
                target.name == *name
                    && namespace.is_none_or(|chosen| target.namespace == chosen || target.namespace.is_empty())
            }
        };
        let members: Vec<TargetName> = targets.iter().copied().filter(is_meant).map(name_of).collect();
        match &self.who {
            Who::Name { name, .. } if members.len() > 1 => {
                let candidates = members.iter().map(place).collect();
                Err(RolloutError::Ambiguous { name: name.clone(), candidates })
            }
            _ => Ok(members),
        }
    }
}

/// The name of a target in a rollout.
pub(crate) fn name_of(target: &Target) -> TargetName {
    TargetName { namespace: target.namespace.clone(), name: target.name.clone() }
}

/// `NAMESPACE/NAME`, or `NAME` for a kind without namespaces.
pub(crate) fn place(target: &TargetName) -> String {
    if target.namespace.is_empty() { target.name.clone() } else { format!("{}/{}", target.namespace, target.name) }
}

fn labels_of(target: &Target) -> BTreeMap<String, String> {
    let labels = target.object.pointer("/metadata/labels").and_then(serde_json::Value::as_object);
    let text = |(key, value): (&String, &serde_json::Value)| Some((key.clone(), value.as_str()?.to_owned()));
    labels.into_iter().flatten().filter_map(text).collect()
}

#[cfg(test)]
pub(super) mod tests;
