//! What the status of a rollout that has not started advises is done, and it starts.

use super::*;

fn edited(hub: &mut Hub, spec: &Value) {
    let mut object = json!(hub.rollout);
    json_patch::merge(&mut object, &json!({ "metadata": { "generation": 2 }, "spec": spec }));
    hub.rollout = serde_json::from_value(object).unwrap();
}

#[test]
fn what_a_message_advises_lets_the_targets_start() {
    let group = |fields: Value| json!({ "groups": [fields] });
    let labels = |tier: Value| group(json!({ "name": "canary", "selector": { "matchLabels": tier } }));
    let names = json!([{ "namespace": "fleet", "name": "a" }, { "namespace": "fleet", "name": "b" }]);
    for (spec, advice, edits) in [
        (json!({ "maxTargets": 1 }), "raise it or abort", vec![json!({ "maxTargets": 2 })]),
        (
            labels(json!({ "tier": "none" })),
            "correct its selector or names",
            vec![labels(json!({ "env": "dev" })), group(json!({ "name": "canary", "names": names }))],
        ),
        (
            json!({ "wakeAt": "2026-11-24T11:00:00Z" }),
            "set it to a later time",
            vec![json!({ "wakeAt": "2026-11-24T18:00:00Z" })],
        ),
        (json!({ "paused": true }), "unpause it to start", vec![json!({ "paused": false })]),
    ] {
        for edit in edits {
            let mut hub = Hub::of(&spec, &["a", "b"]);
            assert!(hub.settle().is_empty(), "{spec}");
            let message = hub.message();
            assert!(message.contains(advice), "{spec}: {message}");
            edited(&mut hub, &edit);
            assert_eq!(hub.settle(), ["a", "b"], "{message}: {edit}");
        }
    }
    let mut hub = Hub::of(&json!({ "maxTargets": 1 }), &["a", "b"]);
    hub.settle();
    edited(&mut hub, &json!({ "abort": true }));
    assert_eq!((hub.settle().len(), hub.phase()), (0, RolloutPhase::Aborted));
}
