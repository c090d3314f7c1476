//! What an upgrade reads of policies (section 4): structure, order and compliance.
//!
//! A hub has tens of thousands of policies: a [`Policy`] is the small entry of a root policy, and a [`Child`] that of its
//! copy for a cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::ResourceExt;

use super::api::{MAX_POLICIES, Reference};
use super::templates::{Name, Templates};
use super::wire::{Compliance, PolicyObject};
use crate::duration::after;

/// Label of a child policy.
pub const ROOT_POLICY: &str = "policy.open-cluster-management.io/root-policy";
/// Annotation: seconds that a cluster has to comply before it goes on to the next policy.
pub const SOAK_SECONDS: &str = "ran.openshift.io/soak-seconds";

/// Annotation: the position of a policy in the first upgrade of a cluster.
pub const DEPLOY_WAVE: &str = "ran.openshift.io/ztp-deploy-wave";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// It enforces by itself, without an upgrade (9.1).
    pub enforced: bool,
    /// `None`: an upgrade cannot use it.
    pub templates: Option<Templates>,
    /// Policies that have to come before.
    pub dependencies: Vec<Reference>,
    /// From [`SOAK_SECONDS`]; `None` also if that is not a number.
    pub soak: Option<Duration>,
    /// Compliance by cluster; `None` while there is no status.
    pub compliance: Option<BTreeMap<String, Compliance>>,
}

impl Policy {
    pub fn read(object: &PolicyObject) -> Self {
        let PolicyObject { spec, status, .. } = object;
        let soak = object.annotations().get(SOAK_SECONDS).and_then(|text| text.parse().ok());
        let reference =
            |Name { name, namespace }: &Name| Reference { name: name.clone(), namespace: namespace.clone() };
        Self {
            enforced: spec.remediation_action.eq_ignore_ascii_case("enforce"),
            templates: spec.templates.usable.clone(),
            dependencies: spec.dependencies.iter().map(reference).collect(),
            soak: soak.map(Duration::from_secs),
            compliance: status.compliance.clone(),
        }
    }

    /// Compliance of a cluster. Without a status no cluster complies; an unknown value counts as no entry.
    pub fn compliance_of(&self, cluster: &str) -> Compliance {
        self.compliance
            .as_ref()
            .map_or(Compliance::NonCompliant, |all| all.get(cluster).copied().unwrap_or(Compliance::NotMatched))
    }

    /// When the soak of a cluster that complies since then ends.
    pub fn soak_end(&self, since: Timestamp) -> Option<Timestamp> {
        Some(after(since, self.soak?))
    }
}

/// A child policy: the copy of a root policy in the namespace of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Child {
    /// From the child's name, `NAMESPACE.NAME`.
    pub root: Reference,
    /// It holds a hub template that could not be resolved.
    pub is_unresolved: bool,
    pub wave: Wave,
}

/// The value of [`DEPLOY_WAVE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wave {
    None,
    /// Lower ones come first.
    At(i64),
    /// Not an integer.
    Wrong,
}

impl Child {
    /// The root policy of a child with this name.
    pub fn root(name: &str) -> Option<Reference> {
        let (namespace, name) = name.split_once('.')?;
        Some(Reference { name: name.to_owned(), namespace: namespace.to_owned() })
    }

    /// `None` if it is not a child policy.
    pub fn read(object: &PolicyObject) -> Option<Self> {
        let root = Self::root(&object.name_any()).filter(|_| object.labels().contains_key(ROOT_POLICY))?;
        let wave = object.annotations().get(DEPLOY_WAVE);
        let wave = wave.map_or(Wave::None, |text| text.parse().map_or(Wave::Wrong, Wave::At));
        Some(Self { root, is_unresolved: object.spec.templates.is_unresolved, wave })
    }
}

/// The policies of an upgrade, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policies {
    pub for_upgrade: Vec<Reference>,
    /// Every selected cluster complies with these already.
    pub compliant: Vec<Reference>,
}

/// Reason of condition Validated: policies of one name in several namespaces.
pub const AMBIGUOUS: &str = "AmbiguousManagedPoliciesNames";

