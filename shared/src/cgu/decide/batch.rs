//! Rows 18 to 23: the current batch.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

use super::super::api::{ClusterProgress, ClusterState, PolicyStatus, Reference, TIMED_OUT};
use super::super::conditions::PROGRESSING;
use super::super::events::Event;
use super::super::plan::batch_limit;
use super::super::policy::{Compliance, PolicyError};
use super::super::subscription::{approve, of_content};
use super::{Act, Facts, Plan, time};

/// Message of an upgrade under way.
pub(super) const IN_PROGRESS: &str = "Remediating non-compliant policies";
/// Message of an upgrade whose time is over.
const TOO_LONG: &str = "Policy remediation took too long";
/// Message of an upgrade that has succeeded.
pub(super) const COMPLIANT: &str = "All clusters are compliant with all the managed policies";

/// An action that has not approved its `InstallPlan` by then is created again.
pub const APPROVE_AGAIN: SignedDuration = SignedDuration::from_mins(1);

/// Views and approvals that are asked for at once. Those of other clusters follow.
const MAX_ASKED: usize = 10_000;

const NOT_STARTED: &str = "NotStarted";
const UNDER_WAY: &str = "InProgress";
pub(super) const COMPLETED: &str = "Completed";

pub(super) fn go_on(facts: &Facts<'_>, mut plan: Plan) -> Plan {
    let now = facts.now;
    // Row 18
    if plan.status.status.current_batch == 0 {
        plan.status.status.current_batch = 1;
    }
    let begun = begin(facts, &mut plan);
    let started = plan.status.status.started_at.get_or_insert(time(now)).0;
    // Row 19, before anything else is looked at
    let deadline = facts.deadline(started);
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
        plan.events.push(Event::BatchSucceeded { batch, names, clusters: plan.planned() });
    }
    let batches = plan.status.remediation_plan.len();
    let is_last = usize::try_from(plan.status.status.current_batch).is_ok_and(|current| current >= batches);
    if is_last {
        // Row 23
        let earlier = plan.status.remediation_plan.iter().take(batches.saturating_sub(1)).flatten();
        if is_complete(&plan) && facts.all_comply(&plan.status, earlier, false) {
            plan.end(now, ("Completed", "Completed"), "True", (COMPLIANT, COMPLIANT));
            return plan;
        }
        enforce(facts, &mut plan, &policies);
        missing(facts, &mut plan, &policies);
    } else if is_complete(&plan) {
        // Row 20
        plan.acts.push(Act::Release);
        next(&mut plan);
        return plan;
    } else {
        // Row 21
        enforce(facts, &mut plan, &policies);
        if !missing(facts, &mut plan, &policies) {
            placed(facts, &mut plan);
        }
        // Row 22
        let strategy = &facts.upgrade.spec.remediation_strategy;
        let limit = batch_limit(strategy.timeout, batches, plan.status.status.current_batch, started, begun);
        let limit = SignedDuration::try_from(limit).unwrap_or(SignedDuration::MAX);
        let end = begun.checked_add(limit).unwrap_or(Timestamp::MAX);
        if now > end {
            return batch_over(facts, plan, &policies);
        }
        plan.wake_at(after(end));
    }
    plan.wake_at(after(deadline));
    plan
}

/// The moment at which a limit is exceeded: it is not while it is reached.
fn after(limit: Timestamp) -> Timestamp {
    limit.checked_add(SignedDuration::from_millis(1)).unwrap_or(limit)
}

