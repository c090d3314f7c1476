//! The table, row by row, and what must hold whatever is asked.

#![expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method alone is not general enough in its lifetimes"
)]

mod advice;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use strum::IntoEnumIterator as _;

use super::*;
use crate::admission::testing::stored;
use crate::admission::{Exempt, Settings, UnreadFields, User};
use crate::annotation::format;
use crate::kkp::phase::Phase;

const CONTROLLER: &str = "system:serviceaccount:hibernate-system:hibernate-controller";
const NOW: &str = "2026-11-22T18:00:00Z";
const EARLIER: &str = "2026-11-22T17:00:00Z";
/// Why our controller pauses a cluster, and the sleep that the pause names.
const REASON: &str = "dehydrated by kubectl-hibernate: weekend";
const SLEEP: &str = "u-1/2026-11-22T17:00:00Z";

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

/// One change and then another, removals among them.
fn and(one: Value, other: &Value) -> Value {
    match (one, other) {
        (Value::Object(mut one), Value::Object(other)) => {
            for (key, value) in other {
                let before = one.remove(key).unwrap_or_default();
                one.insert(key.clone(), and(before, value));
            }
            Value::Object(one)
        }
        (_, other) => other.clone(),
    }
}

/// Encryption at rest has come so far.
fn encrypting(phase: &str) -> Value {
    json!({ "status": { "encryption": { "phase": phase } } })
}

fn annotate(key: &str, value: &str) -> Value {
    json!({ "metadata": { "annotations": { key: value } } })
}

