//! What a pass reports: metrics, Events, and the audit log with one line per request and outcome.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use fair::Charge;
use shared::text::{list, sanitize};
use tracing::info;

use super::{Approvals, Csr, Decision, ENTRY_BYTES, Kind, Reason, Verdict};

/// The outcome of an approval that was written.
pub const MATCHED: &str = "matched";

/// The outcome of an approval of which it is not known whether it was written.
pub const UNREACHABLE: &str = "unreachable";

/// The outcome of an approval that this process may not write any more.
pub const NOT_LEADER: &str = "not_leader";

/// Outcomes that the next pass may change.
const TRANSIENT: &[&str] =
    &["conflict", UNREACHABLE, "pass_limit", "no_machine_runs", "settling", "not_its_turn", NOT_LEADER];

/// When to pass again after such an outcome, and while any other request is pending.
pub const SOON: Duration = Duration::from_secs(3);
const LATER: Duration = Duration::from_secs(30);

/// Nodes for which one pass reports that two keys ask.
const MAX_RIVALS: usize = 20;

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
        self.kind != "other" && !elsewhere.contains(&self.reason) && !TRANSIENT.contains(&self.reason)
    }
}

impl Pass {
    /// Records the outcome of one request.
    pub(super) fn add(&mut self, outcome: &'static str, news: Option<News>) {
        if TRANSIENT.contains(&outcome) {
            self.again = Some(SOON);
        }
        self.pending = self.pending.saturating_sub(usize::from(outcome == MATCHED));
        self.news.extend(news);
    }

    /// Takes in the Nodes that two keys request, if a new verdict says so, and when to pass again.
    pub(super) fn end<'a>(
        &mut self,
        decisions: impl Iterator<Item = &'a Decision<'a>>,
        approved: impl FnOnce() -> Approvals,
    ) {
        let new = self.news.iter().filter(|news| news.reason == <&str>::from(Reason::TwoKeys));
        let nodes: BTreeSet<&str> = new.filter_map(|news| news.node.as_deref()).collect();
        if !nodes.is_empty() {
            let is_rival = |decision: &&Decision<'_>| decision.verdict == Verdict::Leave(Reason::TwoKeys);
            let (rivals, approved): (Vec<_>, _) = (decisions.filter(is_rival).collect(), approved());
            self.rivals = nodes.iter().take(MAX_RIVALS).map(|node| two_keys(node, &rivals, &approved)).collect();
        }
        if self.pending > 0 {
            self.again.get_or_insert(LATER);
        }
    }

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

/// Who asks for this Node, and who has been approved for it.
fn two_keys(node: &str, pending: &[&Decision<'_>], approved: &Approvals) -> String {
    let is_of = |name: &str| sanitize(name) == node;
    let approved = approved.values().filter(|it| it.kind == Kind::Client && is_of(&it.node));
    let approved = approved.map(|it| format!("{} (approved at {:.0})", sanitize(&it.name), it.at));
    let pending = pending.iter().filter(|it| it.node.as_deref().is_some_and(is_of));
    let names = list(approved.chain(pending.map(|it| format!("{} (pending)", sanitize(&it.csr.name)))));
    format!("two keys ask for Node {node}: {names}; see docs/certificates.md#two-keys")
}

/// Verdict and outcome of a request, as last reported.
type Reported = (&'static str, &'static str);

/// One line per request and outcome, however many passes see it.
#[derive(Debug)]
pub(super) struct AuditLog {
    target: String,
    /// By UID of the request.
    reported: HashMap<String, Reported>,
}

impl AuditLog {
    pub(super) fn new(target: String) -> Self {
        Self { target, reported: HashMap::new() }
    }

    /// Logs what is new. When there is no memory to remember a request, it is logged only if it was approved.
    pub(super) fn record(
        &mut self,
        decision: &Decision<'_>,
        outcome: &'static str,
        charge: &mut Charge,
    ) -> Option<News> {
        let Decision { csr: Csr { name, uid, signer, .. }, node, verdict, .. } = decision;
        let (target, kind) = (&self.target, Kind::of_signer(signer).map_or("other", Into::into));
        let (word, sentence) = (verdict.word(), verdict.sentence());
        let is_left_out = if self.reported.contains_key(uid) || charge.spend(uid.len() + ENTRY_BYTES).is_ok() {
            self.reported.insert(uid.clone(), (word, outcome)) == Some((word, outcome))
        } else {
            outcome != MATCHED
        };
        if is_left_out {
            return None;
        }
        let (name, node) = (sanitize(name), node.as_ref().map(sanitize));
        let for_node = node.as_deref().unwrap_or_default();
        info!(cluster = target, csr = name, node = for_node, kind, verdict = word, reason = outcome, "{sentence}");
        Some(News { csr: name, node, kind, verdict: word, reason: outcome })
    }

    /// Forgets requests that are gone.
    pub(super) fn retain(&mut self, csrs: &[Csr], charge: &mut Charge) {
        let uids: BTreeSet<&str> = csrs.iter().map(|csr| csr.uid.as_str()).collect();
        let gone = self.reported.extract_if(|uid, _| !uids.contains(uid.as_str()));
        charge.refund(gone.map(|(uid, _)| uid.len() + ENTRY_BYTES).sum());
    }
}

#[cfg(test)]
mod tests {
    use fair::{Consumer, MemoryLimit};
    use jiff::Timestamp;

    use super::super::Approval;
    use super::*;

    #[test]
    fn an_event_names_all_who_ask_for_a_node() {
        let approved = Approval {
            name: "csr-a".to_owned(),
            node: "master-0".to_owned(),
            kind: Kind::Client,
            key: Vec::new(),
            at: Timestamp::constant(1_800_000_007, 0),
        };
        let csr = |name: &str| Csr { name: name.to_owned(), ..Csr::default() };
        let (second, third) = (csr("csr-b"), csr("csr-c"));
        let verdict = Verdict::Leave(Reason::TwoKeys);
        let node = Some("master-0".to_owned());
        let pending = Decision { csr: &second, node, key: Vec::new(), verdict };
        let other = Decision { node: Some("master-1".to_owned()), csr: &third, ..pending.clone() };
        assert_eq!(
            two_keys("master-0", &[&pending, &other], &[("a".to_owned(), approved)].into()),
            "two keys ask for Node master-0: csr-a (approved at 2027-01-15T08:00:07Z), csr-b (pending); see \
             docs/certificates.md#two-keys"
        );
    }

    #[test]
    fn an_approval_is_logged_even_where_nothing_more_can_be_remembered() {
        let mut charge = MemoryLimit::default().of(Consumer::new("tenant", "spoke")).charge();
        while charge.spend(1 << 10).is_ok() {}
        let mut log = AuditLog::new("target".to_owned());
        let mut news = |verdict, outcome| {
            let csr = Csr { name: "csr-1".to_owned(), uid: "u".repeat(4_000), ..Csr::default() };
            log.record(&Decision::about(&csr, verdict), outcome, &mut charge).is_some()
        };
        assert!(news(Verdict::Approve(Kind::Client), MATCHED));
        assert!(!news(Verdict::Approve(Kind::Client), "conflict"));
    }

    #[test]
    fn a_busy_api_server_is_asked_again_soon() {
        let mut pass = Pass::default();
        pass.add(UNREACHABLE, None);
        assert_eq!(pass.again, Some(SOON));
    }
}
