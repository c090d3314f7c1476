//! What is read, what is refused, and what it costs.

mod readers;

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
enum Mode {
    #[default]
    Off,
    On,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default, rename_all = "camelCase")]
struct Object {
    metadata: Metadata,
    name: String,
    count: Option<u8>,
    mode: Mode,
    list: Vec<Inner>,
    map: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
struct Metadata {
    annotations: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize, PartialEq)]
#[serde(default)]
struct Inner {
    text: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Lenient {
    #[serde(deserialize_with = "lenient")]
    name: String,
    #[serde(deserialize_with = "lenient")]
    count: Option<u8>,
    #[serde(deserialize_with = "lenient")]
    list: Vec<u8>,
    #[serde(deserialize_with = "lenient")]
    mode: Mode,
    #[serde(deserialize_with = "lenient")]
    inner: Option<Box<Self>>,
}

#[derive(Debug, Deserialize)]
struct Pair(#[serde(deserialize_with = "lenient")] Lenient, Lenient);

fn object(text: &str) -> Result<Read<Object>, String> {
    json(text.as_bytes(), &Limits::OBJECT).map_err(|error| error.to_string())
}

#[test]
fn a_value_is_read_as_serde_json_reads_it() {
    let text = r#"{"x":[{"y":1e999}],"name":"d\u0065mo","count":7,"mode":"On","list":[{"text":"a"},{}],"map":{"a":"b"},
        "metadata":{"managedFields":[{"fieldsV1":{"f:x":{}}}],"annotations":{"hibernate.sh/reason":"r","other.io/x":"LONG","other.io/y":"z"}}}"#;
    let Read { value, fields, .. } = object(&text.replace("LONG", &"y".repeat(600))).unwrap();
    assert_eq!((value.name.as_str(), value.count, value.mode, value.list.len()), ("demo", Some(7), Mode::On, 2));
    assert_eq!((value.map.len(), fields.len()), (1, 0));
    let kept: Vec<_> = value.metadata.annotations.iter().map(|(key, value)| format!("{key}={value}")).collect();
    assert_eq!(kept, ["hibernate.sh/reason=r", "other.io/y=z"], "a sign to reconcile, and no long text of others");
    // An API server writes null for what has no members.
    assert_eq!(object(r#"{"list":null,"map":null,"name":null,"count":null}"#).unwrap().value, Object::default());
}

#[test]
fn each_of_many_fields_that_do_not_fit_keeps_its_path() {
    let many = |count: usize| {
        let members: Vec<_> = (0..count).map(|number| format!(r#""{number}":{{"count":"x"}}"#)).collect();
        json::<BTreeMap<String, Lenient>>(format!("{{{}}}", members.join(",")).as_bytes(), &Limits::OBJECT)
    };
    let read = many(200).unwrap();
    assert!(read.fields.len() == 200 && read.fields.iter().all(|field| field.path.len() == 2), "{:?}", read.fields);
    assert_eq!(many(300).unwrap_err().to_string(), "too many values do not fit at line 1 column 5030");
}

#[test]
fn what_cannot_be_read_is_refused_wherever_it_stands() {
    let deep = format!(r#"{{"list":{}1{}}}"#, "[".repeat(200), "]".repeat(200));
    for (text, why) in [
        (r#"{"count":1e999}"#, "number out of range"),
        (r#"{"name":"\ud800"}"#, "hex escape"),
        (r#"{"\ud800":1}"#, "hex escape"),
        (r#"{"x":1}}"#, "trailing characters"),
        (r#"{"x":1"#, "EOF"),
        (r#"{"name":"a","name":"b"}"#, "duplicate field"),
        (r#"{"name":7}"#, "invalid type: integer"),
        (r#"{"mode":"Odd"}"#, "unknown variant"),
        (r#"{"list":{}}"#, "invalid type: map"),
        (r#"{"list":[[]]}"#, "expected an object"),
        ("[]", "expected an object"),
        ("", "EOF"),
        (deep.as_str(), "invalid type"),
    ] {
        let found = object(text).unwrap_err();
        assert!(found.contains(why) && found.contains(" at line ") && found.len() < 300, "{text}: {found}");
    }
}

/// The list ends where what is kept would pass the limit, and skipped parts cost nothing.
#[test]
fn small_parts_are_refused_in_number_and_skipped_for_nothing() {
    let many = |part: &str| vec![part; 300_000].join(",");
    for (text, is_refused) in [
        (format!(r#"{{"list":[{}]}}"#, many("{}")), true),
        (format!(r#"{{"list":[{}]}}"#, many(r#"{"text":""}"#)), true),
        (format!(r#"{{"x":[{}],"metadata":{{"managedFields":[{}]}}}}"#, many("{}"), many("[]")), false),
        (format!(r#"{{"name":"{}"}}"#, "x".repeat(70 << 10)), true),
        (format!(r#"{{"x":"{}"}}"#, "x".repeat(1 << 20)), false),
    ] {
        match object(&text) {
            Ok(read) => assert!(!is_refused && read.kept < 1_000, "{text:.50}: {}", read.kept),
            Err(why) => {
                assert!(is_refused && (why.contains("more than") || why.contains("at most")), "{text:.50}: {why}");
            }
        }
    }
    let labels: Vec<_> = (0..20_000).map(|number| format!(r#""{number}":"""#)).collect();
    assert!(object(&format!(r#"{{"map":{{{}}}}}"#, labels.join(","))).is_err());
}

/// Each field alone, all of them at once, and what stands behind them.
#[test]
fn fields_that_do_not_fit_are_listed_in_one_pass() {
    let read = |value: &Value| json::<Lenient>(value.to_string().as_bytes(), &Limits::OBJECT).unwrap();
    let good = json!({ "name": "demo", "count": 3, "list": [1], "mode": "On", "inner": { "count": 4 } });
    for (pointer, odd) in [
        ("name", json!({ "a": [1, { "b": [] }] })),
        ("count", json!(-1)),
        ("count", json!(256)),
        ("list", json!([1, 2, 300, 4, [5]])),
        ("list", json!({ "x": 1 })),
        ("mode", json!({ "Odd": [1] })),
        ("mode", json!(["On"])),
        ("inner", json!(["a", { "count": 7 }])),
        ("inner", json!("text")),
    ] {
        let mut value = good.clone();
        value[pointer] = odd;
        let Read { value: found, fields, .. } = read(&value);
        assert_eq!(fields.iter().map(|field| field.path.join(".")).collect::<Vec<_>>(), [pointer], "{value}");
        assert!(found.name == "demo" || pointer == "name");
        assert!(found.inner.is_none_or(|inner| inner.count == Some(4)));
    }
    let all = json!({ "name": 1, "count": "x", "list": "", "mode": 0, "inner": { "name": 2, "inner": { "list": 3 } } });
    let paths: Vec<_> = read(&all).fields.iter().map(|field| field.path.join(".")).collect();
    assert_eq!(paths, ["count", "inner.inner.list", "inner.name", "list", "mode", "name"]);
    assert_eq!(read(&json!({ "name": 7 })).fields[0].why, "invalid type: integer `7`, expected a string");
}

#[test]
fn parts_are_picked_as_they_are_written() {
    let text = r#"{"a":{"b":[1, 2],"c":"x"},"d":7,"a":{"b": {"e":1}},"f":[{"a":1}]}"#;
    let path = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    let paths = [path(&["a", "b"]), path(&["a", "c"]), path(&["a", "b", "e"]), path(&["d"]), path(&["f", "a"])];
    let paths: Vec<&[String]> = paths.iter().map(Vec::as_slice).collect();
    assert_eq!(pick(text, &paths), [Some(r#"{"e":1}"#), None, Some("1"), Some("7"), None]);
    assert_eq!(pick("7", &paths), [None; 5]);
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "[a-c\"\\\\\u{e9}]{0,4}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, |inner| {
        let name = prop_oneof![Just("name"), Just("count"), Just("list"), Just("mode"), Just("inner"), Just("x")];
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((name, inner), 0..6)
                .prop_map(|members| members.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()),
        ]
    })
}

proptest! {
    /// Whatever stands in the fields, the parser is behind each of them: what is there twice is read alike.
    #[test]
    fn reading_goes_on_behind_every_value(value in any_json()) {
        let pair = json!([value, { "name": "end" }]).to_string();
        let read = json::<Pair>(pair.as_bytes(), &Limits::OBJECT).unwrap();
        prop_assert_eq!(read.value.1.name, "end");
        prop_assert_eq!(read.value.0.name.is_empty(), !value["name"].is_string() || value["name"] == "");
    }

    /// What serde_json reads is read alike.
    #[test]
    fn nothing_else_is_read_than_by_the_parser_alone(value in any_json()) {
        let text = value.to_string();
        let plain = serde_json::from_str::<BTreeMap<String, Option<u64>>>(&text).ok();
        let read = json::<BTreeMap<String, Option<u64>>>(text.as_bytes(), &Limits::OBJECT).ok();
        if let Some(plain) = plain {
            prop_assert_eq!(Some(plain), read.map(|read| read.value));
        }
    }
}
