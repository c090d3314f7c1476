//! Rows 4 to 17: validates an upgrade, prepares it, and starts it.

use std::collections::BTreeSet;

use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::batch::{COMPLIANT, REMEDIATING};
use super::precache::{Outcome, has_precaching_spec, pull, templates};
use super::{Act, CLUSTER_FILTERING, COMPLETION_MODE, Facts, Plan};
use crate::cgu::api::{COMPLETE, ClusterGroupUpgradeStatus, PolicyReference, Reference};
use crate::cgu::blockers::arrows;
use crate::cgu::conditions::{CLUSTERS_SELECTED, PROGRESSING, SUCCEEDED, VALIDATED};
use crate::cgu::events::{Event, not_served_message};
use crate::cgu::objects::{MAX_LABEL, Names};
use crate::cgu::plan::{Batches, batches, concurrency};
use crate::cgu::policy::{Policies, PolicyError, find};
use crate::cgu::select::{SelectError, select};
use crate::cgu::version::release;
use crate::cgu::wire::Compliance;

/// Delay until the image of a release is looked up again after a failure.
const LOOKUP_RETRY: SignedDuration = SignedDuration::from_mins(1);

struct Selection<'a> {
    clusters: Vec<&'a str>,
    canaries: Vec<&'a str>,
    /// Clusters per batch.
    size: usize,
    policies: Policies,
    batches: Batches<'a>,
}

pub(super) fn start(facts: &Facts<'_>, mut plan: Plan) -> Plan {
    let (now, spec) = (facts.now, &facts.upgrade.spec);
    let Some(selection) = select_and_validate(facts, &mut plan) else { return plan };
    let Selection { policies, batches, .. } = &selection;
    // Row 7
    let pulls = spec.pre_caching && !batches.plan.is_empty();
    let image = match platform_image(facts, &mut plan, policies, pulls) {
        Ok(image) => image,
        Err(error) => {
            plan.condition(now, VALIDATED, "False", "InvalidPlatformImage", &error);
            return plan;
        }
    };
    if plan.lookup.is_some() {
        return plan;
    }
    // Row 9
    plan.condition(now, VALIDATED, "True", "ValidationCompleted", "Completed validation");
    plan.status.remediation_plan = to_owned_plan(&batches.plan);
    prepare(facts, &mut plan, policies);
    // Rows 10 and 11
    let mut working: BTreeSet<&str> = batches.plan.iter().flatten().copied().collect();
    if let Some(pull_image) = facts.pull_image.as_deref().filter(|_| pulls) {
        let clusters: Vec<&str> = working.iter().copied().collect();
        match pull(facts, &mut plan, policies, &clusters, (pull_image, image)) {
            Outcome::Pending => return plan,
            Outcome::Done(succeeded) => working = succeeded,
            Outcome::Failed(message) => {
                plan.end(now, ("Completed", "Failed"), "False", (&message, &message));
                return plan;
            }
        }
    }
    // Row 12
    if !spec.enable {
        plan.condition(now, PROGRESSING, "False", "NotEnabled", "Not enabled");
        return plan;
    }
    // Row 14
    if let Some((reason, message)) = blocking_reason(facts) {
        if !facts.cycle.is_empty() && plan.is_new_message(PROGRESSING, &message) {
            plan.events.push(Event::Cycle(arrows(&facts.cycle)));
        }
        plan.condition(now, PROGRESSING, "False", reason, &message);
        return plan;
    }
    launch(facts, plan, &selection, &working)
}

