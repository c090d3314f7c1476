//! Approves the certificate signing requests of a waking cluster's kubelets: docs/reference/hive.md, section 3.
//!
//! [`csr`] decides. This module lists the requests, approves them and reports the result.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::{StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use shared::annotation::keys;
use shared::spoke::fields::CONTROL_PLANE;
use shared::spoke::kinds::{CertificateRequest, Lease, MACHINE_NAMESPACE, Machine, Node, NodeName};
use shared::text::{list, sanitize, sanitize_chain};
use tracing::{debug, info};

use crate::spoke::csr::{
    self, Approval, Approvals, Cluster, Csr, Decision, Kind, Limits, Reason, SETTLE, Verdict, Window, is_undecided,
};
use crate::spoke::reader::{MOST, SpokeClient, is_not_there};
use fair::{Charge, Full, Held, Kept};

/// For how long after a wake requests are approved: kubelets ask for their serving certificates when all Nodes are
/// Ready already.
const AFTER_WAKE: SignedDuration = SignedDuration::from_mins(10);

/// The most that counts of the time between two answers: nothing is known of the API server in between.
const STEP: SignedDuration = SignedDuration::from_secs(40);

/// Where kubelets keep their Leases.
const NODE_LEASES: &str = "kube-node-lease";

/// Approvals at the same time.
const AT_ONCE: usize = 8;

/// What `oc` and the console show of an approval.
const REASON: &str = "HibernateApprove";
const MESSAGE: &str = "This CSR was automatically approved by kubectl-hibernate";

/// The outcome of an approval that was written.
const MATCHED: &str = "matched";

/// Outcomes that the next pass may change.
const PASSING: &[&str] = &["conflict", "unreachable", "pass_limit", "settling", "not_its_turn", NOT_LEADER];

/// The outcome of an approval that this process may not write any more.
const NOT_LEADER: &str = "not_leader";

/// Why there was no pass.
#[derive(Debug, thiserror::Error)]
#[error("cannot list the cluster's {what}")]
pub struct PassError {
    what: &'static str,
    #[source]
    source: Box<kube::Error>,
}

/// The approver of one wake of one target. A new wake gets a new one.
#[derive(Debug)]
pub struct Approver {
    target: String,
    window: Window,
    limits: Limits,
    /// Our own approvals: a list that is older than an approval must not make us forget it.
    approved: Approvals,
    joined: Joined,
    /// What was reported about each request, by UID.
    reported: HashMap<String, (&'static str, &'static str)>,
    /// What is kept of the spoke's answers between two passes.
    charge: Option<Charge>,
}

/// Bytes that a name takes besides its own when it is kept.
const ENTRY: usize = 160;

/// What one pass did that no pass before it had done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pass {
    /// One entry per request and new verdict.
    pub news: Vec<News>,
    /// Kubelet requests that are still pending after this pass.
    pub pending: usize,
    /// Whether another pass may do what this one could not.
    pub again: bool,
}

/// A verdict that was not reported before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// The request's name.
    pub csr: String,
    /// The Node that it says it is for.
    pub node: Option<String>,
    /// `client`, `serving` or `other`.
    pub kind: &'static str,
    /// `approve` or `leave`.
    pub verdict: &'static str,
    /// `matched`; why it was left; or why the approval failed: `conflict`, `refused`, `unreachable`, `not_leader`.
    pub reason: &'static str,
}

impl News {
    /// Whether it has really been approved.
    pub fn is_approval(&self) -> bool {
        self.reason == MATCHED
    }

    fn needs_somebody(&self) -> bool {
        self.kind != "other" && self.reason != MATCHED && !PASSING.contains(&self.reason)
    }
}

impl Pass {
    /// How many verdicts were new, by kind, verdict and reason, for metrics.
    pub fn counts(&self) -> BTreeMap<(&'static str, &'static str, &'static str), u64> {
        let mut counts = BTreeMap::new();
        for news in &self.news {
            *counts.entry((news.kind, news.verdict, news.reason)).or_default() += 1;
        }
        counts
    }

