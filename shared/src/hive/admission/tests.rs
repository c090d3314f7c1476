//! The table, row by row, and what must hold whatever is asked.

#![expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method alone is not general enough in its lifetimes"
)]

mod advice;
mod claims;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::admission::{Edit, Fault, UnreadFields, User};
use crate::hive::api::ClusterDeployment;

const NOW: &str = "2026-11-21T18:00:00Z";
const BY: &str = "/metadata/annotations/hibernate.sh~1requested-by";
const AT: &str = "/metadata/annotations/hibernate.sh~1requested-at";
const REASON: &str = "/metadata/annotations/hibernate.sh~1reason";
const PROTECTED: &str = "/metadata/annotations/hibernate.sh~1protected";
const HOLD: &str = "/metadata/annotations/hibernate.sh~1hold-awake-until";
const HOLD_BY: &str = "/metadata/annotations/hibernate.sh~1hold-awake-by";
const WAKE_AT: &str = "/metadata/annotations/hibernate.sh~1wake-at";
const STATE: &str = "/spec/powerState";
const AFTER: &str = "/spec/hibernateAfter";
const PLATFORM: &str = "/spec/platform";
const INSTALLED: &str = "/spec/installed";
const METADATA: &str = "/spec/clusterMetadata";
const INFRA_ID: &str = "/spec/clusterMetadata/infraID";
const KUBECONFIG: &str = "/spec/clusterMetadata/adminKubeconfigSecretRef";
const PAUSE: &str = "/metadata/annotations/hive.openshift.io~1powerstate-pause";
const POOL: &str = "/spec/clusterPoolRef";
const VERSION: &str = "/status/clusterVersionStatus";
const INSTALLED_AT: &str = "/status/installedTimestamp";

/// An installed cluster on AWS that nobody has ever touched.
fn awake() -> Value {
    json!({
        "metadata": { "name": "demo", "namespace": "clusters" },
        "spec": {
            "baseDomain": "example.com", "clusterName": "demo", "installed": true,
            "platform": { "aws": { "region": "us-east-1" } },
            "clusterMetadata": {
                "clusterID": "c", "infraID": "demo-x7k2p", "adminKubeconfigSecretRef": { "name": "demo-admin" },
            },
        },
        "status": { "installedTimestamp": "2026-01-01T00:00:00Z" },
    })
}

/// An object with some members set, or removed by null.
fn with<'v>(mut object: Value, members: impl IntoIterator<Item = (&'v str, Value)>) -> Value {
    for (pointer, value) in members {
        let (parents, member) = pointer.rsplit_once('/').unwrap();
        let parent = parents.split('/').skip(1).fold(&mut object, |parent, name| &mut parent[unescape(name)]);
        let name = unescape(member);
        if value.is_null() {
            parent.as_object_mut().and_then(|parent| parent.remove(&name));
        } else {
            parent[name] = value;
        }
    }
    object
}

fn unescape(name: &str) -> String {
    name.replace("~1", "/").replace("~0", "~")
}

fn asleep() -> Value {
    with(awake(), [(STATE, json!("Hibernating")), (BY, json!("bob")), (AT, json!("2026-11-20T18:00:00Z"))])
}

/// A request to go to sleep as it arrives after the stamp.
fn falling_asleep() -> Value {
    with(awake(), [(STATE, json!("Hibernating")), (BY, json!("alice")), (AT, json!(NOW))])
}

fn read(object: &Value) -> Cluster {
    serde_json::from_value(object.clone()).unwrap()
}

