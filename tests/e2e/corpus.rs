//! Reads a corpus of admission: cases as data that every runner shares.
//!
//! | runner | which cases | what it compares |
//! |---|---|---|
//! | `shared/src/*/admission/tests.rs` | all | `says`, `words`, `stamps` |
//! | `tests/e2e/match_conditions.rs` | with `reaches` | the entries of the webhook that the API server calls |
//! | `tests/e2e/policy_twin.rs` | of Hive, with `reaches`, that update or create | the rows that the policy denies |
//! | `tests/e2e/kkp_guard.rs` | of KKP, with `words` and `reaches` | what kubectl prints |
//!
//! A case changes the stored object `of` with the patch `with` by the patch `write`. In a patch, a key with a slash is an
//! annotation (`/x` is `hibernate.sh/x`), any other key is a path; a text is a patch by name, and a list is one patch
//! after the other. A group has fields for all its cases, and `columns` for cases that are rows.

#![allow(dead_code, reason = "each runner uses a part of it")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a file that cannot be read fails the test")]

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// What is done to the stored object.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Verb {
    #[default]
    Update,
    /// An update of the subresource.
    Status,
    /// The same.
    Scale,
    Create,
    /// An update, and a creation of what it results in.
    Both,
    Delete,
    /// `write` is a selector of labels.
    DeleteCollection,
}

/// One case. Patches are plain merge patches.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Case {
    pub name: String,
    /// Name of the stored object.
    pub of: String,
    /// What is stored besides.
    pub with: Value,
    /// What is stored besides of the cluster `prod`, which it belongs to; then the whole of it.
    pub cluster: Value,
    pub verb: Verb,
    pub write: Value,
    pub user: String,
    /// Field manager.
    pub manager: String,
    /// The mutating webhook is down.
    pub unstamped: bool,
    /// `ROW deny FIELD` or `ROW warn` for each finding, in the order of the rules.
    pub says: Option<String>,
    /// What the messages contain. Where the case has `reaches`, kubectl prints the same. Cases near to the time of the
    /// corpus have none: an API server has another time.
    pub words: Option<String>,
    /// What the mutating webhook changes; null is not compared.
    pub stamps: Value,
    /// The entries of the webhook that are called.
    pub reaches: Option<String>,
    /// Whether the write may be undone.
    pub undo: bool,
    /// The object as it is stored.
    #[serde(skip)]
    pub stored: Value,
}

/// A file of cases.
pub struct Corpus {
    pub now: String,
    /// User names by the names of cases.
    pub users: BTreeMap<String, String>,
    pub cases: Vec<Case>,
}

impl Case {
    /// The object as the write leaves it.
    pub fn written(&self) -> Value {
        applied(&self.stored, &self.write)
    }

    /// What the API server asks about: the object before, and after.
    pub fn changes(&self) -> Vec<(Option<&Value>, Value)> {
        let (update, create) = ((Some(&self.stored), self.written()), (None, self.written()));
        match self.verb {
            Verb::Update | Verb::Status => vec![update],
            Verb::Create => vec![create],
            Verb::Both => vec![update, create],
            Verb::Scale | Verb::Delete | Verb::DeleteCollection => vec![],
        }
    }

    pub fn reaches(&self, entry: &str) -> bool {
        self.reaches.iter().any(|all| all.split(' ').any(|one| entry.strip_suffix(".hibernate.sh") == Some(one)))
    }
}

/// One patch after the other, as one: null still removes.
pub fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            from.iter().for_each(|(key, value)| merge(into.entry(key.clone()).or_insert(Value::Null), value));
        }
        (into, from) => *into = from.clone(),
    }
}

/// The object after a merge patch.
pub fn applied(object: &Value, patch: &Value) -> Value {
    let mut object = object.clone();
    json_patch::merge(&mut object, patch);
    object
}

/// The annotation that a key means, if it means one.
fn annotation(key: &str) -> Option<String> {
    key.contains('/').then(|| if key.starts_with('/') { format!("hibernate.sh{key}") } else { key.to_owned() })
}

struct Source {
    patches: Map<String, Value>,
    objects: Map<String, Value>,
}

impl Source {
    fn patch(&self, written: &Value) -> Value {
        let mut patch = json!({});
        match written {
            Value::Null => {}
            Value::String(name) => {
                return self.patch(self.patches.get(name).unwrap_or_else(|| panic!("no patch {name}")));
            }
            Value::Array(all) => all.iter().for_each(|one| merge(&mut patch, &self.patch(one))),
            Value::Object(members) => {
                for (key, value) in members {
                    let nested = if let Some(key) = annotation(key) {
                        assert!(value.is_string() || value.is_null(), "quote the annotation {key}: {value}");
                        json!({ "metadata": { "annotations": { key: value } } })
                    } else {
                        key.rsplit('.').fold(value.clone(), |inner, name| json!({ name: inner }))
                    };
                    merge(&mut patch, &nested);
                }
            }
            other => panic!("{other} is no patch"),
        }
        patch
    }

    fn object(&self, name: &str) -> Value {
        let mut fields = self.objects[name].as_object().unwrap().clone();
        let base = fields.remove("is").map_or_else(|| json!({}), |base| self.object(base.as_str().unwrap()));
        let mut named = json!({ "metadata": { "name": name } });
        merge(&mut named, &self.patch(&json!(fields)));
        applied(&base, &named)
    }
}

/// Reads a file of cases.
pub fn corpus(text: &str) -> Corpus {
    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    struct File {
        now: String,
        #[serde(default)]
        users: BTreeMap<String, String>,
        #[serde(default)]
        patches: Map<String, Value>,
        objects: Map<String, Value>,
        groups: Vec<Map<String, Value>>,
    }

    let File { now, users, patches, objects, groups } = serde_saphyr::from_str(text).unwrap();
    let source = Source { patches, objects };
    let mut cases = Vec::new();
    for mut group in groups {
        let mut take = |name: &str| group.remove(name).unwrap_or_default();
        let (about, columns, rows) = (take("about"), take("columns"), take("cases"));
        let rows: Vec<(String, Value)> = match rows {
            Value::Object(rows) => rows.into_iter().collect(),
            Value::Array(rows) => rows.into_iter().map(|row| (row.to_string(), row)).collect(),
            other => panic!("{about}: {other} are no cases"),
        };
        assert!(!rows.is_empty(), "{about} has no cases");
        for (name, row) in rows {
            let mut case = group.clone();
            match row {
                Value::Object(fields) => case.extend(fields),
                Value::Array(row) => {
                    let columns = columns.as_array().unwrap().iter().map(|column| column.as_str().unwrap().to_owned());
                    assert!(row.len() <= columns.len(), "{about}: {name} has more than the columns");
                    case.extend(columns.zip(row));
                }
                other => panic!("{about}: {name}: {other} is no case"),
            }
            let mut case: Case = serde_json::from_value(json!(case)).unwrap();
            case.name = format!("{}: {name}", about.as_str().unwrap());
            assert!(case.words.is_none() || case.says.is_some(), "{}: words of no finding", case.name);
            case.with = source.patch(&case.with);
            case.stored = applied(&source.object(&case.of), &case.with);
            if !case.cluster.is_null() {
                case.cluster = applied(&source.object("prod"), &source.patch(&case.cluster));
            }
            if case.verb != Verb::DeleteCollection {
                case.write = source.patch(&case.write);
            }
            if !case.stamps.is_null() {
                case.stamps = source.patch(&case.stamps);
            }
            for user in case.user.split(' ') {
                cases.push(Case { user: user.to_owned(), ..case.clone() });
            }
        }
    }
    Corpus { now, users, cases }
}