    /// What an Event says of the approvals, if there were any.
    pub fn approvals(&self) -> Option<String> {
        let approved: Vec<_> = self.news.iter().filter(|news| news.is_approval()).collect();
        let name = |news: &&News| {
            let node = news.node.as_deref().unwrap_or_default();
            format!("{} ({} of {node})", news.csr, news.kind)
        };
        let (number, names) = (approved.len(), list(approved.iter().map(name)));
        (number > 0).then(|| format!("approved {number} certificate requests: {names}"))
    }

    /// What an Event warns of: requests to the signers of kubelets' certificates that are not approved, and why.
    /// Requests that the next pass checks anyway are left out.
    pub fn left(&self) -> Option<String> {
        let mut left: Vec<_> = self.news.iter().filter(|news| news.needs_somebody()).collect();
        left.sort_by_key(|news| news.reason != <&str>::from(Reason::TwoKeys)); // someone attacks, or a key was lost
        let names = list(left.iter().map(|news| format!("{} ({})", news.csr, news.reason)));
        (!names.is_empty()).then(|| format!("not approved: {names}"))
    }
}

impl Approver {
    /// For the wake of `target` (as logs name it) that began at this moment. It approves until some minutes after
    /// [`Approver::awake`]; client certificates only after a sleep that was long enough for them to expire.
    pub fn new(target: impl Into<String>, opened: Timestamp, after_long_sleep: bool) -> Self {
        let window = Window { opened, closes: Timestamp::MAX, after_long_sleep };
        let (limits, approved, reported) = (Limits::default(), Approvals::new(), HashMap::new());
        Self { target: target.into(), window, limits, approved, joined: Joined::default(), reported, charge: None }
    }

    /// Since when all machines of the cluster run, if they do: before that, not every kubelet can show itself.
    pub fn machines_run(&mut self, since: Option<Timestamp>) {
        self.joined.run_since = since;
    }

    /// The cluster is awake since this moment. Only the first call counts.
    pub fn awake(&mut self, since: Timestamp) {
        if self.window.closes == Timestamp::MAX {
            self.window.closes = since.saturating_add(AFTER_WAKE).unwrap_or(Timestamp::MAX);
        }
    }

    /// Whether no pass is needed any more.
    pub fn is_over(&self, now: Timestamp) -> bool {
        now > self.window.closes
    }

