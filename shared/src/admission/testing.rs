//! For tests: the runner of a corpus, and a person who does what denials say, read from their words.

use jiff::{SignedDuration, Timestamp};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::corpus::{Case, Corpus, Verb, applied};
use super::{Change, Denial, Edits, Evaluation, Fault, Object, Objects, Rule, Settings, Unread, User, Verdict};

/// A kind, and the cases that judge it.
pub(crate) struct Bench<K: Object> {
    pub(crate) corpus: Corpus,
    pub(crate) settings: Settings,
    pub(crate) judge: fn(&Change<'_, K>) -> Evaluation,
    pub(crate) stamp: fn(&Change<'_, K>) -> Edits,
}

/// A patch of annotations.
fn patch(edits: &Edits) -> Value {
    let mut patch = json!({});
    for edit in &edits.annotations {
        patch["metadata"]["annotations"][edit.key] = json!(edit.value);
    }
    patch
}

/// `V6 deny /protected`, `V4 deny spec.platform` or `V2 warn` for each finding.
pub(crate) fn findings(evaluation: &Evaluation) -> String {
    let denials = evaluation.denials.iter().map(|denial| {
        let field = &denial.detail.field;
        let key = field.strip_prefix("metadata.annotations[").and_then(|key| key.strip_suffix(']'));
        let field = key.map_or(field.as_str(), |key| key.strip_prefix("hibernate.sh").unwrap_or(key));
        format!("{} deny {field}", denial.row)
    });
    denials
        .chain(evaluation.warnings.iter().map(|warning| format!("{} warn", warning.row)))
        .collect::<Vec<_>>()
        .join("; ")
}

/// Compares what is said of a case.
pub(crate) fn says(case: &Case, stamp: &[String], evaluation: &Evaluation) {
    let of_stamp = stamp.iter().map(|_| "stamp warn".to_owned());
    let found: Vec<_> = of_stamp.chain(Some(findings(evaluation)).filter(|found| !found.is_empty())).collect();
    let denials = evaluation.denials.iter().map(|denial| denial.detail.to_string());
    let words: Vec<_> = denials.chain(evaluation.warnings.iter().map(|warning| warning.detail.clone())).collect();
    let Case { name, user, verb, .. } = case;
    assert_eq!(found.join("; "), case.says.as_deref().unwrap_or_default(), "{name} ({user}, {verb:?}): {words:?}");
    let wanted = case.words.as_deref().unwrap_or_default();
    assert!(wanted.is_empty() || words.iter().any(|words| words.contains(wanted)), "{name}: {words:?}");
    let is_reached = case.reaches.as_ref().is_none_or(|entries| !entries.is_empty());
    assert!(is_reached || found.is_empty(), "{name}: no entry takes what is judged");
}

impl<K: Object + Clone> Bench<K> {
    pub(crate) fn now(&self) -> Timestamp {
        self.corpus.now.parse().unwrap()
    }

    /// Asks about a change as the webhook reads it.
    pub(crate) fn ask<T>(
        &self,
        (user, manager): (&str, &str),
        old: Option<&Value>,
        new: &Value,
        ask: impl FnOnce(&Change<'_, K>) -> T,
    ) -> T {
        let review = json!({ "request": { "object": new, "oldObject": old } }).to_string();
        let Objects { object, old_object, unread, .. } = Objects::read(&review).unwrap();
        ask(&Change {
            old: old_object,
            new: object.unwrap(),
            user: &User { username: self.corpus.users.get(user).map_or(user, String::as_str).to_owned() },
            field_manager: manager,
            now: self.now(),
            settings: &self.settings,
            unread,
        })
    }

    pub(crate) fn judged(&self, user: &str, old: Option<&Value>, new: &Value) -> Evaluation {
        self.ask((user, ""), old, new, self.judge)
    }

    /// The object as the mutating webhook leaves it.
    pub(crate) fn stamped(&self, by: (&str, &str), old: Option<&Value>, new: &Value) -> Value {
        applied(new, &patch(&self.ask(by, old, new, self.stamp)))
    }

    /// What alice is denied after the stamp, at this time.
    pub(crate) fn denials(&self, old: &Value, new: &Value, now: &str) -> Vec<Denial> {
        let (stamped, now) = (self.stamped(("alice", ""), Some(old), new), now.parse::<Timestamp>().unwrap());
        let judged =
            self.ask(("alice", ""), Some(old), &stamped, |change| (self.judge)(&Change { now, ..change.clone() }));
        judged.denials.into_iter().map(|denial| denial.detail).collect()
    }

    /// A case of the corpus that creates or updates, and what holds of all: what is stored already blocks nothing.
    pub(crate) fn check(&self, case: &Case) {
        let (by, name) = ((case.user.as_str(), case.manager.as_str()), &case.name);
        for (old, new) in case.changes() {
            let edits = self.ask(by, old, &new, self.stamp);
            if !case.stamps.is_null() {
                assert_eq!(patch(&edits), case.stamps, "{name}");
            }
            let (new, warnings) =
                if case.unstamped { (new, &[][..]) } else { (applied(&new, &patch(&edits)), &edits.warnings[..]) };
            if case.says.is_some() {
                says(case, warnings, &self.ask(by, old, &new, self.judge));
            }
            let touched =
                applied(&new, &json!({ "metadata": { "annotations": { "hibernate.sh/reason": "touched" } } }));
            assert_eq!(findings(&self.ask(by, Some(&new), &touched, self.judge)), "", "{name} is there before");
            if case.undo {
                assert_eq!(findings(&self.ask(by, Some(&new), &case.stored, self.judge)), "", "{name} is undone");
            }
        }
    }

    /// Alice does what she is advised in each case that she is denied, and is accepted. `facts` are rows, fields or names of
    /// cases without advice. What is left are the rows of rules that no case reaches.
    pub(crate) fn advice(&self, rules: &[Rule<K>], sound: Value, facts: &[&str]) -> Vec<&'static str> {
        let denials = |old: &Value, new: &Value, now: &str| self.denials(old, new, now);
        let person = Person { denials: &denials, sound, now: &self.corpus.now };
        let mut silent: Vec<_> = rules.iter().collect();
        for case in &self.corpus.cases {
            let says = case.says.as_deref().unwrap_or_default();
            let has_advice = !facts.iter().any(|fact| says.contains(fact) || case.name.contains(fact));
            if !says.contains(" deny ") || !has_advice || case.unstamped || case.user != "alice" {
                continue;
            }
            let Some((Some(old), new)) = case.changes().into_iter().next() else { continue };
            let mut request = Vec::new();
            leaves(&case.write, "", &mut request);
            person.requests(old, &request);
            let new = self.stamped(("alice", ""), Some(old), &new);
            silent.retain(|rule| self.ask(("alice", ""), Some(old), &new, rule.judge) == Verdict::Allow);
        }
        silent.into_iter().map(|rule| rule.row).collect()
    }

    pub(crate) fn cases(&self, verbs: &[Verb]) -> impl Iterator<Item = &Case> + Clone {
        self.corpus.cases.iter().filter(|case| verbs.contains(&case.verb))
    }
}

/// Each field that a patch sets or removes.
fn leaves(patch: &Value, at: &str, into: &mut Vec<Edit>) {
    match patch.as_object().filter(|members| !members.is_empty()) {
        Some(members) => {
            members.iter().for_each(|(name, value)| leaves(value, &format!("{at}/{}", name.replace('/', "~1")), into));
        }
        None => into.push((at.to_owned(), patch.clone())),
    }
}

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
