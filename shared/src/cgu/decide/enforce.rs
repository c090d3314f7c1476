//! Row 21: clusters come under the Placement of the policy that they are at, and the `InstallPlan`s that its
//! Subscriptions wait for are approved (section 9.4).

use std::collections::{BTreeMap, BTreeSet};

use super::{Facts, Plan};
use crate::cgu::act::{APPROVE_AGAIN, Act, Approval};
use crate::cgu::api::{ClusterGroupUpgrade, Reference};
use crate::cgu::objects::view_name;
use crate::cgu::templates::Subscription;
use crate::cgu::view::{Answer, INSTALL_PLAN, ViewRequest, Views};
use crate::cgu::wire::Scope;
use crate::read::{self, Limits};

/// State of a cluster that is at a policy.
pub(super) const UNDER_WAY: &str = "InProgress";

/// Views and approvals that are asked for at once. Those of other clusters follow.
const MAX_ASKED: usize = 10_000;

/// Some hundred Subscriptions of a policy: a hundred of the longest names that Kubernetes allows.
const CONTENT: Limits = Limits { text: 253, ..Limits::OBJECT };

/// Puts each cluster under way into the Placement of its policy, and approves what the policy installs. Nothing is approved
/// on a sleeping cluster: the action would run whenever the cluster wakes.
pub(super) fn enforce(facts: &Facts<'_>, plan: &mut Plan, policies: &[Reference]) {
    let mut at: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (name, one) in &plan.status.status.current_batch_remediation_progress {
        let index = one.policy_index.and_then(|index| usize::try_from(index).ok());
        if let Some(index) = index.filter(|_| one.state == UNDER_WAY) {
            at.entry(index).or_default().push(name.clone());
        }
    }
    let mut approvals = Vec::new();
    let there = |index| policies.get(index).filter(|policy| facts.governance.roots.contains_key(*policy));
    for (policy, names) in at.into_iter().filter_map(|(index, names)| Some((there(index)?, names))) {
        let status = &mut plan.status;
        let content = status.managed_policies_content.get(&policy.name).map(|content| subscriptions(content));
        for cluster in names.iter().filter(|name| !facts.asleep.contains(*name)) {
            if approvals.len() >= MAX_ASKED {
                break;
            }
            let names = &mut status.safe_resource_names;
            let subscriptions = content.iter().flatten();
            approvals.extend(approve(facts.upgrade, cluster, subscriptions, &facts.governance.views, names));
        }
        plan.acts.push(Act::Enforce(policy.clone(), names));
    }
    if approvals.len() >= MAX_ASKED || approvals.iter().any(|act| matches!(act, Act::Approve(_))) {
        plan.wake_at(facts.now.checked_add(APPROVE_AGAIN).unwrap_or(facts.now));
    }
    plan.acts.extend(approvals);
}

/// Subscriptions of a policy by `managedPoliciesContent`. TALM may have written it; what cannot be read is none.
pub(super) fn subscriptions(content: &str) -> Vec<Subscription> {
    read::text(content, &CONTENT).map(|read| read.value).unwrap_or_default()
}

/// The views and approvals that the Subscriptions of a cluster's current policy need. Names of the views are added to
/// `names`, which is `status.safeResourceNames`.
pub(super) fn approve<'a>(
    upgrade: &ClusterGroupUpgrade,
    cluster: &str,
    subscriptions: impl IntoIterator<Item = &'a Subscription>,
    views: &Views,
    names: &mut BTreeMap<String, String>,
) -> Vec<Act> {
    let own = Reference::to(upgrade);
    let mut acts = Vec::new();
    let mut ask = |name: &str, desired: &str, scope: Scope| -> Answer {
        let known = views.get(&(cluster.to_owned(), name.to_owned()));
        match known {
            Some(known) if known.scope == scope => return known.answer.clone(),
            // A view of another upgrade, of the same name and for another object: that upgrade goes first.
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
