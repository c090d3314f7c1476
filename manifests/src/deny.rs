//! A `ValidatingAdmissionPolicy` that denies, with its binding.

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
    ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec, Validation, Variable,
};
use serde_json::{Value, json};

use crate::names::{cluster_wide, strings};

/// What one policy differs in from another.
pub(crate) struct Deny<'a> {
    /// Name of the policy and of its binding.
    pub(crate) name: &'a str,
    /// The program that the policy belongs to.
    pub(crate) program: &'a str,
    /// Which writes it judges.
    pub(crate) writes: MatchResources,
    /// Which of these writes it leaves alone: those for which one of the conditions does not hold.
    pub(crate) conditions: Vec<MatchCondition>,
    /// Named expressions.
    pub(crate) variables: Vec<Variable>,
    /// What must hold.
    pub(crate) validations: Vec<Validation>,
}

impl Deny<'_> {
    /// The policy, which fails closed, and its binding.
    pub(crate) fn objects(self) -> Vec<Value> {
        let metadata = || cluster_wide(self.name, self.program);
        let binding = ValidatingAdmissionPolicyBinding {
            metadata: metadata(),
            spec: ValidatingAdmissionPolicyBindingSpec {
                policy_name: self.name.to_owned(),
                validation_actions: strings(&["Deny"]),
                ..ValidatingAdmissionPolicyBindingSpec::default()
            },
        };
        let policy = ValidatingAdmissionPolicy {
            metadata: metadata(),
            spec: Some(ValidatingAdmissionPolicySpec {
                failure_policy: Some("Fail".to_owned()),
                match_constraints: Some(MatchResources { match_policy: Some("Equivalent".to_owned()), ..self.writes }),
                match_conditions: Some(self.conditions).filter(|conditions| !conditions.is_empty()),
                variables: Some(self.variables),
                validations: Some(self.validations),
                ..ValidatingAdmissionPolicySpec::default()
            }),
            ..ValidatingAdmissionPolicy::default()
        };
        vec![json!(policy), json!(binding)]
    }
}
