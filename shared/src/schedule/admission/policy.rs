//! Who may write schedules, and whose stamp says so: rows S1 and S2 as a `ValidatingAdmissionPolicy`.
//!
//! Our controller writes the targets of a schedule, so the right to write schedules would otherwise be the right to
//! hibernate any cluster. The policy asks the API server's authorizer, and judges every user.

use k8s_openapi::api::admissionregistration::v1::Validation;

use super::super::api::{CLUSTER_POWER_SCHEDULE, POWER_SCHEDULE, WORKLOADS};
use super::POLICY;
use crate::admission::policy::{Deny, forbid, own_stamp, variable, writes};
use crate::annotation::keys::GROUP;
use crate::kinds::cron_job::IN_NAMESPACE;
use crate::kinds::operators::objects::OPERATORS;
use crate::kinds::{CLUSTER_DEPLOYMENT, Kind, Kinds};
use crate::rollout::admission::{may_patch_kind, starts_unless};

/// The policy for schedules over these kinds. The manifests install it, and the controller acts on no schedule unless the
/// hub has it as it is here.
pub fn policy(kinds: Kinds) -> Deny {
    let resources = [POWER_SCHEDULE.plural, CLUSTER_POWER_SCHEDULE.plural];
    let schedules = writes(GROUP, &["v1alpha1"], &["CREATE", "UPDATE"], &resources, "*");
    let variables = vec![
        variable("startsTargets", starts_unless(&["suspend"])),
        variable("kind", format!("object.spec.targets.?kind.orValue('{}')", CLUSTER_DEPLOYMENT.kind.kind)),
        variable("within", "object.metadata.?namespace.orValue('')"),
    ];
    Deny { name: POLICY, rules: vec![schedules], variables, validations: validations(kinds) }
}

fn validations(kinds: Kinds) -> Vec<Validation> {
    let of_rollouts = kinds.in_rollouts().map(|row| (row.kind.kind, &row.kind));
    let of_workloads = IN_NAMESPACE.iter().map(|row| (WORKLOADS, &row.kind));
    let of_kind = |(kind, resource): (&str, &Kind)| {
        let found = format!("spec.targets.kind: found {kind}, must be a kind");
        may_patch(&format!("variables.kind != '{kind}'"), &found, resource)
    };
    let mut validations: Vec<Validation> = of_rollouts.chain(of_workloads).map(of_kind).collect();
    validations.extend(OPERATORS.map(|row| {
        let name = row.kind.resource_name();
        let found = format!("spec.operatorKinds: found {name}, must be kinds");
        may_patch(&format!("!('{name}' in object.spec.?operatorKinds.orValue([]))"), &found, &row.kind)
    }));
    validations.extend(own_stamp("S2", "false", "create; suspend to false; any other change of the spec"));
    validations
}

/// S1: the user may patch these objects, unless the schedule is not about them. `found` begins the sentence of a refusal.
fn may_patch(is_of_others: &str, found: &str, resource: &Kind) -> Validation {
    let (own, everywhere) = (may_patch_kind(resource, "variables.within"), may_patch_kind(resource, ""));
    let resource = resource.resource_name();
    forbid(
        format!("!variables.startsTargets || {is_of_others} || (variables.within == '' ? {everywhere} : {own})"),
        format!(
            "{found} whose objects you may patch, in the namespace of a PowerSchedule or in every namespace for a ClusterPowerSchedule: you may not patch {resource} (S1)"
        ),
    )
}
