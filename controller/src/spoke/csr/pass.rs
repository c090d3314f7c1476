//! All requests of one list: what each has to wait for, and how many are approved.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};

use super::judge::BOOTSTRAPPER;
use super::request::Request;
use super::{Cluster, Csr, Decision, Kind, NODE_PREFIX, Reason, Verdict, Window, judge};

/// How long running Nodes have to show that they need no client certificate: twice the duration of a kubelet's Lease,
/// which it renews every 10 s.
pub const SETTLE: SignedDuration = SignedDuration::from_secs(80);

/// For how long a control-plane Node waits for a worker to be Ready, and for the one before it to show itself. Kubelets
/// make a new key after 15 minutes.
pub const PATIENCE: SignedDuration = SignedDuration::from_mins(5);

/// An approval of this wake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// Its Node.
    pub node: String,
    /// What was approved.
    pub kind: Kind,
    /// For which public key.
    pub key: Vec<u8>,
    /// When.
    pub at: Timestamp,
}

/// Approvals by UID of the request.
pub type Approvals = BTreeMap<String, Approval>;

/// How many requests are approved at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For one Node in one wake, of each kind. A kubelet needs one of each, and a serving certificate again whenever it
    /// restarts.
    pub per_node: usize,
    /// Of one requester in one pass; the next pass goes on.
    pub per_pass: usize,
    /// With more undecided requests than nodes and this many, none of their requester is approved, as the
    /// cluster-machine-approver does it for all.
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
pub fn pass(
    csrs: &[Csr],
    cluster: &Cluster,
    window: &Window,
    limits: &Limits,
    already: &Approvals,
    now: Timestamp,
) -> Vec<Decision> {
    let mut undecided: HashMap<&str, usize> = HashMap::new();
    for csr in csrs.iter().filter(|csr| is_undecided(csr, window)) {
        *undecided.entry(&csr.username).or_default() += 1;
    }
    let most = cluster.nodes.len().max(cluster.machines.len()) + limits.flood_margin;
    let mut oldest_first: Vec<&Csr> = csrs.iter().collect();
    oldest_first.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    let judged = oldest_first.into_iter().map(|csr| {
        // Not even read: a flood of requests must not cost more than this.
        let is_flood = undecided.get(csr.username.as_str()).is_some_and(|count| *count > most);
        let flood = (is_flood && is_undecided(csr, window)).then_some(Verdict::Leave(Reason::Flood));
        (csr, flood.map_or_else(|| judge(csr, cluster, window), |verdict| Decision::about(csr, verdict)))
    });
    let mut judged: Vec<(&Csr, Decision)> = judged.collect();
    let approvals = approved_before(csrs, window).into_iter().chain(already.clone()).collect();
    one_by_one(&mut judged, approvals, cluster, limits, now);
    judged.into_iter().map(|(_, decision)| decision).collect()
}

/// How often a Node was approved, and for which keys it was or shall be.
type OfNode = (usize, BTreeSet<Vec<u8>>);

/// Leaves what could be approved by itself, and has to wait for others or comes too often.
fn one_by_one(
    judged: &mut [(&Csr, Decision)],
    approvals: Approvals,
    cluster: &Cluster,
    limits: &Limits,
    now: Timestamp,
) {
    let workers_first = cluster.nodes.len() > cluster.control_plane.len() && !cluster.has_ready_worker;
    let workers_first = workers_first && cluster.answered < PATIENCE;
    let leads = |kind, node: &String| kind == Kind::Client && cluster.control_plane.contains(node);
    let is_awaited = |it: &&Approval| {
        leads(it.kind, &it.node) && !cluster.joined.contains(&it.node) && now.duration_since(it.at) < PATIENCE
    };
    let mut awaited: BTreeSet<String> = approvals.values().filter(is_awaited).map(|it| it.node.clone()).collect();
    let mut of_node: BTreeMap<(Kind, String), OfNode> = BTreeMap::new();
    let mut in_this_pass: HashMap<&str, usize> = HashMap::new();
    for Approval { node, kind, key, .. } in approvals.into_values() {
        let (approved, keys) = of_node.entry((kind, node)).or_default();
        (*approved, _) = (*approved + 1, keys.insert(key));
    }
    for (_, Decision { node, key, verdict, .. }) in judged.iter() {
        if let (Verdict::Approve(kind), Some(node)) = (verdict, node) {
            of_node.entry((*kind, node.clone())).or_default().1.insert(key.clone());
        }
    }
    for (csr, decision) in judged {
        let (Verdict::Approve(kind), Some(node)) = (decision.verdict, &decision.node) else { continue };
        let (approved, keys) = of_node.entry((kind, node.clone())).or_default();
        let by_requester = in_this_pass.entry(&csr.username).or_default();
        let waits = workers_first || awaited.iter().any(|other| other != node);
        let barred = [
            (kind == Kind::Client && keys.len() > 1, Reason::TwoKeys),
            (kind == Kind::Client && cluster.answered < SETTLE, Reason::Settling),
            (leads(kind, node) && waits, Reason::NotItsTurn),
            (*approved >= limits.per_node, Reason::NodeLimit),
            (*by_requester >= limits.per_pass, Reason::PassLimit),
        ];
        if let Some((_, reason)) = barred.into_iter().find(|(is_barred, _)| *is_barred) {
            decision.verdict = Verdict::Leave(reason);
            continue;
        }
        (*approved, *by_requester) = (*approved + 1, *by_requester + 1);
        awaited.extend(leads(kind, node).then(|| node.clone()));
    }
}

/// Approvals of this wake by any approver, of requests that could be approved here.
fn approved_before(csrs: &[Csr], window: &Window) -> Approvals {
    // The time of an approval is not read: an earlier one is no wait too many.
    let is_approved = |csr: &&Csr| csr.settled() == Some(Reason::Approved) && window.excludes(csr.created).is_none();
    let approval = |csr: &Csr| {
        let kind = Kind::of_signer(&csr.signer)?;
        let request = Request::parse(&csr.request).ok()?;
        let by_right = kind == Kind::Serving || csr.username == BOOTSTRAPPER;
        let node = request.common_name.strip_prefix(NODE_PREFIX).filter(|_| by_right)?.to_owned();
        Some((csr.uid.clone(), Approval { node, kind, key: request.key, at: csr.created? }))
    };
    csrs.iter().filter(is_approved).filter_map(approval).collect()
}

/// Whether it is an undecided request of this wake to a signer of kubelets' certificates.
pub fn is_undecided(csr: &Csr, window: &Window) -> bool {
    Kind::of_signer(&csr.signer).is_some() && csr.settled().is_none() && window.excludes(csr.created).is_none()
}
