//! All requests of one list: what each has to wait for, and how many are approved.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use jiff::{SignedDuration, Timestamp};

use super::judge::BOOTSTRAPPER;
use super::request::Request;
use super::{Cluster, Csr, Decision, Kind, NODE_PREFIX, Reason, Verdict, Window, judge};

/// How long a running Node has to show that it needs no client certificate: twice the duration of a kubelet's Lease,
/// which it renews every 10 s.
pub const SETTLE: SignedDuration = SignedDuration::from_secs(80);

/// For how long a control-plane Node waits for a worker to be Ready, and for the one before it to show itself.
pub const PATIENCE: SignedDuration = SignedDuration::from_mins(5);

/// For how long a kubelet waits for an answer before it asks again, with a new key.
const KUBELET_WAITS: SignedDuration = SignedDuration::from_mins(15);

/// An approval of this wake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// The request's name.
    pub name: String,
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
    /// Serving certificates of one Node in one wake: a kubelet needs one again whenever it restarts. Of client
    /// certificates a Node gets one.
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
pub fn decide<'a>(
    csrs: &'a [Csr],
    cluster: &Cluster,
    window: &Window,
    limits: &Limits,
    already: &Approvals,
    now: Timestamp,
) -> Vec<Decision<'a>> {
    let mut undecided: HashMap<&str, usize> = HashMap::new();
    for csr in csrs.iter().filter(|csr| is_undecided(csr, window, now)) {
        *undecided.entry(&csr.username).or_default() += 1;
    }
    let most = cluster.nodes.len().max(cluster.machines.len()) + limits.flood_margin;
    let mut oldest_first: Vec<&Csr> = csrs.iter().collect();
    oldest_first.sort_by(|a, b| (a.created, &a.name).cmp(&(b.created, &b.name)));
    let judged = oldest_first.into_iter().map(|csr| {
        // Not even read: a flood of requests must not cost more than this.
        let is_flood = undecided.get(csr.username.as_str()).is_some_and(|count| *count > most);
        let unread = match is_pending(csr, window) {
            true if is_stale(csr.created, now) => Some(Reason::Stale),
            true if is_flood => Some(Reason::Flood),
            _ => None,
        };
        unread.map_or_else(|| judge(csr, cluster, window), |why| Decision::about(csr, Verdict::Leave(why)))
    });
    let mut decisions: Vec<Decision<'_>> = judged.collect();
    let approvals = approved(csrs, window, already);
    one_by_one(&mut decisions, approvals, cluster, limits, now);
    decisions
}

/// By UID which requests of a Node were approved, and for which keys they were or shall be.
type OfNode = (BTreeSet<String>, BTreeSet<Vec<u8>>);

/// Leaves what could be approved by itself, and has to wait for others or comes too often.
fn one_by_one(
    decisions: &mut [Decision<'_>],
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
    for (uid, Approval { node, kind, key, .. }) in approvals {
        let (approved, keys) = of_node.entry((kind, node)).or_default();
        let _ = (approved.insert(uid), keys.insert(key));
    }
    for Decision { node, key, verdict, .. } in decisions.iter() {
        if let (Verdict::Approve(kind), Some(node)) = (verdict, node) {
            of_node.entry((*kind, node.clone())).or_default().1.insert(key.clone());
        }
    }
    for decision in decisions {
        let csr = decision.csr;
        let (Verdict::Approve(kind), Some(node)) = (decision.verdict, &decision.node) else { continue };
        let (approved, keys) = of_node.entry((kind, node.clone())).or_default();
        let by_requester = in_this_pass.entry(&csr.username).or_default();
        let waits = workers_first || awaited.iter().any(|other| other != node);
        let silent = cluster.silent.get(node);
        let most = if kind == Kind::Client { limits.per_node.min(1) } else { limits.per_node };
        // One that was sent, and is pending still, was not approved.
        let others = approved.len() - usize::from(approved.contains(&csr.uid));
        let barred = [
            (kind == Kind::Client && keys.len() > 1, Reason::TwoKeys),
            (kind == Kind::Client && silent.is_none(), Reason::NoMachineRuns),
            (kind == Kind::Client && silent.is_some_and(|silent| *silent < SETTLE), Reason::Settling),
            (leads(kind, node) && waits, Reason::NotItsTurn),
            (others >= most, Reason::NodeLimit),
            (*by_requester >= limits.per_pass, Reason::PassLimit),
        ];
        if let Some((_, reason)) = barred.into_iter().find(|(is_barred, _)| *is_barred) {
            decision.verdict = Verdict::Leave(reason);
            continue;
        }
        let _ = approved.insert(csr.uid.clone());
        *by_requester += 1;
        awaited.extend(leads(kind, node).then(|| node.clone()));
    }
}

/// Approvals of this wake by any approver, of requests that could be approved here, and `already`, our own.
pub fn approved(csrs: &[Csr], window: &Window, already: &Approvals) -> Approvals {
    let is_approved = |csr: &&Csr| csr.settled() == Some(Reason::Approved) && window.excludes(csr.created).is_none();
    let approval = |csr: &Csr| {
        let kind = Kind::of_signer(&csr.signer)?;
        let request = Request::parse(&csr.request).ok()?;
        let by_right = kind == Kind::Serving || csr.username == BOOTSTRAPPER;
        let node = request.common_name.strip_prefix(NODE_PREFIX).filter(|_| by_right)?.to_owned();
        let (name, at) = (csr.name.clone(), csr.approved.or(csr.created)?);
        Some((csr.uid.clone(), Approval { name, node, kind, key: request.key, at }))
    };
    csrs.iter().filter(is_approved).filter_map(approval).chain(already.clone()).collect()
}

/// Whether it is an undecided request of this wake to a signer of kubelets' certificates, and still awaited.
pub fn is_undecided(csr: &Csr, window: &Window, now: Timestamp) -> bool {
    is_pending(csr, window) && !is_stale(csr.created, now)
}

fn is_pending(csr: &Csr, window: &Window) -> bool {
    Kind::of_signer(&csr.signer).is_some() && csr.settled().is_none() && window.excludes(csr.created).is_none()
}

/// Whether a kubelet that asked then has given up its request.
pub fn is_stale(created: Option<Timestamp>, now: Timestamp) -> bool {
    created.is_none_or(|created| now.duration_since(created) > KUBELET_WAITS)
}
