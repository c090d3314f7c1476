//! What a denial advises is done, and the request is accepted.

use super::*;
use crate::admission::testing::{Person, edited, note};
use crate::admission::{Denial, Verdict};

type Fields<'a> = &'a [(&'a str, Value)];

/// Rows of the rules that no case of [`every_advice_works`] reaches: they name a fact, or a write that only the webhook
/// can make.
const ADVISE_NOTHING: [&str; 14] =
    ["V2", "V3", "V4", "V7", "V7", "V7", "V7", "V9", "V9", "V10", "V10", "V10", "V10", "V12"];

/// The object as the mutating webhook leaves it.
fn stamped_object(old: &Value, new: &Value) -> Value {
    let edits = in_change("", Some(old), new, stamp).annotations;
    edited(new, &edits.into_iter().map(|Edit { key, value }| note(key, value)).collect::<Vec<_>>())
}

fn denials(old: &Value, new: &Value, now: &str) -> Vec<Denial> {
    let now = now.parse::<Timestamp>().unwrap();
    let judged = in_change("", Some(old), &stamped_object(old, new), |change| judge(&Change { now, ..change.clone() }));
    judged.denials.into_iter().map(|denial| denial.detail).collect()
}

#[test]
fn every_advice_works() {
    let person = Person { denials: &denials, sound: awake(), now: NOW };
    let sleep = || (STATE, json!("Hibernating"));
    let until = || (HOLD, json!("2026-11-22T08:00:00Z"));
    // What is stored, and what is requested.
    let cases: [(Fields<'_>, Fields<'_>); 21] = [
        (&[], &[(STATE, json!("Sleeping"))]),
        (&[(PLATFORM, json!({ "azure": { "region": "r" } }))], &[sleep()]),
        (&[(METADATA, Value::Null)], &[sleep()]),
        (&[(INFRA_ID, json!(""))], &[sleep()]),
        (&[(KUBECONFIG, json!({}))], &[sleep()]),
        (&[(PROTECTED, json!("true"))], &[sleep()]),
        (&[(PROTECTED, json!("maybe"))], &[sleep()]),
        (&[(PROTECTED, json!("true"))], &[sleep(), (PROTECTED, Value::Null)]),
        (&[until(), (HOLD_BY, json!("carol"))], &[sleep()]),
        (&[until(), (HOLD_BY, json!("carol"))], &[sleep(), (HOLD, Value::Null), (HOLD_BY, Value::Null)]),
        (&[(HOLD, json!("till monday"))], &[sleep()]),
        (&[], &[(AFTER, json!("8"))]),
        (&[], &[(AFTER, json!("0s"))]),
        (&[], &[(AFTER, json!("9999999h"))]),
        (&[], &[(WAKE_AT, json!("tomorrow"))]),
        (&[], &[(HOLD, json!("2026-11-22"))]),
        (&[], &[(HOLD, json!("2020-01-01T00:00:00Z"))]),
        (&[], &[("/metadata/annotations/hibernate.sh~1preflight-requested-at", json!("now"))]),
        (&[], &[(PROTECTED, json!("True"))]),
        (&[], &[("/metadata/annotations/hibernate.sh~1replicas", json!("-1"))]),
        (&[(PROTECTED, json!("true")), (HOLD, json!("till monday"))], &[sleep()]),
    ];
    let mut reached = vec![false; RULES.len()];
    for (stored, requested) in cases {
        let old = with(awake(), stored.iter().cloned());
        let request: Vec<_> = requested.iter().map(|(at, value)| ((*at).to_owned(), value.clone())).collect();
        person.requests(&old, &request);
        let new = stamped_object(&old, &edited(&old, &request));
        for (rule, reached) in RULES.iter().zip(&mut reached) {
            *reached |= in_change("", Some(&old), &new, |change| (rule.judge)(change)) != Verdict::Allow;
        }
    }
    let silent: Vec<_> = RULES.iter().zip(reached).filter(|(_, reached)| !reached).map(|(rule, _)| rule.row).collect();
    assert_eq!(silent, ADVISE_NOTHING, "a new rule needs a case if it advises something");
}

/// V7 says what the sleep waits for, and V12 to try again.
#[test]
fn a_pause_that_is_removed_and_a_second_try_are_not_warned_of() {
    let paused = with(falling_asleep(), [(PAUSE, json!("true"))]);
    let warning = in_change("", Some(&awake()), &paused, judge).warnings.remove(0).detail;
    assert!(warning.starts_with("hive.openshift.io/powerstate-pause is set: "), "{warning}");
    assert!(warning.ends_with("only once it is removed"), "{warning}");
    assert_eq!(findings(Some(&awake()), &with(paused, [(PAUSE, Value::Null)])), "");
    let unstamped = with(awake(), [(STATE, json!("Hibernating"))]);
    let refused = in_change("", Some(&awake()), &unstamped, judge).denials;
    assert!(refused[0].detail.message.ends_with("; try again"), "{refused:?}");
    assert_eq!(denials(&awake(), &unstamped, NOW), []);
}
