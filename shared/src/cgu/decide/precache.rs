//! Rows 10 and 11: images are pulled before an upgrade starts.

use std::collections::{BTreeMap, BTreeSet};

use super::super::api::{Precaching as PrecachingStatus, PrecachingSpec, Reference};
use super::super::conditions::{PRECACHE_SPEC_VALID, PRECACHING_SUCCEEDED};
use super::super::policy::{Policies, Templates};
use super::super::precache::spec::{OVERRIDES, spec};
use super::super::precache::workload::Workload;
use super::super::precache::{Cluster, State, next};
use super::{APPROVE_AGAIN, Act, Facts, Plan, Pull};

/// Message of an upgrade that has no cluster left.
const FAILED: &str = "No clusters available for remediation (Precaching failed)";

/// Bytes of the writes to all clusters that are planned at once, and those of each besides what is pulled.
const MAX_WRITTEN: usize = 64 << 20;
const BESIDE: usize = 48 << 10;

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
    plan.status.condition(PRECACHE_SPEC_VALID).is_some_and(|found| found.status == "True")
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
    let is_over = |plan: &Plan| plan.status.condition(PRECACHING_SUCCEEDED).is_some_and(|found| found.status == "True");
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
        };
        let cluster = Cluster {
            name,
            state: *state,
            is_available: facts.clusters.get(*name).is_some_and(|cluster| cluster.is_available),
            is_enabled: facts.upgrade.spec.enable,
        };
        let step = next(&cluster, &workload, facts.views, now);
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
    let (configs, overrides) = (facts.precaching.configs, facts.precaching.overrides);
    let overrides = overrides.get(&(namespace, OVERRIDES.to_owned()));
    // Catalogs may be in policies that every cluster complies with.
    let all = policies.for_upgrade.iter().chain(&policies.compliant);
    let found = spec(templates(facts, all), config.as_ref(), configs, overrides, platform_image);
    let status = plan.status.precaching.get_or_insert_with(|| PrecachingStatus {
        spec: Some(PrecachingSpec::default()),
        ..PrecachingStatus::default()
    });
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
    policies.filter_map(|policy| facts.roots.get(policy)?.templates.as_ref())
}

fn state(plan: &Plan, cluster: &str) -> State {
    let known = plan.status.precaching.as_ref().and_then(|known| known.status.get(cluster));
    known.and_then(|state| state.parse().ok()).unwrap_or(State::NotStarted)
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
