//! The table, row by row.

#![expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method alone is not general enough in its lifetimes"
)]

use kube::CustomResourceExt as _;
use serde_json::{Value, json};

use super::*;
use crate::admission::testing::Person;
use crate::admission::{Edit, Settings, UnreadFields, User};
use crate::annotation::keys;
use crate::rollout::api::PowerRollout;

const NOW: &str = "2026-11-24T12:00:00Z";
const LATER: &str = "2026-11-24T14:00:00Z";
const LATEST: &str = "2026-11-25T00:00:00Z";

/// A rollout with a stamp and these fields.
fn rollout(by: Option<&str>, at: Option<&str>, spec: &Value) -> Value {
    let mut annotations = serde_json::Map::new();
    annotations.extend(by.map(|by| (keys::REQUESTED_BY.to_owned(), json!(by))));
    annotations.extend(at.map(|at| (keys::REQUESTED_AT.to_owned(), json!(at))));
    let mut object =
        json!({ "metadata": { "name": "night", "annotations": annotations }, "spec": { "notAfter": LATER } });
    for (field, value) in spec.as_object().unwrap() {
        object["spec"][field] = value.clone();
    }
    object
}

/// Groups, and whether the rollout pauses after each.
fn groups(pauses: &[bool]) -> Value {
    let group = |(at, pause): (usize, &bool)| json!({ "name": format!("g{at}"), "pauseAfter": pause });
    json!({ "groups": pauses.iter().enumerate().map(group).collect::<Vec<_>>() })
}