fn in_change<T>(manager: &str, old: Option<&Value>, new: &Value, ask: impl FnOnce(&Change<'_, Cluster>) -> T) -> T {
    in_change_by("alice", manager, old, new, ask)
}

fn in_change_by<T>(
    user: &str,
    manager: &str,
    old: Option<&Value>,
    new: &Value,
    ask: impl FnOnce(&Change<'_, Cluster>) -> T,
) -> T {
    ask(&Change {
        old: old.map(read),
        new: read(new),
        user: &User { username: user.to_owned() },
        field_manager: manager,
        now: NOW.parse::<Timestamp>().unwrap(),
        settings: &default_settings(),
        unread: UnreadFields::default(),
    })
}

/// `V6 deny [protected]` for an annotation of ours, `V4 deny spec.platform` or `V2 warn`, for each finding.
fn findings(old: Option<&Value>, new: &Value) -> String {
    in_change("", old, new, |change| in_words(&judge(change)))
}

fn in_words(evaluation: &Evaluation) -> String {
    let denials = evaluation.denials.iter().map(|denial| format!("{} deny {}", denial.row, denial.detail.field));
    let all = denials.chain(evaluation.warnings.iter().map(|warning| format!("{} warn", warning.row)));
    all.collect::<Vec<_>>().join("; ").replace("metadata.annotations[hibernate.sh/", "[")
}

#[test]
fn a_sound_cluster_goes_to_sleep_and_wakes_without_a_word() {
    assert_eq!(findings(Some(&awake()), &falling_asleep()), "");
    assert_eq!(findings(None, &falling_asleep()), "");
    assert_eq!(findings(Some(&asleep()), &with(asleep(), [(STATE, json!("Running"))])), "");
    assert_eq!(findings(None, &awake()), "");
}

/// What it is, the members that make it, and the findings.
type Case<'a> = (&'a str, &'a [(&'a str, Value)], &'a str);

/// Each row: what is asked of a sleeping-to-be cluster besides sleep, and who speaks up. On UPDATE and on CREATE.
#[test]
fn rules_on_the_way_to_sleep() {
    let azure = || (PLATFORM, json!({ "azure": { "region": "r" } }));
    let group = |name: &str| ("/spec/clusterMetadata/platform", json!({ "azure": { "resourceGroupName": name } }));
    let no_group = "V4 deny spec.clusterMetadata.platform.azure.resourceGroupName";
    let no_kubeconfig = "V5 deny spec.clusterMetadata.adminKubeconfigSecretRef.name";
    let fresh = || (INSTALLED, json!(false));
    let pool = |claim: Value| {
        let mut pool = json!({ "namespace": "p", "poolName": "p" });
        json_patch::merge(&mut pool, &claim);
        pool
    };
    let upgrade = |status: &str| json!({ "conditions": [{ "type": "Progressing", "status": status }] });
    let cases: &[Case<'_>] = &[
        ("V2", &[fresh()], "V2 warn"),
        ("V2 absent", &[(INSTALLED, Value::Null)], "V2 warn"),
        ("V3", &[("/metadata/deletionTimestamp", json!(NOW))], "V3 deny metadata.deletionTimestamp"),
        ("V4", &[(PLATFORM, json!({ "openstack": { "cloud": "x" } }))], "V4 deny spec.platform"),
        ("V4 none", &[(PLATFORM, json!({ "none": {} }))], "V4 deny spec.platform"),
        ("V4 empty", &[(PLATFORM, json!({}))], "V4 deny spec.platform"),
        ("V4 absent", &[(PLATFORM, Value::Null)], "V4 deny spec.platform"),
        ("V4 null member", &[(PLATFORM, json!({ "aws": null, "gcp": { "region": "r" } }))], ""),
        ("V4 azure", &[azure()], no_group),
        ("V4 azure, empty", &[azure(), group("")], no_group),
        ("V4 azure, complete", &[azure(), group("rg")], ""),
        ("V4 azure, not installed", &[azure(), fresh()], "V2 warn"),
        ("V5", &[(METADATA, Value::Null)], "V5 deny spec.clusterMetadata"),
        ("V5 infraID", &[(INFRA_ID, json!(""))], "V5 deny spec.clusterMetadata.infraID"),
        ("V5 no infraID", &[(INFRA_ID, Value::Null)], "V5 deny spec.clusterMetadata.infraID"),
        ("V5 secret", &[(KUBECONFIG, json!({}))], no_kubeconfig),
        ("V5 no secret", &[(KUBECONFIG, Value::Null)], no_kubeconfig),
        ("V5 not installed", &[(METADATA, Value::Null), fresh()], "V2 warn"),
        ("V6", &[(PROTECTED, json!("true"))], "V6 deny [protected]"),
        ("V6 false", &[(PROTECTED, json!("false"))], ""),
        ("V6 held", &[(HOLD, json!("2026-11-21T18:00:01Z"))], "V6 deny [hold-awake-until]"),
        ("V7 pause", &[(PAUSE, json!("true"))], "V7 warn"),
        ("V7 reconcile", &[("/metadata/annotations/hive.openshift.io~1reconcile-pause", json!("1"))], "V7 warn"),
        ("V7 no pause", &[(PAUSE, json!("no"))], ""),
        ("V7 young", &[(INSTALLED_AT, json!("2026-11-20T18:00:01Z"))], "V7 warn"),
        ("V7 a day old", &[(INSTALLED_AT, json!("2026-11-20T18:00:00Z"))], ""),
        ("V7 age unknown", &[("/status", Value::Null)], ""),
        ("V7 pool", &[(POOL, pool(json!({})))], "V7 warn"),
        ("V7 pool, half claimed", &[(POOL, pool(json!({ "claimName": "c" })))], "V7 warn"),
        ("V7 pool, claimed", &[(POOL, pool(json!({ "claimName": "c", "claimedTimestamp": NOW })))], ""),
        ("V7 upgrade", &[(VERSION, upgrade("True"))], "V7 warn"),
        ("V7 upgraded", &[(VERSION, upgrade("False"))], ""),
        ("V12 absent", &[(BY, Value::Null)], "V12 deny [requested-by]"),
        ("V12 forged", &[(BY, json!("bob"))], "V12 deny [requested-by]"),
        (
            "several at once",
            &[(PROTECTED, json!("true")), (PLATFORM, json!({ "vsphere": {} })), fresh()],
            "V4 deny spec.platform; V6 deny [protected]; V2 warn",
        ),
    ];
    for (case, members, expected) in cases {
        let new = with(falling_asleep(), members.iter().cloned());
        // What makes the case is stored already: only the state changes.
        let old = with(with(awake(), members.iter().cloned()), [(BY, Value::Null)]);
        assert_eq!(findings(Some(&old), &new), *expected, "{case}, on UPDATE");
        assert_eq!(findings(None, &new), *expected, "{case}, on CREATE");
        // A rollout asks before it writes, of a cluster that its type can express: no hold, and the request is its own.
        let Ok(old) = serde_json::from_value::<ClusterDeployment>(old) else { continue };
        let denials = refusal(&old, &default_settings()).into_iter().collect();
        let refused = in_words(&Evaluation { denials, ..Evaluation::default() });
        let held = |finding: &&str| finding.contains("[hold-awake") || finding.contains("[requested-by]");
        let denied = expected.split("; ").find(|finding| finding.contains(" deny ") && !held(finding));
        assert_eq!(refused, denied.unwrap_or_default(), "{case}, of a rollout");
    }
}