/// Why the policies of an upgrade cannot be enforced (rows 6 and 8), in TALM's words where it has some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No child of any selected cluster, or no root.
    #[error("Missing managed policies: [{}] ", .0.join(" "))]
    Missing(Vec<String>),
    /// It has no [`Templates`], or a template of the hub could not be resolved.
    #[error("Invalid managed policies: [{}] ", .0.join(" "))]
    Invalid(Vec<String>),
    #[error("Managed policy name should be unique, but was found in multiple namespaces: {} ", serde_json::json!(.0))]
    Ambiguous(BTreeMap<String, BTreeSet<String>>),
    /// The first depends on the second, which comes later.
    #[error("Managed Policy {0} depends on {1}, which is to be remediated later")]
    Order(String, String),
    #[error(
        "managedPolicies names {0} policies, and {MAX_POLICIES} is the most: divide them among several ClusterGroupUpgrades"
    )]
    TooMany(usize),
}

impl PolicyError {
    /// Reason of condition Validated.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Missing(_) | Self::Invalid(_) => "NotAllManagedPoliciesExist",
            Self::Ambiguous(_) => AMBIGUOUS,
            Self::Order(..) => "UnresolvableDenpendency",
            Self::TooMany(_) => "NotServed",
        }
    }
}

/// Finds the policies of an upgrade among the child policies of all selected clusters. `complies`: whether all of these
/// clusters comply with a policy. A root policy that enforces by itself is left out; a child that another upgrade
/// enforces is not (9.1). Ambiguous names are an error even if the upgrade does not list them, as with TALM.
pub fn find<'a>(
    listed: &[String],
    children: impl IntoIterator<Item = &'a Child>,
    roots: &BTreeMap<Reference, Arc<Policy>>,
    complies: impl Fn(&Reference) -> bool,
) -> Result<Policies, PolicyError> {
    let mut once = BTreeSet::new();
    let listed: Vec<&String> = listed.iter().filter(|name| once.insert(*name)).collect();
    if listed.len() > MAX_POLICIES {
        return Err(PolicyError::TooMany(listed.len()));
    }
    let is_enforced = |root: &Reference| roots.get(root).is_some_and(|policy| policy.enforced);
    let mut namespaces: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let (mut unresolved, mut enforced) = (BTreeSet::new(), BTreeSet::new());
    for child in children {
        if is_enforced(&child.root) {
            enforced.insert(&child.root.name);
            continue;
        }
        namespaces.entry(child.root.name.clone()).or_default().insert(child.root.namespace.clone());
        if child.is_unresolved {
            unresolved.insert(&child.root.name);
        }
    }
    let (mut missing, mut invalid, mut found) = (Vec::new(), Vec::new(), Policies::default());
    let ambiguous: BTreeMap<_, _> =
        namespaces.iter().filter(|(_, all)| all.len() > 1).map(|(name, all)| (name.clone(), all.clone())).collect();
    if !ambiguous.is_empty() {
        return Err(PolicyError::Ambiguous(ambiguous));
    }
    for name in listed.into_iter().filter(|name| !enforced.contains(name)) {
        let namespace = namespaces.get(name).and_then(|all| all.first()).cloned().unwrap_or_default();
        let root = Reference { name: name.clone(), namespace };
        match roots.get(&root).map(|policy| policy.templates.as_ref().filter(|_| !unresolved.contains(name))) {
            None => missing.push(name.clone()),
            Some(None) => invalid.push(name.clone()),
            Some(Some(templates)) => {
                let is_done = !templates.has_status && complies(&root);
                if is_done { &mut found.compliant } else { &mut found.for_upgrade }.push(root);
            }
        }
    }
    // As with TALM, invalid policies hide missing ones.
    if !invalid.is_empty() {
        return Err(PolicyError::Invalid(invalid));
    }
    if !missing.is_empty() {
        return Err(PolicyError::Missing(missing));
    }
    check_order(&found.for_upgrade, roots)?;
    Ok(found)
}

/// Row 8: no policy depends on a later one.
fn check_order(policies: &[Reference], roots: &BTreeMap<Reference, Arc<Policy>>) -> Result<(), PolicyError> {
    let places: BTreeMap<&Reference, usize> = policies.iter().zip(0..).collect();
    for (root, at) in policies.iter().zip(0..) {
        let is_later = |one: &&Reference| places.get(one).is_some_and(|place| *place > at);
        let dependencies = roots.get(root).into_iter().flat_map(|policy| &policy.dependencies);
        if let Some(one) = dependencies.into_iter().find(is_later) {
            return Err(PolicyError::Order(root.name.clone(), one.name.clone()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