fn in_change<T>(old: Option<&Value>, new: &Value, ask: impl FnOnce(&Change<'_, Rollout>) -> T) -> T {
    let read = |object: &Value| serde_json::from_str(&object.to_string()).unwrap();
    ask(&Change {
        old: old.map(read),
        new: read(new),
        user: &User { username: "alice".to_owned() },
        field_manager: "",
        now: NOW.parse().unwrap(),
        settings: &Settings::default(),
        unread: UnreadFields::default(),
    })
}

fn detail(old: Option<&Value>, new: &Value) -> Vec<String> {
    let denials = in_change(old, new, judge).denials;
    denials.into_iter().map(|denial| format!("{} {}", denial.row, denial.detail)).collect()
}

#[test]
fn writes_that_let_targets_start_are_stamped_and_no_others() {
    let stamps = vec![
        Edit { key: keys::REQUESTED_BY, value: Some("alice".to_owned()) },
        Edit { key: keys::REQUESTED_AT, value: Some(NOW.to_owned()) },
    ];
    let bobs = |spec: Value| rollout(Some("bob"), Some("2026-11-24T11:00:00Z"), &spec);
    for (case, old, new, stamped) in [
        ("created", None, json!({}), true),
        ("created paused", None, json!({ "paused": true }), true),
        ("unpaused", Some(json!({ "paused": true })), json!({ "paused": false }), true),
        ("unpaused by removal", Some(json!({ "paused": true })), json!({}), true),
        ("accepted", Some(json!({ "acceptFailures": 1 })), json!({ "acceptFailures": 2 }), true),
        ("accepted for the first time", Some(json!({})), json!({ "acceptFailures": 1 }), true),
        ("retried", Some(json!({ "retryFailed": 0 })), json!({ "retryFailed": 5 }), true),
        ("retried and paused", Some(json!({})), json!({ "retryFailed": 1, "paused": true }), true),
        ("approved", Some(groups(&[true, true])), groups(&[true, false]), true),
        ("a pause after a group is asked for", Some(groups(&[false])), groups(&[true]), true),
        ("its groups stay as they are", Some(groups(&[true, false])), groups(&[true, false]), false),
        ("paused", Some(json!({})), json!({ "paused": true }), false),
        ("aborted", Some(json!({ "paused": true })), json!({ "paused": true, "abort": true }), false),
        ("prolonged", Some(json!({})), json!({ "notAfter": "2026-11-25T00:00:00Z" }), true),
        ("prolonged and paused", Some(json!({})), json!({ "notAfter": LATEST, "paused": true }), true),
        ("a limit goes", Some(json!({ "maxFailures": 1 })), json!({}), true),
        ("the defaults", Some(json!({})), json!({ "paused": false, "abort": false }), false),
        ("left alone", Some(json!({ "paused": true })), json!({ "paused": true }), false),
    ] {
        let (old, new) = (old.map(bobs), bobs(new));
        let edits = in_change(old.as_ref(), &new, stamp).annotations;
        assert_eq!(edits, if stamped { stamps.clone() } else { vec![] }, "{case}");
        assert_eq!(in_change(old.as_ref(), &new, |change| change.starts_targets()), stamped, "{case}");
    }
    let done = rollout(Some("alice"), Some(NOW), &json!({}));
    assert_eq!(in_change(None, &done, stamp).annotations, [], "stamping again does nothing");
}

/// `kubectl replace` and its like: the file of a rollout has no stamp.
#[test]
fn a_stamp_that_a_full_update_drops_is_put_back() {
    let of = |by, at, spec| rollout(by, at, &spec);
    let stored = of(Some("bob"), Some(NOW), json!({ "paused": true }));
    let edit = |key, value: &str| Edit { key, value: Some(value.to_owned()) };
    let (by, at) = (edit(keys::REQUESTED_BY, "bob"), edit(keys::REQUESTED_AT, NOW));
    let alice = edit(keys::REQUESTED_BY, "alice");
    for (case, new, expected) in [
        ("a file", of(None, None, json!({ "paused": true })), vec![by.clone(), at.clone()]),
        ("a file that aborts", of(None, None, json!({ "paused": true, "abort": true })), vec![by, at.clone()]),
        ("one of the two", of(Some("bob"), None, json!({ "paused": true })), vec![at.clone()]),
        ("another", of(Some("mallory"), Some(NOW), json!({ "paused": true })), vec![]),
        ("a file that resumes it", of(None, None, json!({})), vec![alice, at]),
    ] {
        assert_eq!(in_change(Some(&stored), &new, stamp).annotations, expected, "{case}");
    }
}

#[test]
fn r2_a_new_rollout_has_the_stamp_of_its_user() {
    let missing = ": the audit stamp is missing because the mutating webhook did not run; try again";
    let field = |key: &str| format!("R2 metadata.annotations[hibernate.sh/requested-{key}]: found ");
    for (by, at, expected) in [
        (Some("alice"), Some(NOW), None),
        (None, None, Some(format!("{}none, must be \"alice\", who asks{missing}", field("by")))),
        (Some("bob"), Some(NOW), Some(format!("{}\"bob\", must be \"alice\", who asks{missing}", field("by")))),
        (Some("alice"), None, Some(format!("{}none, must be the time of the request{missing}", field("at")))),
    ] {
        assert_eq!(detail(None, &rollout(by, at, &json!({}))), Vec::from_iter(expected), "{by:?} {at:?}");
    }
    let old = rollout(None, None, &json!({}));
    assert_eq!(detail(Some(&old), &old), [""; 0], "judged at creation alone");
}

#[test]
fn r3_a_new_rollout_ends_in_the_future() {
    let new = |not_after: Value| rollout(Some("alice"), Some(NOW), &json!({ "notAfter": not_after }));
    let right = "which has passed, must be a time after 2026-11-24T12:00:00Z: nothing would ever start";
    for (not_after, expected) in [
        ("2026-11-24T12:00:01Z", None),
        ("2026-11-24T13:00:01+01:00", None),
        (NOW, Some(format!("R3 spec.notAfter: found {NOW:?}, {right}"))),
        ("2020-01-01T00:00:00Z", Some(format!("R3 spec.notAfter: found \"2020-01-01T00:00:00Z\", {right}"))),
        (
            "2030-01-01",
            Some(
                "R3 spec.notAfter: found \"2030-01-01\", must be an RFC 3339 time such as 2026-11-21T18:00:00Z"
                    .to_owned(),
            ),
        ),
    ] {
        assert_eq!(detail(None, &new(json!(not_after))), Vec::from_iter(expected), "{not_after}");
        assert_eq!(detail(Some(&new(json!(NOW))), &new(json!(not_after))), [""; 0], "{not_after}, changed");
    }
    assert_eq!(detail(None, &new(Value::Null)), [""; 0], "the schema refuses it");
}

#[test]
fn a_rollout_that_ends_as_r3_advises_is_accepted() {
    let denials = |_: &Value, new: &Value, _: &str| {
        in_change(None, new, judge).denials.into_iter().map(|denial| denial.detail).collect()
    };
    let person = Person { denials: &denials, sound: Value::Null, now: NOW };
    for wrong in ["2030-01-01", NOW] {
        person.requests(&rollout(Some("alice"), Some(NOW), &json!({})), &[("/spec/notAfter".to_owned(), json!(wrong))]);
    }
}

/// Whatever field the definition has, today or later: to change it is a starting write, unless it is to stop.
#[test]
fn every_field_of_the_spec_is_in_the_list() {
    let definition = json!(PowerRollout::crd());
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let fields = definition.pointer(spec).and_then(Value::as_object).unwrap();
    assert!(fields.len() > 15 && STOPS.iter().all(|field| fields.contains_key(*field)), "{fields:?}");
    let starts = |old: &Value, new: &Value| {
        let [old, new] = [old, new].map(|spec| rollout(None, None, spec));
        in_change(Some(&old), &new, |change| change.starts_targets())
    };
    for field in fields.keys() {
        let (none, yes, no) = (json!({}), json!({ field: true }), json!({ field: false }));
        let stops = STOPS.contains(&field.as_str());
        for (old, new, expected) in [(&none, &yes, !stops), (&no, &yes, !stops), (&yes, &no, true), (&yes, &yes, false)]
        {
            assert_eq!(starts(old, new), expected, "{field}: {old} to {new}");
        }
    }
}

/// The rows of docs/security.md name the writes of the list, and no others.
#[test]
fn docs_name_the_list() {
    let page = include_str!("../../../../docs/security.md").replace('`', "");
    let row = |begin: &str| page.lines().find_map(|line| line.strip_prefix(begin)).unwrap();
    let listed = STARTS.map(Start::text).join("; ");
    assert_eq!(row("| R1 | ").split(" | ").next(), Some(listed.as_str()));
    let rows: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("| R2 | ")?.split(" | ").next()).collect();
    assert_eq!(rows, ["each write of R1", "any other"]);
    let table = row("| rollout-stamp | mutating | create, update | Fail | ");
    assert_eq!(table.split(':').next(), Some("each write of R1"));
}
