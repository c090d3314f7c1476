//! Who is never denied: Hive's own controllers and ours. One list for the webhook's flags, its configurations and the
//! policy.

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::User;

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
