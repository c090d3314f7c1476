//! Expressions in CEL that the webhook configurations and the policy share.
//!
//! An expression that fails refuses the write under `failurePolicy: Fail`. Absent fields are therefore read by
//! `.?field` and `orValue`, and `oldObject`, which is null on CREATE, is looked at first.

use k8s_openapi::api::admissionregistration::v1::MatchCondition;

/// The write makes the cluster want to sleep, and it did not before.
pub const INTO_SLEEP: &str = "object.?spec.?powerState.orValue('') == 'Hibernating'
&& (oldObject == null || oldObject.?spec.?powerState.orValue('') != 'Hibernating')";

/// A `FoundationDBCluster` is among the owners of what is deleted, one by one or with its collection.
pub const OWNED_BY_FDB: &str = "has(oldObject.metadata.ownerReferences) && oldObject.metadata.ownerReferences.exists(o, o.kind == 'FoundationDBCluster' && o.apiVersion.startsWith('apps.foundationdb.org/'))";

/// `spec.powerState` is another text than before.
pub const POWER_STATE_CHANGES: &str =
    "object.?spec.?powerState.orValue('') != (oldObject == null ? '' : oldObject.?spec.?powerState.orValue(''))";

/// An annotation is set, altered or removed.
pub fn annotation_changes(key: &str) -> String {
    format!(
        "object.metadata.?annotations[?'{key}']
!= (oldObject == null ? optional.none() : oldObject.metadata.?annotations[?'{key}'])"
    )
}

/// One of these annotations is removed.
pub fn annotations_dropped(keys: &[&str]) -> String {
    format!(
        "oldObject != null && {}.exists(key,
  oldObject.metadata.?annotations[?key].hasValue() && !object.metadata.?annotations[?key].hasValue())",
        list(keys)
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

/// A condition of a webhook or a policy.
pub fn condition(name: &str, expression: impl Into<String>) -> MatchCondition {
    MatchCondition { name: name.to_owned(), expression: expression.into() }
}
