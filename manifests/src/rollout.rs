//! What rollouts need: their definition, the policy that says who may, and the webhook's entries. Both entries are
//! under Fail: what lets targets start waits for the webhook, and nothing else ever does.

use kube::CustomResourceExt as _;
use serde_json::{Value, json};
use shared::admission::cel::{annotations_dropped, condition};
use shared::annotation::keys::GROUP;
use shared::rollout::admission::{STAMPS, starts_targets};
use shared::rollout::api::PowerRollout;

use crate::confine::objects;
use crate::entry::{Entry, FAIL, entry, rule};
use crate::names::{CONTROLLER, ROLLOUTS, versioned};

/// The definition.
pub(crate) fn definitions() -> Vec<Value> {
    let mut definition = PowerRollout::crd();
    definition.metadata.labels = Some(versioned(CONTROLLER));
    let mut definition = json!(definition);
    without_unsigned(&mut definition);
    vec![definition]
}

/// Removes the formats that only Rust has: API servers warn of each. The bounds say the same.
fn without_unsigned(schema: &mut Value) {
    match schema {
        Value::Object(fields) => {
            fields.retain(|key, value| {
                key != "format" || !value.as_str().is_some_and(|format| format.starts_with("uint"))
            });
            fields.values_mut().for_each(without_unsigned);
        }
        Value::Array(items) => items.iter_mut().for_each(without_unsigned),
        _ => {}
    }
}

/// The policy that says who may let targets start, and its binding.
pub(crate) fn policy() -> Vec<Value> {
    objects(&shared::rollout::admission::policy(), CONTROLLER)
}

/// Judges new rollouts: each of them, so it needs no condition.
pub(crate) fn validating() -> Entry {
    entry("rollouts.hibernate.sh", FAIL, rollouts(&["CREATE"]), vec![])
}

/// Stamps what lets targets start, and puts back a stamp that is dropped. Pausing, aborting and deleting never reach it.
pub(crate) fn mutating() -> Entry {
    let stamped = format!("{}\n|| {}", starts_targets(), annotations_dropped(&STAMPS));
    let conditions = vec![condition("starts-targets-or-drops-stamp", stamped)];
    entry("rollout-stamp.hibernate.sh", FAIL, rollouts(&["CREATE", "UPDATE"]), conditions)
}

/// Writes of the object itself. `powerrollouts/status` is another resource and stays out.
fn rollouts(operations: &[&str]) -> Vec<Value> {
    vec![rule("Cluster", GROUP, &["v1alpha1"], operations, &[ROLLOUTS])]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the file says, read as an API server reads it, is what the controller compares with.
    #[test]
    fn the_committed_policy_guards() {
        let file = include_str!("../base/rollout-policy.yaml");
        let objects: Vec<Value> = serde_saphyr::from_multiple(file).unwrap();
        let [policy, binding] = &objects[..] else { panic!("{objects:?}") };
        let policy = serde_json::from_value(policy.clone()).unwrap();
        let binding = serde_json::from_value(binding.clone()).unwrap();
        assert_eq!(shared::rollout::admission::policy().differs(Some(&policy), Some(&binding)), None);
    }

    #[test]
    fn roles_have_no_bindings_and_no_aggregation() {
        let bound: Vec<_> = crate::base().iter().map(|object| object["roleRef"]["name"].clone()).collect();
        let read = ["get", "list", "watch"];
        let edit = [&read[..], &["create", "update", "patch", "delete"]].concat();
        let roles = crate::plain::objects(crate::plain::ROLLOUT_ROLES);
        assert_eq!(roles.len(), 2);
        for (role, verbs) in roles.iter().zip([&read[..], &edit]) {
            assert!(!bound.contains(&role["metadata"]["name"]), "{role}");
            let labels = role["metadata"]["labels"].as_object().unwrap();
            assert!(!labels.keys().any(|label| label.contains("aggregate-to")), "{role}");
            let rules = json!([{"apiGroups": [GROUP], "resources": [ROLLOUTS], "verbs": verbs}]);
            assert_eq!(role["rules"], rules, "{role}");
        }
    }
}