fn in_change<T>(old: Option<&Value>, new: &Value, user: &str, ask: impl FnOnce(&Change<'_, Cluster>) -> T) -> T {
    let read = |object: &Value| serde_json::from_value(object.clone()).unwrap();
    ask(&Change {
        old: old.map(read),
        new: read(new),
        user: &User { username: user.to_owned() },
        field_manager: "",
        now: now(),
        settings: &Settings {
            exempt: Exempt { users: vec![CONTROLLER.to_owned()], ..Exempt::default() },
            ..Settings::default()
        },
        unread: UnreadFields::default(),
    })
}

fn now() -> Timestamp {
    NOW.parse().unwrap()
}

/// Rows that deny, and rows that warn, of a change as it arrives after the stamp.
fn verdict(old: &Value, change: Value, user: &str) -> (Vec<&'static str>, Vec<&'static str>) {
    let mut new = merged(old.clone(), change);
    for (key, value) in stamps(Some(old), &new, user) {
        new["metadata"]["annotations"][key] = value.map_or(Value::Null, Value::from);
    }
    rows(&judged(Some(old), &merged(json!({}), new), user))
}

fn judged(old: Option<&Value>, new: &Value, user: &str) -> Evaluation {
    in_change(old, new, user, judge)
}

fn rows(evaluation: &Evaluation) -> (Vec<&'static str>, Vec<&'static str>) {
    (
        evaluation.denials.iter().map(|found| found.row).collect(),
        evaluation.warnings.iter().map(|found| found.row).collect(),
    )
}

/// What the stamp changes.
fn stamps(old: Option<&Value>, new: &Value, user: &str) -> Vec<(&'static str, Option<String>)> {
    let edits = in_change(old, new, user, stamp);
    assert!(edits.warnings.is_empty());
    edits.annotations.into_iter().map(|edit| (edit.key, edit.value)).collect()
}

#[test]
fn into_sleep() {
    let sleep = || annotate(keys::POWER_STATE, "Hibernating");
    let paused = |reason: &str| json!({ "spec": { "pause": true, "pauseReason": reason } });
    let named = annotate(keys::PAUSED_BY_SLEEP, SLEEP);
    for (row, before, with, denied, warned) in [
        ("plain", json!({}), json!({}), vec![], vec![]),
        ("K1", json!({}), annotate(keys::POWER_STATE, "asleep"), vec!["K1"], vec![]),
        ("K2", json!({ "metadata": { "deletionTimestamp": "2026-11-22T17:00:00Z" } }), json!({}), vec!["K2"], vec![]),
        ("K3", json!({ "spec": { "cloud": { "providerName": "edge" } } }), json!({}), vec!["K3"], vec![]),
        ("K3", json!({ "spec": { "cloud": { "providerName": "bringyourown" } } }), json!({}), vec!["K3"], vec![]),
        ("K3", json!({ "spec": { "cloud": { "providerName": "baremetal" } } }), json!({}), vec![], vec!["K3"]),
        ("K4", json!({ "spec": { "pause": true } }), json!({}), vec!["K4"], vec![]),
        ("K4", paused("maintenance"), json!({}), vec!["K4"], vec![]),
        ("K4, ours", merged(paused(REASON), named.clone()), json!({}), vec![], vec![]),
        ("K4, our reason alone", paused(REASON), json!({}), vec!["K4"], vec![]),
        ("K4, our sleep alone", merged(paused("maintenance"), named), json!({}), vec!["K4"], vec![]),
        ("K4", annotate(keys::ACTIVE_RESTORE, "r"), json!({}), vec!["K4"], vec![]),
        ("K4, at once", json!({}), annotate(keys::ACTIVE_RESTORE, "r"), vec!["K4"], vec![]),
        ("K4", json!({ "status": { "phase": "Updating" } }), json!({}), vec!["K4"], vec![]),
        ("K4", json!({ "status": { "conditions": null } }), json!({}), vec!["K4"], vec![]),
        ("K4", json!({ "status": null }), json!({}), vec!["K4"], vec![]),
        ("K4", encrypting("Pending"), json!({}), vec!["K4"], vec![]),
        ("K4", encrypting("EncryptionNeeded"), json!({}), vec!["K4"], vec![]),
        ("K4, done", encrypting("Active"), json!({}), vec![], vec![]),
        ("K4, failed", encrypting("Failed"), json!({}), vec![], vec![]),
        ("K5", annotate(common::PROTECTED, "true"), json!({}), vec!["K5"], vec![]),
        (
            "K5, removed",
            annotate(common::PROTECTED, "true"),
            json!({ "metadata": { "annotations": { common::PROTECTED: null } } }),
            vec!["K5"],
            vec![],
        ),
        ("K5", annotate(common::HOLD_AWAKE_UNTIL, "2026-11-22T19:00:00Z"), json!({}), vec!["K5"], vec![]),
        ("K5", annotate(common::HOLD_AWAKE_UNTIL, "tomorrow"), json!({}), vec!["K5"], vec![]),
        ("K5, passed", annotate(common::HOLD_AWAKE_UNTIL, "2026-11-22T17:00:00Z"), json!({}), vec![], vec![]),
        ("K6", json!({}), annotate(keys::FORCE, "yes please"), vec!["K6"], vec![]),
        ("K6", json!({}), annotate(keys::POWER_STATE_AT, "now"), vec!["K6"], vec![]),
        ("K7", json!({}), annotate(keys::ALLOW_UNPAUSE, "true"), vec![], vec!["K7"]),
        ("K7, off", json!({}), annotate(keys::ALLOW_UNPAUSE, "false"), vec![], vec![]),
    ] {
        let change = and(sleep(), &with);
        assert_eq!(verdict(&merged(awake(), before), change, "alice"), (denied, warned), "{row}");
    }
}

/// What the preflight and the controller advise where a sleep is requested and another client has paused the cluster.
#[test]
fn the_advice_to_end_a_pause_of_another_client_works() {
    let pause = json!({ "spec": { "pause": true, "pauseReason": "maintenance" } });
    let requested = merged(merged(awake(), annotate(keys::POWER_STATE, "Hibernating")), pause.clone());
    let dehydrated = merged(asleep(), pause);
    let write = |annotations: Value| json!({ "metadata": { "annotations": annotations }, "spec": { "pause": false } });
    assert_eq!(
        keys::TO_UNPAUSE,
        format!("set spec.pause to false, in one write with annotation {}: \"true\"", keys::ALLOW_UNPAUSE)
    );
    for paused in [&requested, &dehydrated] {
        assert_eq!(verdict(paused, write(json!({ keys::ALLOW_UNPAUSE: "true" })), "alice").0, [""; 0]);
    }
    assert_eq!(verdict(&dehydrated, write(json!({})), "alice").0, ["K7"], "without the annotation");
}

/// A new object's status is empty.
#[test]
fn k4_says_nothing_of_the_status_of_a_new_object() {
    let new = merged(awake(), merged(annotate(keys::POWER_STATE, "Hibernating"), json!({ "status": null })));
    let new = merged(new, annotate(common::REQUESTED_BY, "alice"));
    assert_eq!(rows(&judged(None, &new, "alice")).0, Vec::<&str>::new());
    let paused = merged(new, json!({ "spec": { "pause": true } }));
    assert_eq!(rows(&judged(None, &paused, "alice")).0, ["K4"]);
}

/// The controller pauses at the begin of a sleep and ends the pause in a wake: the reason of its condition says which.
#[test]
fn a_pause_of_ours_is_a_sleep_in_no_phase_of_the_wake() {
    for phase in Phase::iter() {
        let object = json!({
            "metadata": { "name": "abc", "annotations": { keys::PAUSED_BY_SLEEP: SLEEP } },
            "spec": { "pause": true, "pauseReason": REASON },
            "status": { "conditions": { "ClusterDehydrated": { "status": "False", "reason": phase } } },
        });
        let cluster: Cluster = serde_json::from_value(object).unwrap();
        let wakes = phase.is_of_wake();
        assert_eq!(
            (cluster.is_asleep(), !phase.is_of_sleep() && phase != Phase::DrainTimedOut),
            (!wakes, wakes),
            "{phase}"
        );
        let detail =
            json!({ "status": { "conditions": { "ClusterDehydrated": { "status": "False", "reason": phase } } } });
        let paused =
            merged(json!({ "spec": { "pause": true, "pauseReason": REASON } }), annotate(keys::PAUSED_BY_SLEEP, SLEEP));
        let old = merged(merged(awake(), paused), detail);
        let again = verdict(&old, annotate(keys::POWER_STATE, "Hibernating"), "alice");
        assert_eq!(again, (vec![], vec![]), "a sleep may be requested again: {phase}");
    }
}

#[test]
fn k6_annotations_have_their_form_whatever_the_state() {
    for (key, wrong, right) in [
        (keys::POWER_STATE_AT, "now", "2026-11-22T18:00:00Z"),
        (common::PREFLIGHT_REQUESTED_AT, "2026-11-22", "2026-11-22T18:00:00Z"),
        (common::HOLD_AWAKE_UNTIL, "2026-11-22T17:00:00Z", "2026-11-23T18:00:00Z"),
        (common::HOLD_AWAKE_UNTIL, "tomorrow", "2026-11-23T18:00:00+01:00"),
        (common::PROTECTED, "yes", "true"),
        (keys::FORCE, "1", "true"),
        (keys::ALLOW_UNPAUSE, "True", "false"),
        (keys::ALLOW_DELETE, "yes", "true"),
    ] {
        for before in [awake(), asleep()] {
            assert_eq!(verdict(&before, annotate(key, wrong), "alice"), (vec!["K6"], vec![]), "{key} {wrong}");
            assert_eq!(verdict(&before, annotate(key, right), "alice"), (vec![], vec![]), "{key} {right}");
            let stored = merged(before, annotate(key, wrong));
            let label = json!({ "metadata": { "labels": { "a": "b" } } });
            assert_eq!(verdict(&stored, label, "alice"), (vec![], vec![]), "what is stored blocks nothing");
        }
    }
}

#[test]
fn while_asleep() {
    let unpause = || json!({ "spec": { "pause": false } });
    let deleted = json!({ "metadata": { "deletionTimestamp": "2026-11-22T17:00:00Z" } });
    let ours = || merged(annotate(keys::PAUSED_BY_SLEEP, SLEEP), json!({ "spec": { "pauseReason": REASON } }));
    let no_status = and(ours(), &json!({ "status": null }));
    let not_ours = json!({ "status": null, "spec": { "pauseReason": REASON } });
    let condition = |status: &str, reason: &str| json!({ "status": { "conditions": { "ClusterDehydrated": { "status": status, "reason": reason } } } });
    let restore = || annotate(keys::ACTIVE_RESTORE, "r");
    let awake_paused = || merged(condition("False", "AwakePaused"), ours());
    for (what, before, change, user, denied, warned) in [
        ("an un-pause", json!({}), unpause(), "alice", vec!["K7"], vec![]),
        ("an absent pause", json!({}), json!({ "spec": { "pause": null } }), "alice", vec!["K7"], vec![]),
        ("no spec at all", json!({}), json!({ "spec": null }), "alice", vec!["K7"], vec!["K8"]),
        ("a status that is lost", no_status.clone(), unpause(), "alice", vec!["K7"], vec![]),
        ("a pause of others with our reason", not_ours, unpause(), "alice", vec![], vec![]),
        ("a record that cannot be read", condition("True", "RecordUnreadable"), unpause(), "alice", vec!["K7"], vec![]),
        ("on the way", condition("False", "ScalingDownControlPlane"), unpause(), "alice", vec!["K7"], vec![]),
        ("on the way back", condition("False", "StartingControlPlane"), unpause(), "alice", vec![], vec![]),
        ("a pause that KKP did not let us end", awake_paused(), unpause(), "alice", vec![], vec![]),
        ("the same, a restore", awake_paused(), restore(), "kkp", vec![], vec![]),
        ("our own", json!({}), unpause(), CONTROLLER, vec![], vec![]),
        ("with a wake", json!({}), merged(unpause(), annotate(keys::POWER_STATE, "Running")), "alice", vec![], vec![]),
        ("after a wake", annotate(keys::POWER_STATE, "Running"), unpause(), "alice", vec![], vec![]),
        ("allowed", json!({}), merged(unpause(), annotate(keys::ALLOW_UNPAUSE, "true")), "alice", vec![], vec![]),
        ("allowed before", annotate(keys::ALLOW_UNPAUSE, "true"), unpause(), "alice", vec![], vec![]),
        ("not allowed", annotate(keys::ALLOW_UNPAUSE, "no"), unpause(), "alice", vec!["K7"], vec![]),
        ("of a restore", restore(), unpause(), "kkp", vec![], vec![]),
        ("of a deletion", deleted, unpause(), "kkp", vec![], vec![]),
        ("a version", json!({}), json!({ "spec": { "version": "1.35.0" } }), "kkp", vec![], vec!["K8"]),
        ("a datacenter", json!({}), json!({ "spec": { "cloud": { "dc": "us" } } }), "kkp", vec![], vec!["K8"]),
        ("a restore", json!({}), restore(), "kkp", vec!["K9"], vec![]),
        ("a restore, no status", no_status, restore(), "kkp", vec!["K9"], vec![]),
        (
            "a restore and a wake",
            json!({}),
            merged(restore(), annotate(keys::POWER_STATE, "Running")),
            "kkp",
            vec![],
            vec![],
        ),
        ("a restore after a wake", annotate(keys::POWER_STATE, "Running"), restore(), "kkp", vec![], vec![]),
        ("another restore", restore(), annotate(keys::ACTIVE_RESTORE, "s"), "kkp", vec![], vec![]),
        (
            "the end of a restore",
            restore(),
            json!({ "metadata": { "annotations": { keys::ACTIVE_RESTORE: null } } }),
            "kkp",
            vec![],
            vec![],
        ),
    ] {
        assert_eq!(verdict(&merged(asleep(), before), change, user), (denied, warned), "{what}");
    }
}

/// Rows 12, 13, 16 and 18, and what the dashboard writes: nothing is said of it, and nothing is changed about it.
#[test]
fn kkps_own_writes_pass_unchanged() {
    let metadata = |metadata: Value| json!({ "metadata": metadata });
    let restored = merged(asleep(), annotate(keys::ACTIVE_RESTORE, "r"));
    for (what, before, change) in [
        ("finalizers", asleep(), metadata(json!({ "finalizers": ["kubermatic.k8c.io/cleanup-in-cluster-lb"] }))),
        ("row 16: project labels", asleep(), metadata(json!({ "labels": { "project": "b" } }))),
        ("row 16: preset", asleep(), metadata(json!({ "annotations": { "presetInvalidated": "true" } }))),
        ("row 16: preset, label", asleep(), metadata(json!({ "labels": { "is-credential-preset": "true" } }))),
        ("row 16: phase", asleep(), json!({ "status": { "phase": "Updating" } })),
        (
            "row 12: conditions",
            asleep(),
            json!({ "status": { "conditions": { "SeedResourcesUpToDate": { "status": "False" } } } }),
        ),
        ("row 18: pause", restored.clone(), json!({ "spec": { "pause": true } })),
        ("row 18: un-pause", restored.clone(), json!({ "spec": { "pause": false } })),
        ("row 18: end", restored, metadata(json!({ "annotations": { keys::ACTIVE_RESTORE: null } }))),
        ("row 31: defaults", asleep(), json!({ "spec": { "componentsOverride": { "apiserver": { "replicas": 2 } } } })),
        ("credentials", asleep(), json!({ "spec": { "cloud": { "aws": { "accessKeyID": "b" } } } })),
        ("ssh keys", asleep(), json!({ "spec": { "enableUserSSHKeyAgent": true } })),
        ("a pause while awake", awake(), json!({ "spec": { "pause": true } })),
        (
            "row 18: begin, awake",
            awake(),
            merged(annotate(keys::ACTIVE_RESTORE, "r"), json!({ "spec": { "pause": true } })),
        ),
        ("a version, awake", awake(), json!({ "spec": { "version": "1.35.0" } })),
        ("no annotations, awake", awake(), metadata(json!({ "annotations": null }))),
    ] {
        assert_eq!(verdict(&before, change.clone(), "kkp"), (vec![], vec![]), "{what}");
        assert_eq!(stamps(Some(&before), &merged(before.clone(), change), "kkp"), [], "{what}");
    }
}

#[test]
fn k10_a_wake_is_never_denied() {
    let change = merged(annotate(keys::POWER_STATE, "Running"), annotate(keys::FORCE, "yes please"));
    assert_eq!(verdict(&asleep(), change, "alice"), (vec![], vec!["K6"]));
    let change = json!({ "metadata": { "annotations": { keys::POWER_STATE: null } } });
    assert_eq!(verdict(&asleep(), change, "alice"), (vec![], vec![]));
}

/// Without the intent to sleep, a condition has no effect: a client that writes a status cannot block an un-pause or a
/// restore by it.
#[test]
fn a_forged_condition_blocks_nothing() {
    let forged = merged(asleep(), json!({ "metadata": { "annotations": { keys::POWER_STATE: null } } }));
    for change in [json!({ "spec": { "pause": false } }), annotate(keys::ACTIVE_RESTORE, "r")] {
        assert_eq!(verdict(&forged, change.clone(), "kkp"), (vec![], vec![]), "{change}");
    }
}

#[test]
fn a_change_of_state_is_stamped() {
    let by =
        |user: &str| vec![(common::REQUESTED_BY, Some(user.to_owned())), (common::REQUESTED_AT, Some(NOW.to_owned()))];
    let reason = annotate(common::REASON, "weekend");
    let dropped = |user: &str| [by(user), vec![(common::REASON, None)]].concat();
    let forged = annotate(common::REQUESTED_BY, "mallory");
    let stamped = |state: &str, by: &str, at: &str, reason: &str| {
        json!({ "metadata": { "annotations": {
            keys::POWER_STATE: state, common::REQUESTED_BY: by, common::REQUESTED_AT: at, common::REASON: reason,
        } } })
    };
    let with_alice = || merged(asleep(), stamped("Hibernating", "alice", EARLIER, "weekend"));
    let unstamped =
        || json!({ "metadata": { "annotations": { common::REQUESTED_BY: null, common::REQUESTED_AT: null } } });
    let of_alice =
        || vec![(common::REQUESTED_BY, Some("alice".to_owned())), (common::REQUESTED_AT, Some(EARLIER.to_owned()))];
    let carried = || stamped("Running", "bob", "2026-11-22T17:30:00Z", "needed");
    for (what, old, change, user, expected) in [
        ("sleep", awake(), annotate(keys::POWER_STATE, "Hibernating"), "alice", by("alice")),
        ("forged", awake(), merged(annotate(keys::POWER_STATE, "Hibernating"), forged), "alice", by("alice")),
        ("wake", merged(asleep(), reason.clone()), annotate(keys::POWER_STATE, "Running"), "bob", dropped("bob")),
        (
            "another client has ended the pause: the controller withdraws the intent",
            merged(asleep(), reason),
            json!({ "metadata": { "annotations": { keys::POWER_STATE: "Running", keys::POWER_STATE_AT: null } } }),
            CONTROLLER,
            dropped(CONTROLLER),
        ),
        ("it carries over the request on the record", with_alice(), carried(), CONTROLLER, vec![]),
        ("anybody else", with_alice(), carried(), "mallory", by("mallory")),
        (
            "a request that nobody is named for",
            with_alice(),
            and(carried(), &json!({ "metadata": { "annotations": { common::REQUESTED_BY: null } } })),
            CONTROLLER,
            by(CONTROLLER),
        ),
        (
            "a request that is as old as the sleep",
            with_alice(),
            and(carried(), &annotate(common::REQUESTED_AT, EARLIER)),
            CONTROLLER,
            by(CONTROLLER),
        ),
        ("no wake", awake(), and(carried(), &annotate(keys::POWER_STATE, "Hibernating")), CONTROLLER, by(CONTROLLER)),
        ("no change", awake(), annotate(keys::POWER_STATE, "Running"), "alice", vec![]),
        ("a time", asleep(), annotate(keys::POWER_STATE_AT, NOW), "alice", vec![]),
        ("a file without stamps", with_alice(), unstamped(), "argo", of_alice()),
        ("the same, by our controller", with_alice(), unstamped(), CONTROLLER, of_alice()),
        ("another stamp is denied", with_alice(), annotate(common::REQUESTED_BY, "mallory"), "mallory", vec![]),
        (
            "a hold",
            awake(),
            annotate(common::HOLD_AWAKE_UNTIL, "2026-11-23T18:00:00Z"),
            "alice",
            vec![(common::HOLD_AWAKE_BY, Some("alice".to_owned()))],
        ),
    ] {
        assert_eq!(stamps(Some(&old), &merged(old.clone(), change), user), expected, "{what}");
    }
}

/// Of a request on the record (row 27), whoever writes it.
#[test]
fn a_request_on_the_record_is_stamped_and_its_stamp_cannot_be_edited() {
    let record = |annotations: Value| json!({ "metadata": { "name": "hibernate-record", "annotations": annotations }, "data": { "record.json": "{}" } });
    let asks = |at: &str| json!({ keys::POWER_STATE: "Running", keys::POWER_STATE_AT: at });
    let with = |by: &str, at: &str| json!({ common::REQUESTED_BY: by, common::REQUESTED_AT: at });
    let stamped = |by: &str| record(merged(asks(EARLIER), with(by, EARLIER)));
    let again = |more: Value| record(merged(asks(NOW), more));
    let by =
        |user: &str| vec![(common::REQUESTED_BY, Some(user.to_owned())), (common::REQUESTED_AT, Some(NOW.to_owned()))];
    let back = vec![(common::REQUESTED_BY, Some("alice".to_owned())), (common::REQUESTED_AT, Some(EARLIER.to_owned()))];
    let gone = vec![(common::REQUESTED_BY, None), (common::REQUESTED_AT, None)];
    let forged = || with("mallory", "2026-11-22T17:59:00Z");
    for (what, old, new, user, expected) in [
        ("a request", Some(record(json!({}))), again(json!({})), "bob", by("bob")),
        ("without annotations before", Some(json!({ "metadata": {} })), again(json!({})), "bob", by("bob")),
        ("forged with it", Some(record(json!({}))), again(forged()), "bob", by("bob")),
        ("a newer one", Some(stamped("alice")), again(json!({})), "bob", by("bob")),
        ("a newer one with the old stamp", Some(stamped("alice")), again(with("alice", EARLIER)), "bob", by("bob")),
        ("forged later", Some(stamped("alice")), record(merged(asks(EARLIER), forged())), "mallory", back.clone()),
        ("removed", Some(stamped("alice")), record(asks(EARLIER)), "mallory", back),
        ("forged without a request", Some(record(json!({}))), record(forged()), "mallory", gone.clone()),
        ("created with a request", None, again(forged()), "bob", by("bob")),
        ("created without", None, record(forged()), "mallory", gone),
        ("the record itself is written", Some(stamped("alice")), stamped("alice"), CONTROLLER, vec![]),
        ("our controller makes it anew", None, stamped("alice"), CONTROLLER, vec![]),
    ] {
        let edits = in_change(old.as_ref(), &new, user, stamp_record).annotations;
        let edits: Vec<_> = edits.into_iter().map(|edit| (edit.key, edit.value)).collect();
        assert_eq!(edits, expected, "{what}");
    }
}

#[test]
fn k11_k12_stamps_are_the_webhooks() {
    for (key, value) in
        [(common::REQUESTED_BY, "mallory"), (common::REQUESTED_AT, NOW), (common::HOLD_AWAKE_BY, "mallory")]
    {
        let new = merged(asleep(), annotate(key, value));
        assert_eq!(rows(&judged(Some(&asleep()), &new, "alice")), (vec!["K11"], vec![]), "{key}");
        assert_eq!(
            rows(&judged(None, &merged(awake(), annotate(key, value)), "alice")),
            (vec![], vec!["K11"]),
            "{key}"
        );
    }
    let unstamped = merged(awake(), annotate(keys::POWER_STATE, "Hibernating"));
    assert_eq!(rows(&judged(Some(&awake()), &unstamped, "alice")), (vec!["K12"], vec![]));
}

fn deletion(change: Value) -> Evaluation {
    let whole = json!({ "metadata": { "finalizers": [keys::CLEANUP_LOAD_BALANCERS, keys::CLEANUP_VOLUMES] } });
    judge_deletion(&deleted(&merged(merged(asleep(), whole), change)), now())
}

fn deleted(object: &Value) -> Deletion {
    let (cluster, unread) = stored(object);
    Deletion { cluster: cluster.unwrap(), unread }
}

#[test]
fn k13_deletion() {
    const VOLUMES: &str = "disks of PersistentVolumes remain";
    const LBS: &str = "load balancers remain";
    const STARTS: &str = "starts its control plane";
    let expires = |at: &str| annotate(keys::CERTIFICATES_EXPIRE_AT, at);
    let (later, soon, past) = ("2026-12-22T18:00:00Z", "2026-11-23T18:00:00Z", "2026-11-21T18:00:00Z");
    let finalizers = |list: Value| merged(expires(later), json!({ "metadata": { "finalizers": list } }));
    let near = |change: Value| and(expires(past), &change);
    let cases: Vec<(&str, Value, Option<&str>, &[&str])> = vec![
        ("row 21: there is time", expires(later), None, &[STARTS]),
        ("a day and a second", expires("2026-11-23T18:00:01Z"), None, &[STARTS]),
        ("a day", expires(soon), Some("expires within a day"), &[STARTS]),
        ("passed", expires(past), Some("expired at 2026-11-21T18:00:00Z"), &[STARTS]),
        ("unknown", json!({}), None, &[STARTS, "certificates-expire-at is absent"]),
        ("malformed", expires("soon"), Some("found \"soon\", which is not a time"), &[STARTS]),
        ("allowed", near(annotate(keys::ALLOW_DELETE, "true")), None, &[STARTS, "expired at 2026-11-21T18:00:00Z"]),
        ("not allowed", near(annotate(keys::ALLOW_DELETE, "false")), Some("expired at"), &[STARTS]),
        ("allowed in no form", near(annotate(keys::ALLOW_DELETE, "yes")), Some("expired at"), &[STARTS]),
        ("row 23: plain", finalizers(json!([])), None, &[STARTS, LBS, VOLUMES]),
        ("row 23: no LB", finalizers(json!([keys::CLEANUP_VOLUMES])), None, &[STARTS, LBS]),
        ("row 23: no PV", finalizers(json!([keys::CLEANUP_LOAD_BALANCERS])), None, &[STARTS, VOLUMES]),
        ("after a wake", near(annotate(keys::POWER_STATE, "Running")), None, &[]),
        ("under way", near(json!({ "metadata": { "deletionTimestamp": NOW } })), None, &[]),
        ("awake", near(json!({ "status": { "conditions": { "ClusterDehydrated": null } } })), None, &[]),
    ];
    for (what, change, denied, warned) in cases {
        let found = deletion(change);
        let denials: Vec<String> = found.denials.iter().map(|found| found.detail.to_string()).collect();
        assert_eq!(denials.len(), usize::from(denied.is_some()), "{what}: {denials:?}");
        assert!(
            denied.is_none_or(|says| {
                denials[0].contains(says)
                    && denials[0].contains("resume cluster/abc")
                    && denials[0].contains("hibernate.sh/allow-delete=true")
            }),
            "{what}: {denials:?}"
        );
        assert_eq!(found.warnings.len(), warned.len(), "{what}: {:?}", found.warnings);
        for (warning, says) in found.warnings.iter().zip(warned) {
            let kept: String = warning.detail.chars().take(admission::LONGEST_WARNING).collect();
            assert!(kept.contains(says), "{what}: {warning:?}");
        }
    }
}

#[test]
fn a_cluster_of_any_finalizers_is_read() {
    let many = vec!["example.com/x"; 50_000];
    let object = merged(asleep(), json!({ "metadata": { "finalizers": many } }));
    assert_eq!(judge_deletion(&deleted(&object), now()).warnings.len(), 4);
    assert!(stored::<Cluster>(&json!({})).0.is_none() && stored::<Cluster>(&json!([])).0.is_none());
}

fn any_cluster() -> impl Strategy<Value = Value> {
    let one_of = |values: &'static [Option<&'static str>]| prop::sample::select(values);
    let state = one_of(&[None, Some("Running"), Some("Hibernating"), Some("hibernating")]);
    let flag = one_of(&[None, None, Some("true"), Some("yes")]);
    let time = one_of(&[None, None, Some("2026-11-22T17:00:00Z"), Some("2026-11-23T17:00:00Z"), Some("now")]);
    let reason = one_of(&[None, Some("Dehydrated"), Some("Pausing"), Some("Draining"), Some("x")]);
    let pause = one_of(&[None, Some(REASON), Some("theirs")]);
    (state, [flag.clone(), flag.clone(), flag.clone(), flag], [time.clone(), time], reason, pause, any::<bool>()).prop_map(
        |(state, flags, times, reason, pause, deleted)| {
            json!({
                "metadata": {
                    "name": "abc",
                    "deletionTimestamp": deleted.then_some("2026-11-22T17:00:00Z"),
                    "annotations": merged(json!({}), json!({
                        keys::POWER_STATE: state, keys::ALLOW_UNPAUSE: flags[0], common::PROTECTED: flags[1],
                        keys::ACTIVE_RESTORE: flags[2], common::REQUESTED_BY: flags[3],
                        common::HOLD_AWAKE_UNTIL: times[0], keys::POWER_STATE_AT: times[1],
                        keys::PAUSED_BY_SLEEP: pause.filter(|_| !deleted).map(|_| SLEEP),
                    })),
                },
                "spec": { "pause": pause.is_some(), "pauseReason": pause, "cloud": { "dc": "eu", "providerName": "aws" } },
                "status": { "phase": "Running", "conditions": {
                    "SeedResourcesUpToDate": { "status": "True" }, "ClusterDehydrated": reason.map(|reason| json!({ "reason": reason })),
                } },
            })
        },
    )
}

