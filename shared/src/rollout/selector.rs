//! Label selectors as `kubectl -l` takes them, and as a rollout holds them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use kube::core::{Selector, SelectorExt};

/// Longest name of a label, and longest value.
const MAX_PART: usize = 63;
/// Longest prefix of a label's key.
const MAX_PREFIX: usize = 253;
/// Longest key in a message, in characters.
const MAX_SHOWN: usize = 100;

/// Why a text is no label selector that a rollout can hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// Nothing is required.
    #[error("the selector is empty")]
    Empty,
    /// Not a requirement.
    #[error("{0:?} is not a requirement: write KEY=VALUE, KEY!=VALUE, KEY in (A, B), KEY notin (A, B), KEY or !KEY")]
    Requirement(String),
    /// Not a key.
    #[error("{0:?} is not the key of a label")]
    Key(String),
    /// Not a value.
    #[error("{0:?} is not the value of a label: use up to 63 letters, digits, '-', '_' and '.'")]
    Value(String),
}

/// Reads what `kubectl -l` takes. Without numeric comparisons: a [`LabelSelector`] has none.
///
/// # Errors
/// When a part of it is no requirement, or there is none.
pub fn parse(text: &str) -> Result<LabelSelector, SelectorError> {
    let mut labels: BTreeMap<String, String> = BTreeMap::new();
    let mut expressions = Vec::new();
    for part in split(text) {
        match requirement(part)? {
            // A second value for one key does not fit into the map. Nothing has both, and that must stay so.
            Requirement::Equals(key, value) if labels.get(&key).is_none_or(|other| *other == value) => {
                labels.insert(key, value);
            }
            Requirement::Equals(key, value) => expressions.push(expression(&key, "In", vec![value])),
            Requirement::Other(other) => expressions.push(other),
        }
    }
    if labels.is_empty() && expressions.is_empty() {
        return Err(SelectorError::Empty);
    }
    let match_labels = Some(labels).filter(|labels| !labels.is_empty());
    Ok(LabelSelector { match_labels, match_expressions: Some(expressions).filter(|all| !all.is_empty()) })
}

/// The selector in the form that is matched.
///
/// # Errors
/// When it cannot be understood, or asks for what no label can be, as Kubernetes refuses it: `NotIn` without values, or
/// with one that no label can have, would select everything.
pub(crate) fn compile(selector: &LabelSelector) -> Result<Selector, String> {
    for (key, value) in selector.match_labels.iter().flatten() {
        judge(key, "In", std::slice::from_ref(value))?;
    }
    for one in selector.match_expressions.iter().flatten() {
        judge(&one.key, &one.operator, one.values.as_deref().unwrap_or_default())?;
    }
    Selector::try_from(selector.clone()).map_err(|error| error.to_string())
}

/// Kubernetes' own rules for a requirement.
fn judge(key: &str, operator: &str, values: &[String]) -> Result<(), String> {
    let shown = |text: &str| text.chars().take(MAX_SHOWN).collect::<String>();
    if !is_key(key) {
        return Err(SelectorError::Key(shown(key)).to_string());
    }
    match operator {
        "In" | "NotIn" if values.is_empty() => return Err(format!("operator {operator} of key {key} needs values")),
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            return Err(format!("operator {operator} of key {key} takes no values"));
        }
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => {
            return Err(format!(
                "key {key}: {:?} is no operator: write In, NotIn, Exists or DoesNotExist",
                shown(other)
            ));
        }
    }
    match values.iter().find(|value| !is_value(value)) {
        Some(value) => Err(format!("key {key}: {}", SelectorError::Value(shown(value)))),
        None => Ok(()),
    }
}

/// Whether a selector selects something with these labels. One that cannot be understood selects nothing.
pub fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    compile(selector).is_ok_and(|selector| selector.matches(labels))
}

enum Requirement {
    Equals(String, String),
    Other(LabelSelectorRequirement),
}

