//! Who is never denied.

use std::fmt;

use serde::Deserializer as _;
use serde::de::{SeqAccess, Visitor};

use super::User;
use crate::visit::text;

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
    struct HasAny<'a, W>(&'a [W]);

    impl<'de, W: AsRef<str>> Visitor<'de> for HasAny<'_, W> {
        type Value = bool;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<bool, A::Error> {
            let mut found = false;
            let is_wanted = || text("a string", |text| Ok(self.0.iter().any(|wanted| wanted.as_ref() == text)));
            while let Some(is_wanted) = list.next_element_seed(is_wanted())? {
                found |= is_wanted;
            }
            Ok(found)
        }
    }

    serde_json::Deserializer::from_str(list).deserialize_seq(HasAny(wanted)).unwrap_or_default()
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
