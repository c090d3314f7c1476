//! What rollouts need: their definition, the policy that says who may, and the webhook's entries.

mod admission;

use kube::CustomResourceExt as _;
use serde_json::{Value, json};
use shared::rollout::api::PowerRollout;

pub(crate) use admission::{mutating, validating};

use crate::deny::objects;
use crate::names::{CONTROLLER, labels};

/// The resource.
pub(crate) const RESOURCE: &str = "powerrollouts";

/// The definition.
pub(crate) fn definitions() -> Vec<Value> {
    let mut definition = PowerRollout::crd();
    definition.metadata.labels = Some(labels(CONTROLLER));
    vec![json!(definition)]
}

/// The policy that says who may let targets start, and its binding.
pub(crate) fn policy() -> Vec<Value> {
    objects(&shared::rollout::admission::policy(), CONTROLLER)
}

#[cfg(test)]
mod tests {
    use shared::annotation::keys::GROUP;

    use super::*;

    /// What the file says, read as an API server reads it, is what the controller compares with.
    #[test]
    fn the_committed_policy_guards() {
        let file = include_str!("../../base/rollout-policy.yaml");
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
        let roles = crate::plain::rollout_roles();
        assert_eq!(roles.len(), 2);
        for (role, verbs) in roles.iter().zip([&read[..], &edit]) {
            assert!(!bound.contains(&role["metadata"]["name"]), "{role}");
            let labels = role["metadata"]["labels"].as_object().unwrap();
            assert!(!labels.keys().any(|label| label.contains("aggregate-to")), "{role}");
            let rules = json!([{"apiGroups": [GROUP], "resources": [RESOURCE], "verbs": verbs}]);
            assert_eq!(role["rules"], rules, "{role}");
        }
    }
}
