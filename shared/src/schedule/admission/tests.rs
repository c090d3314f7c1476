//! The cases of `tests/corpus/schedules.yaml`.

#![expect(
    clippy::redundant_closure_for_method_calls,
    reason = "the method alone is not general enough in its lifetimes"
)]

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::*;
use crate::admission::Settings;
use crate::admission::corpus::{Verb, corpus};
use crate::admission::testing::Bench;
use crate::kinds::KINDS;
use crate::schedule::api::definitions;

static BENCH: LazyLock<Bench<Schedule>> = LazyLock::new(|| Bench {
    corpus: corpus(include_str!("../../../../tests/corpus/schedules.yaml")),
    settings: Settings::default(),
    judge,
    stamp,
});

#[test]
fn the_table() {
    let cases = BENCH.cases(&[Verb::Update, Verb::Status, Verb::Create]);
    assert!(cases.clone().count() > 25);
    for case in cases {
        BENCH.check(case);
        for (old, new) in case.changes().into_iter().filter(|_| case.name.starts_with("what ")) {
            let starts = BENCH.ask(("alice", ""), old, &new, |change| change.starts_targets());
            let expected = !case.name.contains("nothing") && !case.name.contains("cannot");
            assert!(starts == expected || case.name.contains("cannot"), "{}", case.name);
        }
    }
}

/// Whatever field the definition has, today or later: to change it is a starting write, unless it is to suspend.
#[test]
fn to_change_any_field_but_suspend_lets_targets_change() {
    for definition in definitions(KINDS) {
        let spec = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
        let fields = definition.pointer(spec).and_then(Value::as_object).unwrap();
        let sample = json!({
            "timeZone": "UTC", "awake": [{ "from": "08:00", "to": "18:00" }], "targets": { "all": true }, "priority": 1,
            "events": [{ "cron": "0 8 * * *", "power": "Sleep" }], "exceptions": [{ "from": "2026-12-24", "power": "Sleep" }],
            "calendars": [{ "configMap": "a", "key": "b", "power": "Sleep" }], "rollout": { "maxTargets": 3 }, "lead": "20m",
            "minimumSleep": "1h", "applyAt": "2026-11-24T12:00:00Z", "suspend": true, "operatorKinds": ["notebooks.kubeflow.org"],
        });
        assert!(fields.keys().eq(sample.as_object().unwrap().keys()), "{:?}", fields.keys());
        for (field, value) in sample.as_object().unwrap() {
            let least = json!({ "timeZone": "Europe/Berlin", "targets": { "names": [{ "name": "x" }] } });
            let mut more = least.clone();
            more[field] = value.clone();
            let of = |spec: &Value| json!({ "metadata": { "name": "night" }, "spec": spec });
            let starts = BENCH.ask(("alice", ""), Some(&of(&least)), &of(&more), |change| change.starts_targets());
            assert_eq!(starts, field != "suspend", "{field}");
        }
    }
}
