//! Rows 10 and 11: images are pulled before an upgrade starts (section 9.5).

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::{Facts, Plan};
use crate::cgu::act::{APPROVE_AGAIN, Act, Pull};
use crate::cgu::api::{Precaching, PrecachingSpec, Reference};
use crate::cgu::conditions::{PRECACHE_SPEC_VALID, PRECACHING_SUCCEEDED};
use crate::cgu::objects::LOCAL_CLUSTER;
use crate::cgu::policy::Policies;
use crate::cgu::precache::spec::{OVERRIDES, spec};
use crate::cgu::precache::workload::{DEPENDENCIES, JOB_VIEW, NAMESPACE_VIEW, Step, Workload};
use crate::cgu::templates::Templates;
use crate::cgu::view::{Answer, Job, Presence, View, Views};

/// Message of an upgrade that has no cluster left.
const FAILED: &str = "No clusters available for remediation (Precaching failed)";

/// Bytes of the writes to all clusters that are planned at once, and those of each besides what is pulled.
const MAX_WRITTEN: usize = 64 << 20;
const BESIDE: usize = 48 << 10;

/// How long a cluster may take for the first result of a view, before it counts as out of reach.
const FIRST_RESULT: SignedDuration = SignedDuration::from_secs(30);

/// How long after its deadline the end of a Job is waited for: its view may not be read any more.
const JOB_ENDS: SignedDuration = SignedDuration::from_mins(10);

/// Where a cluster is, in TALM's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
pub(super) enum State {
    /// Nothing was done.
    NotStarted,
    /// What an earlier pull has left is removed.
    PreparingToStart,
    /// What the Job needs is created, then the Job.
    Starting,
    /// The Job runs.
    Active,
    /// The images are there.
    Succeeded,
    /// The Job's time was over.
    PrecacheTimeout,
    /// The Job has failed, or the cluster is out of reach.
    UnrecoverableError,
}

impl State {
    /// Whether it stays.
    pub(super) const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::PrecacheTimeout | Self::UnrecoverableError)
    }
}

/// How the pull stands.
pub(super) enum Outcome<'a> {
    /// It is not over, or cannot start.
    Open,
    /// These clusters have the images.
    Done(BTreeSet<&'a str>),
    /// Why the upgrade cannot start.
    Failed(String),
}

/// Whether what is pulled is known already.
pub(super) fn is_specified(plan: &Plan) -> bool {
    plan.status.is(PRECACHE_SPEC_VALID, "True")
}

/// Takes each of these clusters one step further. `image` pulls.
pub(super) fn pull<'a>(
    facts: &Facts<'_>,
    plan: &mut Plan,
    policies: &Policies,
    clusters: &[&'a str],
    (image, platform_image): (&str, String),
) -> Outcome<'a> {
    let now = facts.now;
    let Some(pulled) = specified(facts, plan, policies, platform_image) else { return Outcome::Open };
    let is_over = |plan: &Plan| plan.status.is(PRECACHING_SUCCEEDED, "True");
    let mut states: BTreeMap<&str, State> = clusters.iter().map(|name| (*name, state(plan, name))).collect();
    let (was_over, mut is_written) = (is_over(plan), true);
    let mut room = (MAX_WRITTEN / (BESIDE + serde_json::json!(pulled).to_string().len())).max(1);
    for (name, state) in &mut states {
        // Once it is over, only what is left of it goes.
        if was_over && *state != State::Succeeded {
            continue;
        }
        if room == 0 {
            is_written = false;
            plan.wake_at(now);
            break;
        }
        let workload = Workload {
            cluster: name,
            spec: &pulled,
            image,
            timeout: facts.upgrade.spec.remediation_strategy.timeout,
            clusters: clusters.len(),
            is_available: facts.governance.clusters.get(*name).is_some_and(|cluster| cluster.is_available),
            is_enabled: facts.upgrade.spec.enable,
        };
        let step = next(*state, &workload, &facts.governance.views, now);
        is_written &= *state == step.state;
        *state = step.state;
        let again = (step.repeats && !state.is_final()).then(|| now.checked_add(APPROVE_AGAIN).unwrap_or(now));
        [step.at, again].into_iter().flatten().for_each(|at| plan.wake_at(at));
        if !step.steps.is_empty() {
            room -= 1;
            plan.acts.push(Act::Pull(Pull { cluster: (*name).to_owned(), steps: step.steps, repeats: step.repeats }));
        }
    }
    if !was_over {
        let known = &mut plan.status.precaching.get_or_insert_default().status;
        known.extend(states.iter().map(|(name, state)| ((*name).to_owned(), state.to_string())));
        summarize(facts, plan, states.values());
    }
    // What is left of a pull goes after its end is written.
    if !is_written {
        return Outcome::Open;
    }
    let succeeded: BTreeSet<&str> =
        states.iter().filter(|(_, state)| **state == State::Succeeded).map(|(name, _)| *name).collect();
    let has_all_failed = states.values().all(|state| state.is_final() && *state != State::Succeeded);
    match is_over(plan) {
        // TALM reconciles it indefinitely.
        false if has_all_failed && facts.upgrade.spec.enable => Outcome::Failed(FAILED.to_owned()),
        false => Outcome::Open,
        true if succeeded.is_empty() => Outcome::Failed(FAILED.to_owned()),
        true => {
            let canaries = &facts.upgrade.spec.remediation_strategy.canaries;
            let mut failed = canaries.iter().filter(|name| states.contains_key(name.as_str()));
            match failed.find(|name| !succeeded.contains(name.as_str()) && facts.upgrade.spec.enable) {
                Some(canary) => Outcome::Failed(format!("Precaching failed on canary cluster {canary}")),
                None => Outcome::Done(succeeded),
            }
        }
    }
}

