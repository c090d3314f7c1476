//! A `ValidatingAdmissionPolicy` that denies, with its binding: how it and its expressions are built, and whether a hub
//! has it as it was built.
//!
//! An expression that fails refuses the write. Absent fields are therefore read by `.?field` and `orValue`, and
//! `oldObject`, which is null on CREATE, is looked at first.

use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding, ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec, Validation,
    Variable,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use crate::annotation::keys::{REQUESTED_AT, REQUESTED_BY};
use crate::text::sanitize_to;

/// Bytes of a found value in a message.
const SHOWN: usize = 64;

/// What one policy differs in from another.
#[derive(Clone, Debug)]
pub struct Deny {
    /// Name of the policy and of its binding.
    pub name: &'static str,
    /// Which writes it judges.
    pub rules: Vec<NamedRuleWithOperations>,
    /// Named expressions.
    pub variables: Vec<Variable>,
    /// What must hold.
    pub validations: Vec<Validation>,
}

/// An annotation is set, altered or removed.
pub fn annotation_changes(key: &str) -> String {
    format!(
        "object.metadata.?annotations[?'{key}']
!= (oldObject == null ? optional.none() : oldObject.metadata.?annotations[?'{key}'])"
    )
}

/// A list of texts as CEL writes it. None of ours holds a quote or a backslash.
pub fn list(texts: &[&str]) -> String {
    format!("['{}']", texts.join("', '"))
}

/// The opposite of an expression.
pub fn not(expression: &str) -> String {
    format!("!({expression})")
}

/// Writes of resources of one group. The scope is `Cluster`, `Namespaced` or `*`.
pub fn writes(
    group: &str,
    versions: &[&str],
    operations: &[&str],
    resources: &[&str],
    scope: &str,
) -> NamedRuleWithOperations {
    let strings = |values: &[&str]| Some(values.iter().map(|&value| value.to_owned()).collect());
    NamedRuleWithOperations {
        api_groups: strings(&[group]),
        api_versions: strings(versions),
        operations: strings(operations),
        resources: strings(resources),
        scope: Some(scope.to_owned()),
        ..NamedRuleWithOperations::default()
    }
}

/// A named expression.
pub fn variable(name: &str, expression: impl Into<String>) -> Variable {
    Variable { name: name.to_owned(), expression: expression.into() }
}

/// A write is denied as forbidden, unless an expression holds.
pub fn forbid(unless: impl Into<String>, message: impl Into<String>) -> Validation {
    Validation {
        expression: unless.into(),
        message: Some(message.into()),
        reason: Some("Forbidden".to_owned()),
        ..Validation::default()
    }
}

/// A starting write (variable `startsTargets`) has the stamp of its user, unless an expression holds, and no other write
/// alters the stamp. `writes`: the starting ones, for people.
pub fn own_stamp(row: &str, unless: &str, writes: &str) -> [Validation; 2] {
    let is_own = format!(
        "!variables.startsTargets
|| ((object.metadata.?annotations[?'{REQUESTED_BY}'].orValue('') == request.userInfo.username || {unless})
  && object.metadata.?annotations[?'{REQUESTED_BY}'].orValue('') != ''
  && object.metadata.?annotations[?'{REQUESTED_AT}'].orValue('') != '')"
    );
    let missing = format!(
        "metadata.annotations: found no {REQUESTED_BY} that is you, with {REQUESTED_AT}: the mutating webhook must write both in this write ({writes}), and did not run; try again ({row})"
    );
    let is_kept = format!(
        "variables.startsTargets || !({} || {})",
        annotation_changes(REQUESTED_BY),
        annotation_changes(REQUESTED_AT)
    );
    let altered = format!(
        "metadata.annotations: found another {REQUESTED_BY} or {REQUESTED_AT}, must be as before: the mutating webhook writes both, and only in these writes: {writes} ({row})"
    );
    [forbid(is_own, missing), forbid(is_kept, altered)]
}

impl Deny {
    /// The policy, which fails closed. Defaults are written out: server-side apply compares a field as a whole.
    pub fn policy(&self) -> ValidatingAdmissionPolicySpec {
        ValidatingAdmissionPolicySpec {
            failure_policy: Some("Fail".to_owned()),
            match_constraints: Some(MatchResources {
                match_policy: Some("Equivalent".to_owned()),
                namespace_selector: Some(LabelSelector::default()),
                object_selector: Some(LabelSelector::default()),
                resource_rules: Some(self.rules.clone()),
                ..MatchResources::default()
            }),
            variables: Some(self.variables.clone()),
            validations: Some(self.validations.clone()),
            ..ValidatingAdmissionPolicySpec::default()
        }
    }

