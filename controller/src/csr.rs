//! Approves the certificate signing requests of a waking cluster's kubelets: hive.md 3.
//!
//! [`shared::spoke::csr`] decides. This module lists the requests, approves them and reports the result.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use futures::{StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use serde_json::json;
use shared::annotation::keys;
use shared::spoke::csr::machine::{self, Machine};
use shared::spoke::csr::{self, Cluster, Counts, Csr, Decision, Kind, Limits, Verdict, Window, is_undecided};
use shared::text::{sanitize, sanitize_chain};
use tracing::{debug, info};

use self::pages::{is_not_there, list, list_metadata};

// By its path, because a test takes in this file by its path.
#[path = "pages.rs"]
pub mod pages;

/// For how long after a wake requests are approved: kubelets ask for their serving certificates when all Nodes are Ready already.
const AFTER_WAKE: SignedDuration = SignedDuration::from_mins(10);

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
const PASSING: &[&str] = &["conflict", "unreachable", "pass_limit", NOT_LEADER];

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
    /// Our own approvals, by Node: a list that is older than an approval must not make us forget it.
    approved: Counts,
    joined: Joined,
    /// What was reported about each request, by UID.
    told: HashMap<String, (&'static str, &'static str)>,
}

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
    #[must_use]
    pub fn is_approval(&self) -> bool {
        self.reason == MATCHED
    }

    fn needs_somebody(&self) -> bool {
        self.kind != "other" && self.reason != MATCHED && !PASSING.contains(&self.reason)
    }
}

impl Pass {
    /// How many verdicts were new, by kind, verdict and reason, for metrics.
    #[must_use]
    pub fn counts(&self) -> BTreeMap<(&'static str, &'static str, &'static str), u64> {
        let mut counts = BTreeMap::new();
        for news in &self.news {
            *counts.entry((news.kind, news.verdict, news.reason)).or_default() += 1;
        }
        counts
    }

    /// What an Event says of the approvals, if there were any.
    #[must_use]
    pub fn approvals(&self) -> Option<String> {
        let approved: Vec<_> = self.news.iter().filter(|news| news.is_approval()).collect();
        let name = |news: &&News| {
            let node = news.node.as_deref().unwrap_or_default();
            format!("{} ({} of {node})", news.csr, news.kind)
        };
        let names: Vec<String> = approved.iter().take(5).map(name).collect();
        let more = approved.len().saturating_sub(names.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let number = approved.len();
        (number > 0).then(|| format!("approved {number} certificate requests: {}{more}", names.join(", ")))
    }

    /// What an Event warns of: requests to the signers of kubelets' certificates that are not approved, and why. Requests that the
    /// next pass checks anyway are left out.
    #[must_use]
    pub fn left(&self) -> Option<String> {
        let left: Vec<_> = self.news.iter().filter(|news| news.needs_somebody()).collect();
        let names: Vec<String> = left.iter().take(5).map(|news| format!("{} ({})", news.csr, news.reason)).collect();
        let more = left.len().saturating_sub(names.len());
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        (!left.is_empty()).then(|| format!("not approved: {}{more}", names.join(", ")))
    }
}

impl Approver {
    /// For the wake of `target` (as logs name it) that began at this moment. It approves until some minutes after
    /// [`Approver::awake`].
    #[must_use]
    pub fn new(target: impl Into<String>, opened: Timestamp) -> Self {
        let window = Window { opened, closes: Timestamp::MAX };
        let (limits, approved, told) = (Limits::default(), Counts::new(), HashMap::new());
        Self { target: target.into(), window, limits, approved, joined: Joined::default(), told }
    }

    /// The cluster is awake since this moment. Only the first call counts.
    pub fn awake(&mut self, since: Timestamp) {
        if self.window.closes == Timestamp::MAX {
            self.window.closes = since.saturating_add(AFTER_WAKE).unwrap_or(Timestamp::MAX);
        }
    }

