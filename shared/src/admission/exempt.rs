//! Who is never denied.

use super::User;
use crate::visit::fold;

/// Identities that are never denied: what would have been a denial becomes a warning and an audit annotation.
///
/// The same list keeps them out of the entry under `failurePolicy: Fail`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exempt {
    /// User names.
    pub users: Vec<String>,
    /// Group names.
    pub groups: Vec<String>,
}

impl Exempt {
    /// Whether this user, or one of the groups in this list, is one of them.
    pub fn covers(&self, user: &User, groups: Option<&str>) -> bool {
        self.users.contains(&user.username) || groups.is_some_and(|groups| has_any(groups, &self.groups))
    }
}

/// Whether a list of texts has one of these in it. The list is read to its end, and nothing of it is kept.
pub fn has_any(list: &str, wanted: &[impl AsRef<str>]) -> bool {
    let take = |found: &mut bool, one: String| *found |= wanted.iter().any(|wanted| wanted.as_ref() == one);
    fold(&mut serde_json::Deserializer::from_str(list), take).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_member_of_a_long_list_is_found_wherever_it_stands() {
        let wanted = ["hive".to_owned()];
        let of = |list: &str| has_any(list, &wanted);
        let others = vec!["\"other\""; 500_000].join(",");
        assert!(of(&format!("[{others},\"h\\u0069ve\"]")) && of(&format!("[\"hive\",{others}]")));
        assert!(!of(&format!("[{others}]")) && !of("[]") && !of("null") && !of("{\"hive\":1}") && !of("\"hive\""));
        assert!(!of("[\"hive\",7]"), "no list of texts");
    }
}