    /// The binding, which denies everywhere.
    pub fn binding(&self) -> ValidatingAdmissionPolicyBindingSpec {
        ValidatingAdmissionPolicyBindingSpec {
            policy_name: self.name.to_owned(),
            validation_actions: vec![DENY.to_owned()],
            ..ValidatingAdmissionPolicyBindingSpec::default()
        }
    }

    /// Why the objects of a hub do not guard as these do: what is missing, or the first member that differs. A name
    /// proves nothing: one expression `true`, one exempted resource or an action `Audit`, and the policy lets
    /// everything pass.
    pub fn differs(
        &self,
        policy: Option<&ValidatingAdmissionPolicy>,
        binding: Option<&ValidatingAdmissionPolicyBinding>,
    ) -> Option<String> {
        let name = self.name;
        let what = |kind: &str, wrong: String| format!("{kind} {name} {wrong}: install the manifests");
        let wrong = match policy {
            None => Some("is missing".to_owned()),
            Some(policy) => differs(self.policy(), policy.spec.clone().unwrap_or_default()),
        };
        if let Some(wrong) = wrong {
            return Some(what("ValidatingAdmissionPolicy", wrong));
        }
        let wrong = match binding {
            None => Some("is missing".to_owned()),
            Some(binding) => binds_otherwise(name, &binding.spec),
        };
        wrong.map(|wrong| what("ValidatingAdmissionPolicyBinding", wrong))
    }
}

/// The action that makes a policy one.
const DENY: &str = "Deny";

/// What a policy is not: the same words for each member.
fn is_not_ours(field: &str, found: &str, right: &str) -> String {
    format!("is not ours: {field}: found {}, must be {right}", sanitize_to(found, SHOWN))
}

/// The first member in which a policy guards otherwise. Messages and audit annotations guard nothing.
fn differs(ours: ValidatingAdmissionPolicySpec, found: ValidatingAdmissionPolicySpec) -> Option<String> {
    if let Some(policy) = found.failure_policy.filter(|policy| policy != "Fail") {
        return Some(is_not_ours("spec.failurePolicy", &policy, "Fail"));
    }
    if let Some(kind) = found.param_kind {
        return Some(is_not_ours("spec.paramKind", &kind.kind.unwrap_or_default(), "none"));
    }
    let (ours_at, found_at) = (defaulted(ours.match_constraints), defaulted(found.match_constraints));
    if ours_at != found_at {
        let field = match () {
            () if ours_at.resource_rules != found_at.resource_rules => "resourceRules",
            () if ours_at.exclude_resource_rules != found_at.exclude_resource_rules => "excludeResourceRules",
            () if ours_at.match_policy != found_at.match_policy => "matchPolicy",
            () if ours_at.object_selector != found_at.object_selector => "objectSelector",
            () => "namespaceSelector",
        };
        return Some(format!("is not ours: spec.matchConstraints.{field}: found another one than in the manifests"));
    }
    let validates_alike = |one: &Validation, other: &Validation| one.expression == other.expression;
    other_expression("matchConditions", ours.match_conditions, found.match_conditions, MatchCondition::eq)
        .or_else(|| other_expression("variables", ours.variables, found.variables, Variable::eq))
        .or_else(|| other_expression("validations", ours.validations, found.validations, validates_alike))
}

/// The first expression that is another one, by its place.
fn other_expression<T>(
    field: &str,
    ours: Option<Vec<T>>,
    found: Option<Vec<T>>,
    is_same: fn(&T, &T) -> bool,
) -> Option<String> {
    let (field, ours, found) = (format!("spec.{field}"), ours.unwrap_or_default(), found.unwrap_or_default());
    if ours.len() != found.len() {
        return Some(is_not_ours(&field, &found.len().to_string(), &ours.len().to_string()));
    }
    let at = ours.iter().zip(&found).position(|(ours, found)| !is_same(ours, found))?;
    Some(format!("is not ours: {field}[{at}]: found another expression than in the manifests"))
}

