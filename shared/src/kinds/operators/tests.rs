//! The rows: against upstream's definitions, by the table of the reader, and by the steps that each operator writes.

mod schema;
mod steps;

use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::annotation::keys;
use crate::kinds::sleep_row::{Range, Scalar, Switch};
use crate::kinds::{Change, Intent, KINDS, TargetError};
use crate::power::Power;

/// The switches of [`SCALED_OBJECT`].
const COUNT: &str = "/metadata/annotations/autoscaling.keda.sh~1paused-replicas";
const PAUSED: &str = "/metadata/annotations/autoscaling.keda.sh~1paused";

/// Every kind that is a row.
fn rows() -> Vec<(&'static TargetKind, &'static SleepRow)> {
    let row = |kind: &&'static TargetKind| Some((*kind, kind.sleep_row()?));
    KINDS.targets.iter().filter_map(row).collect()
}

fn object(annotations: &Value, spec: &Value) -> Value {
    json!({
        "metadata": { "name": "one", "namespace": "shop", "resourceVersion": "7", "annotations": annotations },
        "spec": spec,
    })
}

fn asked(kind: &TargetKind, object: &Value, power: Power, queried: bool) -> Result<Change, TargetError> {
    let now = Timestamp::UNIX_EPOCH;
    kind.change(object, &Intent { power, reason: None, end: None, now, queried, force: false })
}

/// The object after a change, and what is said of it.
fn after(kind: &TargetKind, object: &Value, power: Power) -> (Value, String) {
    match asked(kind, object, power, true) {
        Ok(Change::Patch { patch, message, .. }) => {
            let mut after = object.clone();
            json_patch::merge(&mut after, &patch);
            (after, message)
        }
        Ok(Change::None { message, .. } | Change::RequestCheck { message, .. }) => (object.clone(), message),
        Err(error) => (object.clone(), error.to_string()),
    }
}

#[test]
fn the_table_of_the_reader() {
    use Power::{Hibernating, Running};
    let ours = |before: &Value| json!({ keys::BEFORE: before.to_string() });
    let recorded = ours(&json!({ "/spec/suspend": null }));
    let both = |one: &Value, other: &Value| {
        let mut all = one.clone();
        json_patch::merge(&mut all, other);
        all
    };
    let (on, off, none) = (json!({ "suspend": true }), json!({ "suspend": false }), json!({}));
    let protected = json!({ keys::PROTECTED: "true" });
    for (row, annotations, spec, power, says) in [
        ("O1", &none, &off, Hibernating, "hibernation requested"),
        ("O1", &recorded, &none, Hibernating, "hibernation requested"),
        ("O2", &protected, &off, Hibernating, "it is protected"),
        ("O3", &none, &on, Hibernating, "unchanged (asleep already: a resume leaves it so)"),
        ("O4", &recorded, &on, Hibernating, "unchanged"),
        ("O6", &recorded, &on, Running, "resume requested"),
        ("O6", &both(&recorded, &protected), &on, Running, "resume requested"),
        ("O7", &none, &on, Running, "left asleep (nothing recorded)"),
        ("O8", &json!({ keys::BEFORE: "x" }), &on, Running, "annotation hibernate.sh/before: it is no JSON object"),
        (
            "O8",
            &ours(&json!({ "/spec/suspend": 3 })),
            &on,
            Running,
            "annotation hibernate.sh/before: found 3 for /spec/suspend",
        ),
        (
            "O8",
            &ours(&json!({ "/spec/template": true })),
            &on,
            Running,
            "annotation hibernate.sh/before: found \"/spec/template\"",
        ),
        ("O10", &none, &off, Running, "unchanged"),
        ("O11", &recorded, &off, Running, "already awake, stale record removed"),
    ] {
        let (_, found) = after(&RAY_CLUSTER, &object(annotations, spec), power);
        assert!(found.starts_with(says), "{row} {annotations} {spec}: {found}");
    }
    let named = asked(&RAY_CLUSTER, &object(&none, &on), Running, false).unwrap_err().to_string();
    assert!(named.ends_with("wake it by hand, by setting /spec/suspend to false"), "O7: {named}");
}