#[test]
fn v7_the_plugin_speaks_of_pools_itself() {
    let new = with(falling_asleep(), [(POOL, json!({ "namespace": "p", "poolName": "p" }))]);
    let warnings = |manager| in_change(manager, Some(&awake()), &new, judge).warnings.len();
    assert_eq!((warnings("kubectl-patch"), warnings(keys::PLUGIN)), (1, 0));
}

/// What is no way into sleep is judged by none of those rules.
#[test]
fn only_the_way_to_sleep_is_guarded() {
    let hopeless = [
        (PROTECTED, json!("true")),
        (PLATFORM, json!({ "none": {} })),
        (METADATA, Value::Null),
        ("/metadata/deletionTimestamp", json!(NOW)),
        (PAUSE, json!("true")),
    ];
    let (awake, asleep) = (with(awake(), hopeless.clone()), with(asleep(), hopeless));
    for (case, old, new) in [
        ("wakes", &asleep, with(asleep.clone(), [(STATE, json!("Running"))])),
        ("wakes by removal", &asleep, with(asleep.clone(), [(STATE, Value::Null)])),
        ("stays awake", &awake, with(awake.clone(), [(STATE, json!("Running"))])),
        ("stays asleep", &asleep, with(asleep.clone(), [(REASON, json!("because"))])),
        ("is finalized", &asleep, with(asleep.clone(), [("/metadata/finalizers", json!([]))])),
    ] {
        assert_eq!(findings(Some(old), &new), "", "{case}");
    }
}

