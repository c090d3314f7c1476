//! Rows 18 to 23: the current batch. The methods of `Facts` and `Plan` that the other rows use are at the end.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::enforce::{IN_PROGRESS, enforce};
use super::{Act, Facts, Plan};
use crate::cgu::api::{
    COMPLETE, ClusterGroupUpgradeStatus, ClusterProgress, ClusterState, PolicyStatus, Reference, TIMED_OUT,
};
use crate::cgu::conditions::{self, PROGRESSING, SUCCEEDED};
use crate::cgu::events::Event;
use crate::cgu::policy::PolicyError;
use crate::cgu::wire::Compliance;
use crate::duration::after;

pub(super) const REMEDIATING: &str = "Remediating non-compliant policies";
const TOO_LONG: &str = "Policy remediation took too long";
pub(super) const COMPLIANT: &str = "All clusters are compliant with all the managed policies";

const NOT_STARTED: &str = "NotStarted";
pub(super) const COMPLETED: &str = "Completed";
/// By how much a limit is exceeded, and not only reached.
const EXCESS: Duration = Duration::from_millis(1);

pub(super) fn run(facts: &Facts<'_>, mut plan: Plan) -> Plan {
    let (now, strategy) = (facts.now, &facts.upgrade.spec.remediation_strategy);
    // Row 18
    if plan.status.status.current_batch == 0 {
        plan.status.status.current_batch = 1;
    }
    let batch_started = begin(facts, &mut plan);
    let started = plan.status.status.started_at.get_or_insert(Time(now)).0;
    // Row 19, before anything else
    let deadline = strategy.deadline(started);
    let policies = plan.status.policies();
    if now > deadline {
        time_out(&mut plan, &policies);
        plan.end(now, ("TimedOut", "TimedOut"), "False", (TOO_LONG, TOO_LONG));
        return plan;
    }
    let was_complete = is_complete(&plan);
    for cluster in plan.batch().to_vec() {
        advance(facts, &mut plan, &policies, &cluster);
    }
    if is_complete(&plan) && !was_complete {
        let (batch, names) = (plan.status.status.current_batch, sorted(plan.batch().to_vec()));
        plan.events.push(Event::BatchSucceeded { batch, names, clusters: plan.cluster_count() });
    }
    let batches = plan.status.remediation_plan.len();
    let is_last = usize::try_from(plan.status.status.current_batch).is_ok_and(|current| current >= batches);
    if is_last {
        // Row 23
        let earlier = plan.status.remediation_plan.iter().take(batches.saturating_sub(1)).flatten();
        if is_complete(&plan) && facts.has_no_regression(&plan.status, earlier) {
            plan.end(now, ("Completed", "Completed"), "True", (COMPLIANT, COMPLIANT));
            return plan;
        }
        enforce(facts, &mut plan, &policies);
        report_missing(facts, &mut plan, &policies);
    } else if is_complete(&plan) {
        // Row 20
        plan.acts.push(Act::Release);
        next_batch(&mut plan);
        return plan;
    } else {
        // Row 21
        enforce(facts, &mut plan, &policies);
        if !report_missing(facts, &mut plan, &policies) {
            report_placement(facts, &mut plan);
        }
        // Row 22
        let limit = batch_limit(strategy.timeout, batches, plan.status.status.current_batch, started, batch_started);
        let end = after(batch_started, limit);
        if now > end {
            return time_out_batch(facts, plan, &policies);
        }
        plan.requeue_at(after(end, EXCESS));
    }
    plan.requeue_at(after(deadline, EXCESS));
    plan
}

/// Row 18: starts the batch, unless it has started. Returns when it did.
fn begin(facts: &Facts<'_>, plan: &mut Plan) -> Timestamp {
    if let Some(at) = &plan.status.status.current_batch_started_at {
        return at.0;
    }
    let names = plan.batch().to_vec();
    plan.status.status.current_batch_remediation_progress =
        names.iter().map(|name| (name.clone(), not_started())).collect();
    plan.status.status.current_batch_started_at = Some(Time(facts.now));
    let (batch, names) = (plan.status.status.current_batch, sorted(names));
    let asleep: Vec<String> = names.iter().filter(|name| facts.asleep.contains(*name)).cloned().collect();
    plan.events.push(Event::BatchStarted { batch, names, clusters: plan.cluster_count() });
    if !asleep.is_empty() {
        plan.events.push(Event::Asleep { batch, names: asleep });
    }
    facts.now
}

