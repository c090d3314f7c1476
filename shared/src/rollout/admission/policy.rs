//! Who may let targets start, and whose stamp says so: rows R1 and R2 as a `ValidatingAdmissionPolicy`.
//!
//! A rollout's targets are written by our controller, so the right to write rollouts would otherwise be the right to
//! hibernate any cluster. The policy asks the API server's authorizer. It judges every user, and no write that only
//! pauses or aborts: both rows are about the starting writes, which [`STARTS`] lists.

use k8s_openapi::api::admissionregistration::v1::{Validation, Variable};

use super::super::api::Targets;
use super::{POLICY, STARTS, STOPS, Start};
use crate::admission::policy::{Deny, forbid, list, not, own_stamp, variable, writes};
use crate::annotation::keys::GROUP;
use crate::kinds::{Kind, Kinds, POWER_ROLLOUT, TargetKind};
use crate::schedule::api::POWER_SCHEDULE;

/// The write creates the rollout of a schedule.
const OF_SCHEDULE: &str = "oldObject == null && has(object.spec.scheduledBy)";
/// Most namespaces that a rollout names. An authorization check has a fixed cost of 350,000: two fit into an expression
/// (1,000,000), and 20 of them with all else into a policy (10,000,000).
const MAX_NAMESPACES: usize = 20;

/// The policy for rollouts over these kinds. The manifests install it, and the controller starts nothing unless the hub
/// has it as it is here.
pub fn policy(kinds: Kinds) -> Deny {
    let rollouts = writes(GROUP, &["v1alpha1"], &["CREATE", "UPDATE"], &[POWER_ROLLOUT.kind.plural], "Cluster");
    Deny { name: POLICY, rules: vec![rollouts], variables: variables(kinds), validations: validations(kinds) }
}

/// The write is one of the list [`STARTS`].
pub fn starts_targets() -> String {
    starts_unless(&STOPS)
}

/// The write creates an object, or does more to its spec than to set these fields to true.
pub fn starts_unless(stops: &[&str]) -> String {
    STARTS.map(|start| expression(start, stops)).join("\n|| ")
}

fn expression(start: Start, stops: &[&str]) -> String {
    match start {
        Start::Created => "oldObject == null".to_owned(),
        Start::Unstopped => {
            let ends = |field: &&str| {
                format!("(oldObject.?spec.?{field}.orValue(false) && !object.?spec.?{field}.orValue(false))")
            };
            stops.iter().map(ends).collect::<Vec<_>>().join("\n|| ")
        }
        Start::Changed => {
            let stops = format!("key in {}", list(stops));
            format!(
                "!object.spec.all(key, {stops} || (key in oldObject.spec && object.spec[key] == oldObject.spec[key]))
|| !oldObject.spec.all(key, {stops} || key in object.spec)"
            )
        }
    }
}

/// Kinds of targets with, or without, namespaces.
fn of_scope(kinds: Kinds, namespaced: bool) -> impl Iterator<Item = &'static TargetKind> {
    kinds.in_rollouts().filter(move |row| row.kind.is_namespaced() == namespaced)
}

/// What has to be patched of kinds with namespaces.
fn resources(kinds: Kinds) -> String {
    of_scope(kinds, true).map(|row| row.kind.resource_name()).collect::<Vec<_>>().join(" or ")
}

/// The rollout is about objects of this kind.
fn is_about(row: &TargetKind) -> String {
    format!("variables.kind == '{}'", row.kind.kind)
}

/// Whether the user may patch objects of this kind, in one namespace if one is given.
pub fn may_patch_kind(kind: &Kind, namespace: &str) -> String {
    let namespace = if namespace.is_empty() { String::new() } else { format!(".namespace({namespace})") };
    let (group, resource) = (kind.group, kind.plural);
    format!("authorizer.group('{group}').resource('{resource}'){namespace}.check('patch').allowed()")
}

/// Whether the user may patch the targets of a namespace; without one, of every namespace.
fn may_patch(kinds: Kinds, namespace: &str) -> String {
    let mut rows = of_scope(kinds, true);
    let first = rows.next().map_or_else(|| "false".to_owned(), |row| may_patch_kind(&row.kind, namespace));
    rows.fold(first, |others, row| format!("({} ? {} : {others})", is_about(row), may_patch_kind(&row.kind, namespace)))
}