#[test]
fn v1_a_state_that_does_not_exist() {
    let odd = with(awake(), [(STATE, json!("Sleeping"))]);
    assert_eq!(findings(Some(&awake()), &odd), "V1 deny spec.powerState");
    assert_eq!(findings(None, &odd), "V1 deny spec.powerState");
    assert_eq!(findings(Some(&asleep()), &odd), "V1 deny spec.powerState", "is no way out of sleep");
    let touched = with(odd.clone(), [(REASON, json!("x"))]);
    assert_eq!(findings(Some(&odd), &touched), "", "what is stored already does not block the rest");
    assert_eq!(findings(Some(&odd), &falling_asleep()), "");
}

#[test]
fn v6_a_stored_hold_that_nobody_can_read_still_holds() {
    let held = [(HOLD, json!("till monday"))];
    let (old, new) = (with(awake(), held.clone()), with(falling_asleep(), held));
    assert_eq!(findings(Some(&old), &new), "V6 deny [hold-awake-until]");
    assert_eq!(findings(Some(&awake()), &new), "V9 deny [hold-awake-until]", "set in the same request");
}

#[test]
fn v6_a_hold_ends_with_the_second_it_names() {
    for expired in [NOW, "2026-11-21T18:59:00+01:00"] {
        let old = with(awake(), [(HOLD, json!(expired))]);
        assert_eq!(findings(Some(&old), &with(falling_asleep(), [(HOLD, json!(expired))])), "", "{expired}");
    }
}

#[test]
fn v6_judges_the_object_as_it_was_too() {
    let (protected, held) = ([(PROTECTED, json!("true"))], [(HOLD, json!("2026-11-22T08:00:00Z"))]);
    let unreadable = [(PROTECTED, json!("yes"))];
    let by_hold = "V6 deny [hold-awake-until]";
    let by_protection = "V6 deny [protected]";
    for (case, old, new, expected) in [
        ("an old file", with(awake(), protected.clone()), falling_asleep(), Some(by_protection)),
        ("an old file and a hold", with(awake(), held.clone()), falling_asleep(), Some(by_hold)),
        (
            "a hold that is cut short",
            with(awake(), held.clone()),
            with(falling_asleep(), [(HOLD, json!(NOW))]),
            Some(by_hold),
        ),
        (
            "unreadable protects",
            with(awake(), unreadable.clone()),
            with(falling_asleep(), unreadable.clone()),
            Some(by_protection),
        ),
        ("unreadable, removed", with(awake(), unreadable), falling_asleep(), Some(by_protection)),
        ("unprotected before", with(awake(), [(PROTECTED, json!("false"))]), falling_asleep(), None),
        ("a write of its own", with(awake(), protected), awake(), None),
        ("another write of its own", with(awake(), held), awake(), None),
    ] {
        let found = findings(Some(&old), &new);
        let found: Vec<_> = found.split("; ").filter(|finding| finding.starts_with("V6")).collect();
        assert_eq!(found, Vec::from_iter(expected), "{case}");
    }
    let evaluation = in_change("", Some(&with(awake(), [(PROTECTED, json!("true"))])), &falling_asleep(), judge);
    assert!(evaluation.denials[0].detail.message.ends_with("remove the annotation in a separate write first"));
}

#[test]
fn a_scheduled_wake_does_not_outlive_its_sleep() {
    let (past, future) = ("2026-11-21T17:00:00Z", "2026-11-22T08:00:00Z");
    let at = |object: Value, time: &str| with(object, [(WAKE_AT, json!(time))]);
    let asleep = falling_asleep;
    for (case, old, new, dropped, warned) in [
        ("a wake", at(asleep(), future), at(awake(), future), true, false),
        ("a wake, late", at(asleep(), past), at(awake(), past), true, false),
        ("a sleep with one left over", at(awake(), past), at(asleep(), past), true, false),
        ("a sleep until then", awake(), at(asleep(), future), false, false),
        ("a sleep with one that stays", at(awake(), future), at(asleep(), future), false, false),
        ("written again after it has passed", asleep(), at(asleep(), past), true, true),
        ("written again while awake", awake(), at(awake(), past), true, true),
        ("nothing else changes", at(asleep(), past), at(asleep(), past), false, false),
    ] {
        let edits = in_change("", Some(&old), &new, stamp);
        let drops = edits.annotations.iter().any(|edit| edit.key == keys::WAKE_AT && edit.value.is_none());
        assert_eq!((drops, !edits.warnings.is_empty()), (dropped, warned), "{case}");
    }
}

