//! What an upgrade reads of policies (section 4): structure, order and compliance.
//!
//! A [`Policy`] is what is kept of a root policy, and a [`Child`] of its copy for a cluster: a hub has tens of
//! thousands of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;

use super::api::{MAX_POLICIES, Reference};
use super::templates::{Name, Templates};
use super::wire::{Compliance, PolicyObject};

/// Label of a child policy.
pub const ROOT_POLICY: &str = "policy.open-cluster-management.io/root-policy";
/// Annotation: seconds for which a cluster complies before it goes on to the next policy.
pub const SOAK_SECONDS: &str = "ran.openshift.io/soak-seconds";

/// Annotation: when the policy's turn is, on a cluster that joins.
pub const DEPLOY_WAVE: &str = "ran.openshift.io/ztp-deploy-wave";

/// What is kept of a root policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    /// It enforces by itself: no upgrade is needed (9.1).
    pub enforced: bool,
    /// Its objects; `None`: it cannot be used.
    pub templates: Option<Templates>,
    /// Policies that have to come first.
    pub dependencies: Vec<Reference>,
    /// How long a cluster complies before it goes on. `None`: no time, or not a number.
    pub soak: Option<Duration>,
    /// Compliance by cluster; `None` while there is no status.
    pub compliance: Option<BTreeMap<String, Compliance>>,
}

impl Policy {
    /// Reads a root policy.
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

    /// Whether a cluster complies. Without a status no cluster does; an unknown value is as no entry.
    pub fn of(&self, cluster: &str) -> Compliance {
        self.compliance
            .as_ref()
            .map_or(Compliance::NonCompliant, |all| all.get(cluster).copied().unwrap_or(Compliance::NotMatched))
    }

    /// When a cluster that complies since then has done so for long enough.
    pub fn soaked_at(&self, since: Timestamp) -> Option<Timestamp> {
        let soak = SignedDuration::try_from(self.soak?).unwrap_or(SignedDuration::MAX);
        Some(since.checked_add(soak).unwrap_or(Timestamp::MAX))
    }
}

/// What is kept of a child policy: the copy of a root for one cluster, in the cluster's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Child {
    /// Its root, by the child's name `NAMESPACE.NAME`.
    pub root: Reference,
    /// A template of the hub could not be resolved: it stands in the text.
    pub is_unresolved: bool,
    /// When the policy's turn is, on a cluster that joins.
    pub wave: Wave,
}

/// When a policy's turn is, among those of a cluster that joins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Wave {
    /// It has none.
    None,
    /// Lower ones come first.
    At(i64),
    /// Not an integer.
    Wrong,
}

impl Child {
    /// The root of a child policy of this name.
    pub fn root(name: &str) -> Option<Reference> {
        let (namespace, name) = name.split_once('.')?;
        Some(Reference { name: name.to_owned(), namespace: namespace.to_owned() })
    }

    /// Reads a child policy; `None` for any other policy.
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
    /// To be enforced.
    pub for_upgrade: Vec<Reference>,
    /// Each selected cluster complies with them.
    pub compliant: Vec<Reference>,
}

/// Reason of condition Validated: a name of policies in several namespaces.
pub const AMBIGUOUS: &str = "AmbiguousManagedPoliciesNames";

/// Why an upgrade cannot start (rows 6 and 8), in TALM's words where it has some.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// No child of any selected cluster, or no root.
    #[error("Missing managed policies: [{}] ", .0.join(" "))]
    Missing(Vec<String>),
    /// It has no [`Templates`], or a template of the hub could not be resolved.
    #[error("Invalid managed policies: [{}] ", .0.join(" "))]
    Invalid(Vec<String>),
    /// In several namespaces.
    #[error("Managed policy name should be unique, but was found in multiple namespaces: {} ", serde_json::json!(.0))]
    Ambiguous(BTreeMap<String, BTreeSet<String>>),
    /// One depends on a later one.
    #[error("Managed Policy {0} depends on {1}, which is to be remediated later")]
    Order(String, String),
    /// More than [`MAX_POLICIES`].
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

/// Finds the policies of an upgrade. `children`: of all selected clusters. Roots that enforce by themselves are left
/// out; a child that is enforced by another upgrade is not (9.1). `complies`: every selected cluster does.
///
/// # Errors
/// When one is missing, invalid, in several namespaces or in the wrong order, or there are too many. Ambiguous names
/// count even if the upgrade does not list them, as with TALM.
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
    // TALM's order: what is invalid hides what is missing.
    if !invalid.is_empty() {
        return Err(PolicyError::Invalid(invalid));
    }
    if !missing.is_empty() {
        return Err(PolicyError::Missing(missing));
    }
    in_order(&found.for_upgrade, roots)?;
    Ok(found)
}

/// Row 8: no policy depends on a later one.
fn in_order(policies: &[Reference], roots: &BTreeMap<Reference, Arc<Policy>>) -> Result<(), PolicyError> {
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