/// What is pulled, and the condition that says so.
fn specified(
    facts: &Facts<'_>,
    plan: &mut Plan,
    policies: &Policies,
    platform_image: String,
) -> Option<PrecachingSpec> {
    if is_specified(plan)
        && let Some(known) = plan.status.precaching.as_ref().and_then(|known| known.spec.clone())
    {
        return Some(known);
    }
    let upgrade = facts.upgrade;
    let namespace = upgrade.metadata.namespace.clone().unwrap_or_default();
    let config = upgrade.spec.pre_caching_config_ref.as_ref().filter(|config| !config.name.is_empty()).map(|config| {
        let of_upgrade = config.namespace.is_empty();
        (if of_upgrade { namespace.clone() } else { config.namespace.clone() }, config.name.clone())
    });
    let (configs, overrides) = (&facts.governance.configs, &facts.governance.overrides);
    let overrides = overrides.get(&(namespace, OVERRIDES.to_owned()));
    // Catalogs may be in policies that every cluster complies with.
    let all = policies.for_upgrade.iter().chain(&policies.compliant);
    let found = spec(templates(facts, all), config.as_ref(), configs, overrides, platform_image);
    let status = plan
        .status
        .precaching
        .get_or_insert_with(|| Precaching { spec: Some(PrecachingSpec::default()), ..Precaching::default() });
    match found {
        Ok(found) => {
            status.spec = Some(found.clone());
            let message = "Precaching spec is valid and consistent";
            plan.condition(facts.now, PRECACHE_SPEC_VALID, "True", "PrecacheSpecIsWellFormed", message);
            Some(found)
        }
        Err(error) => {
            let message = format!("Precaching spec is incomplete: {error}");
            plan.condition(facts.now, PRECACHE_SPEC_VALID, "False", "PrecacheSpecIncomplete", &message);
            None
        }
    }
}

/// Objects of these policies.
pub(super) fn templates<'a>(
    facts: &'a Facts<'_>,
    policies: impl Iterator<Item = &'a Reference>,
) -> impl Iterator<Item = &'a Templates> {
    policies.filter_map(|policy| facts.governance.roots.get(policy)?.templates.as_ref())
}

fn state(plan: &Plan, cluster: &str) -> State {
    let known = plan.status.precaching.as_ref().and_then(|known| known.status.get(cluster));
    known.and_then(|state| state.parse().ok()).unwrap_or(State::NotStarted)
}

/// What happens next on a cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Next {
    /// Where it is then.
    pub(super) state: State,
    /// What is done before.
    pub(super) steps: Vec<Step>,
    /// The steps may be repeated, and are once a minute: the cluster carries them out in its own time.
    repeats: bool,
    /// When to reconcile again, unless a view changes before.
    at: Option<Timestamp>,
}

