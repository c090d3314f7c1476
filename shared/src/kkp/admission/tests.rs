//! The table, row by row.

use serde_json::{Value, json};

use super::*;
use crate::admission::User;

const CONTROLLER: &str = "system:serviceaccount:hibernate-system:hibernate-controller";

/// A cluster that runs.
fn awake() -> Value {
    json!({
        "metadata": { "name": "abc", "annotations": {} },
        "spec": { "version": "1.34.1", "cloud": { "dc": "eu", "providerName": "aws" } },
        "status": { "phase": "Running", "conditions": { "SeedResourcesUpToDate": { "status": "True" } } },
    })
}

/// The same, asleep.
fn asleep() -> Value {
    merged(
        awake(),
        json!({
            "metadata": { "annotations": { keys::POWER_STATE: "Hibernating" } }, "spec": { "pause": true },
            "status": { "conditions": { "ClusterDehydrated": { "status": "True", "reason": "Dehydrated" } } },
        }),
    )
}

#[expect(clippy::needless_pass_by_value, reason = "cases write their changes in place")]
fn merged(mut object: Value, change: Value) -> Value {
    json_patch::merge(&mut object, &change);
    object
}

fn annotate(key: &str, value: &str) -> Value {
    json!({ "metadata": { "annotations": { key: value } } })
}

/// Rows that deny, and rows that warn.
fn verdict(old: &Value, change: Value, user: &str) -> (Vec<&'static str>, Vec<&'static str>) {
    let new = merged(old.clone(), change);
    let settings = Settings { controller: CONTROLLER.to_owned() };
    let user = User { username: user.to_owned() };
    let judgement = judge(&Change {
        old: Some(serde_json::from_value(old.clone()).unwrap()),
        new: serde_json::from_value(new).unwrap(),
        user: &user,
        field_manager: "",
        now: "2026-11-22T18:00:00Z".parse().unwrap(),
        settings: &settings,
    });
    (
        judgement.denials.iter().map(|found| found.row).collect(),
        judgement.warnings.iter().map(|found| found.row).collect(),
    )
}

#[test]
fn into_sleep() {
    let sleep = || annotate(keys::POWER_STATE, "Hibernating");
    for (row, before, with, denied, warned) in [
        ("plain", json!({}), json!({}), vec![], vec![]),
        ("K1", json!({}), annotate(keys::POWER_STATE, "asleep"), vec!["K1"], vec![]),
        ("K2", json!({ "metadata": { "deletionTimestamp": "2026-11-22T17:00:00Z" } }), json!({}), vec!["K2"], vec![]),
        ("K3", json!({ "spec": { "cloud": { "providerName": "edge" } } }), json!({}), vec!["K3"], vec![]),
        ("K3", json!({ "spec": { "cloud": { "providerName": "baremetal" } } }), json!({}), vec![], vec!["K3"]),
        ("K4", json!({ "spec": { "pause": true } }), json!({}), vec!["K4"], vec![]),
        ("K4", annotate(keys::ACTIVE_RESTORE, "r"), json!({}), vec!["K4"], vec![]),
        ("K4", json!({ "status": { "phase": "Updating" } }), json!({}), vec!["K4"], vec![]),
        ("K4", json!({ "status": { "conditions": null } }), json!({}), vec!["K4"], vec![]),
        ("K5", annotate(common::PROTECTED, "true"), json!({}), vec!["K5"], vec![]),
        (
            "K5, removed",
            annotate(common::PROTECTED, "true"),
            json!({ "metadata": { "annotations": { common::PROTECTED: null } } }),
            vec!["K5"],
            vec![],
        ),
        ("K5", annotate(common::HOLD_AWAKE_UNTIL, "2026-11-22T19:00:00Z"), json!({}), vec!["K5"], vec![]),
        ("K5, passed", annotate(common::HOLD_AWAKE_UNTIL, "2026-11-22T17:00:00Z"), json!({}), vec![], vec![]),
        ("K6", json!({}), annotate(keys::FORCE, "yes please"), vec!["K6"], vec![]),
        ("K6", json!({}), annotate(keys::POWER_STATE_AT, "now"), vec!["K6"], vec![]),
    ] {
        let change = merged(sleep(), with);
        assert_eq!(verdict(&merged(awake(), before), change, "alice"), (denied, warned), "{row}");
    }
}

#[test]
fn while_asleep() {
    let unpause = || json!({ "spec": { "pause": false } });
    let deleted = json!({ "metadata": { "deletionTimestamp": "2026-11-22T17:00:00Z" } });
    for (what, before, change, user, denied, warned) in [
        ("an un-pause", json!({}), unpause(), "alice", vec!["K7"], vec![]),
        ("our own", json!({}), unpause(), CONTROLLER, vec![], vec![]),
        ("with a wake", json!({}), merged(unpause(), annotate(keys::POWER_STATE, "Running")), "alice", vec![], vec![]),
        ("of a restore", annotate(keys::ACTIVE_RESTORE, "r"), unpause(), "kkp", vec![], vec![]),
        ("of a deletion", deleted, unpause(), "kkp", vec![], vec![]),
        ("a version", json!({}), json!({ "spec": { "version": "1.35.0" } }), "kkp", vec![], vec!["K8"]),
        ("a restore", json!({}), annotate(keys::ACTIVE_RESTORE, "r"), "kkp", vec!["K9"], vec![]),
        (
            "KKP's finalizer",
            json!({}),
            json!({ "metadata": { "finalizers": ["kubermatic.k8c.io/delete-nodes"] } }),
            "kkp",
            vec![],
            vec![],
        ),
        ("a label", json!({}), json!({ "metadata": { "labels": { "a": "b" } } }), "kkp", vec![], vec![]),
        ("a status", json!({}), json!({ "status": { "phase": "Updating" } }), "kkp", vec![], vec![]),
    ] {
        assert_eq!(verdict(&merged(asleep(), before), change, user), (denied, warned), "{what}");
    }
}

#[test]
fn a_wake_is_never_denied() {
    let change = merged(annotate(keys::POWER_STATE, "Running"), annotate(keys::FORCE, "yes please"));
    assert_eq!(verdict(&asleep(), change, "alice"), (vec![], vec!["K6"]));
    let change = json!({ "metadata": { "annotations": { keys::POWER_STATE: null } } });
    assert_eq!(verdict(&asleep(), change, "alice"), (vec![], vec![]));
}

#[test]
fn awake_clusters_of_others_are_left_alone() {
    for change in [
        json!({ "spec": { "pause": true } }),
        annotate(keys::ACTIVE_RESTORE, "r"),
        json!({ "spec": { "version": "1.35.0" } }),
    ] {
        assert_eq!(verdict(&awake(), change.clone(), "alice"), (vec![], vec![]), "{change}");
    }
}
