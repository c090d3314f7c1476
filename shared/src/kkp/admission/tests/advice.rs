//! What a denial advises is done, and the request is accepted.

use super::*;
use crate::admission::testing::{Edit, Person, annotations, edited, note};
use crate::admission::{Denial, Verdict};

/// Rows of the rules that no case of [`every_advice_works`] reaches: they name a fact, or a write that only the webhook
/// can make. K7 and K9 are followed in a test of their own.
const ADVISE_NOTHING: [&str; 13] = ["K2", "K3", "K4", "K6", "K7", "K7", "K8", "K9", "K11", "K11", "K11", "K11", "K12"];

/// The object as the mutating webhook leaves it.
fn stamped(old: &Value, new: &Value) -> Value {
    edited(new, &stamps(Some(old), new, "alice").into_iter().map(|(key, value)| note(key, value)).collect::<Vec<_>>())
}

fn denials(old: &Value, new: &Value, at: &str) -> Vec<Denial> {
    let at = at.parse::<Timestamp>().unwrap();
    let judged =
        in_change(Some(old), &stamped(old, new), "alice", |change| judge(&Change { now: at, ..change.clone() }));
    judged.denials.into_iter().map(|denial| denial.detail).collect()
}

#[test]
fn every_advice_works() {
    let person = Person { denials: &denials, sound: awake(), now: NOW };
    let sleep = || vec![note(keys::POWER_STATE, "Hibernating")];
    let held = || annotate(common::HOLD_AWAKE_UNTIL, "2026-11-23T08:00:00Z");
    let and_removes = |key: &str| vec![note(keys::POWER_STATE, "Hibernating"), note(key, Value::Null)];
    // What is stored, and what is requested.
    let mut cases: Vec<(Value, Vec<Edit>)> = vec![
        (json!({}), vec![note(keys::POWER_STATE, "asleep")]),
        (json!({ "spec": { "pause": true, "pauseReason": "maintenance" } }), sleep()),
        (json!({ "status": { "phase": "Updating" } }), sleep()),
        (encrypting("Pending"), sleep()),
        (annotate(common::PROTECTED, "true"), sleep()),
        (annotate(common::PROTECTED, "true"), and_removes(common::PROTECTED)),
        (held(), sleep()),
        (held(), and_removes(common::HOLD_AWAKE_UNTIL)),
        (annotate(common::HOLD_AWAKE_UNTIL, "tomorrow"), sleep()),
    ];
    cases.extend(
        [
            (keys::POWER_STATE_AT, "now"),
            (common::PREFLIGHT_REQUESTED_AT, "2026-11-22"),
            (common::HOLD_AWAKE_UNTIL, "tomorrow"),
            (common::HOLD_AWAKE_UNTIL, "2026-11-22T17:00:00Z"),
            (common::PROTECTED, "yes"),
            (keys::FORCE, "1"),
            (keys::ALLOW_UNPAUSE, "True"),
            (keys::ALLOW_DELETE, "yes"),
        ]
        .map(|(key, wrong)| (json!({}), vec![note(key, wrong)])),
    );
    let mut reached = vec![false; RULES.len()];
    for (stored, request) in cases {
        let old = merged(awake(), stored);
        person.requests(&old, &request);
        let new = stamped(&old, &edited(&old, &request));
        for (rule, reached) in RULES.iter().zip(&mut reached) {
            *reached |= in_change(Some(&old), &new, "alice", |change| (rule.judge)(change)) != Verdict::Allow;
        }
    }
    let silent: Vec<_> = RULES.iter().zip(reached).filter(|(_, reached)| !reached).map(|(rule, _)| rule.row).collect();
    assert_eq!(silent, ADVISE_NOTHING, "a new rule needs a case if it advises something");
}

#[test]
fn the_ways_out_of_a_sleep_work() {
    let (unpause, restore) = (json!({ "spec": { "pause": false } }), annotate(keys::ACTIVE_RESTORE, "r"));
    let unpaused = merged(asleep(), unpause.clone());
    let refused = denials(&asleep(), &unpaused, NOW).remove(0).message;
    assert!(refused.contains("wake it with kubectl hibernate resume cluster/abc or with annotation"), "{refused}");
    let ways = annotations(&refused);
    assert_eq!(ways, [note(keys::POWER_STATE, "Running"), note(keys::ALLOW_UNPAUSE, "true")], "{refused}");
    for way in &ways {
        assert_eq!(denials(&asleep(), &edited(&unpaused, std::slice::from_ref(way)), NOW), [], "{way:?}");
    }
    // The wake by itself, and after it what was refused.
    let woken = edited(&asleep(), &ways[..1]);
    assert_eq!(denials(&asleep(), &woken, NOW), []);
    let refused = denials(&asleep(), &merged(asleep(), restore.clone()), NOW).remove(0).message;
    assert!(refused.ends_with("wake it first, then create the EtcdRestore"), "{refused}");
    for next in [unpause, restore] {
        assert_eq!(denials(&woken, &merged(woken.clone(), next.clone()), NOW), [], "{next}");
    }
}

#[test]
fn the_ways_to_a_deletion_work() {
    for expiry in ["2026-11-23T18:00:00Z", "2026-11-21T18:00:00Z", "soon"] {
        let near = annotate(keys::CERTIFICATES_EXPIRE_AT, expiry);
        let refused = deletion(near.clone()).denials.remove(0).detail.message;
        assert!(refused.contains("first with kubectl hibernate resume cluster/abc --wait, then delete"), "{refused}");
        let ways = annotations(&refused);
        assert_eq!(ways, [note(keys::ALLOW_DELETE, "true")], "{refused}");
        assert!(deletion(edited(&near, &ways)).allows(), "{expiry}");
        assert!(deletion(edited(&near, &[note(keys::POWER_STATE, "Running")])).allows(), "{expiry}");
    }
    let warned = deletion(json!({})).warnings.pop().unwrap().detail;
    assert!(warned.ends_with("wake the cluster first to be sure"), "{warned}");
    assert!(deletion(annotate(keys::POWER_STATE, "Running")).warnings.is_empty());
}
