//! Confines the controller's service account on `ClusterDeployments`: it writes the power state, our annotations and
//! what it reports.

use serde_json::Value;
use shared::admission::cel::list;
use shared::admission::policy::{forbid, variable};
use shared::annotation::keys::GROUP;
use shared::hive::conditions::{ACTIVE_OVERRIDE, HIBERNATING, PROGRESS, READY, UNREACHABLE};
use shared::hive::data::DATA;
use shared::hive::preflight::PREFLIGHT;

use crate::confine::{controller, every_write, same_if_any_but, same_notes, same_object};
use crate::names::CONTROLLER;

/// Name of the policy and of its binding.
const NAME: &str = "hibernate-controller-hive";

/// Conditions that the controller writes. Those of others may only change their places.
const CONDITIONS: [&str; 7] = [HIBERNATING, READY, PROGRESS, DATA, PREFLIGHT, UNREACHABLE, ACTIVE_OVERRIDE];

/// The policy and its binding.
pub(crate) fn policy() -> Vec<Value> {
    let rules = vec![every_write("hive.openshift.io", &["clusterdeployments", "clusterdeployments/status"])];
    let variables = vec![
        variable("isStatus", "request.?subResource.orValue('') == 'status'"),
        variable("sameObject", same_object(&["spec"])),
        variable("sameNotes", same_notes()),
        variable("sameSpec", same_if_any_but(".?spec", "key == 'powerState'")),
        variable("sameStatus", same_if_any_but(".?status", "key in ['conditions', 'powerState']")),
        variable("sameConditions", same_conditions()),
    ];
    let validations = vec![
        forbid(
            "request.operation == 'UPDATE'
&& (variables.isStatus || (variables.sameObject && variables.sameNotes && variables.sameSpec))",
            format!("{CONTROLLER} may change only spec.powerState and annotations of {GROUP} of a ClusterDeployment"),
        ),
        forbid(
            "!variables.isStatus || (variables.sameStatus && variables.sameConditions)",
            format!(
                "{CONTROLLER} may change only powerState and the conditions {} of a ClusterDeployment's status",
                CONDITIONS.join(", ")
            ),
        ),
    ];
    controller(NAME, rules, variables, validations)
}

fn same_conditions() -> String {
    let ours = list(&CONDITIONS);
    let kept = |from: &str, to: &str| {
        let conditions = |object: &str| format!("{object}.?status.?conditions.orValue([])");
        format!("{}.all(one, one.?type.orValue('') in {ours} || one in {})", conditions(from), conditions(to))
    };
    format!("{}\n&& {}", kept("object", "oldObject"), kept("oldObject", "object"))
}
