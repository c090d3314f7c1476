//! Lists the certificate requests of a waking cluster, approves those that match, and reports the result:
//! docs/reference/hive.md, section 3.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};

use fair::{Charge, ChargeGuard, ChargedValue};
use futures::{StreamExt as _, stream};
use jiff::{SignedDuration, Timestamp};
use kube::api::{ListParams, Patch};
use serde_json::json;
use shared::spoke::fields::CONTROL_PLANE;
use shared::spoke::kinds::{self, CertificateRequest, Lease, MACHINE_NAMESPACE, NODE_LEASES, Node, NodeName};
use shared::text::{sanitize, sanitize_chain};
use tracing::debug;

use super::kubelets::Kubelets;
use super::report::{AuditLog, MATCHED, NOT_LEADER, Pass, UNREACHABLE};
use super::{
    Approval, Approvals, BOOTSTRAPPER, Cluster, Csr, Decision, ENTRY_BYTES, Kind, Limits, Machine, SETTLE, Verdict,
    Window, approved, decide, is_stale, is_undecided, settled, validity,
};
use crate::spoke::reader::{MOST, SpokeClient, if_there};

/// For how long after a wake requests are approved: kubelets ask for their serving certificates when all Nodes are
/// Ready already.
const AFTER_WAKE: SignedDuration = SignedDuration::from_mins(10);

/// The longest gap between two answers that counts as uptime: between answers the state of the API server is unknown.
const MAX_GAP: SignedDuration = SignedDuration::from_secs(40);

/// Approvals at the same time.
const AT_ONCE: usize = 8;

/// What `oc` and the console show of an approval.
const REASON: &str = "HibernateApprove";
const MESSAGE: &str = "This CSR was automatically approved by kubectl-hibernate";

/// Requests of one requester that are taken of a list. All kubelets without a certificate are one requester.
const MAX_OF_BOOTSTRAPPER: usize = 4_000;
const MAX_OF_REQUESTER: usize = 100;

/// Approvals of one wake: a certificate of each kind for each Node, and some again.
const MAX_APPROVALS: usize = 4 * MOST;

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
    window: Window,
    /// Our own approvals: a list that is older than an approval must not make us forget it.
    approved: Approvals,
    kubelets: Kubelets,
    log: AuditLog,
    /// For what is kept of the spoke's answers between two passes.
    charge: Option<Charge>,
}

impl Approver {
    /// For the wake of `target` (as logs name it) that began at this moment. It approves until some minutes after
    /// [`Approver::awake`]; client certificates only after a sleep that was long enough for them to expire.
    pub fn new(target: impl Into<String>, opened: Timestamp, after_long_sleep: bool) -> Self {
        let window = Window { opened, closes: Timestamp::MAX, after_long_sleep };
        let (approved, kubelets) = (Approvals::new(), Kubelets::default());
        Self { window, approved, kubelets, log: AuditLog::new(target.into()), charge: None }
    }

    /// Sets since when each machine of the cluster has run, by lowercase name. Without a running machine there is no
    /// kubelet to request a certificate.
    pub fn machines_run(&mut self, since: HashMap<String, Timestamp>) {
        self.kubelets.run_since = since;
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
        let (csrs, _guard) = self.requests(client, now).await?;
        let open: Vec<&Csr> = csrs.iter().filter(|csr| is_undecided(csr, &self.window, now)).collect();
        let (mut cluster, _guards) = if open.is_empty() { Default::default() } else { cluster(client).await? };
        if open.iter().any(|csr| Kind::of_signer(&csr.signer) == Some(Kind::Client)) {
            self.observe(client, &mut cluster, now).await?;
        }
        let mut decisions = decide(&csrs, &cluster, &self.window, &Limits::default(), &self.approved, now);
        decisions.retain(|decision| !matches!(decision.verdict, Verdict::Leave(reason) if reason.is_settled()));
        let outcomes = approve_all(client, decisions, now, may).await;

        let charge = self.charge.get_or_insert_with(|| client.charge());
        let mut pass = Pass { pending: open.len(), ..Pass::default() };
        for (decision, outcome) in &outcomes {
            // One that may have been written counts, too.
            if matches!(*outcome, MATCHED | UNREACHABLE) {
                remember(&mut self.approved, decision, now, charge);
            }
            pass.add(outcome, self.log.record(decision, outcome, charge));
        }
        let decisions = outcomes.iter().map(|(decision, _)| decision);
        pass.end(decisions, || approved(&csrs, &self.window, &self.approved));
        self.log.retain(&csrs, charge);
        self.kubelets.answered_at = Some(now);
        Ok(pass)
    }