/// The parts between commas, but for those within parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut begin, mut open) = (Vec::new(), 0, 0_usize);
    for (at, char) in text.char_indices() {
        match char {
            '(' => open += 1,
            ')' => open = open.saturating_sub(1),
            ',' if open == 0 => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    if parts.iter().all(|part| part.trim().is_empty()) { Vec::new() } else { parts }
}

/// | form | operator |
/// |---|---|
/// | `a=b`, `a==b` | equal |
/// | `a!=b` | `NotIn` |
/// | `a in (b, c)`, `a notin (b, c)` | `In`, `NotIn` |
/// | `a`, `!a` | `Exists`, `DoesNotExist` |
fn requirement(part: &str) -> Result<Requirement, SelectorError> {
    let part = part.trim();
    let other = |key: &str, operator, values| Ok(Requirement::Other(expression(&checked_key(key)?, operator, values)));
    if let Some((key, list)) = part.split_once('(') {
        let list = list.strip_suffix(')').ok_or_else(|| SelectorError::Requirement(part.to_owned()))?;
        let values = list.split(',').map(checked_value).collect::<Result<Vec<_>, _>>()?;
        let words: Vec<&str> = key.split_whitespace().collect();
        return match words.as_slice() {
            [key, "in"] => other(key, "In", values),
            [key, "notin"] => other(key, "NotIn", values),
            _ => Err(SelectorError::Requirement(part.to_owned())),
        };
    }
    if let Some((key, value)) = part.split_once("!=") {
        return other(key, "NotIn", vec![checked_value(value)?]);
    }
    if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
        return Ok(Requirement::Equals(checked_key(key)?, checked_value(value)?));
    }
    match part.strip_prefix('!') {
        Some(key) => other(key, "DoesNotExist", Vec::new()),
        None if part.is_empty() || part.contains(char::is_whitespace) || part.contains(['<', '>']) => {
            Err(SelectorError::Requirement(part.to_owned()))
        }
        None => other(part, "Exists", Vec::new()),
    }
}

fn expression(key: &str, operator: &str, values: Vec<String>) -> LabelSelectorRequirement {
    let values = Some(values).filter(|values| !values.is_empty());
    LabelSelectorRequirement { key: key.to_owned(), operator: operator.to_owned(), values }
}

fn checked_key(text: &str) -> Result<String, SelectorError> {
    let key = text.trim().to_owned();
    if is_key(&key) { Ok(key) } else { Err(SelectorError::Key(key)) }
}

fn checked_value(text: &str) -> Result<String, SelectorError> {
    let value = text.trim().to_owned();
    if is_value(&value) { Ok(value) } else { Err(SelectorError::Value(value)) }
}

/// Whether a text can be the key of a label: a name, after a domain and a slash if it has one.
fn is_key(key: &str) -> bool {
    let (prefix, name) = key.split_once('/').map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_part_of_domain = |part: &str| is_bounded(part, MAX_PREFIX) && part.bytes().all(is_inner);
    let is_prefix = |prefix: &str| prefix.len() <= MAX_PREFIX && prefix.split('.').all(is_part_of_domain);
    is_part(name) && prefix.is_none_or(is_prefix)
}

fn is_value(value: &str) -> bool {
    value.is_empty() || is_part(value)
}

fn is_part(text: &str) -> bool {
    is_bounded(text, MAX_PART) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
}

