//! Rows 10 and 11: pulls images before an upgrade starts (section 9.5).

use std::collections::{BTreeMap, BTreeSet};

use jiff::{SignedDuration, Timestamp};

use super::{APPROVAL_RETRY, Act, Facts, Plan, Pull};
use crate::cgu::api::{Precaching, PrecachingSpec, Reference};
use crate::cgu::conditions::{PRECACHE_SPEC_VALID, PRECACHING_SUCCEEDED};
use crate::cgu::objects::LOCAL_CLUSTER;
use crate::cgu::policy::Policies;
use crate::cgu::precache::spec::{OVERRIDES, spec};
use crate::cgu::precache::workload::{DEPENDENCIES, JOB_VIEW, NAMESPACE_VIEW, Step, Workload};
use crate::cgu::templates::Templates;
use crate::cgu::view::{Answer, Job, Presence, View, Views};

const FAILED: &str = "No clusters available for remediation (Precaching failed)";

/// Bytes of the writes that one plan holds for all clusters. What is pulled may be as large as an object, and is written to
/// each cluster; the overhead of a cluster comes on top.
const MAX_WRITE_BYTES: usize = 64 << 20;
const WRITE_OVERHEAD: usize = 48 << 10;

/// A cluster that has not answered a view by then counts as out of reach.
const FIRST_RESULT_TIMEOUT: SignedDuration = SignedDuration::from_secs(30);

/// How long after its deadline a Job may still report: its view may not be refreshed any more.
const JOB_GRACE: SignedDuration = SignedDuration::from_mins(10);

/// The state of a cluster, in TALM's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::EnumString)]
pub(super) enum State {
    NotStarted,
    /// The leftovers of an earlier pull are removed.
    PreparingToStart,
    /// The Job's dependencies are created, then the Job.
    Starting,
    Active,
    Succeeded,
    PrecacheTimeout,
    /// The Job has failed, or the cluster is out of reach.
    UnrecoverableError,
}

impl State {
    pub(super) const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::PrecacheTimeout | Self::UnrecoverableError)
    }
}

pub(super) enum Outcome<'a> {
    /// It goes on, or cannot start.
    Pending,
    /// These clusters have the images.
    Done(BTreeSet<&'a str>),
    /// Why the upgrade cannot start.
    Failed(String),
}

/// Whether an earlier reconcile has determined what to pull.
pub(super) fn has_precaching_spec(plan: &Plan) -> bool {
    plan.status.is(PRECACHE_SPEC_VALID, "True")
}