/// What a binding does otherwise. Further actions, such as `Audit`, take nothing away.
fn binds_otherwise(name: &str, found: &ValidatingAdmissionPolicyBindingSpec) -> Option<String> {
    if found.policy_name != name {
        return Some(is_not_ours("spec.policyName", &found.policy_name, name));
    }
    if !found.validation_actions.iter().any(|action| action == DENY) {
        return Some(is_not_ours("spec.validationActions", &found.validation_actions.join(", "), DENY));
    }
    if found.param_ref.is_some() {
        return Some(is_not_ours("spec.paramRef", "one", "none"));
    }
    let everywhere = defaulted(None);
    (defaulted(found.match_resources.clone()) != everywhere)
        .then(|| is_not_ours("spec.matchResources", "a selection", "none"))
}

/// What is matched, with the API server's defaults: the same selection is the same value.
fn defaulted(found: Option<MatchResources>) -> MatchResources {
    let found = found.unwrap_or_default();
    let selector = |selector: Option<LabelSelector>| {
        let selector = selector.unwrap_or_default();
        Some(LabelSelector {
            match_labels: selector.match_labels.filter(|labels| !labels.is_empty()),
            match_expressions: selector.match_expressions.filter(|expressions| !expressions.is_empty()),
        })
    };
    let rules = |rules: Option<Vec<NamedRuleWithOperations>>| {
        let one = |rule: NamedRuleWithOperations| NamedRuleWithOperations {
            scope: Some(rule.scope.unwrap_or_else(|| "*".to_owned())),
            resource_names: rule.resource_names.filter(|names| !names.is_empty()),
            ..rule
        };
        Some(rules.unwrap_or_default().into_iter().map(one).collect())
    };
    MatchResources {
        match_policy: Some(found.match_policy.unwrap_or_else(|| "Equivalent".to_owned())),
        namespace_selector: selector(found.namespace_selector),
        object_selector: selector(found.object_selector),
        resource_rules: rules(found.resource_rules),
        exclude_resource_rules: rules(found.exclude_resource_rules),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::{Value, json};

    use super::*;
    use crate::kinds::KINDS;
    use crate::rollout::admission::policy;

    type Found = (ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding);

    /// Ours, as the API server answers it.
    fn served() -> (Value, Value) {
        let metadata = || ObjectMeta { name: Some(policy(KINDS).name.to_owned()), ..ObjectMeta::default() };
        let (spec, status) = (Some(policy(KINDS).policy()), None);
        let policy_itself = json!(ValidatingAdmissionPolicy { metadata: metadata(), spec, status });
        (policy_itself, json!(ValidatingAdmissionPolicyBinding { metadata: metadata(), spec: policy(KINDS).binding() }))
    }

    fn typed((policy, binding): (Value, Value)) -> Found {
        (serde_json::from_value(policy).unwrap(), serde_json::from_value(binding).unwrap())
    }

    /// Why the controller would start nothing after this merge patch of the policy or of its binding.
    fn after(patch: &Value, binding: bool) -> Option<String> {
        let (mut one, mut other) = served();
        json_patch::merge(if binding { &mut other } else { &mut one }, patch);
        let (one, other) = typed((one, other));
        policy(KINDS).differs(Some(&one), Some(&other))
    }

    #[test]
    fn ours_guards_in_every_form_that_an_api_server_gives_it() {
        let harmless = [
            json!({}),
            json!({ "metadata": { "labels": { "a": "b" } }, "spec": { "auditAnnotations": [{ "key": "k", "valueExpression": "'v'" }] } }),
            // What the API server sets, left out.
            json!({ "spec": { "failurePolicy": null, "matchConstraints": { "matchPolicy": null, "namespaceSelector": null, "objectSelector": null } } }),
            json!({ "spec": { "matchConditions": [], "matchConstraints": { "excludeResourceRules": [] } } }),
        ];
        for patch in harmless {
            assert_eq!(after(&patch, false), None, "{patch}");
        }
        let bound = [
            json!({ "spec": { "validationActions": ["Deny", "Audit"] } }),
            json!({ "spec": { "matchResources": { "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {} } } }),
        ];
        for patch in bound {
            assert_eq!(after(&patch, true), None, "{patch}");
        }
    }

    #[test]
    fn what_is_missing_does_not_guard() {
        let (one, other) = typed(served());
        let says = |kind: &str| Some(format!("{kind} powerrollouts.hibernate.sh is missing: install the manifests"));
        assert_eq!(policy(KINDS).differs(None, Some(&other)), says("ValidatingAdmissionPolicy"));
        assert_eq!(policy(KINDS).differs(Some(&one), None), says("ValidatingAdmissionPolicyBinding"));
    }

    /// The same list as it is served, with one element edited.
    fn edited(path: &str, edit: impl FnOnce(&mut Vec<Value>)) -> Value {
        let (one, _) = served();
        let mut list = one.pointer(path).and_then(Value::as_array).cloned().unwrap_or_default();
        edit(&mut list);
        path[1..].rsplit('/').fold(json!(list), |inner, key| json!({ key: inner }))
    }

    #[test]
    fn a_weaker_policy_of_this_name_does_not_guard_and_the_message_names_what_differs() {
        let selector = json!({ "matchLabels": { "judged": "yes" } });
        let constraints = |fields: Value| json!({ "spec": { "matchConstraints": fields } });
        let never = json!({ "name": "never", "expression": "request.userInfo.username != 'mallory'" });
        let exempt = json!({ "apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"] });
        let last = policy(KINDS).validations.len() - 1;
        let fewer = format!("spec.validations: found {last}, must be {}", last + 1);
        let one = format!("spec.validations: found 1, must be {}", last + 1);
        for (patch, part) in [
            (json!({ "spec": { "failurePolicy": "Ignore" } }), "spec.failurePolicy: found Ignore, must be Fail"),
            (json!({ "spec": null }), "spec.matchConstraints.resourceRules: "),
            (json!({ "spec": { "matchConditions": [never] } }), "spec.matchConditions: found 1, must be 0"),
            (
                json!({ "spec": { "paramKind": { "apiVersion": "v1", "kind": "ConfigMap" } } }),
                "spec.paramKind: found ConfigMap",
            ),
            (constraints(json!({ "matchPolicy": "Exact" })), "spec.matchConstraints.matchPolicy: "),
            (constraints(json!({ "objectSelector": selector })), "spec.matchConstraints.objectSelector: "),
            (constraints(json!({ "namespaceSelector": selector })), "spec.matchConstraints.namespaceSelector: "),
            (constraints(json!({ "excludeResourceRules": [exempt] })), "spec.matchConstraints.excludeResourceRules: "),
            (
                edited("/spec/matchConstraints/resourceRules", |rules| rules[0]["operations"] = json!(["CREATE"])),
                "spec.matchConstraints.resourceRules: ",
            ),
            (
                edited("/spec/matchConstraints/resourceRules", |rules| rules[0]["resourceNames"] = json!(["night"])),
                "spec.matchConstraints.resourceRules: ",
            ),
            (edited("/spec/validations", |all| all[0]["expression"] = json!("true")), "spec.validations[0]: "),
            (
                edited("/spec/validations", |all| all[last]["expression"] = json!("true")),
                &format!("spec.validations[{last}]: "),
            ),
            (edited("/spec/validations", |all| drop(all.pop())), fewer.as_str()),
            (json!({ "spec": { "validations": [{ "expression": "true" }] } }), one.as_str()),
            (edited("/spec/variables", |all| all[0]["expression"] = json!("false")), "spec.variables[0]: "),
            (edited("/spec/variables", |all| all[1]["expression"] = json!("false")), "spec.variables[1]: "),
        ] {
            let says = after(&patch, false).unwrap_or_default();
            let begins = "ValidatingAdmissionPolicy powerrollouts.hibernate.sh is not ours: ";
            assert!(says.starts_with(&format!("{begins}{part}")), "{patch}: {says}");
            assert!(says.ends_with(": install the manifests"), "{says}");
        }
    }

    #[test]
    fn a_binding_that_binds_otherwise_does_not_guard() {
        let some = json!({ "matchResources": { "resourceRules": [{ "apiGroups": ["a"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*"] }] } });
        for (spec, part) in [
            (
                json!({ "validationActions": ["Audit", "Warn"] }),
                "spec.validationActions: found Audit, Warn, must be Deny",
            ),
            (json!({ "policyName": "other" }), "spec.policyName: found other, must be powerrollouts.hibernate.sh"),
            (json!({ "paramRef": { "name": "x", "parameterNotFoundAction": "Allow" } }), "spec.paramRef: "),
            (
                json!({ "matchResources": { "namespaceSelector": { "matchLabels": { "a": "b" } } } }),
                "spec.matchResources: ",
            ),
            (some, "spec.matchResources: "),
            (json!({ "policyName": "\u{1b}[2K".repeat(40) }), "spec.policyName: found "),
        ] {
            let says = after(&json!({ "spec": spec }), true).unwrap_or_default();
            let begins = "ValidatingAdmissionPolicyBinding powerrollouts.hibernate.sh is not ours: ";
            assert!(says.starts_with(&format!("{begins}{part}")), "{spec}: {says}");
            assert!(!says.contains('\u{1b}') && says.len() < 300, "{says}");
        }
    }
}
