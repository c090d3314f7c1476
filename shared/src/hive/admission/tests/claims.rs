//! Claims of rollouts: who writes them, and whose stamp a started target keeps.

use super::*;
use crate::admission::{Exempts, Object as _};
use crate::hive::exempt;

const CLAIM: &str = "/metadata/annotations/hibernate.sh~1rollout";
const CONTROLLER: &str = exempt::USERS[0];

fn claim() -> Value {
    json!(
        r#"{"v":1,"by":"night","uid":"u","action":"Hibernate","group":0,"attempt":0,"before":"Running","wanted":"Hibernating","at":"2026-11-21T18:00:00Z"}"#
    )
}

fn record() -> Value {
    let ended = r#","ended":{"result":"Succeeded","at":"2026-11-21T18:05:00Z"}}"#;
    json!(format!("{}{ended}", claim().as_str().unwrap().strip_suffix('}').unwrap()))
}

fn rows(user: &str, old: Option<&Value>, new: &Value) -> String {
    in_change_by(user, "", old, new, |change| in_words(&judge(change)))
}

fn edits(user: &str, old: Option<&Value>, new: &Value) -> Vec<(&'static str, Option<String>)> {
    let edits = in_change_by(user, "", old, new, stamp).annotations;
    edits.into_iter().map(|Edit { key, value }| (key, value)).collect()
}

#[test]
fn v10_only_our_controller_writes_a_claim() {
    let denied = "V10 deny [rollout]";
    let (bare, claimed, ended) = (awake(), with(awake(), [(CLAIM, claim())]), with(awake(), [(CLAIM, record())]));
    for (case, old, new) in [
        ("forged", &bare, &claimed),
        ("ended", &claimed, &ended),
        ("removed", &claimed, &bare),
        ("a record removed", &ended, &bare),
        ("nonsense", &bare, &with(awake(), [(CLAIM, json!("x"))])),
    ] {
        for user in ["alice", "system:serviceaccount:hive:hive-controllers"] {
            assert_eq!(rows(user, Some(old), new), denied, "{case} by {user}");
        }
        assert_eq!(rows(CONTROLLER, Some(old), new), "", "{case}, by the controller");
    }
    assert_eq!(rows("alice", Some(&claimed), &with(claimed.clone(), [(REASON, json!("x"))])), "", "left alone");
    assert_eq!(rows("alice", None, &ended), "V10 warn", "restored");
    assert_eq!(rows(CONTROLLER, None, &ended), "");
    let denials =
        in_change_by("alice", "", Some(&bare), &with(claimed.clone(), [(PROTECTED, json!("yes"))]), judge).denials;
    let binding: Vec<_> =
        denials.iter().map(|denial| (denial.row, Cluster::exempts(&denial.detail) == Exempts::Users)).collect();
    assert_eq!(binding, [("V9", false), ("V10", true)]);
}

#[test]
fn v11_a_claim_that_is_forged_in_a_change_of_state_is_put_back() {
    let (asleep, key) = (with(asleep(), [(CLAIM, claim())]), keys::ROLLOUT);
    let wake = |claim: Value| with(asleep.clone(), [(STATE, json!("Running")), (CLAIM, claim)]);
    let back = |new: &Value| edits("alice", Some(&asleep), new).into_iter().find(|(found, _)| *found == key);
    let before = Some((key, claim().as_str().map(str::to_owned)));
    assert_eq!(back(&wake(claim())), None, "kept");
    assert_eq!(back(&wake(record())), before, "ended");
    assert_eq!(back(&wake(Value::Null)), before, "removed");
    assert_eq!(rows("alice", Some(&asleep), &wake(claim())), "");
    assert_eq!(rows("alice", Some(&asleep), &wake(record())), "V10 warn", "while the mutating webhook is down");
    let slept = with(falling_asleep(), [(CLAIM, claim())]);
    assert!(edits("alice", Some(&awake()), &slept).contains(&(key, None)));
    assert_eq!(rows("alice", Some(&awake()), &slept), "V10 deny [rollout]");
    assert!(!edits("alice", None, &slept).iter().any(|(found, _)| *found == key), "restored asleep");
}

#[test]
fn a_claim_that_a_full_update_drops_is_put_back() {
    let claimed = with(asleep(), [(CLAIM, claim())]);
    let dropped = with(asleep(), [(REASON, json!("x"))]);
    assert_eq!(edits("alice", Some(&claimed), &dropped), [(keys::ROLLOUT, claim().as_str().map(str::to_owned))]);
    assert_eq!(edits(CONTROLLER, Some(&claimed), &dropped), [], "it removes its own");
}

#[test]
fn what_a_rollout_starts_keeps_the_stamp_of_the_person_who_asked_for_it() {
    let slept = |members: &[(&str, Value)]| {
        let bobs =
            [(BY, json!("bob")), (AT, json!("2026-11-21T17:00:00Z")), (REASON, json!("night")), (CLAIM, claim())];
        with(with(falling_asleep(), bobs), members.iter().cloned())
    };
    let old = with(awake(), [(REASON, json!("night"))]);
    let stamp = |user: &str| {
        vec![
            (keys::REQUESTED_BY, Some(user.to_owned())),
            (keys::REQUESTED_AT, Some(NOW.to_owned())),
            // The same as before: given for the last change.
            (keys::REASON, None),
        ]
    };
    assert_eq!(edits(CONTROLLER, Some(&old), &slept(&[])), []);
    assert_eq!(rows(CONTROLLER, Some(&old), &slept(&[])), "", "V12");
    let hold = [(STATE, json!("Running")), (HOLD, json!("2026-11-22T08:00:00Z"))];
    let woken = slept(&hold);
    assert_eq!(
        edits(CONTROLLER, Some(&asleep()), &woken),
        [(keys::HOLD_AWAKE_BY, Some("bob".to_owned()))],
        "holds it, too"
    );
    for (case, members) in
        [("no claim", [(CLAIM, Value::Null)]), ("a record", [(CLAIM, record())]), ("no mark", [(CLAIM, json!("{}"))])]
    {
        assert_eq!(edits(CONTROLLER, Some(&old), &slept(&members)), stamp(CONTROLLER), "{case}");
        assert_eq!(rows(CONTROLLER, Some(&old), &slept(&members)).matches(" deny ").count(), 1, "{case}: V12");
    }
    let undated = edits(CONTROLLER, Some(&old), &slept(&[(AT, Value::Null)]));
    assert_eq!(undated, stamp(CONTROLLER), "without the time it is no stamp");
    let claimed = with(old.clone(), [(CLAIM, claim())]);
    assert_eq!(edits("alice", Some(&claimed), &slept(&[])), stamp("alice"), "anybody else");
}
