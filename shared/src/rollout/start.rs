//! What a rollout writes on a target: intent and claim in one patch, and the record at the end.

use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::api::{PowerRollout, PowerRolloutSpec};
use crate::annotation::mark::Mark;
use crate::annotation::{format, keys};
use crate::kinds::lifecycle::Lifecycle;
use crate::kinds::{Change, Intent, View};
use crate::power::Power;

/// The patch of a start: what the plugin would write, the claim, and the person who asked.
pub fn start_patch(rollout: &PowerRollout, target: &dyn Lifecycle, view: &View, claim: &Mark, now: Timestamp) -> Value {
    let spec = &rollout.spec;
    let undone = spec.restore_of.as_ref().map(|other| other.uid.as_str());
    let earlier = view.desired.mark.as_ref();
    let earlier = earlier.filter(|mark| mark.uid == claim.uid || Some(mark.uid.as_str()) == undone);
    let (claim, end) = scheduled(spec, view, claim, earlier, now);
    let intent = Intent { power: claim.wanted, reason: spec.reason.as_deref(), end, now, queried: true, force: false };
    let mut patch = match target.change(&intent) {
        Ok(Change::Patch { patch, .. }) => patch,
        Ok(Change::None { .. } | Change::RequestCheck { .. }) | Err(_) => json!({}),
    };
    let annotations = &mut patch["metadata"]["annotations"];
    annotations[keys::ROLLOUT] = claim.text().into();
    let held = earlier.and_then(Mark::hold);
    if claim.wanted == Power::Hibernating && held.is_some() && held == view.desired.held_until() {
        // The hold of the undone rollout. One that was changed since has deferred the target.
        annotations[keys::HOLD_AWAKE_UNTIL] = Value::Null;
        annotations[keys::HOLD_AWAKE_BY] = Value::Null;
    }
    if view.desired.power != claim.wanted {
        annotations[keys::REQUESTED_BY] = rollout.annotations().get(keys::REQUESTED_BY).cloned().into();
        annotations[keys::REQUESTED_AT] = claim.since.clone().into();
    }
    patch
}

/// The end of the sleep or of the hold, and the claim with what a Restore needs to know of the schedule. `earlier`: the
/// mark of the undone rollout, or of an earlier attempt.
fn scheduled(
    spec: &PowerRolloutSpec,
    view: &View,
    claim: &Mark,
    earlier: Option<&Mark>,
    now: Timestamp,
) -> (Mark, Option<Timestamp>) {
    let removed = earlier.and_then(Mark::removed_wake);
    let (wake_at, held_until) = (spec.wake_at.as_ref().map(|at| at.0), spec.hold_awake_until.as_ref().map(|at| at.0));
    match claim.wanted {
        Power::Hibernating => {
            let end = wake_at.or(removed.filter(|at| *at > now));
            (Mark { wake_at: removed.map(format::seconds), ..claim.clone() }, end)
        }
        Power::Running => {
            let removed = view.desired.wakes_at().or(removed).map(format::seconds);
            (Mark { wake_at: removed, held_until: held_until.map(format::seconds), ..claim.clone() }, held_until)
        }
    }
}

