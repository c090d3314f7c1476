//! Whatever is posted: an answer, never a panic, and the uid comes back when there is one.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by them")]

mod common;

use axum::http::StatusCode;
use common::*;
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use webhook::table::Endpoint;

fn answer(endpoint: Endpoint, body: &[u8]) -> (StatusCode, Value) {
    let (code, answer) = default_webhook().answer(endpoint, body, "2026-11-21T18:00:00Z".parse::<Timestamp>().unwrap());
    let answer: Value = serde_json::from_slice(&answer).expect("an answer is always JSON");
    assert!(answer["response"]["allowed"].is_boolean());
    (code, answer)
}

#[test]
fn fuzz_admission_reviews() {
    let request = |kind, old: &Value, new: &Value| review(&request(kind, "UPDATE", Some(old), Some(new))).to_string();
    let seeds = [
        request(CLUSTERS, &cluster("Running"), &cluster("Hibernating")),
        request(CLUSTERS, &cluster("Hibernating"), &cluster("")),
        request(DEPLOYMENTS, &deployment(3), &deployment(0)),
        request(KKP_CLUSTERS, &kkp_cluster("Running"), &kkp_cluster("Hibernating")),
        in_order(&update(CLUSTERS, &cluster("Running"), &cluster("Hibernating"))),
    ];
    let seeds: Vec<&[u8]> = seeds.iter().map(String::as_bytes).collect();
    ::fuzz::run("AdmissionReviews", &seeds, |body| {
        let codes = [Endpoint::Validate, Endpoint::Mutate].map(|endpoint| answer(endpoint, body).0);
        codes.contains(&StatusCode::OK)
    });
}

/// Some JSON of any shape.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
        Just(json!("Hibernating")),
        Just(json!("2026-11-22T00:00:00Z")),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::btree_map("[a-zA-Z/.]{0,12}", inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

/// Every place in a value, the value itself first.
fn places(value: &Value, at: &str, places: &mut Vec<String>) {
    places.push(at.to_owned());
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                self::places(value, &format!("{at}/{}", key.replace('~', "~0").replace('/', "~1")), places);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                self::places(value, &format!("{at}/{index}"), places);
            }
        }
        _ => {}
    }
}

fn sound_review() -> impl Strategy<Value = Value> {
    let state = || prop_oneof![Just(""), Just("Running"), Just("Hibernating")];
    let clusters = (state(), state())
        .prop_map(|(old, new)| review(&request(CLUSTERS, "UPDATE", Some(&cluster(old)), Some(&cluster(new)))));
    let workloads = (0_u32..4, 0_u32..4)
        .prop_map(|(old, new)| review(&request(DEPLOYMENTS, "UPDATE", Some(&deployment(old)), Some(&deployment(new)))));
    let kkp = prop_oneof![
        (state(), state()).prop_map(|(old, new)| {
            review(&request(KKP_CLUSTERS, "UPDATE", Some(&kkp_cluster(old)), Some(&kkp_cluster(new))))
        }),
        state().prop_map(|old| review(&request(KKP_CLUSTERS, "DELETE", Some(&kkp_cluster(old)), None))),
    ];
    prop_oneof![clusters, workloads, kkp]
}

/// A review in which some places hold anything at all.
fn mutated_review() -> impl Strategy<Value = Value> {
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any_json()), 0..4);
    (sound_review(), changes).prop_map(|(mut review, changes)| {
        for (index, value) in changes {
            let mut all = Vec::new();
            places(&review, "", &mut all);
            let place: &String = index.get(&all);
            if let Some(place) = review.pointer_mut(place) {
                *place = value;
            }
        }
        review
    })
}