fn not_started() -> ClusterProgress {
    ClusterProgress { state: NOT_STARTED.to_owned(), ..ClusterProgress::default() }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

/// Records the clusters in progress as timed out. One that has not started is not recorded (row 42).
fn time_out(plan: &mut Plan, policies: &[Reference]) {
    let batch = plan.batch().to_vec();
    let progress = plan.status.status.current_batch_remediation_progress.clone();
    let mut timed_out = Vec::new();
    for name in &batch {
        let progress = progress.get(name);
        if progress.is_some_and(|one| one.state != IN_PROGRESS) {
            continue;
        }
        let index = progress.and_then(|one| one.policy_index).and_then(|index| usize::try_from(index).ok());
        let policy = index.and_then(|index| policies.get(index));
        plan.record(ClusterState {
            name: name.clone(),
            state: TIMED_OUT.to_owned(),
            current_policy: policy
                .map(|policy| PolicyStatus { name: policy.name.clone(), status: "NonCompliant".to_owned() }),
            ..ClusterState::default()
        });
        plan.acts.push(Act::DeleteViews(name.clone(), true));
        timed_out.push(name.clone());
    }
    if !timed_out.is_empty() {
        let (batch, size) = (plan.status.status.current_batch, batch.len());
        plan.events.push(Event::BatchTimedOut {
            batch,
            timed_out: sorted(timed_out),
            size,
            clusters: plan.cluster_count(),
        });
    }
}

fn is_complete(plan: &Plan) -> bool {
    let progress = &plan.status.status.current_batch_remediation_progress;
    plan.batch().iter().all(|name| progress.get(name).is_some_and(|one| one.state == COMPLETED))
}

/// Advances a cluster to the first policy that it does not comply with, or that has to soak longer.
fn advance(facts: &Facts<'_>, plan: &mut Plan, policies: &[Reference], cluster: &str) {
    let known = plan.status.status.current_batch_remediation_progress.remove(cluster);
    let mut progress = known.unwrap_or_else(not_started);
    if progress.state == NOT_STARTED {
        (progress.state, progress.policy_index) = (IN_PROGRESS.to_owned(), Some(0));
        plan.events.push(Event::ClusterStarted(cluster.to_owned()));
    }
    if progress.state == IN_PROGRESS {
        let first = usize::try_from(progress.policy_index.unwrap_or(0)).unwrap_or(0);
        let mut index = first;
        while let Some(policy) = policies.get(index) {
            let compliance = facts.compliance(policy, cluster);
            if compliance == Compliance::NonCompliant {
                progress.first_compliant_at = None;
                break;
            }
            if compliance == Compliance::Compliant
                && let Some(end) = soak(facts, policy, &mut progress)
            {
                plan.requeue_at(after(end, EXCESS));
                break;
            }
            index += 1;
        }
        progress.policy_index = i64::try_from(index).ok();
        if index >= policies.len() {
            (progress.state, progress.policy_index) = (COMPLETED.to_owned(), None);
            plan.events.push(Event::ClusterSucceeded(cluster.to_owned()));
            plan.complete(facts, cluster);
            plan.acts.push(Act::DeleteViews(cluster.to_owned(), false));
        }
    }
    plan.status.status.current_batch_remediation_progress.insert(cluster.to_owned(), progress);
}

/// When the soak of a cluster that complies ends; `None` if it has ended.
fn soak(facts: &Facts<'_>, policy: &Reference, progress: &mut ClusterProgress) -> Option<Timestamp> {
    let root = facts.governance.roots.get(policy)?;
    let since = progress.first_compliant_at.as_ref().map_or(facts.now, |at| at.0);
    let end = root.soak_end(since)?;
    if progress.first_compliant_at.is_some() && facts.now > end {
        progress.first_compliant_at = None;
        return None;
    }
    progress.first_compliant_at = Some(Time(since));
    Some(end)
}

/// Names policies that were deleted since the start, in the condition and once in an Event: clusters wait at them.
/// Returns whether there are any.
fn report_missing(facts: &Facts<'_>, plan: &mut Plan, policies: &[Reference]) -> bool {
    let is_gone = |policy: &&Reference| !facts.governance.roots.contains_key(*policy);
    let names: Vec<String> = policies.iter().filter(is_gone).map(|policy| policy.name.clone()).collect();
    let message = format!("{REMEDIATING}. {}", PolicyError::Missing(names.clone()));
    if names.is_empty() {
        // They are back.
        let (begin, _) = message.split_at(message.len().saturating_sub(2));
        if plan.status.condition(PROGRESSING).is_some_and(|known| known.message.starts_with(begin)) {
            plan.condition(facts.now, PROGRESSING, "True", "InProgress", REMEDIATING);
        }
        return false;
    }
    if plan.is_new_message(PROGRESSING, &message) {
        plan.events.push(Event::Policies("missing-policies", names));
    }
    plan.condition(facts.now, PROGRESSING, "True", "InProgress", &message);
    true
}

/// Names a Placement that selects nothing for want of a `ManagedClusterSetBinding`.
fn report_placement(facts: &Facts<'_>, plan: &mut Plan) {
    match facts.governance.unsatisfied_placement(facts.upgrade) {
        Some(why) => plan.condition(facts.now, PROGRESSING, "True", "WaitingForPlacement", &why),
        None => plan.condition(facts.now, PROGRESSING, "True", "InProgress", REMEDIATING),
    }
}

/// How long the current batch may take: the time that the upgrade has left, divided by the batches that are left
/// (section 3). Time that a batch does not use goes to the next ones.
pub(super) fn batch_limit(
    minutes: i64,
    batches: usize,
    current: i64,
    started: Timestamp,
    batch_started: Timestamp,
) -> Duration {
    let timeout = SignedDuration::from_secs(minutes.saturating_mul(60));
    let left =
        Duration::try_from(timeout.saturating_sub(batch_started.duration_since(started))).unwrap_or(Duration::ZERO);
    let ended = usize::try_from(current.saturating_sub(1)).unwrap_or(0);
    left / u32::try_from(batches.saturating_sub(ended).max(1)).unwrap_or(u32::MAX)
}

/// Row 22.
fn time_out_batch(facts: &Facts<'_>, mut plan: Plan, policies: &[Reference]) -> Plan {
    // An action is carried out whenever its cluster wakes, however late.
    plan.acts.retain(|act| !matches!(act, Act::View(_) | Act::Approve(_)));
    let spec = &facts.upgrade.spec;
    let is_canary = matches!(plan.batch(), [only] if spec.remediation_strategy.canaries.contains(only));
    if is_canary {
        let message = format!("{TOO_LONG} on canary clusters");
        plan.end(facts.now, ("TimedOut", "TimedOut"), "False", (&message, &message));
        return plan;
    }
    time_out(&mut plan, policies);
    if spec.batch_timeout_action.eq_ignore_ascii_case("abort") {
        let message = format!("{TOO_LONG} on some clusters");
        plan.end(facts.now, ("TimedOut", "TimedOut"), "False", (&message, &message));
    } else {
        next_batch(&mut plan);
    }
    plan
}

/// Moves on to the next batch, without starting it.
fn next_batch(plan: &mut Plan) {
    plan.status.status.current_batch_started_at = None;
    plan.status.status.current_batch += 1;
}

impl Facts<'_> {
    /// Whether a cluster complies with a policy. The last report of a sleeping cluster does not count.
    pub(super) fn compliance(&self, policy: &Reference, cluster: &str) -> Compliance {
        let found = self.last_report(policy, cluster);
        if found == Compliance::Compliant && self.asleep.contains(cluster) { Compliance::NonCompliant } else { found }
    }

    fn last_report(&self, policy: &Reference, cluster: &str) -> Compliance {
        self.governance.roots.get(policy).map_or(Compliance::NonCompliant, |policy| policy.compliance_of(cluster))
    }

    /// Whether no policy finds one of these clusters non-compliant.
    fn has_no_regression<'a>(
        &self,
        status: &ClusterGroupUpgradeStatus,
        mut clusters: impl Iterator<Item = &'a String>,
    ) -> bool {
        let (policies, records) = (status.policies(), records(status));
        clusters.all(|name| {
            let mut verdicts = self.verdicts(&policies, name, records.get(name).copied());
            verdicts.all(|(_, one)| one != Compliance::NonCompliant)
        })
    }

    /// Compliance of a cluster with each policy. A cluster that this upgrade has completed may sleep: its last report
    /// counts.
    pub(super) fn verdicts<'p>(
        &self,
        policies: &'p [Reference],
        cluster: &str,
        record: Option<&ClusterState>,
    ) -> impl Iterator<Item = (&'p Reference, Compliance)> {
        let is_complete = record.is_some_and(|one| one.state == COMPLETE);
        policies.iter().map(move |policy| {
            let found = if is_complete { self.last_report(policy, cluster) } else { self.compliance(policy, cluster) };
            (policy, found)
        })
    }
}