    /// Lists the requests. What it returns besides them keeps their charge.
    async fn requests(&mut self, client: &SpokeClient, now: Timestamp) -> Result<(Vec<Csr>, ChargeGuard), PassError> {
        let before = self.kubelets.answered_at.take();
        let what = "certificate signing requests";
        let is_wanted = is_wanted(self.window, now);
        let listed = client.list_some::<CertificateRequest>(None, &ListParams::default(), what, is_wanted).await;
        let (listed, guard) = listed.map_err(failed(what))?.into_parts();
        let since = before.map_or(SignedDuration::ZERO, |before| now.duration_since(before));
        self.kubelets.answered += since.clamp(SignedDuration::ZERO, MAX_GAP);
        if self.kubelets.certificates.is_empty() {
            let certificates = listed.iter().filter_map(|request| validity(request, &self.window));
            let certificates: BTreeSet<_> = certificates.collect();
            let size = certificates.iter().map(|(node, _)| node.len() + ENTRY_BYTES).sum();
            let charge = self.charge.get_or_insert_with(|| client.charge());
            charge.spend(size).map_err(|error| failed(what)(full(error)))?;
            self.kubelets.certificates = certificates;
        }
        if self.approved.len() >= MAX_APPROVALS {
            return Err(failed(what)(full(format!("more than {MAX_APPROVALS} requests were approved"))));
        }
        Ok((listed.into_iter().map(Csr::from).collect(), guard))
    }

    /// Fills in what client certificates depend on.
    async fn observe(&mut self, client: &SpokeClient, cluster: &mut Cluster, now: Timestamp) -> Result<(), PassError> {
        let leases = client.list::<Lease>(Some(NODE_LEASES), &ListParams::default(), "Leases").await;
        let leases = leases.map_err(failed("Leases"))?;
        let charge = self.charge.get_or_insert_with(|| client.charge());
        let joined = self.kubelets.joined(&cluster.nodes, &leases, &self.window, now, charge);
        cluster.joined = joined.map_err(|error| failed("Leases")(full(error)))?;
        cluster.silent = self.kubelets.silent(cluster, now);
        let valid = self.kubelets.certificates.iter().filter(|(_, until)| *until > now);
        cluster.certified = valid.map(|(node, _)| node.clone()).collect();
        cluster.answered = self.kubelets.answered;
        if !self.kubelets.has_ready_worker && cluster.answered >= SETTLE {
            let workers = ListParams::default().labels(&CONTROL_PLANE.map(|label| format!("!{label}")).join(","));
            let workers = client.list::<Node>(None, &workers, "Nodes").await.map_err(failed("Nodes"))?;
            let mut ready =
                workers.iter().filter(|node| node.status.ready.as_ref().is_some_and(|r| r.status == "True"));
            self.kubelets.has_ready_worker = ready.any(|node| {
                let name = &node.metadata.name;
                cluster.joined.contains(name) && !cluster.control_plane.contains(name)
            });
        }
        cluster.has_ready_worker = self.kubelets.has_ready_worker;
        Ok(())
    }
}

/// Which requests of a list are kept: a limited number per requester. Requests that can no longer be approved have a limit
/// of their own.
fn is_wanted(window: Window, now: Timestamp) -> impl FnMut(&CertificateRequest) -> bool {
    let mut taken: HashMap<(u64, bool), usize> = HashMap::new();
    let requester = RandomState::new(); // names are untrusted: only their hashes are kept
    move |request| {
        let CertificateRequest { metadata, spec, status } = request;
        let created = metadata.creation_timestamp;
        let is_of_wake = window.excludes(created).is_none() && !is_stale(created, now);
        let counts = is_of_wake || settled(request).is_some() && !status.certificate.0.is_empty();
        let most = if counts && spec.username == BOOTSTRAPPER { MAX_OF_BOOTSTRAPPER } else { MAX_OF_REQUESTER };
        let taken = taken.entry((requester.hash_one((&spec.username, &spec.signer_name)), counts)).or_default();
        *taken += 1;
        Kind::of_signer(&spec.signer_name).is_some() && *taken <= most
    }
}

/// Keeps an approval of this wake.
fn remember(approved: &mut Approvals, decision: &Decision<'_>, now: Timestamp, charge: &mut Charge) {
    let Verdict::Approve(kind) = decision.verdict else { return };
    let (name, node, key) =
        (decision.csr.name.clone(), decision.node.clone().unwrap_or_default(), decision.key.clone());
    let size = name.len() + node.len() + key.len() + ENTRY_BYTES;
    if approved.insert(decision.csr.uid.clone(), Approval { name, node, kind, key, at: now }).is_none() {
        let _ = charge.spend(size); // no more than so many
    }
}

