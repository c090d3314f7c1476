//! Who is never denied: Hive's own controllers and ours. One list for the webhook's flags, its configurations and the policy.

/// Groups whose members are never denied: the service accounts of Hive's own namespace, whose pool controller and
/// `hibernateAfter` write `spec.powerState` themselves.
pub const GROUPS: &[&str] = &["system:serviceaccounts:hive"];

/// Users who are never denied: our controller as the manifests install it.
pub const USERS: &[&str] = &["system:serviceaccount:hibernate-system:hibernate-controller"];