#[test]
fn v6_names_the_holder_and_the_time() {
    let new = with(falling_asleep(), [(HOLD, json!("2026-11-22T08:00:00+02:00")), (HOLD_BY, json!("carol"))]);
    let evaluation = in_change("", Some(&awake()), &new, judge);
    let detail = &evaluation.denials[0].detail;
    assert_eq!(detail.fault, Fault::Forbidden);
    assert_eq!(detail.message, "held awake until 2026-11-22T06:00:00Z by carol: wait, or remove the annotation");
}

#[test]
fn v8_hibernate_after() {
    let denied = "V8 deny spec.hibernateAfter";
    for (value, expected) in [
        (json!("8h"), ""),
        (json!("10m"), ""),
        (json!("9m59.9s"), "V8 warn"),
        (json!("1.5h300ms"), ""),
        (json!("0s"), denied),
        (json!("-8h"), denied),
        (json!("8"), denied),
        (json!(""), denied),
        (json!("9999999h"), denied),
        (Value::Null, ""),
    ] {
        let new = with(awake(), [(AFTER, value.clone())]);
        assert_eq!(findings(Some(&awake()), &new), expected, "{value} set");
        assert_eq!(findings(None, &new), expected, "{value} created");
        let touched = with(new.clone(), [(PROTECTED, json!("true"))]);
        assert_eq!(findings(Some(&new), &touched), "", "{value} was there before");
    }
}

#[test]
fn v9_our_annotations() {
    let cases = [
        (WAKE_AT, "2026-11-22T07:00:00+01:00", "tomorrow"),
        (HOLD, "2026-11-22T07:00:00Z", "2026-11-22"),
        (PROTECTED, "false", "True"),
        ("/metadata/annotations/hibernate.sh~1replicas", "0", "-1"),
    ];
    for (pointer, right, wrong) in cases {
        let denied = format!("V9 deny [{}]", pointer.rsplit_once("~1").unwrap().1);
        for (value, expected) in [(right, ""), (wrong, denied.as_str()), ("", &denied)] {
            let new = with(awake(), [(pointer, json!(value))]);
            assert_eq!(findings(Some(&awake()), &new), expected, "{pointer} {value:?}");
            assert_eq!(findings(None, &new), expected, "{pointer} {value:?}, created");
            assert_eq!(findings(Some(&new), &awake()), "", "{pointer} {value:?} may always be removed");
        }
    }
}

#[test]
fn v9_times_that_have_passed() {
    // The mutating webhook drops a scheduled wake that has passed.
    for (pointer, found) in [(WAKE_AT, "V9 warn"), (HOLD, "V9 deny [hold-awake-until]")] {
        for (time, passed) in [
            ("2026-11-21T18:00:01Z", false),
            ("2026-11-21T19:00:01+01:00", false),
            (NOW, true),
            ("2026-11-21T18:59:00+01:00", true),
            ("2020-01-01T00:00:00Z", true),
        ] {
            let new = with(awake(), [(pointer, json!(time))]);
            let expected = |found| if passed { found } else { "" };
            assert_eq!(findings(Some(&awake()), &new), expected(found), "{pointer} {time}");
            assert_eq!(findings(None, &new), expected("V9 warn"), "{pointer} {time}, restored");
            let touched = with(new.clone(), [(REASON, json!("x"))]);
            assert_eq!(findings(Some(&new), &touched), "", "{pointer} {time} was there before");
        }
    }
    let late = with(awake(), [(HOLD, json!("2020-01-01T00:00:00Z"))]);
    assert_eq!(
        in_change("", Some(&awake()), &late, judge).denials[0].detail.message,
        "found \"2020-01-01T00:00:00Z\", which has passed, must be a time after 2026-11-21T18:00:00Z"
    );
}

