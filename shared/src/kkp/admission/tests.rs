//! The cases of `tests/corpus/kkp.yaml`, and what must hold whatever is asked.

#![expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method alone is not general enough in its lifetimes"
)]

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::{Value, json};
use strum::IntoEnumIterator as _;

use super::*;
use crate::admission::corpus::{Case, Verb, applied, corpus};
use crate::admission::testing::{Bench, annotations, edited, findings, note, says, stored};
use crate::admission::{Exempt, LONGEST_WARNING, Settings};
use crate::kkp::phase::Phase;

const NOW: &str = "2026-11-22T18:00:00Z";
/// Why our controller pauses a cluster, and the sleep that the pause names.
const REASON: &str = "dehydrated by kubectl-hibernate: weekend";
const SLEEP: &str = "u-1/2026-11-22T17:00:00Z";

fn bench(judge: fn(&Change<'_, Cluster>) -> Evaluation, stamp: fn(&Change<'_, Cluster>) -> Edits) -> Bench<Cluster> {
    let corpus = corpus(include_str!("../../../../tests/corpus/kkp.yaml"));
    let exempt = Exempt { users: vec![corpus.users["ours"].clone()], ..Exempt::default() };
    Bench { corpus, settings: Settings { exempt, ..Settings::default() }, judge, stamp }
}

static BENCH: LazyLock<Bench<Cluster>> = LazyLock::new(|| bench(judge, stamp));

fn of_record(case: &Case) -> bool {
    case.stored["kind"] == "ConfigMap"
}

#[test]
fn the_table() {
    let writes = BENCH.cases(&[Verb::Update, Verb::Status, Verb::Create, Verb::Both]);
    assert!(writes.filter(|case| !of_record(case)).map(|case| BENCH.check(case)).count() > 150);
}

/// Of a request on the record (row 27), whoever writes it.
#[test]
fn a_request_on_the_record_is_stamped_and_its_stamp_cannot_be_edited() {
    let bench = bench(|_| Evaluation::default(), stamp_record);
    let of_record = bench.cases(&[Verb::Update, Verb::Create]).filter(|case| of_record(case));
    assert!(of_record.map(|case| bench.check(case)).count() > 3);
    let (old, new) = (json!({ "metadata": {} }), annotate(keys::POWER_STATE, "Running"));
    assert_eq!(
        bench.ask(("bob", ""), Some(&old), &new, stamp_record).annotations.len(),
        2,
        "without annotations before"
    );
}

fn deletion(object: &Value) -> Evaluation {
    let (cluster, unread) = stored(object);
    judge_deletion(&Deletion { cluster: cluster.unwrap(), unread }, BENCH.now())
}

#[test]
fn k13_deletion() {
    for case in BENCH.cases(&[Verb::Delete]).filter(|case| case.says.is_some()) {
        let evaluation = deletion(&case.stored);
        says(case, &[], &evaluation);
        for denial in &evaluation.denials {
            let detail = denial.detail.to_string();
            assert!(
                detail.contains("resume cluster/asleep") && detail.contains("hibernate.sh/allow-delete=true"),
                "{detail}"
            );
        }
        let warnings: Vec<_> = evaluation.warnings.iter().map(|warning| &warning.detail).collect();
        assert!(warnings.first().is_none_or(|first| first.contains("starts its control plane")), "{warnings:?}");
        let are_short = warnings.iter().all(|warning| warning.len() <= LONGEST_WARNING || warning.contains("expired"));
        assert!(are_short, "{warnings:?}");
    }
}

fn annotate(key: &str, value: &str) -> Value {
    json!({ "metadata": { "annotations": { key: value } } })
}

/// The object of the corpus with this name.
fn object(name: &str) -> Value {
    BENCH.corpus.cases.iter().find(|case| case.of == name && case.with == json!({})).unwrap().stored.clone()
}

/// Rows that deny or warn of a change by alice, as it arrives after the stamp.
fn verdict(old: &Value, patch: &Value) -> String {
    let stamped = BENCH.stamped(("alice", ""), Some(old), &applied(old, patch));
    findings(&BENCH.judged("alice", Some(old), &stamped))
}

/// What the preflight and the controller advise where a sleep is requested and another client has paused the cluster.
#[test]
fn the_advice_to_end_a_pause_of_another_client_is_the_one_of_the_corpus() {
    let advice = format!("set spec.pause to false, in one write with annotation {}: \"true\"", keys::ALLOW_UNPAUSE);
    assert_eq!(keys::TO_UNPAUSE, advice);
    assert_eq!(BENCH.corpus.cases.iter().filter(|case| case.name.ends_with("as advised")).count(), 1);
}

/// The controller pauses at the begin of a sleep and ends the pause in a wake: the reason of its condition says which.
#[test]
fn a_pause_of_ours_is_a_sleep_in_no_phase_of_the_wake() {
    for phase in Phase::iter() {
        let paused = json!({
            "metadata": { "annotations": { keys::PAUSED_BY_SLEEP: SLEEP } },
            "spec": { "pause": true, "pauseReason": REASON },
            "status": { "conditions": { "ClusterDehydrated": { "status": "False", "reason": phase } } },
        });
        let old = applied(&object("awake"), &paused);
        let cluster: Cluster = serde_json::from_value(old.clone()).unwrap();
        let wakes = phase.is_of_wake();
        assert_eq!(
            (cluster.is_asleep(), !phase.is_of_sleep() && phase != Phase::DrainTimedOut),
            (!wakes, wakes),
            "{phase}"
        );
        assert_eq!(
            verdict(&old, &annotate(keys::POWER_STATE, "Hibernating")),
            "",
            "a sleep may be requested again: {phase}"
        );
    }
}

