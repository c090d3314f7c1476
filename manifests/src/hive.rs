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
use crate::plain;

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

/// The component `openstack`: the right to keep records of servers that are deleted while a cluster sleeps, and the policy
/// that confines it to them. In an order in which they can be created.
pub fn openstack() -> Vec<Value> {
    [openstack_policy(), plain::objects(plain::OPENSTACK_RBAC)].concat()
}

/// Of Secrets the controller's account may write records, and nothing else: neither credentials of others nor tokens.
pub(crate) fn openstack_policy() -> Vec<Value> {
    let either = "(object == null ? oldObject : object)";
    let variables = vec![
        variable("name", format!("{either}.metadata.?name.orValue('')")),
        variable("type", format!("{either}.?type.orValue('Opaque')")),
        variable("keys", "object == null ? [] : object.?data.orValue({}).map(key, key)"),
    ];
    let unless = "variables.name.endsWith('-hibernation-config') && variables.type == 'Opaque'
&& variables.keys.all(key, key in ['hibernation', 'hibernation-config'])";
    let message = format!(
        "{CONTROLLER} may write only Secrets CLUSTER-hibernation-config of type Opaque with the keys hibernation and hibernation-config"
    );
    controller(
        "hibernate-controller-openstack",
        vec![every_write("", &["secrets"])],
        variables,
        vec![forbid(unless, message)],
    )
}

fn same_conditions() -> String {
    let ours = list(&CONDITIONS);
    let kept = |from: &str, to: &str| {
        let conditions = |object: &str| format!("{object}.?status.?conditions.orValue([])");
        format!("{}.all(one, one.?type.orValue('') in {ours} || one in {})", conditions(from), conditions(to))
    };
    format!("{}\n&& {}", kept("object", "oldObject"), kept("oldObject", "object"))
}
