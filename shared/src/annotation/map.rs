//! Annotations of an object; parsing keeps only those that we read.

use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::keys;
use crate::visit::Map;

/// Bytes of all annotations of an object, by the rule of the API server.
const MAX_BYTES: usize = 256 * 1024;

/// Groups whose annotations are read.
const GROUPS: &[&str] = &[
    keys::GROUP,
    "hive.openshift.io",
    "kubermatic.k8c.io",
    "kubermatic.io",
    "foundationdb.org",
    "ran.openshift.io",
    "cluster-group-upgrades-operator",
];

/// Whether an annotation is of a group that is read.
pub fn is_read(key: &str) -> bool {
    key.split_once('/').is_some_and(|(group, _)| GROUPS.contains(&group))
}

/// Value of an annotation of an object that was read as JSON.
pub fn annotation<'a>(object: &'a Value, key: &str) -> Option<&'a str> {
    object.get("metadata")?.get("annotations")?.get(key)?.as_str()
}

/// Annotations of an object: ours, Hive's and KKP's; all others are skipped (one alone can be 256 KiB).
#[derive(Clone, Debug, Default)]
pub struct Annotations {
    present: bool,
    known: Vec<(String, String)>,
}

impl Annotations {
    /// Value of an annotation of one of the groups that rules read.
    pub fn get(&self, key: &str) -> Option<&str> {
        // From the end: of a key that is given twice, Go takes the last.
        self.known.iter().rev().find(|(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// Whether the object has a map of annotations at all, be it an empty one: a JSON patch must create it otherwise.
    pub fn present(&self) -> bool {
        self.present
    }

    /// The same with further ones.
    pub fn with<'a>(mut self, more: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        self.known.extend(more.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())));
        self
    }
}

impl<S: Into<String>> FromIterator<(S, S)> for Annotations {
    fn from_iter<T: IntoIterator<Item = (S, S)>>(iter: T) -> Self {
        Self { present: true, known: iter.into_iter().map(|(key, value)| (key.into(), value.into())).collect() }
    }
}

impl<'de> Deserialize<'de> for Annotations {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (annotations, _) = deserializer.deserialize_any(Map {
            kept: (Self { present: true, known: Vec::new() }, 0),
            wanted: |key: &String| is_read(key),
            take: |(annotations, bytes): &mut (Self, usize), key, value: String| {
                *bytes += key.len() + value.len();
                if *bytes > MAX_BYTES {
                    return Err(format!("annotations have more than {MAX_BYTES} bytes"));
                }
                annotations.known.push((key, value));
                Ok(())
            },
        })?;
        Ok(annotations)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str) -> Annotations {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn only_annotations_that_rules_know_are_kept() {
        let annotations = read(
            r#"{"kubectl.kubernetes.io/last-applied-configuration":{"even":"this"},
            "hibernate.sh/reason":"a\tb","hive.openshift.io/reconcile-pause":"true","hibernate.sh.example.com/x":"y"}"#,
        );
        assert_eq!(annotations.get("hibernate.sh/reason"), Some("a\tb"));
        assert_eq!(annotations.get("hive.openshift.io/reconcile-pause"), Some("true"));
        assert_eq!(annotations.known.len(), 2);
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
