//! All requests of one list, with limits on how many are approved.

use std::collections::BTreeMap;

use super::request::Request;
use super::{Cluster, Csr, Decision, Kind, NODE_PREFIX, Reason, Verdict, Window, judge};

/// Approvals by Node.
pub type Counts = BTreeMap<String, usize>;

/// How many requests are approved at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For one Node in one wake, both kinds together. A kubelet needs one of each, and one of each again whenever it
    /// restarts.
    pub per_node: usize,
    /// In one pass; the next pass goes on.
    pub per_pass: usize,
    /// With more undecided requests of kubelets than nodes and this many, none is approved, as the
    /// cluster-machine-approver does it.
    pub flood_margin: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { per_node: 10, per_pass: 100, flood_margin: 100 }
    }
}

/// Decides on every request, the oldest first. Total: an unreadable request is skipped.
///
/// `already` are the approvals of this wake that the caller knows of. Those that can still be seen among `csrs` count
/// without it, so that a restart of this process forgets nothing.
pub fn pass(csrs: &[Csr], cluster: &Cluster, window: &Window, limits: &Limits, already: &Counts) -> Vec<Decision> {
    let mut approved = approved_before(csrs, window);
    for (node, count) in already {
        let seen = approved.entry(node.clone()).or_default();
        *seen = (*seen).max(*count);
    }
    let undecided = csrs.iter().filter(|csr| is_undecided(csr, window)).count();
    let flooded = undecided > cluster.nodes.len().max(cluster.machines.len()) + limits.flood_margin;
    let mut oldest_first: Vec<&Csr> = csrs.iter().collect();
    oldest_first.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    let mut in_this_pass = 0;
    let mut decisions = Vec::with_capacity(csrs.len());
    for csr in oldest_first {
        if flooded && is_undecided(csr, window) {
            // Nor read: a flood of requests must not cost more than this.
            decisions.push(Decision::about(csr, None, Verdict::Leave(Reason::Flood)));
            continue;
        }
        let mut decision = judge(csr, cluster, window);
        if let (Verdict::Approve(_), Some(node)) = (decision.verdict, &decision.node) {
            let for_node = approved.entry(node.clone()).or_default();
            let barred = [
                (*for_node >= limits.per_node, Reason::NodeLimit),
                (in_this_pass >= limits.per_pass, Reason::PassLimit),
            ];
            if let Some((_, reason)) = barred.into_iter().find(|(barred, _)| *barred) {
                decision.verdict = Verdict::Leave(reason);
            } else {
                *for_node += 1;
                in_this_pass += 1;
            }
        }
        decisions.push(decision);
    }
    decisions
}

/// Approvals of this wake, by Node and by any approver.
fn approved_before(csrs: &[Csr], window: &Window) -> Counts {
    let mut counts = Counts::new();
    let ours = csrs.iter().filter(|csr| csr.conditions.iter().any(|condition| condition == "Approved"));
    for csr in ours.filter(|csr| Kind::of_signer(&csr.signer).is_some() && window.excludes(csr.created).is_none()) {
        let subject = Request::parse(&csr.request).map(|request| request.common_name).unwrap_or_default();
        if let Some(node) = subject.strip_prefix(NODE_PREFIX) {
            *counts.entry(node.to_owned()).or_default() += 1;
        }
    }
    counts
}

/// Whether it is an undecided request of this wake to a signer of kubelets' certificates.
pub fn is_undecided(csr: &Csr, window: &Window) -> bool {
    Kind::of_signer(&csr.signer).is_some() && csr.settled().is_none() && window.excludes(csr.created).is_none()
}