/// The variable that starts with the n-th distinct namespace.
fn from(nth: usize) -> String {
    format!("variables.from{nth}")
}

/// CEL at admission cannot sort or deduplicate: each variable is the one before without its first namespace.
fn variables(kinds: Kinds) -> Vec<Variable> {
    let without: Vec<&str> = of_scope(kinds, false).map(|row| row.kind.kind).collect();
    let mut variables = vec![
        variable("startsTargets", starts_targets()),
        variable("kind", format!("object.spec.targets.?kind.orValue('{}')", Targets::default().kind)),
        variable("hasNamespaces", not(&format!("variables.kind in {}", list(&without)))),
        variable("mayEverywhere", may_patch(kinds, "")),
        variable(
            "from1",
            "variables.hasNamespaces ? object.spec.targets.?names.orValue([]).map(target, target.namespace) : []",
        ),
    ];
    variables.extend((1..=MAX_NAMESPACES).map(|nth| {
        let from = from(nth);
        variable(&format!("from{}", nth + 1), format!("{from}.filter(name, name != {from}[0])"))
    }));
    variables
}

fn validations(kinds: Kinds) -> Vec<Validation> {
    let deny = |rule: &str, unless: &str, message: &str| forbid(unless, format!("{message} ({rule})"));
    let targets = resources(kinds);
    let mut validations = vec![
        deny(
            "R1",
            &format!(
                "!variables.startsTargets || !variables.hasNamespaces || size({}) > 0 || variables.mayEverywhere",
                from(1)
            ),
            &format!(
                "spec.targets: found a selection from every namespace, must be names of targets unless you may patch {targets} in every namespace"
            ),
        ),
        deny(
            "R1",
            &format!("!variables.startsTargets || size({}) == 0", from(MAX_NAMESPACES + 1)),
            &format!(
                "spec.targets.names: found more than {MAX_NAMESPACES} namespaces, must be {MAX_NAMESPACES} at most: create several rollouts, or select the targets"
            ),
        ),
    ];
    validations.extend((1..=MAX_NAMESPACES).map(|nth| {
        let from = from(nth);
        let must = format!("must be namespaces in which you may patch {targets}");
        Validation {
            message_expression: Some(format!(
                "'spec.targets.names: found namespace ' + (size({from}) > 0 ? {from}[0] : '') + ', {must} (R1)'"
            )),
            ..deny(
                "R1",
                &format!(
                    "!variables.startsTargets || size({from}) == 0 || variables.mayEverywhere || {}",
                    may_patch(kinds, &format!("{from}[0]"))
                ),
                &format!("spec.targets.names: found another namespace, {must}"),
            )
        }
    }));
    validations.extend(of_scope(kinds, false).map(|row| {
        let (kind, resource) = (row.kind.kind, row.kind.resource_name());
        deny(
            "R1",
            &format!("!variables.startsTargets || !({}) || {}", is_about(row), may_patch_kind(&row.kind, "")),
            &format!("spec.targets.kind: found {kind}, must be a kind whose objects you may patch: you may not patch {resource}"),
        )
    }));
    validations.extend(own_stamp("R2", OF_SCHEDULE, &STARTS.map(Start::text).join("; ")));
    validations.push(deny(
        "R4",
        &format!(
            "!({OF_SCHEDULE}) || authorizer.group('{GROUP}').resource('{}').subresource('rollouts').check('create').allowed()",
            POWER_SCHEDULE.plural
        ),
        "spec.scheduledBy: found a schedule, must be left out: only the controller creates the rollouts of schedules",
    ));
    validations
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::KINDS;

    /// The plugin reads the row from the end of a policy's denial, which has no causes.
    #[test]
    fn every_message_ends_with_its_row() {
        let mut rows = Vec::new();
        for validation in validations(KINDS) {
            let message = validation.message.unwrap();
            let row = message.rsplit_once(' ').unwrap().1.to_owned();
            let detail = validation.message_expression.unwrap_or_else(|| format!("'{message}'"));
            assert!(detail.ends_with(&format!(" {row}'")), "{detail}");
            assert!(!message.contains('\''), "{message}");
            rows.push(row);
        }
        assert_eq!(rows.split_off(MAX_NAMESPACES + 2 + of_scope(KINDS, false).count()), ["(R2)", "(R2)", "(R4)"]);
        assert!(rows.iter().all(|row| row == "(R1)"), "{rows:?}");
    }
}