#[test]
fn a_change_drops_who_made_the_request_before() {
    let stamped = json!({ keys::REQUESTED_BY: "alice", keys::REQUESTED_AT: "2026-11-24T12:00:00Z" });
    let (after, _) = after(&RAY_CLUSTER, &object(&stamped, &json!({ "suspend": false })), Power::Hibernating);
    let left: Vec<&String> = after["metadata"]["annotations"].as_object().unwrap().keys().collect();
    assert_eq!(left, [keys::BEFORE]);
}

/// The namespace that holds what Gardener runs as seeds.
#[test]
fn a_shoot_that_may_be_a_seed_is_refused() {
    let mut shoot = object(&json!({}), &json!({ "hibernation": { "enabled": false } }));
    assert_eq!(after(&SHOOT, &shoot, Power::Hibernating).1, "hibernation requested");
    shoot["metadata"]["namespace"] = json!("garden");
    let (_, says) = after(&SHOOT, &shoot, Power::Hibernating);
    assert!(says.starts_with("shoots of namespace garden may run as seeds"), "{says}");
}

#[test]
fn o5_a_machine_that_does_not_run_is_left_as_it_is() {
    let status = json!({ "printableStatus": "Stopped", "runStrategy": "RerunOnFailure" });
    let mut stopped = object(&json!({}), &json!({ "runStrategy": "RerunOnFailure" }));
    stopped["status"] = status;
    let (_, says) = after(&VIRTUAL_MACHINE, &stopped, Power::Hibernating);
    assert_eq!(says, "unchanged (it does not run: a resume leaves it so)");
    for (strategy, says) in [("Once", "its runStrategy is Once"), ("Manual", "its runStrategy is Manual")] {
        let once = object(&json!({}), &json!({ "runStrategy": strategy }));
        assert!(after(&VIRTUAL_MACHINE, &once, Power::Hibernating).1.starts_with(says), "{strategy}");
    }
    let neither = after(&VIRTUAL_MACHINE, &object(&json!({}), &json!({})), Power::Hibernating).1;
    assert!(neither.starts_with("it has none of /spec/runStrategy, /spec/running"), "{neither}");
}

#[test]
fn a_scaled_object_that_is_paused_without_a_count_is_refused() {
    let paused = |replicas: &Value| {
        let mut annotations = json!({ "autoscaling.keda.sh/paused": "true" });
        json_patch::merge(&mut annotations, &json!({ "autoscaling.keda.sh/paused-replicas": replicas }));
        after(&SCALED_OBJECT, &object(&annotations, &json!({})), Power::Hibernating).1
    };
    assert!(paused(&Value::Null).starts_with("it is paused at its current count"));
    assert_eq!(paused(&json!("3")), "hibernation requested");
}

#[test]
fn what_a_merge_patch_would_replace_is_refused() {
    let list = object(&json!({}), &json!({ "hibernation": [{ "enabled": false }] }));
    let (left, says) = after(&SHOOT, &list, Power::Hibernating);
    assert!(says.starts_with("/spec/hibernation: found no object"), "{says}");
    assert_eq!(left, list);
}