/// What happens next on a cluster. It is total.
pub(super) fn next(current: State, workload: &Workload<'_>, views: &Views, now: Timestamp) -> Next {
    let view = |name: &str| views.get(&(workload.cluster.to_owned(), name.to_owned()));
    let to = |state, steps| Next { state, steps, repeats: false, at: None };
    let repeated = |steps| Next { state: current, steps, repeats: true, at: None };
    let failed = || to(if workload.is_enabled { State::UnrecoverableError } else { current }, Vec::new());
    // A view without a result: it may come, unless the cluster is out of reach.
    let unanswered = |view: &View| {
        let end = view.created.checked_add(FIRST_RESULT).unwrap_or(Timestamp::MAX);
        if now >= end || !workload.is_available {
            return failed();
        }
        Next { at: Some(end), ..to(current, Vec::new()) }
    };
    match current {
        // No action changes the hub itself.
        State::NotStarted if workload.cluster == LOCAL_CLUSTER => failed(),
        State::NotStarted => to(State::PreparingToStart, workload.prepare()),
        State::PreparingToStart => match view(NAMESPACE_VIEW) {
            None => repeated(vec![workload.view(NAMESPACE_VIEW)]),
            Some(view) => match view.presence {
                Presence::Unknown => unanswered(view),
                Presence::Present => to(current, Vec::new()),
                Presence::Absent => to(State::Starting, Vec::new()),
                Presence::Failed => failed(),
            },
        },
        State::Starting => {
            let dependencies = DEPENDENCIES.map(view);
            if dependencies.iter().any(|view| view.is_none_or(|view| view.presence == Presence::Absent)) {
                return repeated(workload.dependencies(dependencies.iter().any(Option::is_some)));
            }
            for view in dependencies.into_iter().flatten() {
                match view.presence {
                    Presence::Unknown => return unanswered(view),
                    Presence::Failed => return failed(),
                    Presence::Present | Presence::Absent => {}
                }
            }
            match view(JOB_VIEW) {
                None => repeated(vec![workload.view(JOB_VIEW)]),
                Some(view) => match view.presence {
                    Presence::Unknown => unanswered(view),
                    Presence::Absent => repeated(workload.start()),
                    Presence::Present | Presence::Failed => job(view, current, workload, now).unwrap_or_else(failed),
                },
            }
        }
        State::Active => match view(JOB_VIEW) {
            // TALM's has no labels, and is not known.
            None => repeated(vec![workload.view(JOB_VIEW)]),
            Some(view) if view.presence == Presence::Unknown => unanswered(view),
            Some(view) => job(view, current, workload, now).unwrap_or_else(failed),
        },
        // Only once the state is written: without the view of the Job it cannot be observed again.
        State::Succeeded if view(JOB_VIEW).is_some() => repeated(Workload::clean()),
        State::Succeeded | State::PrecacheTimeout | State::UnrecoverableError => to(current, Vec::new()),
    }
}

/// What the Job's state leads to; `None`: an error. The last result of a cluster that is not available says nothing, and
/// a Job without a state has just begun, or is about to end.
fn job(view: &View, current: State, workload: &Workload<'_>, now: Timestamp) -> Option<Next> {
    let limit = SignedDuration::from_mins(workload.timeout.max(0)).saturating_add(JOB_ENDS);
    let is_late = view.created.checked_add(limit).is_ok_and(|end| now > end);
    let unavailable = current == State::Active && !workload.is_available;
    let (state, steps) = match view.answer {
        Answer::Job(Job::Succeeded) => (State::Succeeded, Vec::new()),
        Answer::Job(Job::DeadlineExceeded) => (State::PrecacheTimeout, Workload::forget_dependencies()),
        Answer::Job(Job::BackoffLimitExceeded) => (State::UnrecoverableError, Workload::forget_dependencies()),
        _ if is_late || unavailable || view.presence == Presence::Absent || view.presence == Presence::Failed => {
            return None;
        }
        Answer::Job(Job::Active) if current != State::Active => (State::Active, Workload::forget_dependencies()),
        _ => (current, Vec::new()),
    };
    let at = (!state.is_final()).then(|| now.checked_add(FIRST_RESULT).unwrap_or(now));
    Some(Next { state, steps, repeats: false, at })
}

/// The condition that says how many clusters are done.
fn summarize<'a>(facts: &Facts<'_>, plan: &mut Plan, states: impl Iterator<Item = &'a State>) {
    let (mut all, mut succeeded, mut failed) = (0, 0, 0);
    for state in states {
        all += 1;
        succeeded += usize::from(*state == State::Succeeded);
        failed += usize::from(state.is_final() && *state != State::Succeeded);
    }
    let (status, reason, message) = if succeeded == all {
        ("True", "PrecachingCompleted", "Precaching is completed for all clusters".to_owned())
    } else if failed == all {
        ("False", "Failed", "Precaching failed for all clusters".to_owned())
    } else if succeeded + failed == all {
        ("True", "PartiallyDone", format!("Precaching failed for {failed} clusters"))
    } else {
        ("False", "InProgress", format!("Precaching in progress for {} clusters", all - succeeded - failed))
    };
    plan.condition(facts.now, PRECACHING_SUCCEEDED, status, reason, &message);
}

/// What is left of pulls that have not succeeded goes with the upgrade.
pub(super) fn abandon(plan: &mut Plan) {
    let known = plan.status.precaching.iter().flat_map(|known| &known.status);
    let open = known.filter(|(_, state)| **state != State::Succeeded.to_string()).map(|(name, _)| name.clone());
    plan.acts.extend(open.map(|cluster| Act::Pull(Pull { cluster, steps: Workload::abandon(), repeats: false })));
}