#[test]
fn v10_a_holder_is_named_with_the_hold_and_not_by_hand() {
    let held = with(awake(), [(HOLD, json!("2026-11-22T08:00:00Z")), (HOLD_BY, json!("alice"))]);
    let denied = "V10 deny [hold-awake-by]";
    assert_eq!(findings(Some(&held), &with(held.clone(), [(HOLD_BY, json!("mallory"))])), denied);
    assert_eq!(findings(Some(&held), &with(held.clone(), [(HOLD_BY, Value::Null)])), denied);
    assert_eq!(findings(Some(&awake()), &with(awake(), [(HOLD_BY, json!("mallory"))])), denied, "without a hold");
    assert_eq!(findings(None, &with(awake(), [(HOLD_BY, json!("mallory"))])), "V10 warn", "restored");
    assert_eq!(findings(Some(&awake()), &held), "", "set together");
    assert_eq!(findings(Some(&held), &awake()), "", "gone together");
}

#[test]
fn a_hold_is_stamped_with_who_sets_it() {
    let by = |name: Option<&str>| vec![(keys::HOLD_AWAKE_BY, name.map(str::to_owned))];
    let until = |time: &str, by: Value| with(awake(), [(HOLD, json!(time)), (HOLD_BY, by)]);
    let bobs = until("2026-11-22T08:00:00Z", json!("bob"));
    assert_eq!(stamped("", Some(&awake()), &until("2026-11-22T08:00:00Z", Value::Null)), by(Some("alice")), "set");
    assert_eq!(stamped("", None, &bobs), by(Some("alice")), "created");
    assert_eq!(stamped("", Some(&bobs), &until("2026-11-23T08:00:00Z", json!("bob"))), by(Some("alice")), "prolonged");
    assert_eq!(stamped("", Some(&bobs), &with(bobs.clone(), [(HOLD, Value::Null)])), by(None), "released");
    assert_eq!(stamped("", Some(&bobs), &with(bobs.clone(), [(REASON, json!("x"))])), [], "left alone");
    let woken = with(asleep(), [(STATE, json!("")), (HOLD_BY, json!("mallory"))]);
    assert!(stamped("", Some(&asleep()), &woken).contains(&(keys::HOLD_AWAKE_BY, None)), "a wake cannot be denied");
}

#[test]
fn v10_stamps_are_not_edited_by_hand() {
    for state in [awake(), asleep()] {
        let forged = with(state.clone(), [(BY, json!("mallory"))]);
        assert_eq!(findings(Some(&state), &forged), "V10 deny [requested-by]");
        let backdated = with(state.clone(), [(AT, json!("2020-01-01T00:00:00Z"))]);
        assert_eq!(findings(Some(&state), &backdated), "V10 deny [requested-at]");
    }
    let wiped = with(asleep(), [(BY, Value::Null), (AT, Value::Null)]);
    assert_eq!(findings(Some(&asleep()), &wiped), "V10 deny [requested-by]; V10 deny [requested-at]");
    let defaulted = with(awake(), [(STATE, json!("Running")), (BY, json!("mallory"))]);
    assert_eq!(findings(Some(&awake()), &defaulted), "V10 deny [requested-by]", "\"\" to Running changes no state");
    let restored = with(awake(), [(BY, json!("bob"))]);
    assert_eq!(findings(None, &restored), "V10 warn");
}

#[test]
fn v11_whatever_else_is_wrong_waking_is_let_through() {
    let woken = with(
        asleep(),
        [(STATE, json!("Running")), (AFTER, json!("0s")), (WAKE_AT, json!("soon")), (AT, json!("long ago"))],
    );
    assert_eq!(findings(Some(&asleep()), &woken), "V8 warn; V9 warn; V9 warn");
    let evaluation = in_change("", Some(&asleep()), &woken, judge);
    assert!(evaluation.warnings[2].detail.starts_with("metadata.annotations[hibernate.sh/wake-at]: found \"soon\""));
    assert!(evaluation.exempted.is_empty());
}

#[test]
fn warnings_are_short() {
    let new = with(
        falling_asleep(),
        [
            (INSTALLED, json!(false)),
            (PAUSE, json!("true")),
            (INSTALLED_AT, json!(NOW)),
            (VERSION, json!({ "conditions": [{ "type": "Progressing", "status": "True" }] })),
            (POOL, json!({ "poolName": "pool-of-small-clusters" })),
            (AFTER, json!("1s")),
        ],
    );
    let warnings = in_change("", Some(&awake()), &new, judge).warnings;
    assert_eq!(warnings.len(), 6);
    assert!(warnings.iter().all(|warning| warning.detail.len() < 120), "{warnings:?}");
}