/// Rows 4, 5, 6 and 8; `None` if the upgrade cannot start.
fn select_and_validate<'a>(facts: &'a Facts<'_>, plan: &mut Plan) -> Option<Selection<'a>> {
    let spec = &facts.upgrade.spec;
    let length = facts.upgrade.metadata.name.as_deref().map_or(0, str::len);
    if length > MAX_LABEL {
        let message = format!(
            "metadata.name has {length} characters, and {MAX_LABEL} is the most: its objects have the name in a label. \
             Create it again with a shorter name"
        );
        return refuse(facts, plan, VALIDATED, ("NotServed", &message), None);
    }
    let clusters = match select(spec, &facts.governance.clusters) {
        Ok(clusters) => clusters,
        Err(error) => {
            let message = format!("Unable to select clusters: {error}");
            let missing = if let SelectError::Unknown(names) = error { names } else { Vec::new() };
            let event = Event::MissingClusters(missing);
            return refuse(facts, plan, CLUSTERS_SELECTED, ("ClusterNotFound", &message), Some(event));
        }
    };
    let (type_, message) = (CLUSTERS_SELECTED, "All selected clusters are valid");
    plan.condition(facts.now, type_, "True", "ClusterSelectionCompleted", message);
    let size = concurrency(spec.remediation_strategy.max_concurrency, clusters.len());
    plan.status.computed_max_concurrency = i64::try_from(size).ok().filter(|size| *size > 0);
    let children = clusters.iter().flat_map(|name| facts.governance.children_of(name));
    let complies =
        |policy: &Reference| clusters.iter().all(|name| facts.compliance(policy, name) == Compliance::Compliant);
    let policies = match find(&spec.managed_policies, children, &facts.governance.roots, complies) {
        Ok(policies) => policies,
        Err(error) => {
            let why = (error.reason(), &*error.to_string());
            return refuse(facts, plan, VALIDATED, why, policy_event(&error));
        }
    };
    let needs_work = |name: &str| {
        policies.for_upgrade.iter().any(|policy| facts.compliance(policy, name) == Compliance::NonCompliant)
    };
    let canaries: Vec<&str> = spec.remediation_strategy.canaries.iter().map(String::as_str).collect();
    let batches = batches(&clusters, &canaries, size, needs_work);
    if let Some(field) = not_served(facts, &batches.plan) {
        let why = ("NotServed", &*not_served_message(field));
        return refuse(facts, plan, VALIDATED, why, Some(Event::NotServed(field)));
    }
    Some(Selection { clusters, canaries, size, policies, batches })
}

/// Rows 16 and 17: starts the upgrade with the clusters that survive filtering.
fn launch(facts: &Facts<'_>, mut plan: Plan, selection: &Selection<'_>, working: &BTreeSet<&str>) -> Plan {
    let survivors = survivors(facts, working);
    if survivors.is_empty() && !working.is_empty() {
        let message =
            "No clusters available for remediation after filtering out non-completed clusters from blocking CGUs";
        plan.end(facts.now, ("Completed", "Failed"), "False", (message, message));
        return plan;
    }
    let Selection { clusters, canaries, size, policies, batches: first } = selection;
    let last = batches(clusters, canaries, *size, |name| survivors.contains(name));
    plan.status.remediation_plan = to_owned_plan(&last.plan);
    plan.status.status.started_at = Some(Time(facts.now));
    plan.events.push(Event::Started { clusters: plan.cluster_count(), batches: last.plan.len() });
    for cluster in &first.compliant {
        plan.complete(facts, cluster);
    }
    for cluster in last.plan.iter().flatten() {
        plan.update_cluster(facts, cluster, false);
    }
    if last.plan.is_empty() {
        let already = "All clusters already compliant with the specified managed policies";
        plan.end(facts.now, ("Completed", "Completed"), "True", (COMPLIANT, already));
    } else {
        plan.acts.extend(policies.for_upgrade.iter().cloned().map(Act::Bind));
        plan.condition(facts.now, PROGRESSING, "True", "InProgress", REMEDIATING);
    }
    plan
}

/// Row 7: the image of the release in the policies, empty without one. It is looked up only for a pull, and only until the
/// precaching spec is known.
fn platform_image(facts: &Facts<'_>, plan: &mut Plan, policies: &Policies, pulls: bool) -> Result<String, String> {
    let needed = pulls && !has_precaching_spec(plan);
    let all = policies.for_upgrade.iter().chain(policies.compliant.iter().filter(|_| needed));
    let found =
        release(templates(facts, all).flat_map(|templates| &templates.releases), facts.upgrade.spec.pre_caching);
    let Some(release) = found.map_err(|error| error.to_string())?.filter(|_| needed) else { return Ok(String::new()) };
    if !release.image.is_empty() {
        return Ok(release.image);
    }
    match facts.releases.get(&release) {
        Some(Ok(image)) => return Ok(image.clone()),
        Some(Err(error)) => {
            plan.requeue_at(facts.now.checked_add(LOOKUP_RETRY).unwrap_or(facts.now));
            return Err(error.clone());
        }
        None => plan.lookup = Some(release),
    }
    Ok(String::new())
}

fn to_owned_plan(plan: &[Vec<&str>]) -> Vec<Vec<String>> {
    plan.iter().map(|batch| batch.iter().map(ToString::to_string).collect()).collect()
}

/// Says why an upgrade cannot start, in a condition and once in an Event.
fn refuse<T>(
    facts: &Facts<'_>,
    plan: &mut Plan,
    type_: &str,
    (reason, message): (&str, &str),
    event: Option<Event>,
) -> Option<T> {
    if plan.is_new_message(type_, message) {
        plan.events.extend(event);
    }
    plan.condition(facts.now, type_, "False", reason, message);
    None
}

