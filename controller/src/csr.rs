//! Approves the certificate signing requests of a waking cluster's kubelets: docs/reference/hive.md, section 3.
//!
//! [`csr`] decides. This module lists the requests, approves them and reports the result.

mod joined;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use futures::{StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use kube::api::{ListParams, Patch, PatchParams};
use serde_json::json;
use shared::annotation::keys;
use shared::spoke::fields::CONTROL_PLANE;
use shared::spoke::kinds::{CertificateRequest, Lease, MACHINE_NAMESPACE, Machine, Node, NodeName};
use shared::text::{list, sanitize, sanitize_chain};
use tracing::{debug, info};

use self::joined::Joined;
use crate::spoke::csr::{
    self, Approval, Approvals, BOOTSTRAPPER, Cluster, Csr, Decision, Kind, Limits, Reason, SETTLE, Verdict, Window,
    is_undecided,
};
use crate::spoke::reader::{MOST, SpokeClient, is_not_there};
use fair::{Charge, ChargeGuard, ChargedValue};

/// For how long after a wake requests are approved: kubelets ask for their serving certificates when all Nodes are
/// Ready already.
const AFTER_WAKE: SignedDuration = SignedDuration::from_mins(10);

/// The longest gap between two answers that counts as uptime: between answers the state of the API server is unknown.
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

/// The outcome of an approval of which it is not known whether it was written.
const UNREACHABLE: &str = "unreachable";

/// Outcomes that the next pass may change.
const PASSING: &[&str] =
    &["conflict", UNREACHABLE, "pass_limit", "no_machine_runs", "settling", "not_its_turn", NOT_LEADER];

/// When to pass again after such an outcome, and while any other request is pending.
pub const SOON: Duration = Duration::from_secs(3);
const LATER: Duration = Duration::from_secs(30);

/// Requests of one requester that are taken of a list. All kubelets without a certificate are one requester.
const OF_BOOTSTRAPPER: usize = 4_000;
const OF_ONE: usize = 100;

/// Approvals of one wake: a certificate of each kind for each Node, and some again.
const MOST_APPROVED: usize = 4 * MOST;

/// Nodes for which one pass reports that two keys ask.
const MOST_RIVALS: usize = 20;

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
    /// One line for each Node that two keys request, if a new verdict says so: the requests of both.
    pub rivals: Vec<String>,
    /// When another pass may do what this one could not.
    pub again: Option<Duration>,
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
        let elsewhere = [MATCHED, Reason::Stale.into(), Reason::TwoKeys.into()];
        self.kind != "other" && !elsewhere.contains(&self.reason) && !PASSING.contains(&self.reason)
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
    /// Requests that the next pass checks anyway are left out, and those that have an Event of their own.
    pub fn left(&self) -> Option<String> {
        let left = self.news.iter().filter(|news| news.needs_somebody());
        let names = list(left.map(|news| format!("{} ({})", news.csr, news.reason)));
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

    /// Sets since when each machine of the cluster has run, by lowercase name. Without a running machine there is no
    /// kubelet to request a certificate.
    pub fn machines_run(&mut self, since: HashMap<String, Timestamp>) {
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
        let wanted = wanted(self.window, now);
        let listed = client.list_some::<CertificateRequest>(None, &ListParams::default(), what, wanted).await;
        let (listed, _listed) = listed.map_err(failed(what))?.into_parts();
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
        let csrs: Vec<Csr> = listed.into_iter().map(Csr::from).collect();
        let pending = csrs.iter().filter(|csr| is_undecided(csr, &self.window, now)).count();
        if self.approved.len() >= MOST_APPROVED {
            return Err(failed(what)(full(format!("more than {MOST_APPROVED} requests were approved"))));
        }
        let (mut cluster, _held) = if pending > 0 { cluster(client).await? } else { Default::default() };
        let is_client = |csr: &&Csr| Kind::of_signer(&csr.signer) == Some(Kind::Client);
        if csrs.iter().filter(is_client).any(|csr| is_undecided(csr, &self.window, now)) {
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

        let mut pass = Pass { pending, ..Pass::default() };
        let decisions = outcomes.iter().map(|(decision, _)| decision);
        let rivals = decisions.filter(|decision| decision.verdict == Verdict::Leave(Reason::TwoKeys));
        let rivals: Vec<Decision> = rivals.cloned().collect();
        let charge = self.charge.get_or_insert_with(|| client.charge());
        for (decision, outcome) in outcomes {
            if PASSING.contains(&outcome) {
                pass.again = Some(SOON);
            }
            pass.pending = pass.pending.saturating_sub(usize::from(outcome == MATCHED));
            // One that may have been written counts, too.
            if let (MATCHED | UNREACHABLE, Some(kind)) = (outcome, decision.kind) {
                let (name, node, key) =
                    (decision.name.clone(), decision.node.clone().unwrap_or_default(), decision.key.clone());
                let size = name.len() + node.len() + key.len() + ENTRY;
                if self.approved.insert(decision.uid.clone(), Approval { name, node, kind, key, at: now }).is_none() {
                    let _ = charge.spend(size); // no more than so many
                }
            }
            pass.news.extend(report(&self.target, &mut self.reported, charge, decision, outcome));
        }
        let asked = pass.news.iter().filter(|news| news.reason == <&str>::from(Reason::TwoKeys));
        let nodes: BTreeSet<&str> = asked.filter_map(|news| news.node.as_deref()).collect();
        if !nodes.is_empty() {
            let mut approved = csr::approved_before(&csrs, &self.window);
            approved.extend(self.approved.clone());
            pass.rivals = nodes.iter().take(MOST_RIVALS).map(|node| two_keys(node, &rivals, &approved)).collect();
        }
        if pass.pending > 0 {
            pass.again.get_or_insert(LATER);
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
        let joined = self.joined.of(&cluster.nodes, &leases, &self.window, now, charge);
        cluster.joined = joined.map_err(|error| failed("Leases")(full(error)))?;
        cluster.silent = self.joined.silent(cluster, now);
        let valid = self.joined.certificates.iter().filter(|(_, until)| *until > now);
        cluster.certified = valid.map(|(node, _)| node.clone()).collect();
        cluster.answered = self.joined.answered;
        if !self.joined.has_ready_worker && cluster.answered >= SETTLE {
            let workers = ListParams::default().labels(&CONTROL_PLANE.map(|label| format!("!{label}")).join(","));
            let workers = client.list::<Node>(None, &workers, "Nodes").await.map_err(failed("Nodes"))?;
            let mut ready =
                workers.iter().filter(|node| node.status.ready.as_ref().is_some_and(|r| r.status == "True"));
            self.joined.has_ready_worker = ready.any(|node| {
                let name = &node.metadata.name;
                cluster.joined.contains(name) && !cluster.control_plane.contains(name)
            });
        }
        cluster.has_ready_worker = self.joined.has_ready_worker;
        Ok(())
    }
}

/// Which requests of a list are kept: a limited number per requester. Requests that can no longer be approved have a limit
/// of their own.
fn wanted(window: Window, now: Timestamp) -> impl FnMut(&CertificateRequest) -> bool {
    let mut taken: HashMap<(u64, bool), usize> = HashMap::new();
    let requester = RandomState::new(); // names are a stranger's, and not kept
    move |request| {
        let CertificateRequest { metadata, spec, status } = request;
        let created = metadata.creation_timestamp;
        let is_of_wake = window.excludes(created).is_none() && !csr::is_stale(created, now);
        let counts = is_of_wake || csr::settled(request).is_some() && !status.certificate.0.is_empty();
        let most = if counts && spec.username == BOOTSTRAPPER { OF_BOOTSTRAPPER } else { OF_ONE };
        let taken = taken.entry((requester.hash_one((&spec.username, &spec.signer_name)), counts)).or_default();
        *taken += 1;
        Kind::of_signer(&spec.signer_name).is_some() && *taken <= most
    }
}

/// Who asks for this Node, and who has been approved for it.
fn two_keys(node: &str, pending: &[Decision], approved: &Approvals) -> String {
    let is_of = |name: &str| sanitize(name) == node;
    let approved = approved.values().filter(|it| it.kind == Kind::Client && is_of(&it.node));
    let approved = approved.map(|it| format!("{} (approved at {:.0})", sanitize(&it.name), it.at));
    let pending = pending.iter().filter(|it| it.node.as_deref().is_some_and(is_of));
    let names = list(approved.chain(pending.map(|it| format!("{} (pending)", sanitize(&it.name)))));
    format!("two keys ask for Node {node}: {names}; see docs/certificates.md#two-keys")
}

/// The audit log: one line per request and outcome, however many passes see it. When there is no memory to remember a
/// request, it is logged only if it was approved.
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

/// Nodes and Machines, and what they are charged. Where the Machine API is missing there are no Machines.
async fn cluster(client: &SpokeClient) -> Result<(Cluster, Vec<ChargeGuard>), PassError> {
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
    let (machines, of_machines) = machines.map(ChargedValue::into_parts).unzip();
    let machines: Vec<csr::Machine> = machines.into_iter().flatten().map(|machine| (&machine).into()).collect();
    let leads = |node: &&NodeName| {
        let mut masters = machines.iter().filter(|machine| machine.control_plane);
        let by_label = CONTROL_PLANE.iter().any(|label| node.metadata.labels.contains_key(label));
        by_label || masters.any(|machine| machine.names().any(|name| name.eq_ignore_ascii_case(&node.metadata.name)))
    };
    let cluster = Cluster {
        control_plane: nodes.iter().filter(leads).map(|node| node.metadata.name.clone()).collect(),
        nodes: nodes.into_iter().map(|node| node.metadata.name).collect(),
        machines,
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
    debug!(csr = sanitize(&csr.name), error = sanitize_chain(&error), "not approved");
    failure(&error)
}

fn failure(error: &kube::Error) -> &'static str {
    match error {
        kube::Error::Api(status) if matches!(status.code, 404 | 409 | 422) => "conflict",
        kube::Error::Api(status) if status.code < 500 && status.code != 429 => "refused",
        _ => UNREACHABLE,
    }
}

#[cfg(test)]
mod tests;
