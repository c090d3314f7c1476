//! The entries for rollouts, both under Fail: what lets targets start waits for the webhook, and nothing else ever does.

use k8s_openapi::api::admissionregistration::v1::{MutatingWebhook, RuleWithOperations, ValidatingWebhook};
use shared::admission::cel::condition;
use shared::annotation::keys::GROUP;
use shared::rollout::admission::starts_targets;

use super::RESOURCE;
use crate::admission::{ClientConfig, FAIL, mutating_entry, rule, validating_entry};

/// Judges new rollouts: each of them, so it needs no condition.
pub(crate) fn validating(client: &ClientConfig) -> ValidatingWebhook {
    validating_entry(client, "rollouts.hibernate.sh", FAIL, rollouts(&["CREATE"]), vec![])
}

/// Stamps what lets targets start. Pausing, aborting and deleting never reach it.
pub(crate) fn mutating(client: &ClientConfig) -> MutatingWebhook {
    let conditions = vec![condition("starts-targets", starts_targets())];
    let rules = vec![rollouts(&["CREATE", "UPDATE"])];
    mutating_entry(client, "rollout-stamp.hibernate.sh", FAIL, rules, conditions, None)
}

/// Writes of the object itself. `powerrollouts/status` is another resource and stays out.
fn rollouts(operations: &[&str]) -> RuleWithOperations {
    let rule = rule(GROUP, &["v1alpha1"], operations, &[RESOURCE]);
    RuleWithOperations { scope: Some("Cluster".to_owned()), ..rule }
}
