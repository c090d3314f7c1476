//! The cases of `tests/corpus/rollouts.yaml`, and the list of what lets targets start.

#![expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method alone is not general enough in its lifetimes"
)]

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::*;
use crate::admission::Settings;
use crate::admission::corpus::{Verb, corpus};
use crate::admission::testing::{Bench, Person};
use crate::kinds::KINDS;
use crate::rollout::api::definition;

static BENCH: LazyLock<Bench<Rollout>> = LazyLock::new(|| Bench {
    corpus: corpus(include_str!("../../../../tests/corpus/rollouts.yaml")),
    settings: Settings::default(),
    judge,
    stamp,
});

#[test]
fn the_table() {
    let cases = BENCH.cases(&[Verb::Update, Verb::Status, Verb::Create]);
    assert!(cases.clone().count() > 30);
    for case in cases {
        BENCH.check(case);
        for (old, new) in case.changes().into_iter().filter(|_| case.name.starts_with("what ")) {
            let starts = BENCH.ask(("alice", ""), old, &new, |change| change.starts_targets());
            assert_eq!(starts, !case.name.contains("nothing"), "{}", case.name);
        }
    }
}

#[test]
fn a_rollout_that_ends_as_r3_advises_is_accepted() {
    let denials = |_: &Value, new: &Value, _: &str| {
        let new = BENCH.stamped(("alice", ""), None, new);
        BENCH.judged("alice", None, &new).denials.into_iter().map(|denial| denial.detail).collect()
    };
    let person = Person { denials: &denials, sound: Value::Null, now: &BENCH.corpus.now };
    for wrong in ["2030-01-01", &BENCH.corpus.now] {
        let night = &BENCH.corpus.cases.iter().find(|case| case.of == "night").unwrap().stored;
        person.requests(night, &[("/spec/notAfter".to_owned(), json!(wrong))]);
    }
}

/// Whatever field the definition has, today or later: to change it is a starting write, unless it is to stop.
#[test]
fn every_field_of_the_spec_is_in_the_list() {
    let definition = definition(KINDS);
    let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    let fields = definition.pointer(spec).and_then(Value::as_object).unwrap();
    assert!(fields.len() > 15 && STOPS.iter().all(|field| fields.contains_key(*field)), "{fields:?}");
    let starts = |old: &Value, new: &Value| {
        let [old, new] = [old, new].map(|spec| json!({ "metadata": { "name": "night" }, "spec": spec }));
        BENCH.ask(("alice", ""), Some(&old), &new, |change| change.starts_targets())
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