/// Takes each cluster one step further. `image` runs the pull.
pub(super) fn pull<'a>(
    facts: &Facts<'_>,
    plan: &mut Plan,
    policies: &Policies,
    clusters: &[&'a str],
    (image, platform_image): (&str, String),
) -> Outcome<'a> {
    let now = facts.now;
    let Some(spec) = precaching_spec(facts, plan, policies, platform_image) else { return Outcome::Pending };
    let is_over = |plan: &Plan| plan.status.is(PRECACHING_SUCCEEDED, "True");
    let mut states: BTreeMap<&str, State> = clusters.iter().map(|name| (*name, state(plan, name))).collect();
    let (was_over, mut is_written) = (is_over(plan), true);
    let mut room = (MAX_WRITE_BYTES / (WRITE_OVERHEAD + serde_json::json!(spec).to_string().len())).max(1);
    for (name, state) in &mut states {
        // Once it is over, only leftovers are removed.
        if was_over && *state != State::Succeeded {
            continue;
        }
        if room == 0 {
            is_written = false;
            plan.requeue_at(now);
            break;
        }
        let workload = Workload {
            cluster: name,
            spec: &spec,
            image,
            timeout: facts.upgrade.spec.remediation_strategy.timeout,
            clusters: clusters.len(),
            is_available: facts.governance.clusters.get(*name).is_some_and(|cluster| cluster.is_available),
            is_enabled: facts.upgrade.spec.enable,
        };
        let step = next(*state, &workload, &facts.governance.views, now);
        is_written &= *state == step.state;
        *state = step.state;
        let again = (step.repeats && !state.is_final()).then(|| now.checked_add(APPROVAL_RETRY).unwrap_or(now));
        [step.at, again].into_iter().flatten().for_each(|at| plan.requeue_at(at));
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
    // Leftovers are removed once the end is written.
    if !is_written {
        return Outcome::Pending;
    }
    let succeeded: BTreeSet<&str> =
        states.iter().filter(|(_, state)| **state == State::Succeeded).map(|(name, _)| *name).collect();
    let has_all_failed = states.values().all(|state| state.is_final() && *state != State::Succeeded);
    match is_over(plan) {
        // TALM reconciles such an upgrade forever.
        false if has_all_failed && facts.upgrade.spec.enable => Outcome::Failed(FAILED.to_owned()),
        false => Outcome::Pending,
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

/// Determines what to pull, once, and says so in a condition.
fn precaching_spec(
    facts: &Facts<'_>,
    plan: &mut Plan,
    policies: &Policies,
    platform_image: String,
) -> Option<PrecachingSpec> {
    if has_precaching_spec(plan)
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
    let result = spec(templates(facts, all), config.as_ref(), configs, overrides, platform_image);
    let status = plan
        .status
        .precaching
        .get_or_insert_with(|| Precaching { spec: Some(PrecachingSpec::default()), ..Precaching::default() });
    match result {
        Ok(spec) => {
            status.spec = Some(spec.clone());
            let message = "Precaching spec is valid and consistent";
            plan.condition(facts.now, PRECACHE_SPEC_VALID, "True", "PrecacheSpecIsWellFormed", message);
            Some(spec)
        }
        Err(error) => {
            let message = format!("Precaching spec is incomplete: {error}");
            plan.condition(facts.now, PRECACHE_SPEC_VALID, "False", "PrecacheSpecIncomplete", &message);
            None
        }
    }
}

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

/// The next step on a cluster.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Next {
    pub(super) state: State,
    pub(super) steps: Vec<Step>,
    /// The steps are repeated once a minute until they take effect: the cluster carries them out in its own time.
    repeats: bool,
    at: Option<Timestamp>,
}

/// The table of section 9.5. It is total.
pub(super) fn next(current: State, workload: &Workload<'_>, views: &Views, now: Timestamp) -> Next {
    let view = |name: &str| views.get(&(workload.cluster.to_owned(), name.to_owned()));
    let to = |state, steps| Next { state, steps, repeats: false, at: None };
    let repeated = |steps| Next { state: current, steps, repeats: true, at: None };
    let failed = || to(if workload.is_enabled { State::UnrecoverableError } else { current }, Vec::new());
    // A view without a result: it may come, unless the cluster is out of reach.
    let wait_for_answer = |view: &View| {
        let end = view.created.checked_add(FIRST_RESULT_TIMEOUT).unwrap_or(Timestamp::MAX);
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
                Presence::Unknown => wait_for_answer(view),
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
                    Presence::Unknown => return wait_for_answer(view),
                    Presence::Failed => return failed(),
                    Presence::Present | Presence::Absent => {}
                }
            }
            match view(JOB_VIEW) {
                None => repeated(vec![workload.view(JOB_VIEW)]),
                Some(view) => match view.presence {
                    Presence::Unknown => wait_for_answer(view),
                    Presence::Absent => repeated(workload.start()),
                    Presence::Present | Presence::Failed => job(view, current, workload, now).unwrap_or_else(failed),
                },
            }
        }
        State::Active => match view(JOB_VIEW) {
            // TALM's own view has no labels, so the watch does not bring it.
            None => repeated(vec![workload.view(JOB_VIEW)]),
            Some(view) if view.presence == Presence::Unknown => wait_for_answer(view),
            Some(view) => job(view, current, workload, now).unwrap_or_else(failed),
        },
        // Only once the state is written: without the view of the Job it could not be observed again.
        State::Succeeded if view(JOB_VIEW).is_some() => repeated(Workload::clean()),
        State::Succeeded | State::PrecacheTimeout | State::UnrecoverableError => to(current, Vec::new()),
    }
}

/// The step that the Job's state leads to; `None`: an error. The last result of a cluster that is not available does not
/// count, and a Job without a state has just started, or is about to end.
fn job(view: &View, current: State, workload: &Workload<'_>, now: Timestamp) -> Option<Next> {
    let limit = SignedDuration::from_secs(workload.timeout.max(0).saturating_mul(60)).saturating_add(JOB_GRACE);
    let is_late = view.created.checked_add(limit).is_ok_and(|end| now > end);
    let unavailable = current == State::Active && !workload.is_available;
    let (state, steps) = match view.answer {
        Answer::Job(Job::Succeeded) => (State::Succeeded, Vec::new()),
        Answer::Job(Job::DeadlineExceeded) => (State::PrecacheTimeout, Workload::delete_dependency_views()),
        Answer::Job(Job::BackoffLimitExceeded) => (State::UnrecoverableError, Workload::delete_dependency_views()),
        _ if is_late || unavailable || view.presence == Presence::Absent || view.presence == Presence::Failed => {
            return None;
        }
        Answer::Job(Job::Active) if current != State::Active => (State::Active, Workload::delete_dependency_views()),
        _ => (current, Vec::new()),
    };
    let at = (!state.is_final()).then(|| now.checked_add(FIRST_RESULT_TIMEOUT).unwrap_or(now));
    Some(Next { state, steps, repeats: false, at })
}

/// Sets the condition that counts the clusters.
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

/// Removes the leftovers of pulls that have not succeeded.
pub(super) fn abandon(plan: &mut Plan) {
    let known = plan.status.precaching.iter().flat_map(|known| &known.status);
    let open = known.filter(|(_, state)| **state != State::Succeeded.to_string()).map(|(name, _)| name.clone());
    plan.acts.extend(open.map(|cluster| Act::Pull(Pull { cluster, steps: Workload::abandon(), repeats: false })));
}
