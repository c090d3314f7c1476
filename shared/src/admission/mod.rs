//! Admission in general: what a change, a rule and an evaluation are. No kind of object is named in here.
//!
//! A rule is a pure function of a [`Change`] to a [`Verdict`]; [`judge`] asks all rules of a kind and collects what
//! they say. A mutating rule answers [`Edits`] of annotations instead. The webhook's table is the only place that knows
//! which resource is judged by which rules.

#[cfg(test)]
#[path = "../../../tests/e2e/corpus.rs"]
pub(crate) mod corpus;
pub mod form;
mod object;
pub mod policy;
pub mod protection;
pub mod stamp;
#[cfg(test)]
pub(crate) mod testing;
mod trial;
mod unread;
mod verdict;

use std::time::Duration;

use jiff::Timestamp;

use crate::visit::fold;

pub use object::{Exempts, Meta, Object, Target, metadata};
pub use trial::{sleep_denial, sleep_trial};
pub use unread::{MAX_TEXT_BYTES, Objects, UNREADABLE, Unread, UnreadFields, Written};
pub use verdict::{Denial, Edit, Edits, Evaluation, Fault, Finding, LONGEST_WARNING, Verdict, shortened};

/// One write that is asked for: an object is created, or replaced by a new version of itself.
#[derive(Clone, Debug)]
pub struct Change<'a, K: Object> {
    /// The object as it is stored; `None` when it is being created.
    pub old: Option<K>,
    /// The object as it is to be stored.
    pub new: K,
    /// Who asks.
    pub user: &'a User,
    /// Field manager that the client gave, or empty. Clients choose it freely: a hint, never a proof.
    pub field_manager: &'a str,
    /// When the request was received.
    pub now: Timestamp,
    /// What the operator of the webhook has decided.
    pub settings: &'a Settings,
    /// What cannot be read of the objects, and is left out of them.
    pub unread: UnreadFields,
}

impl<K: Object> Change<'_, K> {
    /// Whether the object is being created.
    pub fn creates(&self) -> bool {
        self.old.is_none()
    }

    /// The annotation as it is stored.
    pub fn old_annotation(&self, key: &str) -> Option<&str> {
        self.old.as_ref()?.meta().annotations.get(key)
    }

    /// The annotation as it is to be stored.
    pub fn new_annotation(&self, key: &str) -> Option<&str> {
        self.new.meta().annotations.get(key)
    }

    /// Whether the request leaves open what the field at this path is to be.
    pub fn obscures(&self, path: &[&str]) -> bool {
        self.unread.new.iter().any(|field| field.concerns(path))
    }

    /// Whether this request sets, alters or removes the annotation.
    pub fn alters_annotation(&self, key: &str) -> bool {
        self.old_annotation(key) != self.new_annotation(key)
    }
}

/// The authenticated user of a request, as the API server names them (`request.userInfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Name, such as `alice` or `system:serviceaccount:hive:hive-controllers`.
    pub username: String,
}

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
    /// Whether the user is exempt, or one of the groups in this JSON list.
    pub fn covers(&self, user: &User, groups: Option<&str>) -> bool {
        self.users.contains(&user.username) || groups.is_some_and(|groups| has_any(groups, &self.groups))
    }
}

/// Whether a list of texts has one of these in it. The list is read to its end, and nothing of it is kept.
pub fn has_any(list: &str, wanted: &[impl AsRef<str>]) -> bool {
    let take = |found: &mut bool, one: String| *found |= wanted.iter().any(|wanted| wanted.as_ref() == one);
    fold(&mut serde_json::Deserializer::from_str(list), take).unwrap_or_default()
}

/// What the operator of the webhook decides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    /// Who is never denied.
    pub exempt: Exempt,
    /// Members of `spec.platform` whose `ClusterDeployments` can be put to sleep.
    pub served_platforms: Vec<String>,
    /// How long removed process groups are kept if the `FoundationDBCluster` does not say. Zero turns it off.
    pub minimum_suspension: Duration,
    /// Groups whose members may delete a sleeping KKP Cluster that KKP may never finish deleting.
    pub deleters: Vec<String>,
}

impl Settings {
    /// Those of a webhook whose clusters on these platforms can be put to sleep.
    pub fn serving(platforms: &[&str]) -> Self {
        let served_platforms = platforms.iter().copied().map(str::to_owned).collect();
        Self { served_platforms, ..Self::default() }
    }
}

/// One row of a kind's table of rules.
#[derive(Debug)]
pub struct Rule<K: Object> {
    /// Row of the table in the documentation, such as `V6`. Several rules may share a row.
    pub row: &'static str,
    /// The rule.
    pub judge: fn(&Change<'_, K>) -> Verdict,
}

/// Asks every rule, so that the user sees all that is wrong at once.
///
/// A field that cannot be read is denied to the write that sets or alters it, and to each that needs the whole object.
/// What is stored already blocks nothing else. A wake is never denied: its denials become warnings.
pub fn judge<K: Object>(change: &Change<'_, K>, rules: &[Rule<K>]) -> Evaluation {
    let mut evaluation = Evaluation::default();
    let unread = change.unread.new.iter().filter(|field| field.altered() || K::must_be_whole(change));
    evaluation.denials.extend(unread.map(Unread::denial));
    let unread: Vec<String> = evaluation.denials.iter().map(|denial| denial.detail.field.clone()).collect();
    for Rule { row, judge } in rules {
        match judge(change) {
            Verdict::Allow => {}
            Verdict::Warn(detail) => evaluation.warnings.push(Finding { row, detail }),
            // An unread field looks absent to a rule, so its denial would mislead.
            Verdict::Deny(detail) if unread.contains(&detail.field) => {}
            Verdict::Deny(detail) => evaluation.denials.push(Finding { row, detail }),
        }
    }
    if K::wakes(change) { evaluation.softened() } else { evaluation }
}

/// The field of an annotation, as denials name it.
pub fn annotation_field(key: &str) -> String {
    format!("metadata.annotations[{key}]")
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