fn stamped(manager: &str, old: Option<&Value>, new: &Value) -> Vec<(&'static str, Option<String>)> {
    let edits = in_change(manager, old, new, stamp);
    assert!(edits.warnings.is_empty());
    edits.annotations.into_iter().map(|Edit { key, value }| (key, value)).collect()
}

#[test]
fn a_change_of_state_is_stamped() {
    let by = (keys::REQUESTED_BY, Some("alice".to_owned()));
    let at = (keys::REQUESTED_AT, Some(NOW.to_owned()));
    let both = [by.clone(), at.clone()];
    let sleep = with(awake(), [(STATE, json!("Hibernating"))]);
    let wake = with(asleep(), [(STATE, json!(""))]);
    assert_eq!(stamped("", Some(&awake()), &sleep), both, "into sleep");
    assert_eq!(stamped("", Some(&asleep()), &wake), both, "out of sleep");
    assert_eq!(stamped("", None, &sleep), both, "created asleep");
    assert_eq!(
        stamped("", Some(&awake()), &with(sleep.clone(), [(BY, json!("bob")), (AT, json!("x"))])),
        both,
        "forged"
    );
    assert_eq!(stamped("", Some(&awake()), &with(sleep, [(BY, json!("alice"))])), [at], "only what is needed");
    assert_eq!(stamped("", Some(&awake()), &falling_asleep()), []);
}

#[test]
fn what_changes_no_state_is_not_stamped() {
    let running = with(awake(), [(STATE, json!("Running"))]);
    assert_eq!(stamped("", Some(&awake()), &running), []);
    assert_eq!(stamped("", None, &with(running, [(BY, json!("bob"))])), []);
    assert_eq!(stamped("", Some(&asleep()), &with(asleep(), [(BY, json!("mallory")), (REASON, json!("x"))])), []);
}

/// `kubectl replace` and its like: the file of a sleeping cluster has no stamps.
#[test]
fn stamps_that_a_full_update_drops_are_put_back() {
    let (by, at) = ((keys::REQUESTED_BY, Some("bob".to_owned())), Some("2026-11-20T18:00:00Z".to_owned()));
    let (at, hold) = ((keys::REQUESTED_AT, at), (HOLD, json!("2026-11-22T08:00:00Z")));
    let held = with(asleep(), [hold, (HOLD_BY, json!("ann"))]);
    let holder = (keys::HOLD_AWAKE_BY, Some("ann".to_owned()));
    let bare = |state: Value| with(held.clone(), [(BY, json!(null)), (AT, json!(null)), (STATE, state)]);
    let replaced = stamped("argocd-controller", Some(&held), &bare(json!("Hibernating")));
    assert_eq!(replaced, [by.clone(), at.clone()]);
    assert_eq!(stamped("", Some(&held), &with(held.clone(), [(AT, json!(null))])), std::slice::from_ref(&at));
    assert_eq!(stamped("", Some(&held), &with(held.clone(), [(HOLD_BY, json!(null))])), [holder], "the hold stays");
    let released = with(bare(json!("Hibernating")), [(HOLD, json!(null)), (HOLD_BY, json!(null))]);
    assert_eq!(stamped("", Some(&held), &released), [by, at], "the hold goes, and its name with it");
    assert_eq!(stamped("", Some(&held), &with(held.clone(), [(BY, json!("eve"))])), [], "another value is denied");
    assert_eq!(findings(Some(&held), &with(held.clone(), [(BY, json!("eve"))])), "V10 deny [requested-by]");
    let woken = stamped("", Some(&held), &bare(json!("Running")));
    assert_eq!(woken[0], (keys::REQUESTED_BY, Some("alice".to_owned())), "a wake has a stamp of its own");
    // All together, as they arrive after the stamp.
    assert_eq!(
        findings(
            Some(&held),
            &with(
                bare(json!("Hibernating")),
                [(BY, json!("bob")), (AT, held["metadata"]["annotations"][keys::REQUESTED_AT].clone())]
            )
        ),
        ""
    );
}

