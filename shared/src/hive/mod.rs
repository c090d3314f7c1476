//! Hive: hibernation of `ClusterDeployment`s.

pub mod admission;
pub mod api;
pub mod conditions;
pub mod data;
pub mod decide;
pub mod edit;
pub mod identity;
pub mod machines;
pub mod pool;
pub mod preflight;
pub mod reachability;

/// Hive's settings, as far as they say whether its own hibernation controller runs.
pub mod config {
    use serde_json::Value;

    use crate::kinds::kind::Kind;

    /// Hive's settings.
    pub static HIVE_CONFIG: Kind = Kind::cluster_scoped("hive.openshift.io", &["v1"], "HiveConfig", "hiveconfigs");
    /// The only `HiveConfig` that Hive reads.
    pub const HIVE: &str = "hive";
    /// What `spec.disabledControllers` of a `HiveConfig` calls Hive's hibernation controller.
    pub const HIBERNATION: &str = "hibernation";

    /// Whether Hive's own hibernation controller is switched off.
    pub fn is_disabled(config: &Value) -> bool {
        let disabled = config.pointer("/spec/disabledControllers").and_then(Value::as_array);
        disabled.is_some_and(|names| names.iter().any(|name| name == HIBERNATION))
    }
}

/// Identities that are never denied: Hive's own controllers and ours. One list for the webhook's flags, its configurations and the
/// policy.
pub mod exempt {
    use crate::admission::Exempt;

    /// Groups whose members are never denied, but for the claims of rollouts: the service accounts of Hive's own namespace,
    /// whose pool controller and `hibernateAfter` write `spec.powerState` themselves.
    pub const GROUPS: &[&str] = &["system:serviceaccounts:hive"];

    /// Users who are never denied: our controller as the manifests install it.
    pub const USERS: &[&str] = &["system:serviceaccount:hibernate-system:hibernate-controller"];

    /// Both, as the webhook exempts them unless its flags say otherwise.
    pub fn identities() -> Exempt {
        let owned = |names: &[&str]| names.iter().copied().map(str::to_owned).collect();
        Exempt { users: owned(USERS), groups: owned(GROUPS) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::config::is_disabled;
    use super::exempt::identities;
    use crate::admission::User;

    #[test]
    fn hives_controller_is_disabled_by_its_name() {
        for (spec, disabled) in [
            (json!({}), false),
            (json!({ "disabledControllers": [] }), false),
            (json!({ "disabledControllers": ["clusterpool"] }), false),
            (json!({ "disabledControllers": ["clusterpool", "hibernation"] }), true),
        ] {
            assert_eq!(is_disabled(&json!({ "spec": spec })), disabled, "{spec}");
        }
    }

    #[test]
    fn hives_group_and_our_controller_are_exempt() {
        let exempt = identities();
        for (name, groups, expected) in [
            (
                "system:serviceaccount:hive:hive-controllers",
                &["system:serviceaccounts", "system:serviceaccounts:hive"][..],
                true,
            ),
            ("system:serviceaccount:hibernate-system:hibernate-controller", &[], true),
            (
                "system:serviceaccount:hibernate-system:hibernate-webhook",
                &["system:serviceaccounts:hibernate-system"],
                false,
            ),
            ("system:serviceaccounts:hive", &[], false),
            ("alice", &["system:serviceaccount:hibernate-system:hibernate-controller"], false),
            ("", &[], false),
        ] {
            let user = User { username: name.to_owned() };
            let groups = serde_json::value::to_raw_value(groups).unwrap();
            assert_eq!(exempt.covers(&user, Some(groups.get())), expected, "{name} {groups:?}");
        }
    }
}