    /// Checks all requests, approves the valid ones, and returns what is new. After the window it does nothing.
    /// It lists Nodes and Machines only if a kubelet's request is undecided. `may` is asked before each approval.
    ///
    /// # Errors
    /// When a list cannot be read. An approval that fails is part of the answer, and is tried again by the next pass.
    pub async fn pass(
        &mut self,
        client: &SpokeClient,
        now: Timestamp,
        may: impl Fn() -> bool + Sync,
    ) -> Result<Pass, PassError> {
        if self.is_over(now) {
            return Ok(Pass::default());
        }
        let before = self.joined.answered_at.take();
        let what = "certificate signing requests";
        let listed =
            client.list::<CertificateRequest>(None, &ListParams::default(), what).await.map_err(failed(what))?;
        let since = before.map_or(SignedDuration::ZERO, |before| now.duration_since(before));
        self.joined.answered += since.clamp(SignedDuration::ZERO, STEP);
        let charge = self.charge.get_or_insert_with(|| client.charge());
        if self.joined.certificates.is_empty() {
            let certificates = listed.iter().filter_map(|request| csr::validity(request, &self.window));
            let certificates: BTreeSet<_> = certificates.collect();
            let size = certificates.iter().map(|(node, _)| node.len() + ENTRY).sum();
            charge.spend(size).map_err(|error| failed(what)(full(error)))?;
            self.joined.certificates = certificates;
        }
        let csrs: Kept<Vec<Csr>> = listed.map(|all| all.into_iter().map(Csr::from).collect());
        let pending = csrs.iter().filter(|csr| is_undecided(csr, &self.window)).count();
        if self.approved.len() >= MOST {
            return Err(failed(what)(full(format!("more than {MOST} requests were approved"))));
        }
        let (mut cluster, _held) = if pending > 0 { cluster(client).await? } else { Default::default() };
        let is_client = |csr: &&Csr| Kind::of_signer(&csr.signer) == Some(Kind::Client);
        if csrs.iter().filter(is_client).any(|csr| is_undecided(csr, &self.window)) {
            self.observe(client, &mut cluster, now).await?;
        }
        let mut decisions = csr::pass(&csrs, &cluster, &self.window, &self.limits, &self.approved, now);
        decisions.retain(|decision| !matches!(decision.verdict, Verdict::Leave(reason) if reason.is_settled()));
        let objects: HashMap<&str, &Csr> = csrs.iter().map(|csr| (csr.uid.as_str(), csr)).collect();
        let outcomes = stream::iter(decisions).map(|decision| {
            let (object, may) = (objects.get(decision.uid.as_str()), &may);
            async move {
                let outcome = match (decision.verdict, object) {
                    (Verdict::Approve(_), Some(_)) if !may() => NOT_LEADER,
                    (Verdict::Approve(_), Some(object)) => approve(client, object, now).await,
                    (verdict, _) => verdict.reason(),
                };
                (decision, outcome)
            }
        });
        let outcomes: Vec<(Decision, &'static str)> = outcomes.buffered(AT_ONCE).collect().await;

        let mut pass = Pass { news: Vec::new(), pending, again: false };
        let charge = self.charge.get_or_insert_with(|| client.charge());
        for (decision, outcome) in outcomes {
            pass.again |= PASSING.contains(&outcome);
            if let (MATCHED, Some(kind)) = (outcome, decision.kind) {
                pass.pending = pass.pending.saturating_sub(1);
                let (node, key) = (decision.node.clone().unwrap_or_default(), decision.key.clone());
                let _ = charge.spend(node.len() + key.len() + ENTRY); // no more than so many
                self.approved.insert(decision.uid.clone(), Approval { node, kind, key, at: now });
            }
            pass.news.extend(report(&self.target, &mut self.reported, charge, decision, outcome));
        }
        let gone = self.reported.extract_if(|uid, _| !objects.contains_key(uid.as_str()));
        charge.refund(gone.map(|(uid, _)| uid.len() + ENTRY).sum());
        self.joined.answered_at = Some(now);
        Ok(pass)
    }

    /// Fills in what client certificates depend on.
    async fn observe(&mut self, client: &SpokeClient, cluster: &mut Cluster, now: Timestamp) -> Result<(), PassError> {
        let leases = client.list::<Lease>(Some(NODE_LEASES), &ListParams::default(), "Leases").await;
        let leases = leases.map_err(failed("Leases"))?;
        let charge = self.charge.get_or_insert_with(|| client.charge());
        let joined = self.joined.of(&cluster.nodes, &leases, &self.window, charge);
        cluster.joined = joined.map_err(|error| failed("Leases")(full(error)))?;
        let valid = self.joined.certificates.iter().filter(|(_, until)| *until > now);
        cluster.certified = valid.map(|(node, _)| node.clone()).collect();
        let running = self.joined.run_since.map_or(SignedDuration::ZERO, |since| now.duration_since(since));
        cluster.answered = self.joined.answered.min(running);
        if !self.joined.has_ready_worker && cluster.answered >= SETTLE {
            let workers = ListParams::default().labels(&CONTROL_PLANE.map(|label| format!("!{label}")).join(","));
            let workers = client.list::<Node>(None, &workers, "Nodes").await.map_err(failed("Nodes"))?;
            let mut ready =
                workers.iter().filter(|node| node.status.ready.as_ref().is_some_and(|r| r.status == "True"));
            self.joined.has_ready_worker = ready.any(|node| cluster.joined.contains(&node.metadata.name));
        }
        cluster.has_ready_worker = self.joined.has_ready_worker;
        Ok(())
    }
}

/// The audit log: one line per request and outcome, however many passes see it. Requests of which there is no room to
/// remember it are left out, unless they were approved.
fn report(
    target: &str,
    reported: &mut HashMap<String, (&'static str, &'static str)>,
    charge: &mut Charge,
    decision: Decision,
    outcome: &'static str,
) -> Option<News> {
    let Decision { name, uid, kind, node, verdict, .. } = decision;
    let kind = kind.map_or("other", Into::into);
    let (word, sentence) = (verdict.word(), verdict.sentence());
    let is_left_out = if reported.contains_key(&uid) || charge.spend(uid.len() + ENTRY).is_ok() {
        reported.insert(uid, (word, outcome)) == Some((word, outcome))
    } else {
        outcome != MATCHED
    };
    if is_left_out {
        return None;
    }
    let (name, node) = (sanitize(&name), node.map(|node| sanitize(&node)));
    let for_node = node.as_deref().unwrap_or_default();
    info!(cluster = target, csr = name, node = for_node, kind, verdict = word, reason = outcome, "{sentence}");
    Some(News { csr: name, node, kind, verdict: word, reason: outcome })
}

/// Which Nodes have a kubelet with a certificate.
#[derive(Debug, Default)]
struct Joined {
    /// When each Lease was renewed as this process first saw it: the clock of a kubelet may be wrong.
    first: HashMap<String, Option<Timestamp>>,
    /// The Nodes that were missing when the cluster was awake.
    missing: Option<BTreeSet<String>>,
    /// For how long the API server has answered, and when it answered last.
    answered: SignedDuration,
    answered_at: Option<Timestamp>,
    run_since: Option<Timestamp>,
    /// Until when certificates from before the wake are valid, by Node. The cluster soon deletes the requests.
    certificates: BTreeSet<(String, Timestamp)>,
    /// Whether a worker has been Ready in this wake.
    has_ready_worker: bool,
}

impl Joined {
    fn of(
        &mut self,
        nodes: &BTreeSet<String>,
        leases: &[Lease],
        window: &Window,
        charge: &mut Charge,
    ) -> Result<BTreeSet<String>, Full> {
        let renewed = |lease: &Lease| (lease.metadata.name.clone(), lease.spec.renew_time);
        let renewed: HashMap<String, Option<Timestamp>> = leases.iter().map(renewed).collect();
        let gone = self.first.extract_if(|node, _| !nodes.contains(node));
        charge.refund(gone.map(|(node, _)| node.len() + ENTRY).sum());
        let mut alive = BTreeSet::new();
        for node in nodes {
            let renewed = renewed.get(node).copied().flatten();
            if !self.first.contains_key(node) {
                charge.spend(node.len() + ENTRY)?;
            }
            let first = *self.first.entry(node.clone()).or_insert(renewed);
            if renewed != first || renewed.is_some_and(|renewed| renewed > window.opened) {
                alive.insert(node.clone());
            }
        }
        if window.closes == Timestamp::MAX {
            return Ok(alive);
        }
        if self.missing.is_none() {
            let missing: BTreeSet<String> = nodes.difference(&alive).cloned().collect();
            charge.spend(missing.iter().map(|node| node.len() + ENTRY).sum())?;
            self.missing = Some(missing);
        }
        let missing = self.missing.as_ref().unwrap_or(nodes);
        Ok(alive.union(&nodes.difference(missing).cloned().collect()).cloned().collect())
    }
}

/// Nodes and Machines, and what they are charged. Where the Machine API is missing there are no Machines.
async fn cluster(client: &SpokeClient) -> Result<(Cluster, Vec<Held>), PassError> {
    let all = ListParams::default();
    let machines = async {
        match client.list::<Machine>(Some(MACHINE_NAMESPACE), &all, "Machines").await {
            Ok(machines) => Ok(Some(machines)),
            Err(error) if is_not_there(&error) => Ok(None),
            Err(error) => Err(failed("Machines")(error)),
        }
    };
    let nodes = async { client.list::<NodeName>(None, &all, "Nodes").await.map_err(failed("Nodes")) };
    let (nodes, machines) = futures::try_join!(nodes, machines)?;
    let (nodes, of_nodes) = nodes.into_parts();
    let (machines, of_machines) = machines.map(Kept::into_parts).unzip();
    let leads = |node: &&NodeName| CONTROL_PLANE.iter().any(|label| node.metadata.labels.contains_key(label));
    let cluster = Cluster {
        control_plane: nodes.iter().filter(leads).map(|node| node.metadata.name.clone()).collect(),
        nodes: nodes.into_iter().map(|node| node.metadata.name).collect(),
        machines: machines.into_iter().flatten().map(|machine| (&machine).into()).collect(),
        ..Cluster::default()
    };
    Ok((cluster, of_machines.into_iter().chain([of_nodes]).collect()))
}

fn failed(what: &'static str) -> impl Fn(kube::Error) -> PassError {
    move |source| PassError { what, source: Box::new(source) }
}

fn full(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> kube::Error {
    kube::Error::Service(why.into())
}

/// Approves one request as it was read. If it changed or was deleted since, the next pass checks it again.
async fn approve(client: &SpokeClient, csr: &Csr, now: Timestamp) -> &'static str {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = json!({
        "type": "Approved", "status": "True", "reason": REASON, "message": MESSAGE, "lastUpdateTime": now,
    });
    let add = if csr.conditions.is_empty() {
        json!({"op": "add", "path": "/status/conditions", "value": [condition]})
    } else {
        json!({"op": "add", "path": "/status/conditions/-", "value": condition})
    };
    let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": csr.resource_version});
    let Ok(patch) = serde_json::from_value(json!([test, add])) else { return "refused" };
    let (params, patch) = (
        PatchParams { field_manager: Some(keys::CONTROLLER.to_owned()), ..PatchParams::default() },
        Patch::Json::<()>(patch),
    );
    let written = client.patch_subresource::<CertificateRequest>(None, "approval", &csr.name, &params, &patch).await;
    let Err(error) = written else { return MATCHED };
    let outcome = match &error {
        kube::Error::Api(status) if matches!(status.code, 404 | 409 | 422) => "conflict",
        kube::Error::Api(_) => "refused",
        _ => "unreachable",
    };
    debug!(csr = sanitize(&csr.name), error = sanitize_chain(&error), "not approved");
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;
    use fair::{Memory, Whose};

    const OPENED: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn at(seconds: i64) -> Timestamp {
        OPENED + SignedDuration::from_secs(seconds)
    }

    fn lease(node: &str, renewed: Option<i64>) -> Lease {
        let mut lease = Lease::default();
        node.clone_into(&mut lease.metadata.name);
        lease.spec.renew_time = renewed.map(at);
        lease
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_node_has_joined_once_its_kubelet_renews_its_lease_in_this_wake() {
        let mut known = Joined::default();
        let mut charge = Memory::default().share(Whose::new("tenant", "spoke")).charge();
        let mut joined = |nodes: &BTreeSet<String>, leases: &[Lease], window: &Window| {
            known.of(nodes, leases, window, &mut charge).unwrap()
        };
        let mut window = Window { opened: OPENED, closes: Timestamp::MAX, after_long_sleep: true };
        let nodes = names(&["alive", "asleep", "never", "slow-clock"]);
        let mut leases = vec![
            lease("alive", Some(5)),
            lease("asleep", Some(-90_000)),
            lease("never", None),
            lease("slow-clock", Some(-3_600)),
        ];
        assert_eq!(joined(&nodes, &leases, &window), names(&["alive"]));
        leases[3] = lease("slow-clock", Some(-3_590));
        assert_eq!(joined(&nodes, &leases, &window), names(&["alive", "slow-clock"]), "its clock is an hour behind");
        window.closes = at(600);
        assert_eq!(joined(&nodes, &leases, &window), names(&["alive", "slow-clock"]));
        let nodes = names(&["alive", "asleep", "never", "slow-clock", "new"]);
        leases[1] = lease("asleep", Some(30));
        let found = joined(&nodes, &leases, &window);
        assert_eq!(
            found,
            names(&["alive", "asleep", "new", "slow-clock"]),
            "only Nodes that were missing then get one"
        );
    }

    #[test]
    fn an_approval_is_logged_even_where_nothing_more_can_be_remembered() {
        let memory = Memory::default();
        let mut charge = memory.share(Whose::new("tenant", "spoke")).charge();
        while charge.spend(1 << 10).is_ok() {}
        let mut seen = HashMap::new();
        let mut news = |verdict, outcome| {
            let (name, uid, kind, node) = ("csr-1".to_owned(), "u".repeat(4_000), Some(Kind::Client), None);
            let decision = Decision { name, uid, kind, node, key: Vec::new(), verdict };
            report("target", &mut seen, &mut charge, decision, outcome).is_some()
        };
        assert!(news(Verdict::Approve(Kind::Client), MATCHED));
        assert!(!news(Verdict::Approve(Kind::Client), "conflict"));
    }
}