fn endpoints() -> impl Strategy<Value = Endpoint> {
    prop_oneof![Just(Endpoint::Validate), Just(Endpoint::Mutate)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes(endpoint in endpoints(), body in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert_eq!(answer(endpoint, &body).0, StatusCode::BAD_REQUEST);
    }

    #[test]
    fn any_change_of_a_review(endpoint in endpoints(), review in mutated_review()) {
        let (code, answer) = answer(endpoint, review.to_string().as_bytes());
        let uid = review.pointer("/request/uid").and_then(Value::as_str).unwrap_or_default();
        prop_assert_eq!(&answer["response"]["uid"], uid);
        prop_assert!(code == StatusCode::OK || (code == StatusCode::BAD_REQUEST && answer["response"]["allowed"] == false));
    }

    /// The answer does not depend on the order of the members.
    #[test]
    fn as_an_api_server_writes_it(endpoint in endpoints(), review in mutated_review()) {
        if !review["request"].is_object() || self::review(&review["request"]) != review {
            return Ok(());
        }
        let ordered = in_order(&review["request"]);
        let [(code, one), (other_code, other)] = [review.to_string(), ordered].map(|body| answer(endpoint, body.as_bytes()));
        prop_assert_eq!(code, other_code);
        prop_assert!(code != StatusCode::OK || one == other, "{} {}", one, other);
    }

    #[test]
    fn a_review_cut_or_damaged_anywhere(
        endpoint in endpoints(),
        review in sound_review(),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
        cut in any::<bool>(),
    ) {
        let mut body = review.to_string().into_bytes();
        let at = at.index(body.len());
        if cut { body.truncate(at) } else { body[at] = byte }
        answer(endpoint, &body);
    }

    /// The mutating endpoint refuses only what has no annotations that can be read, and what it patches applies.
    #[test]
    fn a_patch_always_applies(review in mutated_review()) {
        let (code, answer) = answer(Endpoint::Mutate, review.to_string().as_bytes());
        if code != StatusCode::OK { return Ok(()) }
        if answer["response"]["allowed"] == false {
            let causes = answer["response"]["status"]["details"]["causes"].as_array().cloned().unwrap_or_default();
            let about_all = |field: &Value| ["object", "oldObject", "metadata", "metadata.annotations"].iter().any(|one| field == one);
            prop_assert!(causes.iter().any(|cause| about_all(&cause["field"])), "{}", answer);
            return Ok(());
        }
        let mut object = review["request"]["object"].clone();
        let patch = patch_of(&answer["response"]);
        prop_assert!(json_patch::patch(&mut object, &patch).is_ok(), "{:?}", patch);
    }

    /// A sound change of state passes once it is stamped, whatever stamps and reasons the client sent with it.
    #[test]
    fn what_is_patched_is_then_accepted(
        (old, new) in prop_oneof![Just(("", "Hibernating")), Just(("Hibernating", "")), Just(("Hibernating", "Running"))],
        annotations in proptest::option::of(proptest::collection::btree_map(
            prop_oneof![
                Just("hibernate.sh/requested-by"), Just("hibernate.sh/requested-at"), Just("hibernate.sh/reason"), Just("a~/b"),
            ],
            ".{0,12}",
            0..4,
        )),
    ) {
        let mut object = with(cluster(new), "/metadata/annotations", json!(annotations));
        let ask = |object: &Value| review(&request(CLUSTERS, "UPDATE", Some(&cluster(old)), Some(object))).to_string();
        let (_, stamped) = answer(Endpoint::Mutate, ask(&object).as_bytes());
        json_patch::patch(&mut object, &patch_of(&stamped["response"])).unwrap();
        let (_, judged) = answer(Endpoint::Validate, ask(&object).as_bytes());
        prop_assert_eq!(&judged["response"]["allowed"], true, "{}", judged);
        prop_assert_eq!(&object["metadata"]["annotations"]["hibernate.sh/requested-by"], "alice");
        let (_, again) = answer(Endpoint::Mutate, ask(&object).as_bytes());
        prop_assert_eq!(patch_of(&again["response"]), json_patch::Patch::default());
    }
}