/// Clusters that have ended, by name.
pub(super) fn records(status: &ClusterGroupUpgradeStatus) -> BTreeMap<&String, &ClusterState> {
    status.clusters.iter().map(|one| (&one.name, one)).collect()
}

impl Plan {
    pub(super) fn condition(&mut self, now: Timestamp, type_: &str, status: &str, reason: &str, message: &str) {
        conditions::set(&mut self.status.conditions, now, type_, status, reason, message);
    }

    /// Whether the condition does not have this message yet, so that an Event is due.
    pub(super) fn is_new_message(&self, type_: &str, message: &str) -> bool {
        self.status.condition(type_).is_none_or(|known| known.message != conditions::message(message))
    }

    /// Sets both conditions of an end.
    pub(super) fn end(&mut self, now: Timestamp, reasons: (&str, &str), status: &str, messages: (&str, &str)) {
        self.condition(now, PROGRESSING, "False", reasons.0, messages.0);
        self.condition(now, SUCCEEDED, status, reasons.1, messages.1);
    }

    /// Labels and records a cluster that complies with every policy.
    pub(super) fn complete(&mut self, facts: &Facts<'_>, cluster: &str) {
        self.update_cluster(facts, cluster, true);
        self.record(ClusterState { name: cluster.to_owned(), state: COMPLETE.to_owned(), ..ClusterState::default() });
    }

    pub(super) fn update_cluster(&mut self, facts: &Facts<'_>, cluster: &str, is_complete: bool) {
        let change =
            facts.upgrade.spec.actions.of(is_complete).map(|_| Act::UpdateCluster(cluster.to_owned(), is_complete));
        self.acts.extend(change);
    }

    /// Records how a cluster has ended, once.
    fn record(&mut self, state: ClusterState) {
        match self.status.clusters.iter_mut().find(|known| known.name == state.name) {
            Some(known) => *known = state,
            None => self.status.clusters.push(state),
        }
    }

    pub(super) fn cluster_count(&self) -> usize {
        self.status.remediation_plan.iter().map(Vec::len).sum()
    }

    /// Clusters of the current batch.
    pub(super) fn batch(&self) -> &[String] {
        let index = usize::try_from(self.status.status.current_batch.saturating_sub(1)).ok();
        index.and_then(|index| self.status.remediation_plan.get(index)).map_or(&[], Vec::as_slice)
    }

    pub(super) fn requeue_at(&mut self, at: Timestamp) {
        self.requeue_at = Some(self.requeue_at.map_or(at, |soonest| soonest.min(at)));
    }
}