/// The patch that makes a record of a claim.
pub fn end_patch(record: &Mark) -> Value {
    json!({ "metadata": { "annotations": { keys::ROLLOUT: record.text() } } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hive::api::ClusterDeployment;

    #[test]
    fn a_start_writes_the_intent_what_goes_with_it_and_the_person() {
        let rollout = |action: &str| -> PowerRollout {
            let (wake_at, hold_awake_until) = match action {
                "Hibernate" => (Some("2126-01-02T00:00:00Z"), None),
                "Resume" => (None, Some("2126-01-03T00:00:00Z")),
                _ => (None, None),
            };
            let restore_of = (action == "Restore").then(|| json!({ "name": "day", "uid": "undone" }));
            serde_json::from_value(json!({
                "apiVersion": "hibernate.sh/v1alpha1", "kind": "PowerRollout",
                "metadata": { "name": "night", "uid": "u", "annotations": { keys::REQUESTED_BY: "ann" } },
                "spec": {
                    "action": action, "targets": { "all": true }, "maxTargets": 1, "notAfter": "2126-01-01T00:00:00Z",
                    "wakeAt": wake_at, "holdAwakeUntil": hold_awake_until, "reason": "costs", "restoreOf": restore_of,
                },
            }))
            .expect("a rollout")
        };
        let cluster = |power: &str, annotations: Value| -> ClusterDeployment {
            serde_json::from_value(json!({
                "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment",
                "metadata": { "name": "demo", "namespace": "x", "resourceVersion": "1", "annotations": annotations },
                "spec": { "baseDomain": "d", "clusterName": "demo", "installed": true, "powerState": power, "platform": {} },
            }))
            .expect("a cluster")
        };
        let mark = |uid: &str, wanted: &str, more: Value| {
            let mut mark = json!({
                "v": 1, "by": "night", "uid": uid, "action": "Hibernate", "group": 0, "attempt": 0,
                "before": "Running", "wanted": wanted, "at": "2026-11-24T12:00:00Z",
            });
            json_patch::merge(&mut mark, &more);
            Mark::parse(&mark.to_string()).expect("a claim")
        };
        let (morning, noon) = ("2126-01-02T00:00:00Z", "2126-01-03T00:00:00Z");
        let undone = |uid: &str| mark(uid, "Running", json!({ "heldUntil": noon, "wakeAt": morning })).text();
        for (action, wanted, annotations, expected, kept) in [
            (
                "Hibernate",
                "Hibernating",
                json!({}),
                json!({ keys::WAKE_AT: morning, keys::REASON: "costs" }),
                json!({}),
            ),
            (
                "Resume",
                "Running",
                json!({ keys::WAKE_AT: morning }),
                json!({ keys::WAKE_AT: null, keys::REASON: "costs", keys::HOLD_AWAKE_UNTIL: noon }),
                json!({ "heldUntil": noon, "wakeAt": morning }),
            ),
            // The undone rollout removed a wake-at: it is given back, also by a retry, and not from anybody else's
            // record.
            (
                "Restore",
                "Hibernating",
                json!({ keys::HOLD_AWAKE_UNTIL: noon, keys::ROLLOUT: undone("undone") }),
                json!({ keys::WAKE_AT: morning, keys::HOLD_AWAKE_UNTIL: null, keys::HOLD_AWAKE_BY: null }),
                json!({ "wakeAt": morning }),
            ),
            (
                "Restore",
                "Hibernating",
                json!({ keys::ROLLOUT: undone("u") }),
                json!({ keys::WAKE_AT: morning }),
                json!({ "wakeAt": morning }),
            ),
            (
                "Restore",
                "Hibernating",
                json!({ keys::HOLD_AWAKE_UNTIL: noon, keys::ROLLOUT: undone("other") }),
                json!({}),
                json!({}),
            ),
        ] {
            let before = if wanted == "Hibernating" { "Running" } else { "Hibernating" };
            let patch = {
                let cluster = cluster(before, annotations);
                start_patch(
                    &rollout(action),
                    &cluster,
                    &cluster.view(None),
                    &mark("u", wanted, json!({})),
                    Timestamp::now(),
                )
            };
            assert_eq!(patch["spec"], json!({ "powerState": wanted }));
            let written = &patch["metadata"]["annotations"];
            for key in [keys::WAKE_AT, keys::HOLD_AWAKE_UNTIL] {
                assert_eq!(written.get(key), expected.get(key), "{action} {key}: {patch}");
            }
            for (key, value) in expected.as_object().expect("annotations") {
                assert_eq!(written.get(key), Some(value), "{action} {key}: {patch}");
            }
            let stamp = (&written[keys::REQUESTED_BY], &written[keys::REQUESTED_AT], &written[keys::ROLLOUT]);
            let claim = mark("u", wanted, kept).text();
            assert_eq!(stamp, (&json!("ann"), &json!("2026-11-24T12:00:00Z"), &json!(claim)));
        }
    }
}