/// Row 18: the batch starts, unless it has. When it has.
fn begin(facts: &Facts<'_>, plan: &mut Plan) -> Timestamp {
    if let Some(begun) = &plan.status.status.current_batch_started_at {
        return begun.0;
    }
    let fresh = || ClusterProgress { state: NOT_STARTED.to_owned(), ..ClusterProgress::default() };
    let names = plan.batch().to_vec();
    plan.status.status.current_batch_remediation_progress = names.iter().map(|name| (name.clone(), fresh())).collect();
    plan.status.status.current_batch_started_at = Some(time(facts.now));
    let (batch, names) = (plan.status.status.current_batch, sorted(names));
    let asleep: Vec<String> = names.iter().filter(|name| facts.asleep.contains(*name)).cloned().collect();
    plan.events.push(Event::BatchStarted { batch, names, clusters: plan.planned() });
    if !asleep.is_empty() {
        plan.events.push(Event::Asleep { batch, names: asleep });
    }
    facts.now
}

/// The next batch, which has not started.
fn next(plan: &mut Plan) {
    plan.status.status.current_batch_started_at = None;
    plan.status.status.current_batch += 1;
}

fn is_complete(plan: &Plan) -> bool {
    let progress = &plan.status.status.current_batch_remediation_progress;
    plan.batch().iter().all(|name| progress.get(name).is_some_and(|one| one.state == COMPLETED))
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort();
    names
}

/// Takes a cluster to the first policy that it does not comply with, or complies with for too short.
fn advance(facts: &Facts<'_>, plan: &mut Plan, policies: &[Reference], cluster: &str) {
    let known = plan.status.status.current_batch_remediation_progress.remove(cluster);
    let mut progress =
        known.unwrap_or_else(|| ClusterProgress { state: NOT_STARTED.to_owned(), ..ClusterProgress::default() });
    if progress.state == NOT_STARTED {
        (progress.state, progress.policy_index) = (UNDER_WAY.to_owned(), Some(0));
        plan.events.push(Event::ClusterStarted(cluster.to_owned()));
    }
    if progress.state == UNDER_WAY {
        let first = usize::try_from(progress.policy_index.unwrap_or(0)).unwrap_or(0);
        let mut index = first;
        while let Some(policy) = policies.get(index) {
            let compliance = facts.compliance(policy, cluster);
            if compliance == Compliance::NonCompliant {
                progress.first_compliant_at = None;
                break;
            }
            if compliance == Compliance::Compliant
                && let Some(soaked) = soak(facts, policy, &mut progress)
            {
                plan.wake_at(after(soaked));
                break;
            }
            index += 1;
        }
        progress.policy_index = i64::try_from(index).ok();
        if index >= policies.len() {
            (progress.state, progress.policy_index) = (COMPLETED.to_owned(), None);
            plan.events.push(Event::ClusterSucceeded(cluster.to_owned()));
            plan.complete(facts, cluster);
            plan.acts.push(Act::Forget(cluster.to_owned(), false));
        }
    }
    plan.status.status.current_batch_remediation_progress.insert(cluster.to_owned(), progress);
}

/// When a cluster that complies has done so for long enough; `None` if it has.
fn soak(facts: &Facts<'_>, policy: &Reference, progress: &mut ClusterProgress) -> Option<Timestamp> {
    let root = facts.roots.get(policy)?;
    let since = progress.first_compliant_at.as_ref().map_or(facts.now, |at| at.0);
    let end = root.soaked_at(since)?;
    if progress.first_compliant_at.is_some() && facts.now > end {
        progress.first_compliant_at = None;
        return None;
    }
    progress.first_compliant_at = Some(time(since));
    Some(end)
}

