//! A `ValidatingAdmissionPolicy` that denies, and its binding, as objects of a program.

use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use serde_json::{Value, json};
use shared::admission::policy::Deny;

use crate::names::cluster_wide;

/// The policy and its binding.
pub(crate) fn objects(deny: &Deny, program: &str) -> Vec<Value> {
    let metadata = || cluster_wide(deny.name, program);
    vec![
        json!(ValidatingAdmissionPolicy {
            metadata: metadata(),
            spec: Some(deny.policy()),
            ..ValidatingAdmissionPolicy::default()
        }),
        json!(ValidatingAdmissionPolicyBinding { metadata: metadata(), spec: deny.binding() }),
    ]
}