/// Whether a text has a length within the limit, and begins and ends with a letter or digit.
fn is_bounded(text: &str, max: usize) -> bool {
    let is_outer = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    text.len() <= max && is_outer(text.as_bytes().first()) && is_outer(text.as_bytes().last())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
        let mut expression = json!({ "key": key, "operator": operator });
        if !values.is_empty() {
            expression["values"] = json!(values);
        }
        json!({ "matchExpressions": [expression] })
    }

    #[test]
    fn every_form_of_kubectl_is_converted() {
        for (text, expected) in [
            ("a=b", json!({ "matchLabels": { "a": "b" } })),
            ("a==b", json!({ "matchLabels": { "a": "b" } })),
            (" a = b , c=d ", json!({ "matchLabels": { "a": "b", "c": "d" } })),
            ("a=", json!({ "matchLabels": { "a": "" } })),
            ("example.com/tier=x_1.y", json!({ "matchLabels": { "example.com/tier": "x_1.y" } })),
            ("a!=b", expression("a", "NotIn", &["b"])),
            ("a in (b)", expression("a", "In", &["b"])),
            ("a in(b, c)", expression("a", "In", &["b", "c"])),
            ("a notin (b,c)", expression("a", "NotIn", &["b", "c"])),
            ("a", expression("a", "Exists", &[])),
            ("!a", expression("a", "DoesNotExist", &[])),
            ("! a", expression("a", "DoesNotExist", &[])),
            (
                "a=b,a=c",
                json!({ "matchLabels": { "a": "b" }, "matchExpressions": [{ "key": "a", "operator": "In", "values": ["c"] }] }),
            ),
            (
                "env in (dev, test),!gone,team=blue",
                json!({
                    "matchLabels": { "team": "blue" },
                    "matchExpressions": [
                        { "key": "env", "operator": "In", "values": ["dev", "test"] },
                        { "key": "gone", "operator": "DoesNotExist" },
                    ],
                }),
            ),
        ] {
            assert_eq!(json!(parse(text).unwrap()), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_selector_is_named() {
        let requirement = |text: &str| Err(SelectorError::Requirement(text.to_owned()));
        let key = |text: &str| Err(SelectorError::Key(text.to_owned()));
        let long = "x".repeat(64);
        for (text, expected) in [
            ("", Err(SelectorError::Empty)),
            (" , ", Err(SelectorError::Empty)),
            ("a=b,", requirement("")),
            ("a b", requirement("a b")),
            ("a>1", requirement("a>1")),
            ("a in (b", requirement("a in (b")),
            ("a of (b)", requirement("a of (b)")),
            ("=b", key("")),
            ("-a=b", key("-a")),
            ("a/b/c=d", key("a/b/c")),
            ("A.com/b=d", key("A.com/b")),
            ("a=b c", Err(SelectorError::Value("b c".to_owned()))),
            (&format!("a={long}"), Err(SelectorError::Value(long.clone()))),
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn every_form_that_an_error_names_is_one() {
        let message = parse("a b").unwrap_err().to_string();
        let (_, forms) = message.split_once(": write ").unwrap();
        let read = parse(&forms.replace(" or ", ", ")).unwrap();
        assert_eq!((read.match_labels.unwrap().len(), read.match_expressions.unwrap().len()), (1, 5), "{message}");
    }

    #[test]
    fn labels_are_selected_as_the_api_server_selects_them() {
        let labels: BTreeMap<String, String> =
            [("env", "dev"), ("team", "blue")].map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        for (text, expected) in [
            ("env=dev", true),
            ("env=prod", false),
            ("env!=prod", true),
            ("other!=x", true),
            ("env in (dev,test),team", true),
            ("env notin (dev)", false),
            ("!team", false),
            ("!other", true),
            ("env=dev,env=prod", false),
        ] {
            assert_eq!(selects(&parse(text).unwrap(), &labels), expected, "{text}");
        }
        let unknown = LabelSelector {
            match_expressions: Some(vec![super::expression("env", "Gt", vec!["1".to_owned()])]),
            ..LabelSelector::default()
        };
        assert!(!selects(&unknown, &labels));
        let void = LabelSelector {
            match_expressions: Some(vec![super::expression("env", "NotIn", vec![])]),
            ..LabelSelector::default()
        };
        assert_eq!(super::compile(&void).unwrap_err(), "operator NotIn of key env needs values");
        assert!(!selects(&void, &labels));
    }

    /// `NotIn ["prod "]` would select production.
    #[test]
    fn what_no_label_can_be_is_refused_as_the_api_server_does() {
        let long = "x".repeat(64);
        for (selector, expected) in [
            (expression("env", "NotIn", &["prod "]), r#"key env: "prod " is not the value of a label"#),
            (expression("env", "In", &["dev", "prod,stage"]), r#"key env: "prod,stage" is not the value of a label"#),
            (expression("env", "Exists", &["x"]), "operator Exists of key env takes no values"),
            (expression("env", "DoesNotExist", &["x"]), "operator DoesNotExist of key env takes no values"),
            (expression("-env", "Exists", &[]), r#""-env" is not the key of a label"#),
            (expression("a..b/env", "Exists", &[]), r#""a..b/env" is not the key of a label"#),
            (expression("env", "Gt", &["1"]), r#"key env: "Gt" is no operator"#),
            (json!({ "matchLabels": { "env": long } }), r#"key env: "xxx"#),
            (json!({ "matchLabels": { "": "x" } }), "is not the key of a label"),
        ] {
            let selector: LabelSelector = serde_json::from_value(selector).unwrap();
            let error = super::compile(&selector).unwrap_err();
            assert!(error.contains(expected), "{error}");
            assert!(!selects(&selector, &BTreeMap::new()), "{error}");
        }
        for fine in [expression("env", "NotIn", &[""]), json!({ "matchLabels": { "a.b/c_D.e": "" } }), json!({})] {
            assert!(super::compile(&serde_json::from_value(fine.clone()).unwrap()).is_ok(), "{fine}");
        }
    }
}