proptest! {
    #[test]
    fn waking_is_never_denied(old in any_cluster(), new in any_cluster(), state in prop::sample::select(&[None, Some("Running")][..])) {
        let old = merged(old, annotate(keys::POWER_STATE, "Hibernating"));
        let new = merged(new, json!({ "metadata": { "annotations": { keys::POWER_STATE: state } } }));
        prop_assert!(judged(Some(&old), &new, "alice").allows());
    }

    #[test]
    fn a_write_that_changes_nothing_is_never_judged(cluster in any_cluster()) {
        prop_assert_eq!(rows(&judged(Some(&cluster), &cluster, "alice")), (vec![], vec![]));
    }

    /// A write that alters no annotation of ours is judged only while the cluster sleeps and is to go on sleeping.
    #[test]
    fn writes_of_others_pass_unless_the_cluster_stays_asleep(old in any_cluster(), new in any_cluster()) {
        let mut new = new;
        for key in ANNOTATIONS {
            let stored = old["metadata"]["annotations"].get(*key).cloned();
            let annotations = new["metadata"]["annotations"].as_object_mut().unwrap();
            annotations.remove(*key);
            annotations.extend(stored.map(|value| ((*key).to_owned(), value)));
        }
        prop_assert!(stamps(Some(&old), &new, "kkp").is_empty());
        if !in_change(Some(&old), &new, "kkp", |change| change.stays_asleep()) {
            prop_assert_eq!(rows(&judged(Some(&old), &new, "kkp")), (vec![], vec![]));
        }
    }

    #[test]
    fn a_sleep_is_stamped_with_who_asks_or_denied(old in any_cluster(), new in any_cluster()) {
        let sleeps = in_change(Some(&old), &new, "alice", |change| change.goes_to_sleep());
        let by = new["metadata"]["annotations"].get(common::REQUESTED_BY).and_then(Value::as_str);
        prop_assert!(!sleeps || by == Some("alice") || !judged(Some(&old), &new, "alice").allows());
    }

    /// Whatever the times: a DELETE is refused only with a certificate that expires within a day.
    #[test]
    fn a_deletion_is_refused_by_the_expiry_alone(cluster in any_cluster(), hours in -100_i64..100) {
        let expiry = now() + jiff::SignedDuration::from_hours(hours);
        let cluster = merged(cluster, annotate(keys::CERTIFICATES_EXPIRE_AT, &format::seconds(expiry)));
        let evaluation = judge_deletion(&deleted(&cluster), now());
        prop_assert!(evaluation.allows() || hours <= 24);
    }
}