#[test]
fn a_cluster_of_any_finalizers_is_read() {
    let many = vec!["example.com/x"; 50_000];
    let object = applied(&object("asleep"), &json!({ "metadata": { "finalizers": many } }));
    assert_eq!(deletion(&object).warnings.len(), 4);
    assert!(stored::<Cluster>(&json!({})).0.is_none() && stored::<Cluster>(&json!([])).0.is_none());
}

/// What is left names a fact, or a write that only the webhook can make. K7 and K9 are followed below.
#[test]
fn every_advice_works() {
    let facts = ["K2", "K3", "K4 deny kubermatic", "K4 deny status.conditions", "no status", "K7", "K9", "K11", "K12"];
    let silent = BENCH.advice(RULES, object("awake"), &facts);
    let expected = ["K2", "K3", "K4", "K6", "K7", "K7", "K8", "K9", "K11", "K11", "K11", "K11", "K12"];
    assert_eq!(silent, expected, "a new rule needs a case if it advises something");
}

#[test]
fn the_ways_out_of_a_sleep_work() {
    let (asleep, denials) = (object("asleep"), |old: &Value, new: &Value| BENCH.denials(old, new, NOW));
    let (unpause, restore) = (json!({ "spec": { "pause": false } }), annotate(keys::ACTIVE_RESTORE, "r"));
    let unpaused = applied(&asleep, &unpause);
    let refused = denials(&asleep, &unpaused).remove(0).message;
    assert!(refused.contains("wake it with kubectl hibernate resume cluster/asleep or with annotation"), "{refused}");
    let ways = annotations(&refused);
    assert_eq!(ways, [note(keys::POWER_STATE, "Running"), note(keys::ALLOW_UNPAUSE, "true")], "{refused}");
    for way in &ways {
        assert_eq!(denials(&asleep, &edited(&unpaused, std::slice::from_ref(way))), [], "{way:?}");
    }
    // The wake by itself, and after it what was refused.
    let woken = edited(&asleep, &ways[..1]);
    assert_eq!(denials(&asleep, &woken), []);
    let refused = denials(&asleep, &applied(&asleep, &restore)).remove(0).message;
    assert!(refused.ends_with("wake it first, then create the EtcdRestore"), "{refused}");
    for next in [unpause, restore] {
        assert_eq!(denials(&woken, &applied(&woken, &next)), [], "{next}");
    }
}

#[test]
fn the_ways_to_a_deletion_work() {
    for expiry in ["2026-11-23T18:00:00Z", "2026-11-21T18:00:00Z", "soon"] {
        let near = applied(&object("asleep"), &annotate(keys::CERTIFICATES_EXPIRE_AT, expiry));
        let refused = deletion(&near).denials.remove(0).detail.message;
        assert!(
            refused.contains("first with kubectl hibernate resume cluster/asleep --wait, then delete"),
            "{refused}"
        );
        let ways = annotations(&refused);
        assert_eq!(ways, [note(keys::ALLOW_DELETE, "true")], "{refused}");
        for way in [&ways, &vec![note(keys::POWER_STATE, "Running")]] {
            assert!(deletion(&edited(&near, way)).allows(), "{expiry}");
        }
    }
    let warned = deletion(&object("asleep")).warnings.pop().unwrap().detail;
    assert!(warned.ends_with("wake the cluster first to be sure"), "{warned}");
    assert!(deletion(&edited(&object("asleep"), &[note(keys::POWER_STATE, "Running")])).warnings.is_empty());
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
                    "annotations": applied(&json!({}), &json!({
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
        let old = applied(&old, &annotate(keys::POWER_STATE, "Hibernating"));
        let new = applied(&new, &json!({ "metadata": { "annotations": { keys::POWER_STATE: state } } }));
        prop_assert!(BENCH.judged("alice", Some(&old), &new).allows());
    }

    #[test]
    fn a_write_that_changes_nothing_is_never_judged(cluster in any_cluster()) {
        prop_assert_eq!(findings(&BENCH.judged("alice", Some(&cluster), &cluster)), "");
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
        prop_assert!(BENCH.ask(("kkp", ""), Some(&old), &new, stamp).annotations.is_empty());
        if !BENCH.ask(("kkp", ""), Some(&old), &new, |change| change.stays_asleep()) {
            prop_assert_eq!(findings(&BENCH.judged("kkp", Some(&old), &new)), "");
        }
    }

    #[test]
    fn a_sleep_is_stamped_with_who_asks_or_denied(old in any_cluster(), new in any_cluster()) {
        let sleeps = BENCH.ask(("alice", ""), Some(&old), &new, |change| change.goes_to_sleep());
        let by = new["metadata"]["annotations"].get(common::REQUESTED_BY).and_then(Value::as_str);
        prop_assert!(!sleeps || by == Some("alice") || !BENCH.judged("alice", Some(&old), &new).allows());
    }

    /// Whatever the times: a DELETE is refused only with a certificate that expires within a day.
    #[test]
    fn a_deletion_is_refused_by_the_expiry_alone(cluster in any_cluster(), hours in -100_i64..100) {
        let expiry = BENCH.now() + jiff::SignedDuration::from_hours(hours);
        let evaluation = deletion(&applied(&cluster, &annotate(keys::CERTIFICATES_EXPIRE_AT, &format::seconds(expiry))));
        prop_assert!(evaluation.allows() || hours <= 24);
    }
}
