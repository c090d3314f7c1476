//! Policies that confine the controller's own account: RBAC grants objects as a whole and in every namespace. They
//! judge no other account.

use k8s_openapi::api::admissionregistration::v1::{
    NamedRuleWithOperations, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, Validation, Variable,
};
use serde_json::{Value, json};
use shared::admission::cel::{condition, list};
use shared::admission::policy::{Deny, writes};
use shared::annotation::keys::GROUP;

use crate::names::{CONTROLLER, NAMESPACE, cluster_wide};

/// A policy that denies and its binding, as objects of a program.
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

/// A policy for the controller's account, and its binding.
pub(crate) fn controller(
    name: &'static str,
    rules: Vec<NamedRuleWithOperations>,
    variables: Vec<Variable>,
    validations: Vec<Validation>,
) -> Vec<Value> {
    let by_the_controller = format!("request.userInfo.username == 'system:serviceaccount:{NAMESPACE}:{CONTROLLER}'");
    let conditions = vec![condition("by-the-controller", by_the_controller)];
    objects(&Deny { name, rules, conditions, variables, validations }, CONTROLLER)
}

/// Every write of these resources.
pub(crate) fn every_write(group: &str, resources: &[&str]) -> NamedRuleWithOperations {
    writes(group, &["*"], &["CREATE", "UPDATE", "DELETE"], resources, "*")
}

/// The key of an annotation is one of ours.
pub(crate) fn is_ours() -> String {
    format!("key.startsWith('{GROUP}/')")
}

/// The object is the same but for some members, its annotations and its labels.
pub(crate) fn same_object(but: &[&str]) -> String {
    format!(
        "{}\n&& {}",
        same_but("", &format!("key in {}", list(&[&["metadata"], but].concat()))),
        same_but(".metadata", "key in ['annotations', 'labels', 'managedFields', 'generation', 'resourceVersion']"),
    )
}

/// Labels and the annotations of others are the same.
pub(crate) fn same_notes() -> String {
    format!(
        "{}\n&& {}",
        same_if_any_but(".metadata.?labels", "false"),
        same_if_any_but(".metadata.?annotations", &is_ours())
    )
}

/// Two maps are the same but for some keys.
pub(crate) fn same_but(path: &str, but: &str) -> String {
    let (new, old) = (format!("object{path}"), format!("oldObject{path}"));
    format!(
        "{new}.all(key, {but} || (key in {old} && {new}[key] == {old}[key]))
&& {old}.all(key, {but} || key in {new})"
    )
}

/// The same of maps that may be absent.
pub(crate) fn same_if_any_but(path: &str, but: &str) -> String {
    let (new, old) = (format!("object{path}"), format!("oldObject{path}"));
    format!(
        "{new}.orValue({{}}).all(key, {but} || {new}[?key] == {old}[?key])
&& {old}.orValue({{}}).all(key, {but} || {new}[?key] == {old}[?key])"
    )
}

/// What one map that may be absent holds, the other holds, too.
pub(crate) fn kept_if_any(path: &str, but: &str) -> String {
    let (new, old) = (format!("object{path}"), format!("oldObject{path}"));
    format!("{old}.orValue({{}}).all(key, {but} || {new}[?key] == {old}[?key])")
}
