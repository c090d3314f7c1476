//! Row 21: adds each cluster to the Placement of its current policy, and approves the `InstallPlan`s that the Subscriptions
//! of that policy wait for (section 9.4).

use std::collections::{BTreeMap, BTreeSet};

use super::{APPROVAL_RETRY, Act, Facts, Plan};
use crate::cgu::api::{ClusterGroupUpgrade, Reference};
use crate::cgu::objects::{Approval, view_name};
use crate::cgu::templates::Subscription;
use crate::cgu::view::{Answer, INSTALL_PLAN, ViewRequest, Views};
use crate::cgu::wire::Scope;
use crate::read::{self, Limits};

/// State of a cluster at one of the policies.
pub(super) const IN_PROGRESS: &str = "InProgress";

/// Views and approvals that one reconcile requests. Those of other clusters follow.
const MAX_REQUESTS: usize = 10_000;

/// Fits a hundred Subscriptions with the longest names that Kubernetes allows.
const CONTENT_LIMITS: Limits = Limits { text: 253, ..Limits::OBJECT };

/// Nothing is approved on a sleeping cluster: the action would run whenever the cluster wakes.
pub(super) fn enforce(facts: &Facts<'_>, plan: &mut Plan, policies: &[Reference]) {
    let mut at: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (name, one) in &plan.status.status.current_batch_remediation_progress {
        let index = one.policy_index.and_then(|index| usize::try_from(index).ok());
        if let Some(index) = index.filter(|_| one.state == IN_PROGRESS) {
            at.entry(index).or_default().push(name.clone());
        }
    }
    let mut approvals = Vec::new();
    let existing = |index| policies.get(index).filter(|policy| facts.governance.roots.contains_key(*policy));
    for (policy, names) in at.into_iter().filter_map(|(index, names)| Some((existing(index)?, names))) {
        let status = &mut plan.status;
        let content = status.managed_policies_content.get(&policy.name).map(|content| subscriptions(content));
        for cluster in names.iter().filter(|name| !facts.asleep.contains(*name)) {
            if approvals.len() >= MAX_REQUESTS {
                break;
            }
            let names = &mut status.safe_resource_names;
            let subscriptions = content.iter().flatten();
            approvals.extend(approve(facts.upgrade, cluster, subscriptions, &facts.governance.views, names));
        }
        plan.acts.push(Act::Enforce(policy.clone(), names));
    }
    if approvals.len() >= MAX_REQUESTS || approvals.iter().any(|act| matches!(act, Act::Approve(_))) {
        plan.requeue_at(facts.now.checked_add(APPROVAL_RETRY).unwrap_or(facts.now));
    }
    plan.acts.extend(approvals);
}

/// Subscriptions of a policy, from `managedPoliciesContent`. Anyone who may write the status writes it: what cannot be
/// read is ignored.
pub(super) fn subscriptions(content: &str) -> Vec<Subscription> {
    read::text(content, &CONTENT_LIMITS).map(|read| read.value).unwrap_or_default()
}

/// The views and approvals that these Subscriptions need on a cluster. Names of the views go into `names`, which is
/// `status.safeResourceNames`.
pub(super) fn approve<'a>(
    upgrade: &ClusterGroupUpgrade,
    cluster: &str,
    subscriptions: impl IntoIterator<Item = &'a Subscription>,
    views: &Views,
    names: &mut BTreeMap<String, String>,
) -> Vec<Act> {
    let own = Reference::to(upgrade);
    let mut acts = Vec::new();
    let mut look_up = |name: &str, desired: &str, scope: Scope| -> Answer {
        match views.get(&(cluster.to_owned(), name.to_owned())) {
            Some(known) if known.scope == scope => return known.answer.clone(),
            // Another upgrade has a view of this name for another object: it goes first.
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
    // Names of the views of this cluster; those of precaching have fixed names.
    let (mut taken, mut approvals) = (BTreeSet::new(), Vec::new());
    for one in subscriptions {
        let group = one.api_version.split('/').next().unwrap_or_default();
        let (mut desired, mut name) = view_name(upgrade, names, &one.kind, &one.name);
        if !taken.insert(name.clone()) {
            // TALM's name does not tell two namespaces apart.
            (desired, name) = view_name(upgrade, names, &one.kind, &format!("{}-{}", one.name, one.namespace));
            if !taken.insert(name.clone()) {
                continue;
            }
        }
        let scope_of_one = scope(&format!("{}.{group}", one.kind), &one.name, &one.namespace);
        let answer = look_up(&name, &desired, scope_of_one);
        names.insert(format!("/{desired}"), name);
        // Two Subscriptions of a namespace may share a plan; plans of one name in two namespaces take turns.
        let Answer::Pending(name) = answer else { continue };
        if name.contains("precache-") || !taken.insert(name.clone()) {
            continue;
        }
        if let Answer::Unapproved(plan) = look_up(&name, &name, scope(INSTALL_PLAN, &name, &one.namespace)) {
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