#[test]
fn a_reason_belongs_to_the_request_that_gave_it() {
    let reason = |edits: Vec<(&'static str, Option<String>)>| {
        edits.into_iter().find(|(key, _)| *key == keys::REASON).map(|(_, value)| value)
    };
    let woken = |why: Value| with(asleep(), [(STATE, json!("Running")), (REASON, why)]);
    let night = with(asleep(), [(REASON, json!("night"))]);
    assert_eq!(reason(stamped("", Some(&night), &woken(json!("morning")))), None, "a new one is kept");
    assert_eq!(reason(stamped("", Some(&asleep()), &woken(json!("morning")))), None, "the first one is kept");
    assert_eq!(reason(stamped("", Some(&night), &woken(Value::Null))), None, "one taken away stays away");
    assert_eq!(reason(stamped("", Some(&night), &woken(json!("night")))), Some(None), "an untouched one is stale");
    assert_eq!(reason(stamped(keys::PLUGIN, Some(&night), &woken(json!("night")))), None, "the plugin gave it again");
}

fn any_text() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!("alice")),
        Just(json!("true")),
        Just(json!("2026-11-22T00:00:00Z")),
        "[ -~]{0,12}".prop_map(Value::from),
    ]
}

fn any_cluster() -> impl Strategy<Value = Value> {
    let states = prop_oneof![
        Just(Value::Null),
        Just(json!("")),
        Just(json!("Running")),
        Just(json!("Hibernating")),
        Just(json!("Hibernating")),
        "[A-Z][a-z]{3}".prop_map(Value::from)
    ];
    let platforms = prop_oneof![
        Just(Value::Null),
        Just(json!({ "aws": { "region": "r" } })),
        Just(json!({ "azure": {} })),
        Just(json!({ "none": {} })),
    ];
    let texts = [any_text(), any_text(), any_text(), any_text(), any_text(), any_text()];
    (states, platforms, any::<bool>(), any::<bool>(), texts).prop_map(
        |(state, platform, installed, identity, [after, by, at, hold, protected, wake_at])| {
            let mut members = vec![
                (STATE, state),
                (PLATFORM, platform),
                (INSTALLED, json!(installed)),
                (AFTER, after),
                (BY, by),
                (AT, at),
                (HOLD, hold),
                (PROTECTED, protected),
                (WAKE_AT, wake_at),
            ];
            if !identity {
                members.push((METADATA, Value::Null));
            }
            with(awake(), members)
        },
    )
}

proptest! {
    #[test]
    fn waking_is_never_denied(old in any_cluster(), new in any_cluster(), state in prop_oneof![Just(""), Just("Running")]) {
        let old = with(old, [(STATE, json!("Hibernating"))]);
        let new = with(new, [(STATE, json!(state))]);
        prop_assert!(in_change("", Some(&old), &new, judge).allows());
    }

    #[test]
    fn nobody_sleeps_in_somebody_elses_name(old in proptest::option::of(any_cluster()), new in any_cluster()) {
        let evaluation = in_change("", old.as_ref(), &new, judge);
        let sleeps = in_change("", old.as_ref(), &new, |change| change.goes_to_sleep());
        let by = new.pointer(BY).and_then(Value::as_str);
        prop_assert!(!sleeps || !evaluation.allows() || by == Some("alice"));
    }

    #[test]
    fn a_write_that_changes_nothing_is_never_judged(cluster in any_cluster()) {
        prop_assert_eq!(findings(Some(&cluster), &cluster), "");
    }

    /// Once stamped, the stamp is complete: stamping again does nothing, and V10 and V12 have nothing to say.
    #[test]
    fn what_is_stamped_is_accepted(old in proptest::option::of(any_cluster()), new in any_cluster(), plugin in any::<bool>()) {
        let manager = if plugin { keys::PLUGIN } else { "" };
        prop_assume!(in_change(manager, old.as_ref(), &new, |change| change.changes_state()));
        let mut stamped_object = new;
        for (key, value) in stamped(manager, old.as_ref(), &stamped_object) {
            let pointer = format!("/metadata/annotations/{}", key.replace('/', "~1"));
            stamped_object = with(stamped_object, [(pointer.as_str(), Value::from(value))]);
        }
        prop_assert_eq!(stamped(manager, old.as_ref(), &stamped_object), []);
        let rows = findings(old.as_ref(), &stamped_object);
        prop_assert!(!rows.contains("V12 ") && !rows.contains("V10 "), "{rows}");
    }
}
