//! The cases of `tests/corpus/hive.yaml`, and what must hold whatever is asked.

#![expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method alone is not general enough in its lifetimes"
)]

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::admission::corpus::{Verb, applied, corpus};
use crate::admission::testing::{Bench, findings};
use crate::admission::{Exempts, Object as _, sleep_denial};
use crate::hive::api::ClusterDeployment;

static BENCH: LazyLock<Bench<Cluster>> = LazyLock::new(|| Bench {
    corpus: corpus(include_str!("../../../../tests/corpus/hive.yaml")),
    settings: default_settings(),
    judge,
    stamp,
});

#[test]
fn the_table() {
    let cases = BENCH.cases(&[Verb::Update, Verb::Status, Verb::Create, Verb::Both]);
    assert!(cases.map(|case| BENCH.check(case)).count() > 200);
}

/// A rollout asks before it writes, of a cluster that its type can express: no hold, and the request is its own.
#[test]
fn a_rollout_is_refused_what_a_person_is_refused() {
    let mut count = 0;
    for case in BENCH.corpus.cases.iter().filter(|case| case.name.starts_with("the way to sleep: ")) {
        let Ok(stored) = serde_json::from_value::<ClusterDeployment>(case.stored.clone()) else { continue };
        let denials = sleep_denial(&stored, &default_settings(), judge).into_iter().collect();
        let refused = findings(&Evaluation { denials, ..Evaluation::default() });
        let mut all = case.says.as_deref().unwrap_or_default().split("; ");
        let denied = all.find(|finding| finding.contains(" deny ") && !finding.ends_with("/hold-awake-until"));
        assert_eq!(refused, denied.unwrap_or_default(), "{}", case.name);
        count += 1;
    }
    assert!(count > 25, "{count}");
}

/// Rows, fields and cases that name a fact, or two faults of one field.
const FACTS: [&str; 6] = ["V3", "V4 deny spec.platform", "V10", "V12", "the same set", "cut short"];

/// What is left names a fact, or a write that only the webhook can make.
#[test]
fn every_advice_works() {
    let sound = BENCH.corpus.cases.iter().find(|case| case.of == "awake").unwrap();
    let silent = BENCH.advice(RULES, sound.stored.clone(), &FACTS);
    let expected = ["V2", "V3", "V4", "V7", "V7", "V7", "V7", "V9", "V9", "V10", "V10", "V10", "V10", "V12"];
    assert_eq!(silent, expected, "a new rule needs a case if it advises something");
}

#[test]
fn warnings_are_short() {
    for case in BENCH.cases(&[Verb::Both]) {
        let warnings = BENCH.judged(&case.user, Some(&case.stored), &case.written()).warnings;
        assert!(warnings.iter().all(|warning| warning.detail.len() < 120), "{warnings:?}");
    }
}

/// The denial of a claim alone holds for members of exempt groups.
#[test]
fn a_claim_binds_hives_accounts_too() {
    let case = BENCH.corpus.cases.iter().find(|case| case.name.ends_with("controller writes a claim: forged")).unwrap();
    let both = applied(&case.written(), &json!({ "metadata": { "annotations": { keys::PROTECTED: "yes" } } }));
    let denials = BENCH.judged("hive", Some(&case.stored), &both).denials;
    let binding: Vec<_> =
        denials.iter().map(|denial| (denial.row, Cluster::exempts(&denial.detail) == Exempts::Users)).collect();
    assert_eq!(binding, [("V9", false), ("V10", true)]);
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
            let identity = identity.then(|| json!({ "infraID": "demo-x7k2p", "adminKubeconfigSecretRef": { "name": "a" } }));
            let fields = json!({
                "metadata": { "name": "demo", "annotations": {
                    keys::REQUESTED_BY: by, keys::REQUESTED_AT: at, keys::HOLD_AWAKE_UNTIL: hold, keys::PROTECTED: protected,
                    keys::WAKE_AT: wake_at,
                } },
                "spec": {
                    "powerState": state, "platform": platform, "installed": installed, "hibernateAfter": after,
                    "clusterMetadata": identity,
                },
                "status": { "installedTimestamp": "2026-01-01T00:00:00Z" },
            });
            applied(&json!({}), &fields)
        },
    )
}

fn in_state(cluster: &Value, state: &str) -> Value {
    applied(cluster, &json!({ "spec": { "powerState": state } }))
}

proptest! {
    #[test]
    fn waking_is_never_denied(old in any_cluster(), new in any_cluster(), state in prop_oneof![Just(""), Just("Running")]) {
        prop_assert!(BENCH.judged("alice", Some(&in_state(&old, "Hibernating")), &in_state(&new, state)).allows());
    }

    #[test]
    fn nobody_sleeps_in_somebody_elses_name(old in proptest::option::of(any_cluster()), new in any_cluster()) {
        let evaluation = BENCH.judged("alice", old.as_ref(), &new);
        let sleeps = BENCH.ask(("alice", ""), old.as_ref(), &new, |change| change.goes_to_sleep());
        let by = new["metadata"]["annotations"][keys::REQUESTED_BY].as_str();
        prop_assert!(!sleeps || !evaluation.allows() || by == Some("alice"));
    }

    #[test]
    fn a_write_that_changes_nothing_is_never_judged(cluster in any_cluster()) {
        prop_assert_eq!(findings(&BENCH.judged("alice", Some(&cluster), &cluster)), "");
    }

    /// Once stamped, the stamp is complete: stamping again does nothing, and V10 and V12 have nothing to say.
    #[test]
    fn what_is_stamped_is_accepted(old in proptest::option::of(any_cluster()), new in any_cluster(), plugin in any::<bool>()) {
        let by = ("alice", if plugin { keys::PLUGIN } else { "" });
        prop_assume!(BENCH.ask(by, old.as_ref(), &new, |change| change.changes_state()));
        let stamped = BENCH.stamped(by, old.as_ref(), &new);
        prop_assert_eq!(BENCH.ask(by, old.as_ref(), &stamped, stamp).annotations, []);
        let rows = findings(&BENCH.judged("alice", old.as_ref(), &stamped));
        prop_assert!(!rows.contains("V12 ") && !rows.contains("V10 "), "{rows}");
    }
}
