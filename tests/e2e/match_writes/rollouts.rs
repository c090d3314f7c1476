//! Writes of rollouts: those that let targets start are stamped, and nothing else waits for the webhook.

use serde_json::{Value, json};

use super::{Kind, Verb, Write, merge};

pub const JUDGE: &str = "rollouts.hibernate.sh";
pub const STAMP: &str = "rollout-stamp.hibernate.sh";

const ROLLOUT: Kind = Kind("hibernate.sh", "v1alpha1", "PowerRollout");

fn canary(pause_after: bool) -> Value {
    json!({ "name": "canary", "selector": { "matchLabels": { "role": "canary" } }, "pauseAfter": pause_after })
}

/// With the stamp of the user who sends it: the policy refuses what has none.
fn rollout(name: &str, spec: &Value) -> Value {
    let mut object = ROLLOUT.object(
        "",
        name,
        &json!({
            "metadata": { "annotations": {
                "hibernate.sh/requested-by": "admin", "hibernate.sh/requested-at": "2026-11-24T12:00:00Z",
            } },
            "spec": {
                "action": "Hibernate", "maxTargets": 20, "notAfter": "2126-01-01T02:00:00Z", "acceptFailures": 1,
                "targets": { "selector": { "matchLabels": { "env": "none" } } },
                "groups": [canary(true)],
            },
        }),
    );
    merge(&mut object, &json!({ "spec": spec }));
    object
}

/// One under way, and one that is paused.
pub fn stored() -> Vec<Value> {
    vec![rollout("night", &json!({})), rollout("paused", &json!({ "paused": true }))]
}

/// All of them.
pub fn writes() -> Vec<Write> {
    let write = |what, verb, reaches| Write { what, user: "admin", kind: &ROLLOUT, namespace: "", verb, reaches };
    let update = |what, name, spec: Value, reaches| write(what, Verb::Patch(name, json!({ "spec": spec })), reaches);
    let create = |what, spec: &Value, reaches| write(what, Verb::Create(rollout("new", spec)), reaches);
    let both: &[&str] = &[JUDGE, STAMP];
    vec![
        create("a rollout is created", &json!({}), both),
        create("a paused rollout is created", &json!({ "paused": true }), both),
        update("a rollout is paused", "night", json!({ "paused": true }), &[]),
        update("it is paused again", "paused", json!({ "paused": true }), &[]),
        update("it is unpaused", "paused", json!({ "paused": false }), &[STAMP]),
        update("it is unpaused by removal", "paused", json!({ "paused": null }), &[STAMP]),
        update("it is unpaused and aborted", "paused", json!({ "paused": false, "abort": true }), &[STAMP]),
        update("it is aborted", "night", json!({ "abort": true }), &[]),
        update("a paused one is aborted", "paused", json!({ "abort": true }), &[]),
        update("failures are accepted", "night", json!({ "acceptFailures": 2 }), &[STAMP]),
        update("failed targets start again", "night", json!({ "retryFailed": 1 }), &[STAMP]),
        update("they start again once it is unpaused", "paused", json!({ "retryFailed": 1 }), &[STAMP]),
        update("its group is approved", "night", json!({ "groups": [canary(false)] }), &[STAMP]),
        update("its group stays as it is", "night", json!({ "groups": [canary(true)] }), &[]),
        update("a field is written as it is", "night", json!({ "maxTargets": 20 }), &[]),
        update("it may select more", "night", json!({ "maxTargets": 21 }), &[STAMP]),
        update("it is prolonged", "night", json!({ "notAfter": "2126-01-01T03:00:00Z" }), &[STAMP]),
        update(
            "it is prolonged and paused",
            "night",
            json!({ "notAfter": "2126-01-01T03:00:00Z", "paused": true }),
            &[STAMP],
        ),
        update("its window changes", "night", json!({ "maxConcurrency": 3 }), &[STAMP]),
        update("its pause changes", "paused", json!({ "paused": true, "maxFailures": 3 }), &[STAMP]),
        write(
            "a file without its stamp replaces it",
            Verb::Patch("night", json!({ "metadata": { "annotations": { "hibernate.sh/requested-at": null } } })),
            &[STAMP],
        ),
        write("it gets a label", Verb::Patch("night", json!({ "metadata": { "labels": { "a": "b" } } })), &[]),
        write("status is written", Verb::PatchStatus("night", json!({ "status": { "total": 3 } })), &[]),
        write("it is deleted", Verb::Delete("night"), &[]),
    ]
}
