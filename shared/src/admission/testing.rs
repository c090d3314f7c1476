//! For tests: a person who does what denials say, read from their words.

use jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{Denial, Fault, Objects, Unread};

/// A field, as a JSON pointer, and the value that it is set to; null removes it.
pub(crate) type Edit = (String, Value);

/// Whoever follows the advice.
pub(crate) struct Person<'a> {
    /// The denials of a write as it arrives after the stamp: of the object as it is stored, and as it is to be stored,
    /// at this time.
    pub(crate) denials: &'a dyn Fn(&Value, &Value, &str) -> Vec<Denial>,
    /// An object that nothing is missing of.
    pub(crate) sound: Value,
    /// The time of the requests.
    pub(crate) now: &'a str,
}

impl Person<'_> {
    /// Requests it, and follows each advice, one after the other, until it is accepted. Twice at most: a time of the
    /// right form may have passed.
    pub(crate) fn requests(&self, stored: &Value, request: &[Edit]) {
        assert!(
            !(self.denials)(stored, &edited(stored, request), self.now).is_empty(),
            "nothing is denied: {request:?}"
        );
        self.follows(stored, request, 2);
    }

    fn follows(&self, stored: &Value, request: &[Edit], rounds: u32) {
        let wanted = edited(stored, request);
        let denials = (self.denials)(stored, &wanted, self.now);
        assert!(denials.is_empty() || rounds > 0, "no advice helps: {denials:?}");
        for denial in denials {
            let values = self.values(&denial);
            assert!(!values.is_empty(), "advises nothing: {denial}");
            for value in values {
                // What is removed, or missing, or to be done first, has a write of its own.
                let is_first = value.is_null() || denial.fault == Fault::Required || denial.message.contains("first");
                let edit = (pointer(&denial.field), value);
                if is_first {
                    let first = edited(stored, &[edit]);
                    let refused = (self.denials)(stored, &first, self.now);
                    assert!(refused.is_empty(), "{denial}: {refused:?}");
                    self.follows(&first, request, rounds - 1);
                } else {
                    self.follows(stored, &[request, &[edit]].concat(), rounds - 1);
                }
            }
            if denial.message.contains(": wait") {
                let until = word_after(&denial.message, "held awake until ").unwrap();
                assert!((self.denials)(stored, &wanted, until).is_empty(), "{denial}");
            }
        }
    }

    /// What the field should be, as the denial says.
    fn values(&self, denial: &Denial) -> Vec<Value> {
        let (at, message) = (pointer(&denial.field), denial.message.as_str());
        let after = |words: &str| Some(message.split_once(words)?.1);
        let mut values: Vec<Value> = Vec::new();
        if denial.fault == Fault::Required {
            values.push(self.sound.pointer(&at).cloned().unwrap_or_else(|| "anything".into()));
        }
        if message.contains("remove the annotation") || message.contains("remove it") {
            values.push(Value::Null);
        }
        if let Some(right) = after("must be ") {
            values.extend(right.split('"').skip(1).step_by(2).map(Value::from));
            values.extend(right.ends_with("or empty").then(|| Value::from("")));
        }
        if let Some(examples) = after("such as ").and_then(|rest| rest.split(';').next()) {
            values.extend(examples.split(" or ").map(Value::from));
        }
        if let Some(range) = after("an integer from ") {
            values.extend(range.split(" to ").map(Value::from));
        }
        if let Some(time) = word_after(message, "a time after ") {
            let after = time.parse::<Timestamp>().unwrap() + SignedDuration::from_secs(1);
            values.push(after.to_string().into());
        }
        values.extend(word_after(message, "the longest duration is ").map(Value::from));
        values.extend(message.ends_with("; 0 switches suspension off").then(|| Value::from("0")));
        let flag = word_after(message, &format!("set {} to ", denial.field)).and_then(|word| word.parse::<bool>().ok());
        values.extend(flag.map(Value::from));
        values
    }
}

/// The annotations that a message advises to set, each as `KEY=VALUE`.
pub(crate) fn annotations(message: &str) -> Vec<Edit> {
    let pairs = message.split_whitespace().filter_map(|word| word.trim_end_matches([',', ';', '.']).split_once('='));
    pairs.map(|(key, value)| note(key, value)).collect()
}

/// An annotation.
pub(crate) fn note(key: &str, value: impl Into<Value>) -> Edit {
    (pointer(&super::annotation_field(key)), value.into())
}

/// The field that a denial names.
fn pointer(field: &str) -> String {
    match field.split_once('[') {
        Some((parents, key)) => {
            format!("/{}/{}", parents.replace('.', "/"), key.trim_end_matches(']').replace('/', "~1"))
        }
        None => format!("/{}", field.replace('.', "/")),
    }
}

fn word_after<'a>(message: &'a str, words: &str) -> Option<&'a str> {
    let word = message.split_once(words)?.1.split(' ').next()?;
    Some(word.trim_end_matches([',', ';', ':']))
}

/// What is read of an object that is to be deleted, and what cannot be read of it.
pub(crate) fn stored<K: DeserializeOwned>(object: &Value) -> (Option<K>, Vec<Unread>) {
    let review = json!({ "request": { "oldObject": object } });
    let Objects { old_object, unread, .. } = Objects::read(&review.to_string()).unwrap();
    (old_object, unread.old)
}

/// An object with these edits.
pub(crate) fn edited(object: &Value, edits: &[Edit]) -> Value {
    let (mut object, name) = (object.clone(), |name: &str| name.replace("~1", "/"));
    for (at, value) in edits {
        let (parents, last) = at.rsplit_once('/').unwrap();
        let parent = parents.split('/').skip(1).fold(&mut object, |parent, one| &mut parent[name(one)]);
        if !value.is_null() {
            parent[name(last)] = value.clone();
        } else if let Some(parent) = parent.as_object_mut() {
            parent.remove(&name(last));
        }
    }
    object
}
