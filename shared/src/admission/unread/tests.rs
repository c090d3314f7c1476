//! What is left out of an object is named, and hides nothing.

use std::cell::Cell;
use std::collections::BTreeMap;

use proptest::prelude::*;
use serde::Deserialize;
use serde_json::{Value, json};

use super::*;
use crate::admission::{Meta, metadata};
use crate::read::lenient;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Object {
    #[serde(deserialize_with = "metadata")]
    metadata: Meta,
    #[serde(deserialize_with = "lenient")]
    spec: Option<Spec>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(deserialize_with = "lenient")]
    name: Option<String>,
    #[serde(deserialize_with = "lenient")]
    count: Option<u8>,
    #[serde(deserialize_with = "lenient")]
    labels: Option<BTreeMap<String, String>>,
    #[serde(deserialize_with = "lenient")]
    deeper: Option<Box<Self>>,
}

fn both(old: Option<&str>, new: &str) -> Objects<Object> {
    let review = format!(r#"{{"request":{{"object":{new},"oldObject":{}}}}}"#, old.unwrap_or("null"));
    Objects::read(&review).unwrap()
}

fn is_refused(object: &str) -> bool {
    let review = format!(r#"{{"request":{{"object":{object}}}}}"#);
    Objects::<Object>::read(&review).is_ok_and(|read| read.object.is_none() && read.unread.new[0].of_all().is_some())
}

fn fields(object: &str) -> (Object, Vec<String>) {
    let Objects { object, unread, .. } = both(None, object);
    (object.unwrap(), unread.new.iter().map(Unread::name).collect())
}

/// Whatever cannot be read, wherever it is: it alone is left out.
#[test]
fn each_field_that_cannot_be_read_is_named_and_left_out() {
    let long = "x".repeat(5_000);
    let whole = json!({
        "metadata": { "name": "demo", "annotations": { "hibernate.sh/reason": "night", "other": 7 } },
        "spec": { "name": "a", "count": 1, "labels": { "a.b/c": "d" }, "unknown": [1], "deeper": { "name": "b", "count": 2 } },
    });
    for (pointer, value, field) in [
        ("/spec/name", json!(long), "spec.name"),
        ("/spec/name", json!(["n\u{2029}", { "spec": 1 }]), "spec.name"),
        ("/spec/count", json!(-1), "spec.count"),
        ("/spec/deeper/name", json!({}), "spec.deeper.name"),
        ("/spec/deeper", json!("deep"), "spec.deeper"),
        ("/spec/labels/a.b~1c", json!(7), "spec.labels"),
        ("/spec/labels", json!([]), "spec.labels"),
        ("/spec", json!(7), "spec"),
        ("/metadata/name", json!([null]), "metadata.name"),
        ("/metadata/annotations/hibernate.sh~1reason", json!(7), "metadata.annotations[hibernate.sh/reason]"),
        ("/metadata/annotations", json!("x"), "metadata.annotations"),
        ("/metadata", json!([]), "metadata"),
    ] {
        let mut object = whole.clone();
        *object.pointer_mut(pointer).unwrap() = value;
        for text in [object.to_string(), serde_json::to_string_pretty(&object).unwrap()] {
            let (object, unread) = fields(&text);
            assert_eq!(unread, [field], "{pointer}");
            assert!(object.metadata.name == "demo" || field.starts_with("metadata"), "{pointer}");
            let deep = object.spec.and_then(|spec| Some((spec.count, spec.deeper?.count?)));
            assert!(deep == Some((Some(1), 2)) || field.starts_with("spec"), "{pointer}: {deep:?}");
        }
    }
    assert_eq!(fields(&whole.to_string()).1, [""; 0]);
    let all = json!({ "metadata": [], "spec": { "name": 1, "count": "x", "labels": 2, "deeper": { "name": long } } });
    let mut found = fields(&all.to_string()).1;
    found.sort();
    assert_eq!(found, ["metadata", "spec.count", "spec.deeper.name", "spec.labels", "spec.name"]);
    for wrong in ["7", "[]", "\"x\""] {
        assert!(is_refused(wrong), "{wrong}");
    }
}

/// An object with names that are given again and again is refused. What rules do not read costs nothing.
#[test]
fn what_no_api_server_sends_ends() {
    let many = |key: &str| {
        let notes = vec![format!(r#""{key}":7"#); 10_000].join(",");
        format!(r#"{{"spec":{{"count":"x"}},"metadata":{{"annotations":{{{notes}}}}}}}"#)
    };
    assert_eq!(fields(&many("hibernate.sh/other")).1, ["spec.count"]);
    let review = |object: &str| Objects::<Object>::read(&format!(r#"{{"request":{{"object":{object}}}}}"#));
    assert!(review(&many("hibernate.sh/reason")).is_err());
    let labels: Vec<String> = (0..5_000).map(|number| format!(r#""{number}":"""#)).collect();
    let (object, found) = fields(&format!(r#"{{"spec":{{"labels":{{{}}},"count":2}}}}"#, labels.join(",")));
    assert_eq!((found, object.spec.unwrap().count), (vec!["spec.labels".to_owned()], Some(2)));
    let (object, found) = fields(r#"{"spec":{"count":1,"count":2},"metadata":{"name":"demo"}}"#);
    assert_eq!((found, object.metadata.name.as_str()), (vec!["spec".to_owned()], "demo"));
    for wrong in [r#"{"spec":{"name":"\ud800"}}"#, r#"{"spec":{"count":1e999}}"#] {
        assert!(review(wrong).is_err(), "{wrong}");
    }
}

/// The work is counted: each object is read once, and one more pass finds what stands in its wrong fields.
#[test]
fn a_body_is_read_in_two_passes_whatever_stands_in_it() {
    thread_local!(static READS: Cell<usize> = const { Cell::new(0) });

    #[derive(Debug)]
    struct Counted;

    impl<'de> Deserialize<'de> for Counted {
        fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            READS.set(READS.get() + 1);
            Object::deserialize(deserializer).map(|_| Self)
        }
    }

    let wrong = r#""name":7,"count":"x","labels":2,"deeper":{"name":3,"count":4.5}"#;
    let notes: Vec<_> = crate::annotation::keys::TARGET_ANNOTATIONS.iter().map(|key| format!(r#""{key}":7"#)).collect();
    let filler = "0,".repeat(300_000);
    let object =
        format!(r#"{{"metadata":{{"annotations":{{{}}}}},"spec":{{{wrong}}},"unknown":[{filler}0]}}"#, notes.join(","));
    let review = format!(r#"{{"request":{{"object":{object},"oldObject":{object}}}}}"#);
    let read = Objects::<Counted>::read(&review).unwrap();
    assert_eq!((READS.get(), read.unread.new.len()), (2, 5 + notes.len()), "each object once");
    assert!(read.unread.new.iter().all(|field| !field.altered() && field.found.is_some()));
    let odd = r#"{"request":{"object":{},"oldObject":{},"dryRun":7,"options":{"fieldManager":7}}}"#;
    assert_eq!(Objects::<Object>::read(odd).unwrap().unread, UnreadFields::default());
}

/// The longest annotations that an API server takes are read: a wake puts forged ones back.
#[test]
fn annotations_are_read_as_long_as_they_can_be() {
    let long = "x".repeat(MAX_ANNOTATIONS / 2);
    let notes = json!({ "hibernate.sh/reason": long, "hibernate.sh/rollout": long, "hibernate.sh/other": long });
    let (object, found) = fields(&json!({ "metadata": { "annotations": notes } }).to_string());
    let read = |key| object.metadata.annotations.get(key).map(str::len);
    assert_eq!((read("hibernate.sh/reason"), read("hibernate.sh/rollout")), (Some(long.len()), Some(long.len())));
    assert_eq!(found, [""; 0]);
}

#[test]
fn a_field_is_altered_if_the_request_writes_another_value() {
    let long = |letter: &str| json!({ "spec": { "name": letter.repeat(5_000), "count": 1 } }).to_string();
    let altered = |old: Option<&str>, new: &str| {
        let unread = both(old, new).unread;
        (unread.old.len(), unread.new.iter().map(Unread::altered).collect::<Vec<_>>())
    };
    let (a, b, fine) = (long("a"), long("b"), json!({ "spec": { "name": "a" } }).to_string());
    assert_eq!(altered(None, &a), (0, vec![true]));
    assert_eq!(altered(Some(&a), &a), (1, vec![false]));
    assert_eq!(altered(Some(&b), &a), (1, vec![true]));
    assert_eq!(altered(Some(&fine), &a), (0, vec![true]));
    assert_eq!(altered(Some("{}"), &a), (0, vec![true]));
    assert_eq!(altered(Some(&a), &fine), (1, vec![]));
}

#[test]
fn a_denial_says_what_was_found_and_what_would_be_right() {
    let detail =
        |spec: Value| both(None, &json!({ "spec": spec }).to_string()).unread.new[0].denial().detail.to_string();
    assert_eq!(
        detail(json!({ "name": "1h".repeat(2_500) })),
        "spec.name: found \"1h1h1h1h1h1h1h1h1h1h1h1h1h1h1h1h1h1h1h1... (5002 bytes), which cannot be read: must be a text of at most 4 KiB"
    );
    assert_eq!(
        detail(json!({ "count": "2" })),
        "spec.count: found \"2\", which cannot be read: invalid type: string \"2\", expected u8"
    );
    let unread = both(None, r#"{"spec":{"deeper":{"name":7}}}"#).unread.new;
    let of = |path: &[&str]| (unread[0].concerns(path), unread[0].covers(path));
    assert_eq!(of(&["spec", "deeper"]), (true, false));
    assert_eq!(of(&["spec", "deeper", "name"]), (true, true));
    assert_eq!(of(&["spec", "deeper", "name", "x"]), (true, true));
    assert_eq!(of(&["spec", "name"]), (false, false));
}

const PLACES: [(&str, &str); 8] = [
    ("/spec/name", "spec.name"),
    ("/spec/count", "spec.count"),
    ("/spec/labels", "spec.labels"),
    ("/spec/deeper/name", "spec.deeper.name"),
    ("/spec/deeper/count", "spec.deeper.count"),
    ("/metadata/name", "metadata.name"),
    ("/metadata/annotations/hibernate.sh~1reason", "metadata.annotations[hibernate.sh/reason]"),
    ("/metadata/annotations/hibernate.sh~1wake-at", "metadata.annotations[hibernate.sh/wake-at]"),
];

proptest! {
    /// Whichever fields hold a value of another type: exactly those are listed, and the others are read.
    #[test]
    fn exactly_the_wrong_fields_are_listed(wrong in prop::collection::btree_map(0..PLACES.len(), 0..3_usize, 0..8)) {
        let notes = json!({ "hibernate.sh/reason": "night", "hibernate.sh/wake-at": "morning" });
        let inner = json!({ "name": "b", "count": 2 });
        let mut object = json!({
            "metadata": { "name": "demo", "annotations": notes },
            "spec": { "name": "a", "count": 1, "labels": { "c": "d" }, "deeper": inner },
        });
        for (place, odd) in &wrong {
            let odd = [json!([[], { "a": "b" }]), json!(true), json!(-1.5)][*odd].clone();
            *object.pointer_mut(PLACES[*place].0).unwrap() = odd;
        }
        let (Object { metadata, spec }, mut found) = fields(&object.to_string());
        let mut expected: Vec<_> = wrong.keys().map(|place| PLACES[*place].1).collect();
        expected.sort_unstable();
        found.sort_unstable();
        prop_assert_eq!(found, expected);
        let Spec { name, count, labels, deeper } = spec.unwrap();
        let deeper = deeper.unwrap();
        let read = [
            name.as_deref() == Some("a"),
            count == Some(1),
            labels.is_some(),
            deeper.name.as_deref() == Some("b"),
            deeper.count == Some(2),
            metadata.name == "demo",
            metadata.annotations.get("hibernate.sh/reason") == Some("night"),
            metadata.annotations.get("hibernate.sh/wake-at") == Some("morning"),
        ];
        for (place, read) in read.into_iter().enumerate() {
            prop_assert_eq!(read, !wrong.contains_key(&place), "{}", PLACES[place].1);
        }
    }
}