fn policy_event(error: &PolicyError) -> Option<Event> {
    let (what, names) = match error {
        PolicyError::Missing(names) => ("missing-policies", names.clone()),
        PolicyError::Invalid(names) => ("invalid-policies", names.clone()),
        PolicyError::Ambiguous(found) => ("ambiguous-policies", found.keys().cloned().collect()),
        PolicyError::Order(..) | PolicyError::TooMany(_) => return None,
    };
    Some(Event::Policies(what, names))
}

/// A field that only TALM serves, on an upgrade that has something to do.
fn not_served(facts: &Facts<'_>, plan: &[Vec<&str>]) -> Option<&'static str> {
    let spec = &facts.upgrade.spec;
    let fields = [
        ("spec.manifestWorkTemplates", !spec.manifest_work_templates.is_empty()),
        ("spec.backup", spec.backup && !plan.is_empty()),
        ("spec.preCaching", spec.pre_caching && !plan.is_empty() && facts.pull_image.is_none()),
    ];
    fields.into_iter().find(|(_, is_set)| *is_set).map(|(field, _)| field)
}

/// Row 9: an empty Placement for each policy, and the policies in the status.
fn prepare(facts: &Facts<'_>, plan: &mut Plan, policies: &Policies) {
    let status = &mut plan.status;
    // A list that would become empty stays as it was (row 46).
    if !policies.for_upgrade.is_empty() {
        let reference = |one: &Reference| PolicyReference { name: one.name.clone(), namespace: one.namespace.clone() };
        status.managed_policies_for_upgrade = policies.for_upgrade.iter().map(reference).collect();
    }
    if !policies.compliant.is_empty() {
        status.managed_policies_compliant_before_upgrade =
            policies.compliant.iter().map(|one| one.name.clone()).collect();
    }
    status.managed_policies_ns =
        policies.for_upgrade.iter().map(|one| (one.name.clone(), one.namespace.clone())).collect();
    let content = |policy: &Reference| {
        let templates = facts.governance.roots.get(policy)?.templates.as_ref()?;
        let text = serde_json::to_string(&templates.subscriptions).ok()?;
        (!templates.subscriptions.is_empty()).then(|| (policy.name.clone(), text))
    };
    status.managed_policies_content = policies.for_upgrade.iter().filter_map(content).collect();
    let names: Vec<Names> = policies.for_upgrade.iter().map(|policy| Names::of(facts.upgrade, policy)).collect();
    status.safe_resource_names.extend(names.iter().map(|names| (names.key(), names.actual.clone())));
    let mut actual: Vec<String> = names.into_iter().map(|names| names.actual).collect();
    actual.sort();
    (status.placements, status.placement_bindings) = (actual.clone(), actual);
    plan.acts.extend(policies.for_upgrade.iter().cloned().map(Act::Prepare));
}

fn is_partial(facts: &Facts<'_>) -> bool {
    facts.annotation(COMPLETION_MODE) == Some("partial")
}

/// Row 14: reason and message of an upgrade that waits for others.
fn blocking_reason(facts: &Facts<'_>) -> Option<(&'static str, String)> {
    let is_over = |status: &ClusterGroupUpgradeStatus| {
        status.condition(SUCCEEDED).is_some_and(|end| is_partial(facts) || end.status == "True")
    };
    let (mut missing, mut open) = (Vec::new(), Vec::new());
    for blocker in &facts.upgrade.spec.blocking_crs {
        match facts.blockers.get(blocker).and_then(|found| found.0.as_ref().ok()) {
            None => missing.push(blocker.name.as_str()),
            Some(found) if !found.status.as_ref().is_some_and(is_over) => open.push(blocker.name.as_str()),
            Some(_) => {}
        }
    }
    if !missing.is_empty() {
        return Some(("MissingBlockingCR", format!("Missing blocking CRs: [{}]", missing.join(" "))));
    }
    let mut message = format!("Blocking CRs that are not completed: [{}]", open.join(" "));
    if !facts.cycle.is_empty() {
        message = format!("{message}, which wait for each other: {}", arrows(&facts.cycle));
    }
    (!open.is_empty()).then_some(("IncompleteBlockingCR", message))
}

/// Row 16: the clusters that every blocker has completed, if the upgrade filters; else all.
fn survivors<'a>(facts: &Facts<'_>, working: &BTreeSet<&'a str>) -> BTreeSet<&'a str> {
    if !is_partial(facts) || facts.annotation(CLUSTER_FILTERING) != Some("true") {
        return working.clone();
    }
    let mut left = working.clone();
    for blocker in facts.blockers.values() {
        let ended = blocker.0.iter().flat_map(|found| &found.status).flat_map(|status| &status.clusters);
        let complete: BTreeSet<&str> = ended.filter(|one| one.state == COMPLETE).map(|one| one.name.as_str()).collect();
        left.retain(|name| complete.contains(name));
    }
    left
}