/// Nodes and Machines, and what they are charged. Where the Machine API is missing there are no Machines.
async fn cluster(client: &SpokeClient) -> Result<(Cluster, Vec<ChargeGuard>), PassError> {
    let all = ListParams::default();
    let machines = async {
        let machines = client.list::<kinds::Machine>(Some(MACHINE_NAMESPACE), &all, "Machines").await;
        if_there(machines).map_err(failed("Machines"))
    };
    let nodes = async { client.list::<NodeName>(None, &all, "Nodes").await.map_err(failed("Nodes")) };
    let (nodes, machines) = futures::try_join!(nodes, machines)?;
    let (nodes, of_nodes) = nodes.into_parts();
    let (machines, of_machines) = machines.map(ChargedValue::into_parts).unzip();
    let machines: Vec<Machine> = machines.into_iter().flatten().map(|machine| (&machine).into()).collect();
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

/// Writes the approvals, if `may` allows it. Returns each decision with its outcome.
async fn approve_all<'a>(
    client: &SpokeClient,
    decisions: Vec<Decision<'a>>,
    now: Timestamp,
    may: impl Fn() -> bool + Sync,
) -> Vec<(Decision<'a>, &'static str)> {
    let may = &may;
    let approval = |decision: Decision<'a>| async move {
        let outcome = match decision.verdict {
            Verdict::Approve(_) if !may() => NOT_LEADER,
            Verdict::Approve(_) => approve(client, decision.csr, now).await,
            verdict @ Verdict::Leave(_) => verdict.reason(),
        };
        (decision, outcome)
    };
    let approvals: Vec<_> = decisions.into_iter().map(approval).collect();
    stream::iter(approvals).buffered(AT_ONCE).collect().await
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
    let patch = Patch::Json::<()>(patch);
    let written = client.patch_subresource::<CertificateRequest>(None, "approval", &csr.name, &patch).await;
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
mod tests {
    use super::*;

    const OPENED: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn at(seconds: i64) -> Timestamp {
        OPENED + SignedDuration::from_secs(seconds)
    }

    #[test]
    fn an_api_server_that_is_busy_has_refused_nothing() {
        for (code, expected) in [
            (404, "conflict"),
            (409, "conflict"),
            (422, "conflict"),
            (401, "refused"),
            (403, "refused"),
            (429, UNREACHABLE),
            (500, UNREACHABLE),
            (503, UNREACHABLE),
        ] {
            let status = kube::core::Status::failure("no", "").with_code(code).boxed();
            assert_eq!(failure(&kube::Error::Api(status)), expected, "{code}");
        }
    }

    /// Which requests are taken of this list.
    fn taken(all: impl IntoIterator<Item = CertificateRequest>) -> Vec<String> {
        let window = Window { opened: OPENED, closes: Timestamp::MAX, after_long_sleep: true };
        let mut is_wanted = is_wanted(window, at(1_000));
        all.into_iter().filter(|request| is_wanted(request)).map(|request| request.metadata.name).collect()
    }

    fn request(name: &str, user: &str, created: i64) -> CertificateRequest {
        let mut request = CertificateRequest::default();
        (request.metadata.name, request.metadata.creation_timestamp) = (name.to_owned(), Some(at(created)));
        (request.spec.username, request.spec.signer_name) = (user.to_owned(), Kind::Client.signer().to_owned());
        request
    }

    #[test]
    fn one_requester_cannot_fill_the_list_of_another_nor_with_old_requests_that_of_its_kubelets() {
        let flood = (0..6_000).map(|number| request(&format!("a-{number}"), "system:node:bad", 900));
        let others = (0..6_000).map(|number| {
            let mut other = request(&format!("c-{number}"), BOOTSTRAPPER, 900);
            other.spec.signer_name = "example.com/other".to_owned();
            other
        });
        let flood = flood.chain(others);
        let old = (0..6_000).map(|number| request(&format!("b-{number}"), BOOTSTRAPPER, 0));
        let honest = (0..3_000).map(|number| request(&format!("csr-{number}"), BOOTSTRAPPER, 900));
        let all = taken(flood.chain(old).chain(honest));
        let of = |begin: &str| all.iter().filter(|name| name.starts_with(begin)).count();
        assert_eq!((of("a-"), of("b-"), of("c-"), of("csr-")), (MAX_OF_REQUESTER, MAX_OF_REQUESTER, 0, 3_000));
        assert_eq!(
            taken((0..9_000).map(|number| request(&number.to_string(), BOOTSTRAPPER, 900))).len(),
            MAX_OF_BOOTSTRAPPER
        );
        // A certificate from before the wake is no old request.
        let mut issued = request("issued", BOOTSTRAPPER, -9_000);
        issued.status.certificate.0 = vec![0];
        issued.status.conditions =
            vec![shared::spoke::fields::Condition { type_: "Approved".into(), ..Default::default() }];
        let old = (0..6_000).map(|number| request(&format!("b-{number}"), BOOTSTRAPPER, 0));
        assert!(taken(old.chain([issued])).contains(&"issued".to_owned()));
    }
}