#[test]
fn a_rollout_claims_nothing_that_it_would_not_change() {
    let obstacles = |object: &Value| VIRTUAL_MACHINE.read(object).unwrap().view(None).obstacles;
    let machine = |annotations: Value, strategy: &str| object(&annotations, &json!({ "runStrategy": strategy }));
    let protected = obstacles(&machine(json!({ keys::PROTECTED: "true" }), "Always"));
    assert!(protected.refused.is_some_and(|why| why.starts_with("it is protected")) && protected.no_wake.is_none());
    let by_hand = obstacles(&machine(json!({}), "Halted"));
    assert_eq!(by_hand.no_wake.as_deref(), Some("left asleep (nothing recorded)"));
    let torn = obstacles(&machine(json!({ keys::BEFORE: "x" }), "Halted"));
    assert!(torn.no_wake.is_some_and(|why| why.starts_with("annotation hibernate.sh/before")));
    let ours = obstacles(&machine(json!({ keys::BEFORE: r#"{"/spec/runStrategy":"Always"}"# }), "Halted"));
    assert_eq!((ours.refused, ours.no_wake), (None, None));
}

#[test]
fn o9_what_others_have_set_since_is_left() {
    let mut slept = object(&json!({ keys::BEFORE: r#"{"/spec/suspend":null}"# }), &json!({ "suspend": true }));
    slept["metadata"]["managedFields"] = json!([
        {
            "manager": "kubectl-hibernate", "time": "2026-11-21T09:00:00Z",
            "fieldsV1": { "f:metadata": { "f:annotations": { "f:hibernate.sh/before": {} } } },
        },
        { "manager": "helm", "time": "2026-11-21T10:00:00Z", "fieldsV1": { "f:spec": { "f:suspend": {} } } },
    ]);
    let (left, says) = after(&RAY_CLUSTER, &slept, Power::Running);
    assert!(says.starts_with("left asleep: others have set it since (recorded by kubectl-hibernate at "), "{says}");
    assert_eq!((&left["spec"]["suspend"], &left["metadata"]["annotations"]), (&json!(true), &json!({})));
}

/// Others took back one half of a pause of KEDA, of which each half holds alone.
#[test]
fn o12_o13_what_is_left_of_a_sleep_is_undone() {
    use Power::{Hibernating, Running};
    let none = json!({ COUNT: null, PAUSED: null }).to_string();
    let annotated = |count: Option<&str>, paused: Option<&str>, record: Option<&str>| {
        let mut all = json!({ "other": "kept" });
        for (key, value) in [("autoscaling.keda.sh/paused-replicas", count), ("autoscaling.keda.sh/paused", paused)] {
            json_patch::merge(&mut all, &json!({ key: value }));
        }
        json_patch::merge(&mut all, &json!({ keys::BEFORE: record }));
        object(&all, &json!({}))
    };
    let (requested, stale) = ("resume requested", "already awake, stale record removed");
    let of = |count: &str| json!({ COUNT: count, PAUSED: null }).to_string();
    for (count, paused, record, left, says) in [
        (Some("0"), None, &none, (None, None), requested),
        (None, Some("true"), &none, (None, None), requested),
        (Some("0"), Some("false"), &none, (None, Some("false")), requested),
        (Some("3"), Some("true"), &none, (Some("3"), None), requested),
        (Some("0"), None, &of("2"), (Some("2"), None), requested),
        // It had this value before, and others have changed the rest: nothing of ours is left.
        (Some("0"), None, &of("0"), (Some("0"), None), stale),
        (Some("3"), None, &none, (Some("3"), None), stale),
        (None, None, &none, (None, None), stale),
    ] {
        let half = annotated(count, paused, Some(record.as_str()));
        let (woken, found) = after(&SCALED_OBJECT, &half, Running);
        assert_eq!((&woken, found.as_str()), (&annotated(left.0, left.1, None), says), "{count:?} {paused:?} {record}");
        let desired = SCALED_OBJECT.record(&half).unwrap().desired;
        assert_eq!(desired == "Hibernating", says == requested, "{count:?} {paused:?} {record}");
        // A sleep records no value of its own, so that a wake after it comes to the same.
        let (again, _) = after(&SCALED_OBJECT, &half, Hibernating);
        let (woken, _) = after(&SCALED_OBJECT, &again, Running);
        assert_eq!(woken, annotated(left.0, left.1, None), "{count:?} {paused:?} {record}");
    }
    for power in [Hibernating, Running] {
        let torn = annotated(Some("0"), None, Some("x"));
        let (left, says) = after(&SCALED_OBJECT, &torn, power);
        assert!(left == torn && says.starts_with("annotation hibernate.sh/before: it is no JSON object"), "{says}");
    }
    assert_eq!(after(&SCALED_OBJECT, &annotated(Some("0"), None, None), Running).1, "unchanged");
}

/// A value that a switch may have while its object is awake.
fn awake(switch: &Switch) -> BoxedStrategy<Value> {
    let some = match switch.range {
        Range::Bool => Just(json!(switch.absent == Scalar::Bool(true))).boxed(),
        Range::Count => (1_u64..=10_000).prop_map(Value::from).boxed(),
        Range::Words(words) => proptest::sample::select(words.to_vec()).prop_map(Value::from).boxed(),
        Range::Numbers => (0_u64..=9, 1_u64..=10_000).prop_map(|(min, max)| json!({ "min": min, "max": max })).boxed(),
        Range::NumberText => {
            prop_oneof![Just(0_u64), 1_u64..=10_000].prop_map(|number| number.to_string().into()).boxed()
        }
        Range::Nothing => Just(Value::Null).boxed(),
    };
    if switch.only_present { some } else { prop_oneof![some, Just(Value::Null)].boxed() }
}

/// An object of a row that is awake.
fn any_awake() -> impl Strategy<Value = (&'static TargetKind, Value)> {
    proptest::sample::select(rows()).prop_flat_map(|(kind, row)| {
        let switches: Vec<&'static Switch> = row.switches.iter().collect();
        // Of fields with one meaning an object has one.
        let only = switches.iter().any(|switch| switch.only_present);
        (0..switches.len()).prop_flat_map(move |at| {
            let present: Vec<&'static Switch> = if only { vec![switches[at]] } else { switches.clone() };
            let values: Vec<BoxedStrategy<Value>> = present.iter().map(|switch| awake(switch)).collect();
            let places: Vec<&'static str> = present.iter().map(|switch| switch.at).collect();
            values.prop_map(move |values| {
                let mut object = object(&json!({ "other": "kept" }), &json!({ "other": 7 }));
                for (place, value) in places.iter().zip(values) {
                    if !value.is_null() {
                        crate::object::put(&mut object, place, value);
                    }
                }
                (kind, object)
            })
        })
    })
}

proptest! {
    #[test]
    fn a_wake_undoes_a_sleep((kind, object) in any_awake()) {
        // Refused while it is paused without a count.
        let refused = kind.read(&object).unwrap().view(None).obstacles.refused;
        prop_assume!(kind != &SCALED_OBJECT || refused.is_none());
        prop_assume!(kind.record(&object).unwrap().desired == "Running"); // and not as a sleep pauses it
        let (asleep, says) = after(kind, &object, Power::Hibernating);
        prop_assert_eq!(says, "hibernation requested");
        prop_assert_eq!(kind.record(&asleep).unwrap().desired, "Hibernating");
        let (again, says) = after(kind, &asleep, Power::Hibernating);
        prop_assert_eq!((&again, says.as_str()), (&asleep, "unchanged"));
        let (woken, says) = after(kind, &asleep, Power::Running);
        prop_assert_eq!(says, "resume requested");
        prop_assert_eq!(without_empty(&woken), without_empty(&object));
    }

    #[test]
    fn a_record_never_writes_what_is_none_of_its_row((kind, object) in any_awake(), text in "[\\PC]{0,40}", place in "(/[a-z]{1,9}){1,3}") {
        let (mut asleep, _) = after(kind, &object, Power::Hibernating);
        for record in [text.clone(), json!({ place.clone(): text }).to_string(), json!({ place: { "image": "x" } }).to_string()] {
            asleep["metadata"]["annotations"][keys::BEFORE] = record.into();
            let before = asleep.clone();
            let (woken, _) = after(kind, &asleep, Power::Running);
            prop_assert_eq!(&woken["spec"], &before["spec"]);
        }
    }
}

/// Without members that are empty objects: a merge patch leaves them behind.
fn without_empty(object: &Value) -> Value {
    let Value::Object(members) = object else { return object.clone() };
    let members = members.iter().map(|(name, value)| (name.clone(), without_empty(value)));
    Value::Object(members.filter(|(_, value)| *value != json!({})).collect())
}
