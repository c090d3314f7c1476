//! Subscriptions in a policy: while the policy is enforced, the `InstallPlan`s that wait for approval are approved
//! (section 9.4).

use std::collections::{BTreeMap, BTreeSet};

use super::act::Act;
pub use super::act::Approval;
use super::api::{ClusterGroupUpgrade, Reference};
use super::objects::view_name;
pub use super::templates::Subscription;
use super::view::{Answer, INSTALL_PLAN, Scope, ViewRequest, Views};
use crate::read::{self, Limits};

/// Some hundred Subscriptions of a policy: a hundred of the longest names that Kubernetes allows.
const CONTENT: Limits = Limits { text: 253, ..Limits::OBJECT };

/// Subscriptions of a policy by `managedPoliciesContent`. TALM may have written it; what cannot be read is none.
pub fn of_content(content: &str) -> Vec<Subscription> {
    read::text(content, &CONTENT).map(|read| read.value).unwrap_or_default()
}

/// What the Subscriptions of the policy that a cluster is at call for. Names of the views of
/// Subscriptions are added to `names`, which is `status.safeResourceNames`.
pub fn approve<'a>(
    upgrade: &ClusterGroupUpgrade,
    cluster: &str,
    subscriptions: impl IntoIterator<Item = &'a Subscription>,
    views: &Views,
    names: &mut BTreeMap<String, String>,
) -> Vec<Act> {
    let own = Reference {
        name: upgrade.metadata.name.clone().unwrap_or_default(),
        namespace: upgrade.metadata.namespace.clone().unwrap_or_default(),
    };
    let mut acts = Vec::new();
    let mut ask = |name: &str, desired: &str, scope: Scope| -> Answer {
        let known = views.get(&(cluster.to_owned(), name.to_owned()));
        match known {
            Some(known) if known.scope == scope => return known.answer.clone(),
            // Another upgrade's, which asks for an object of the same name: it comes first.
            Some(known) if known.upgrade != own => {}
            _ => acts.push(Act::View(ViewRequest {
                cluster: cluster.to_owned(),
                name: name.to_owned(),
                desired: desired.to_owned(),
                scope,
                adopts: false,
            })),
        }
        Answer::Nothing
    };
    // Names of views of this cluster. Those of precaching are TALM's own.
    let (mut taken, mut approvals) = (BTreeSet::new(), Vec::new());
    for one in subscriptions {
        let group = one.api_version.split('/').next().unwrap_or_default();
        let (mut desired, mut name) = view_name(upgrade, names, &one.kind, &one.name);
        if !taken.insert(name.clone()) {
            // TALM's name, in two namespaces.
            (desired, name) = view_name(upgrade, names, &one.kind, &format!("{}-{}", one.name, one.namespace));
            if !taken.insert(name.clone()) {
                continue;
            }
        }
        let of_subscription = scope(&format!("{}.{group}", one.kind), &one.name, &one.namespace);
        let answer = ask(&name, &desired, of_subscription);
        names.insert(format!("/{desired}"), name);
        // Two Subscriptions of a namespace may share a plan; of two plans of one name, the first comes first.
        let Answer::Pending(name) = answer else { continue };
        if name.contains("precache-") || !taken.insert(name.clone()) {
            continue;
        }
        if let Answer::Unapproved(plan) = ask(&name, &name, scope(INSTALL_PLAN, &name, &one.namespace)) {
            let (cluster, namespace) = (cluster.to_owned(), one.namespace.clone());
            approvals.push(Act::Approve(Approval { cluster, name, namespace, plan }));
        }
    }
    acts.extend(approvals);
    acts
}

fn scope(resource: &str, name: &str, namespace: &str) -> Scope {
    let (resource, name, namespace) = (resource.to_owned(), name.to_owned(), namespace.to_owned());
    Scope { resource, name, namespace, ..Scope::default() }
}

#[cfg(test)]
mod tests;