/// Row 21: each cluster under way is in the Placement of its policy, and what that installs is approved. On a cluster
/// that sleeps nothing is: its action would be carried out when it wakes, whenever that is.
fn enforce(facts: &Facts<'_>, plan: &mut Plan, policies: &[Reference]) {
    let mut at: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (name, one) in &plan.status.status.current_batch_remediation_progress {
        let index = one.policy_index.and_then(|index| usize::try_from(index).ok());
        if let Some(index) = index.filter(|_| one.state == UNDER_WAY) {
            at.entry(index).or_default().push(name.clone());
        }
    }
    let mut approvals = Vec::new();
    let there = |index| policies.get(index).filter(|policy| facts.roots.contains_key(*policy));
    for (policy, names) in at.into_iter().filter_map(|(index, names)| Some((there(index)?, names))) {
        let status = &mut plan.status;
        let content = status.managed_policies_content.get(&policy.name).map(|content| of_content(content));
        for cluster in names.iter().filter(|name| !facts.asleep.contains(*name)) {
            if approvals.len() >= MAX_ASKED {
                break;
            }
            let names = &mut status.safe_resource_names;
            let subscriptions = content.iter().flatten();
            approvals.extend(approve(facts.upgrade, cluster, subscriptions, facts.views, names));
        }
        plan.acts.push(Act::Enforce(policy.clone(), names));
    }
    if approvals.len() >= MAX_ASKED || approvals.iter().any(|act| matches!(act, Act::Approve(_))) {
        plan.wake_at(facts.now.checked_add(APPROVE_AGAIN).unwrap_or(facts.now));
    }
    plan.acts.extend(approvals);
}

/// Policies that were deleted since the start are named, in the condition and once in an Event: clusters that come to
/// them wait. Whether there are any.
fn missing(facts: &Facts<'_>, plan: &mut Plan, policies: &[Reference]) -> bool {
    let gone = policies.iter().filter(|policy| !facts.roots.contains_key(*policy)).map(|policy| policy.name.clone());
    let error = PolicyError::Missing(gone.collect());
    let PolicyError::Missing(names) = &error else { return false };
    let message = format!("{IN_PROGRESS}. {error}");
    if names.is_empty() {
        // Back again.
        let (begin, _) = message.split_at(message.len().saturating_sub(2));
        if plan.status.condition(PROGRESSING).is_some_and(|known| known.message.starts_with(begin)) {
            plan.condition(facts.now, PROGRESSING, "True", "InProgress", IN_PROGRESS);
        }
        return false;
    }
    if plan.is_news(PROGRESSING, &message) {
        plan.events.push(Event::Policies("missing-policies", names.clone()));
    }
    plan.condition(facts.now, PROGRESSING, "True", "InProgress", &message);
    true
}

/// A Placement that selects nothing for want of a `ManagedClusterSetBinding` is named.
fn placed(facts: &Facts<'_>, plan: &mut Plan) {
    match facts.unplaced {
        Some(why) => plan.condition(facts.now, PROGRESSING, "True", "WaitingForPlacement", why),
        None => plan.condition(facts.now, PROGRESSING, "True", "InProgress", IN_PROGRESS),
    }
}

/// Row 22: the time of the batch is over.
fn batch_over(facts: &Facts<'_>, mut plan: Plan, policies: &[Reference]) -> Plan {
    // An action would be carried out whenever its cluster wakes.
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
        next(&mut plan);
    }
    plan
}

/// Records clusters under way in the current batch as timed out. One that has not started is not recorded (row 42).
fn time_out(plan: &mut Plan, policies: &[Reference]) {
    let batch = plan.batch().to_vec();
    let progress = plan.status.status.current_batch_remediation_progress.clone();
    let mut timed_out = Vec::new();
    for name in &batch {
        let found = progress.get(name);
        if found.is_some_and(|one| one.state != UNDER_WAY) {
            continue;
        }
        let index = found.and_then(|one| one.policy_index).and_then(|index| usize::try_from(index).ok());
        let policy = index.and_then(|index| policies.get(index));
        plan.record(ClusterState {
            name: name.clone(),
            state: TIMED_OUT.to_owned(),
            current_policy: policy
                .map(|policy| PolicyStatus { name: policy.name.clone(), status: "NonCompliant".to_owned() }),
            ..ClusterState::default()
        });
        plan.acts.push(Act::Forget(name.clone(), true));
        timed_out.push(name.clone());
    }
    if !timed_out.is_empty() {
        let (batch, size) = (plan.status.status.current_batch, batch.len());
        plan.events.push(Event::BatchTimedOut { batch, timed_out: sorted(timed_out), size, clusters: plan.planned() });
    }
}
