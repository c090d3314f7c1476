//! Annotations of an object under admission; parsing keeps only those that rules read.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::keys;
use crate::fdb::suspension::STAMP;
use crate::hive::api as hive;
use crate::kkp;
use crate::read::lenient;

/// Whether an annotation is in our group.
pub fn is_ours(key: &str) -> bool {
    key.strip_prefix(keys::GROUP).is_some_and(|rest| rest.starts_with('/'))
}

/// Value of an annotation of an object that was read as JSON.
pub fn annotation<'a>(object: &'a serde_json::Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

/// Annotations that the rules of admission read.
const JUDGED: &[&[&str]] = &[
    keys::TARGET_ANNOTATIONS,
    kkp::admission::ANNOTATIONS,
    &[kkp::keys::ACTIVE_RESTORE, kkp::keys::CERTIFICATES_EXPIRE_AT, kkp::keys::PAUSED_BY_SLEEP],
    &[hive::RECONCILE_PAUSE, hive::POWERSTATE_PAUSE],
    &STAMP,
    &[keys::MINIMUM_SUSPENSION, keys::RELEASE],
];

/// Whether rules of admission read an annotation.
pub(crate) fn is_judged(key: &str) -> bool {
    JUDGED.iter().any(|keys| keys.contains(&key))
}

/// Annotations of an object that the rules of admission read.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Annotations(Option<BTreeMap<String, Value>>);

/// One that cannot be read counts as absent, and is listed by its key among the unread fields.
#[derive(Clone, Debug, Deserialize)]
struct Value(#[serde(deserialize_with = "lenient")] Option<String>);

impl Annotations {
    /// Value of one of the annotations that rules read.
    pub fn get(&self, key: &str) -> Option<&str> {
        #[cfg(test)]
        tests::is_in_a_list(key);
        self.0.as_ref()?.get(key)?.0.as_deref()
    }

    /// Whether the object has a map of annotations, even an empty one: otherwise a JSON patch has to create it.
    pub fn present(&self) -> bool {
        self.0.is_some()
    }
}

impl<S: Into<String>> FromIterator<(S, S)> for Annotations {
    fn from_iter<T: IntoIterator<Item = (S, S)>>(iter: T) -> Self {
        Self(Some(iter.into_iter().map(|(key, value)| (key.into(), Value(Some(value.into())))).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admission::Meta;
    use crate::read::{Limits, json};

    pub(super) fn is_in_a_list(key: &str) {
        assert!(is_judged(key), "{key} is in no list, so it is not read");
    }

    fn read(notes: &str) -> Annotations {
        let metadata = format!(r#"{{"annotations":{notes}}}"#);
        json::<Meta>(metadata.as_bytes(), &Limits::ADMISSION).unwrap().value.annotations
    }

    #[test]
    fn only_annotations_that_rules_know_are_kept() {
        let annotations = read(
            r#"{"kubectl.kubernetes.io/last-applied-configuration":{"even":"this"},
            "hibernate.sh/reason":"a\tb","hive.openshift.io/reconcile-pause":"true","hibernate.sh.example.com/x":"y"}"#,
        );
        assert_eq!(annotations.get("hibernate.sh/reason"), Some("a\tb"));
        assert_eq!(annotations.get("hive.openshift.io/reconcile-pause"), Some("true"));
        assert_eq!(annotations.0.unwrap().len(), 2);
    }

    #[test]
    fn the_last_of_a_key_given_twice_counts() {
        let annotations = read(r#"{"hibernate.sh/reason":"first","hibernate.sh/reason":"last"}"#);
        assert_eq!(annotations.get("hibernate.sh/reason"), Some("last"));
    }

    #[test]
    fn an_absent_or_null_map_is_told_from_an_empty_one() {
        assert!(!Annotations::default().present());
        assert!(!read("null").present());
        assert!(read("{}").present());
        assert!(read(r#"{"other":"x"}"#).present());
    }
}