    /// Whether no pass is needed any more.
    #[must_use]
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
        client: &Client,
        now: Timestamp,
        may: impl Fn() -> bool + Sync,
    ) -> Result<Pass, PassError> {
        if self.is_over(now) {
            return Ok(Pass::default());
        }
        let requests: Api<CertificateSigningRequest> = Api::all(client.clone());
        let what = "certificate signing requests";
        let listed = list(&requests, &ListParams::default(), what).await.map_err(failed(what))?;
        let csrs: Vec<Csr> = listed.iter().map(Csr::from).collect();
        let pending = csrs.iter().filter(|csr| is_undecided(csr, &self.window)).count();
        let mut cluster = if pending > 0 { cluster(client).await? } else { Cluster::default() };
        let is_client = |csr: &&Csr| Kind::of_signer(&csr.signer) == Some(Kind::Client);
        if csrs.iter().filter(is_client).any(|csr| is_undecided(csr, &self.window)) {
            let leases: Api<Lease> = Api::namespaced(client.clone(), NODE_LEASES);
            let leases = list(&leases, &ListParams::default(), "Leases").await.map_err(failed("Leases"))?;
            cluster.joined = self.joined.of(&cluster.nodes, &leases, &self.window);
        }
        let mut decisions = csr::pass(&csrs, &cluster, &self.window, &self.limits, &self.approved);
        decisions.retain(|decision| !matches!(decision.verdict, Verdict::Leave(reason) if reason.is_settled()));
        let objects: HashMap<_, _> = listed.iter().map(|object| (object.uid().unwrap_or_default(), object)).collect();
        let outcomes = stream::iter(decisions).map(|decision| {
            let (requests, object, may) = (&requests, objects.get(&decision.uid), &may);
            async move {
                let outcome = match (decision.verdict, object) {
                    (Verdict::Approve(_), Some(_)) if !may() => NOT_LEADER,
                    (Verdict::Approve(_), Some(object)) => approve(requests, object, now).await,
                    (verdict, _) => verdict.reason(),
                };
                (decision, outcome)
            }
        });
        let outcomes: Vec<(Decision, &'static str)> = outcomes.buffered(AT_ONCE).collect().await;

        let mut pass = Pass { news: Vec::new(), pending, again: false };
        for (decision, outcome) in outcomes {
            pass.again |= PASSING.contains(&outcome);
            if outcome == MATCHED {
                pass.pending = pass.pending.saturating_sub(1);
                *self.approved.entry(decision.node.clone().unwrap_or_default()).or_default() += 1;
            }
            pass.news.extend(self.tell(decision, outcome));
        }
        self.told.retain(|uid, _| objects.contains_key(uid));
        Ok(pass)
    }

    /// The audit log: one line per request and outcome, however many passes see it.
    fn tell(&mut self, decision: Decision, outcome: &'static str) -> Option<News> {
        let Decision { name, uid, kind, node, verdict } = decision;
        let kind = kind.map_or("other", Into::into);
        let (word, sentence) = (verdict.word(), verdict.sentence());
        if self.told.insert(uid, (word, outcome)) == Some((word, outcome)) {
            return None;
        }
        let (name, node) = (sanitize(&name), node.map(|node| sanitize(&node)));
        let for_node = node.as_deref().unwrap_or_default();
        info!(cluster = self.target, csr = name, node = for_node, kind, verdict = word, reason = outcome, "{sentence}");
        Some(News { csr: name, node, kind, verdict: word, reason: outcome })
    }
}

/// Which Nodes have a kubelet with a certificate.
#[derive(Debug, Default)]
struct Joined {
    /// When each Lease was renewed as this process first saw it: the clock of a kubelet may be wrong.
    first: HashMap<String, Option<Timestamp>>,
    /// The Nodes that were missing when the cluster was awake.
    missing: Option<BTreeSet<String>>,
}

impl Joined {
    fn of(&mut self, nodes: &BTreeSet<String>, leases: &[Lease], window: &Window) -> BTreeSet<String> {
        let renewed: HashMap<String, Option<Timestamp>> =
            leases.iter().map(|lease| (lease.name_any(), renewed(lease))).collect();
        let is_alive = |node: &&String| {
            let renewed = renewed.get(*node).copied().flatten();
            let first = *self.first.entry((*node).clone()).or_insert(renewed);
            renewed != first || renewed.is_some_and(|renewed| renewed > window.opened)
        };
        let alive: BTreeSet<String> = nodes.iter().filter(is_alive).cloned().collect();
        if window.closes == Timestamp::MAX {
            return alive;
        }
        let missing = self.missing.get_or_insert_with(|| nodes.difference(&alive).cloned().collect());
        alive.union(&nodes.difference(missing).cloned().collect()).cloned().collect()
    }
}

fn renewed(lease: &Lease) -> Option<Timestamp> {
    lease.spec.as_ref()?.renew_time.as_ref().map(|time| time.0)
}

/// Nodes and Machines. Where the Machine API is missing there are no Machines.
async fn cluster(client: &Client) -> Result<Cluster, PassError> {
    let all = ListParams::default();
    let nodes: Api<Node> = Api::all(client.clone());
    let machines: Api<Machine> = Api::namespaced(client.clone(), machine::NAMESPACE);
    let machines = async {
        match list(&machines, &all, "Machines").await {
            Ok(machines) => Ok(machines),
            Err(error) if is_not_there(&error) => Ok(Vec::new()),
            Err(error) => Err(failed("Machines")(error)),
        }
    };
    let nodes = async { list_metadata(&nodes, &all, "Nodes").await.map_err(failed("Nodes")) };
    let (nodes, machines) = futures::try_join!(nodes, machines)?;
    Ok(Cluster {
        nodes: nodes.iter().map(ResourceExt::name_any).collect(),
        joined: BTreeSet::new(),
        machines: machines.iter().map(Into::into).collect(),
    })
}

fn failed(what: &'static str) -> impl Fn(kube::Error) -> PassError {
    move |source| PassError { what, source: Box::new(source) }
}

/// Approves one request as it was read. If it changed or was deleted since, the next pass checks it again.
async fn approve(
    requests: &Api<CertificateSigningRequest>,
    object: &CertificateSigningRequest,
    now: Timestamp,
) -> &'static str {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = json!({
        "type": "Approved", "status": "True", "reason": REASON, "message": MESSAGE, "lastUpdateTime": now,
    });
    let has_conditions = object.status.as_ref().and_then(|status| status.conditions.as_ref()).is_some();
    let add = if has_conditions {
        json!({"op": "add", "path": "/status/conditions/-", "value": condition})
    } else {
        json!({"op": "add", "path": "/status/conditions", "value": [condition]})
    };
    let test = json!({"op": "test", "path": "/metadata/resourceVersion", "value": object.resource_version()});
    let Ok(patch) = serde_json::from_value(json!([test, add])) else { return "refused" };
    let params = PatchParams { field_manager: Some(keys::CONTROLLER.to_owned()), ..PatchParams::default() };
    let name = object.name_any();
    let written = requests.patch_approval(&name, &params, &Patch::Json::<()>(patch)).await;
    let Err(error) = written else { return MATCHED };
    let outcome = match &error {
        kube::Error::Api(status) if matches!(status.code, 404 | 409 | 422) => "conflict",
        kube::Error::Api(_) => "refused",
        _ => "unreachable",
    };
    debug!(csr = sanitize(&name), error = sanitize_chain(&error), "not approved");
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPENED: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn at(seconds: i64) -> Timestamp {
        OPENED + SignedDuration::from_secs(seconds)
    }

    fn lease(node: &str, renewed: Option<i64>) -> Lease {
        let time = renewed.map(|seconds| at(seconds).to_string());
        let object = json!({ "metadata": { "name": node, "namespace": NODE_LEASES }, "spec": { "renewTime": time } });
        serde_json::from_value(object).unwrap()
    }

    fn names(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_node_has_joined_once_its_kubelet_renews_its_lease_in_this_wake() {
        let mut joined = Joined::default();
        let mut window = Window { opened: OPENED, closes: Timestamp::MAX };
        let nodes = names(&["alive", "asleep", "never", "slow-clock"]);
        let mut leases = vec![
            lease("alive", Some(5)),
            lease("asleep", Some(-90_000)),
            lease("never", None),
            lease("slow-clock", Some(-3_600)),
        ];
        assert_eq!(joined.of(&nodes, &leases, &window), names(&["alive"]));
        leases[3] = lease("slow-clock", Some(-3_590));
        assert_eq!(joined.of(&nodes, &leases, &window), names(&["alive", "slow-clock"]), "its clock is an hour behind");
        window.closes = at(600);
        assert_eq!(joined.of(&nodes, &leases, &window), names(&["alive", "slow-clock"]));
        let nodes = names(&["alive", "asleep", "never", "slow-clock", "new"]);
        leases[1] = lease("asleep", Some(30));
        let found = joined.of(&nodes, &leases, &window);
        assert_eq!(
            found,
            names(&["alive", "asleep", "new", "slow-clock"]),
            "only Nodes that were missing then get one"
        );
    }
}
