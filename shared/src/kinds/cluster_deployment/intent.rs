//! Intent on a `ClusterDeployment`: `spec.powerState`, the reason and the schedule, nothing else. Who and when is the
//! webhook's to stamp.

use kube::ResourceExt;
use serde_json::{Map, Value, json};

use crate::annotation::{Hold, NAMELESS, format, hold, keys, protected, reason_edit};
use crate::hive::api::{ClusterDeployment, FAKE_CLUSTER};
use crate::hive::preflight::{is_awake, is_left_alone, request_time};
use crate::kinds::lifecycle::{Change, Intent};
use crate::power::Power;

/// | # | wanted | spec.powerState | reason | patch |
/// |---|---|---|---|---|
/// | H1 | as it is | as wanted | none given, or the one present | none |
/// | H2 | as it is | as wanted | another | the reason only |
/// | H3 | a change | the other | given | state and reason |
/// | H4 | a change | the other | none given, one present | state, and the old reason is removed |
/// | H5 | a change | the other | none | state |
///
/// Empty and absent are Running, as Hive reads them. In the same patch, the schedule:
///
/// | # | wanted | annotation | patch |
/// |---|---|---|---|
/// | H6 | asleep until a time | wake-at another | wake-at |
/// | H7 | asleep, a change, or wake-at has passed | wake-at present | removed: it belonged to an earlier sleep |
/// | H8 | asleep | a hold that has passed | removed; one that has not is the webhook's to refuse |
/// | H9 | awake | wake-at present | removed |
/// | H10 | held awake until a time | hold-awake-until another | set, and an old holder's name is removed for the new one's |
/// | H11 | awake | a hold that has passed | removed |
///
/// A resume of a cluster that the user has named and that runs already (H1) asks the controller to check its machines:
/// one of them may have been stopped since it last looked.
///
/// What is removed or replaced of a schedule was judged as it was read, and somebody may have set another one since:
/// such a patch carries the resourceVersion that it was made from, so that the API server refuses it (409). All others
/// do without.
pub(super) fn change(cluster: &ClusterDeployment, intent: &Intent<'_>) -> Change {
    let asleep = is_asleep(cluster);
    let changes = asleep != (intent.power == Power::Hibernating);
    let mut annotations = schedule(cluster, intent, changes);
    let scheduled = !annotations.is_empty();
    let replaces = annotations.keys().any(|key| note(cluster, key).is_some());
    annotations.extend(reason_edit(note(cluster, keys::REASON), intent.reason, changes)); // H2 to H4
    if !changes && annotations.is_empty() {
        let none = || Change::None { message: unchanged(cluster, intent), will_reach: true };
        return check(cluster, intent).unwrap_or_else(none); // H1
    }
    let message = message(intent, changes, scheduled);
    let mut patch = Map::new();
    if !annotations.is_empty() {
        let mut metadata = json!({ "annotations": annotations });
        if let Some(version) = cluster.metadata.resource_version.as_ref().filter(|_| replaces) {
            metadata["resourceVersion"] = version.as_str().into();
        }
        patch.insert("metadata".to_owned(), metadata);
    }
    if changes {
        patch.insert("spec".to_owned(), json!({ "powerState": intent.power }));
    }
    Change::Patch { patch: Value::Object(patch), message, warnings: warnings(cluster, intent) }
}

fn is_asleep(cluster: &ClusterDeployment) -> bool {
    cluster.desired() == Power::Hibernating
}

fn note<'a>(cluster: &'a ClusterDeployment, key: &str) -> Option<&'a str> {
    cluster.annotations().get(key).map(String::as_str)
}

/// Asks for a preflight, because the controller lists the machines before it answers one. A fake cluster has none.
fn check(cluster: &ClusterDeployment, intent: &Intent<'_>) -> Option<Change> {
    if intent.power != Power::Running || intent.queried {
        return None;
    }
    if !is_awake(cluster) || is_left_alone(cluster) || cluster.annotation_is_true(FAKE_CLUSTER) {
        return None;
    }
    let requested = request_time(cluster, intent.now);
    let patch = json!({ "metadata": { "annotations": { keys::PREFLIGHT_REQUESTED_AT: format::seconds(requested) } } });
    Some(Change::RequestCheck {
        patch,
        requested,
        message: "already running; asked for a check of its machines, `status` shows the outcome".to_owned(),
    })
}

/// What is said where nothing has to be written: that it wakes by itself all the same is easily overlooked.
fn unchanged(cluster: &ClusterDeployment, intent: &Intent<'_>) -> String {
    let wake = note(cluster, keys::WAKE_AT).and_then(format::time).filter(|_| intent.power == Power::Hibernating);
    wake.map_or_else(|| "unchanged".to_owned(), |wake| format!("unchanged, wakes at {}", format::seconds(wake)))
}

/// What a change goes against, worth a warning: what the webhook refuses where there is one (its row V6), and the end
/// of somebody's hold before its time.
fn warnings(cluster: &ClusterDeployment, intent: &Intent<'_>) -> Vec<String> {
    const REFUSED: &str = "the webhook refuses this; without the webhook the cluster hibernates";
    let hold = hold(|key| note(cluster, key), intent.now);
    let mut warnings = Vec::new();
    if intent.power == Power::Hibernating && !is_asleep(cluster) {
        if protected(note(cluster, keys::PROTECTED)) {
            warnings.push(format!("it is protected from sleep ({}): {REFUSED}", keys::PROTECTED));
        }
        let held = match hold {
            Hold::None => None,
            Hold::Until { until, by } => Some((format::seconds(until), by)),
            Hold::Malformed { text, by } => Some((format!("{text:?}, which is not a time,"), by)),
        };
        warnings.extend(held.map(|(until, by)| {
            let (by, key) = (by.unwrap_or(NAMELESS), keys::HOLD_AWAKE_UNTIL);
            format!("it is held awake until {until} by {by} ({key}): {REFUSED}")
        }));
    }
    if let (Power::Running, Some(end), Hold::Until { until, by }) = (intent.power, intent.end, hold)
        && until > end
    {
        let (by, until) = (by.unwrap_or(NAMELESS), format::seconds(until));
        warnings.push(format!("this shortens the hold of {by}, which lasted until {until}"));
    }
    warnings
}

/// H6 to H11.
fn schedule(cluster: &ClusterDeployment, intent: &Intent<'_>, changes: bool) -> Map<String, Value> {
    let found = |key: &str| note(cluster, key);
    let passed = |text: &str| format::time(text).is_some_and(|time| time <= intent.now);
    let mut edits = Map::new();
    let mut want = |key: &str, value: Option<String>| {
        if found(key) != value.as_deref() {
            edits.insert(key.to_owned(), value.map_or(Value::Null, Value::String));
        }
    };
    let end = intent.end.map(format::seconds);
    match (intent.power, end) {
        (Power::Hibernating, Some(end)) => want(keys::WAKE_AT, Some(end)), // H6
        (Power::Hibernating, None) if changes || found(keys::WAKE_AT).is_some_and(passed) => {
            want(keys::WAKE_AT, None); // H7
        }
        (Power::Hibernating, None) => {}
        (Power::Running, None) => want(keys::WAKE_AT, None), // H9
        (Power::Running, Some(end)) => {
            want(keys::WAKE_AT, None); // H9
            if found(keys::HOLD_AWAKE_UNTIL) != Some(&end) {
                want(keys::HOLD_AWAKE_UNTIL, Some(end)); // H10
                want(keys::HOLD_AWAKE_BY, None);
            }
            return edits;
        }
    }
    if found(keys::HOLD_AWAKE_UNTIL).is_some_and(passed) {
        want(keys::HOLD_AWAKE_UNTIL, None); // H8, H11
        want(keys::HOLD_AWAKE_BY, None);
    }
    edits
}

/// What is said once it is written.
fn message(intent: &Intent<'_>, changes: bool, scheduled: bool) -> String {
    match (intent.power, changes, intent.end.map(format::seconds)) {
        (Power::Hibernating, true, Some(end)) => format!("hibernation requested, wakes at {end}"),
        (Power::Hibernating, true, None) => "hibernation requested".to_owned(),
        (Power::Running, true, Some(end)) => format!("resume requested, held awake until {end}"),
        (Power::Running, true, None) => "resume requested".to_owned(),
        (_, false, _) if !scheduled => "reason updated".to_owned(),
        (Power::Hibernating, false, Some(end)) => format!("wakes at {end}"),
        (Power::Running, false, Some(end)) => format!("held awake until {end}"),
        (_, false, None) => "stale schedule removed".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-11-21T18:00:00Z";
    const PAST: &str = "2026-11-21T17:59:59Z";
    const SOON: &str = "2026-11-22T08:00:00Z";
    const LATER: &str = "2026-11-23T08:00:00Z";

    fn intent<'a>(action: Power, reason: Option<&'a str>, end: Option<&str>) -> Intent<'a> {
        let time = |text: &str| text.parse().unwrap();
        Intent { power: action, reason, end: end.map(time), now: time(NOW), queried: false, force: false }
    }

    /// With what every `ClusterDeployment` has.
    fn typed(fields: &Value) -> ClusterDeployment {
        let mut object =
            json!({ "metadata": {}, "spec": { "baseDomain": "d", "clusterName": "demo", "platform": {} } });
        json_patch::merge(&mut object, fields);
        serde_json::from_value(object).unwrap()
    }

    fn planned(
        state: Option<&str>,
        old_reason: Option<&str>,
        action: Power,
        reason: Option<&str>,
    ) -> Option<(Value, String)> {
        let mut cluster = json!({ "metadata": { "name": "demo" }, "spec": { "powerState": state } });
        if let Some(reason) = old_reason {
            cluster["metadata"]["annotations"] = json!({ keys::REASON: reason });
        }
        match change(&typed(&cluster), &intent(action, reason, None)) {
            Change::Patch { patch, message, .. } => Some((patch, message)),
            Change::None { .. } | Change::RequestCheck { .. } => None,
        }
    }

    #[test]
    fn patches_are_as_small_as_the_table_says() {
        use Power::{Hibernating, Running};
        let because = |reason: Option<&str>| json!({ "annotations": { keys::REASON: reason } });
        let patch = |power: &str| Some(json!({ "spec": { "powerState": power } }));
        let both = |power: &str, reason: Option<&str>| {
            Some(json!({ "spec": { "powerState": power }, "metadata": because(reason) }))
        };
        for (state, old, action, reason, expected) in [
            (Some("Hibernating"), None, Hibernating, None, None),           // H1
            (Some("Hibernating"), Some("a"), Hibernating, None, None),      // H1
            (Some("Hibernating"), Some("a"), Hibernating, Some("a"), None), // H1
            (Some("Running"), None, Running, None, None),                   // H1
            (Some(""), None, Running, None, None),                          // H1
            (None, None, Running, None, None),                              // H1
            (Some("Hibernating"), Some("a"), Hibernating, Some("b"), Some(json!({ "metadata": because(Some("b")) }))), // H2
            (None, None, Hibernating, Some("b"), both("Hibernating", Some("b"))), // H3
            (Some("Hibernating"), Some("a"), Running, Some("b"), both("Running", Some("b"))), // H3
            (Some("Hibernating"), Some("a"), Running, None, both("Running", None)), // H4
            (Some("Running"), None, Hibernating, None, patch("Hibernating")),     // H5
            (Some(""), None, Hibernating, None, patch("Hibernating")),            // H5
            (None, None, Hibernating, None, patch("Hibernating")),                // H5
        ] {
            let patch = planned(state, old, action, reason).map(|(patch, _)| patch);
            assert_eq!(patch, expected, "{state:?} {old:?} {action:?} {reason:?}");
        }
    }

    #[test]
    fn a_resume_of_a_cluster_that_runs_asks_for_a_check_of_its_machines() {
        use Power::{Hibernating, Running};
        let cluster = |desired: &str, ready: &str, edit: fn(&mut Value)| {
            let mut cluster = json!({
                "apiVersion": "hive.openshift.io/v1", "kind": "ClusterDeployment", "metadata": { "name": "demo" },
                "spec": {
                    "baseDomain": "d", "clusterName": "demo", "installed": true, "powerState": desired,
                    "platform": { "aws": { "region": "us-east-1" } },
                },
                "status": { "conditions": [{ "type": "Ready", "status": ready, "reason": "Running" }] },
            });
            edit(&mut cluster);
            cluster
        };
        let named = |action| intent(action, None, None);
        let paused: fn(&mut Value) =
            |cluster| cluster["metadata"]["annotations"] = json!({ "hive.openshift.io/reconcile-pause": "true" });
        let fake: fn(&mut Value) = |cluster| cluster["metadata"]["annotations"] = json!({ FAKE_CLUSTER: "true" });
        for (case, cluster, intent, asks) in [
            ("it runs", cluster("Running", "True", |_| {}), named(Running), true),
            ("the state is the default", cluster("", "True", |_| {}), named(Running), true),
            ("it wakes: the controller looks all the time", cluster("Running", "False", |_| {}), named(Running), false),
            (
                "it is one of many",
                cluster("Running", "True", |_| {}),
                Intent { queried: true, ..named(Running) },
                false,
            ),
            ("nobody looks at it", cluster("Running", "True", paused), named(Running), false),
            ("it has no machines", cluster("Running", "True", fake), named(Running), false),
            ("it sleeps", cluster("Hibernating", "True", |_| {}), named(Hibernating), false),
        ] {
            match change(&typed(&cluster), &intent) {
                Change::RequestCheck { patch, requested, message } => {
                    assert_eq!(requested, intent.now, "{case}");
                    let asked = json!({ "metadata": { "annotations": { keys::PREFLIGHT_REQUESTED_AT: NOW } } });
                    assert_eq!((asks, patch), (true, asked), "{case}");
                    assert_eq!(
                        message,
                        "already running; asked for a check of its machines, `status` shows the outcome"
                    );
                }
                Change::None { message, will_reach } => {
                    assert_eq!((asks, message.as_str(), will_reach), (false, "unchanged", true), "{case}");
                }
                Change::Patch { patch, .. } => panic!("{case}: {patch}"),
            }
        }
    }

    #[test]
    fn messages_say_what_was_asked_of_the_hub() {
        for (state, action, reason, expected) in [
            (None, Power::Hibernating, None, "hibernation requested"),
            (Some("Hibernating"), Power::Running, None, "resume requested"),
            (Some("Hibernating"), Power::Hibernating, Some("new"), "reason updated"),
        ] {
            assert_eq!(planned(state, None, action, reason).unwrap().1, expected);
        }
    }

    /// State, wake-at, hold-awake-until (by bob), what is wanted until when; what is patched and said.
    #[test]
    fn the_schedule_goes_with_the_state() {
        use Power::{Hibernating, Running};
        const ASLEEP: Option<&str> = Some("Hibernating");
        type Found<'a> = (Option<&'a str>, Option<&'a str>, Option<&'a str>);
        type Case<'a> = (Found<'a>, Power, Option<&'a str>, Option<Value>, &'a str);
        let wakes = |at: Option<&str>| Some(json!({ keys::WAKE_AT: at }));
        let held = |until: Option<&str>| Some(json!({ keys::HOLD_AWAKE_UNTIL: until, keys::HOLD_AWAKE_BY: null }));
        let cases: Vec<Case<'_>> = vec![
            ((None, None, None), Hibernating, Some(SOON), wakes(Some(SOON)), "hibernation requested, wakes at SOON"), // H6
            ((ASLEEP, None, None), Hibernating, Some(SOON), wakes(Some(SOON)), "wakes at SOON"), // H6
            ((ASLEEP, Some(SOON), None), Hibernating, Some(LATER), wakes(Some(LATER)), "wakes at LATER"), // H6
            ((ASLEEP, Some(SOON), None), Hibernating, Some(SOON), None, "unchanged, wakes at SOON"), // H6
            ((ASLEEP, Some(SOON), None), Hibernating, None, None, "unchanged, wakes at SOON"),
            ((None, Some(SOON), None), Hibernating, None, wakes(None), "hibernation requested"), // H7
            ((ASLEEP, Some(PAST), None), Hibernating, None, wakes(None), "stale schedule removed"), // H7
            ((None, None, Some(PAST)), Hibernating, None, held(None), "hibernation requested"),  // H8
            ((None, None, Some(NOW)), Hibernating, None, held(None), "hibernation requested"),   // H8
            ((None, None, Some(SOON)), Hibernating, None, None, "hibernation requested"),        // H8
            ((None, None, Some("till monday")), Hibernating, None, None, "hibernation requested"), // H8
            ((ASLEEP, Some(SOON), None), Running, None, wakes(None), "resume requested"),        // H9
            ((None, Some(PAST), None), Running, None, wakes(None), "stale schedule removed"),    // H9
            (
                (ASLEEP, None, Some(PAST)),
                Running,
                Some(SOON),
                held(Some(SOON)),
                "resume requested, held awake until SOON",
            ), // H10
            ((None, None, Some(SOON)), Running, Some(LATER), held(Some(LATER)), "held awake until LATER"), // H10
            ((None, None, Some(SOON)), Running, Some(SOON), None, "unchanged"),                  // H10
            ((ASLEEP, None, Some(PAST)), Running, None, held(None), "resume requested"),         // H11
            ((ASLEEP, None, Some(SOON)), Running, None, None, "resume requested"),               // H11
        ];
        for ((state, wake_at, hold), action, end, expected, detail) in cases {
            let mut cluster = json!({ "metadata": { "annotations": {} }, "spec": { "powerState": state } });
            for (key, value) in
                [(keys::WAKE_AT, wake_at), (keys::HOLD_AWAKE_UNTIL, hold), (keys::HOLD_AWAKE_BY, hold.map(|_| "bob"))]
            {
                if let Some(value) = value {
                    cluster["metadata"]["annotations"][key] = json!(value);
                }
            }
            let (patch, message) = match change(&typed(&cluster), &intent(action, None, end)) {
                Change::Patch { patch, message, .. } => (patch, message),
                Change::None { message, .. } | Change::RequestCheck { message, .. } => (Value::Null, message),
            };
            let annotations = patch.pointer("/metadata/annotations").cloned();
            let message = message.replace(SOON, "SOON").replace(LATER, "LATER");
            assert_eq!((annotations, message.as_str()), (expected, detail), "{cluster} {action:?} {end:?}");
            let changes = (state == ASLEEP) != (action == Hibernating);
            assert_eq!(patch.get("spec").is_some(), changes, "{cluster} {action:?} {end:?}");
        }
    }

    /// State, annotations, what is wanted until when; what is warned of.
    #[test]
    fn what_goes_against_others_is_warned_of() {
        use Power::{Hibernating, Running};
        let refused =
            |what: &str| format!("it is {what}: the webhook refuses this; without the webhook the cluster hibernates");
        let protected = refused("protected from sleep (hibernate.sh/protected)");
        let held = |until: &str| refused(&format!("held awake until {until} (hibernate.sh/hold-awake-until)"));
        let shortened = |by: &str| format!("this shortens the hold of {by}, which lasted until {LATER}");
        let bobs = |until: &str| json!({ keys::HOLD_AWAKE_UNTIL: until, keys::HOLD_AWAKE_BY: "bob" });
        for (state, found, action, end, expected) in [
            ("Running", json!({}), Hibernating, None, vec![]),
            ("Running", json!({ keys::PROTECTED: "true" }), Hibernating, None, vec![protected.clone()]),
            ("Running", json!({ keys::PROTECTED: "false" }), Hibernating, None, vec![]),
            ("Hibernating", json!({ keys::PROTECTED: "true" }), Hibernating, Some(SOON), vec![]),
            ("Hibernating", json!({ keys::PROTECTED: "true" }), Running, None, vec![]),
            ("Running", bobs(SOON), Hibernating, None, vec![held(&format!("{SOON} by bob"))]),
            ("Running", bobs("monday"), Hibernating, None, vec![held("\"monday\", which is not a time, by bob")]),
            ("Running", bobs(PAST), Hibernating, None, vec![]),
            (
                "Running",
                json!({ keys::HOLD_AWAKE_UNTIL: SOON, keys::PROTECTED: "true" }),
                Hibernating,
                None,
                vec![protected, held(&format!("{SOON} by an unknown user"))],
            ),
            ("Running", bobs(LATER), Running, Some(SOON), vec![shortened("bob")]),
            ("Running", bobs(LATER), Running, None, vec![]),
            ("Running", bobs(SOON), Running, Some(LATER), vec![]),
            ("Running", bobs(SOON), Running, Some(SOON), vec![]),
            (
                "Running",
                json!({ keys::HOLD_AWAKE_UNTIL: LATER }),
                Running,
                Some(SOON),
                vec![shortened("an unknown user")],
            ),
        ] {
            let cluster = json!({ "metadata": { "annotations": found }, "spec": { "powerState": state } });
            assert_eq!(
                warnings(&typed(&cluster), &intent(action, None, end)),
                expected,
                "{cluster} {action:?} {end:?}"
            );
        }
    }

    #[test]
    fn a_sleep_that_ends_by_itself_says_so_although_nothing_changes() {
        for (found, action, expected) in [
            (json!({}), Power::Hibernating, "unchanged"),
            (json!({ keys::WAKE_AT: SOON }), Power::Hibernating, "unchanged, wakes at 2026-11-22T08:00:00Z"),
            (json!({ keys::WAKE_AT: "monday" }), Power::Hibernating, "unchanged"),
            (json!({ keys::WAKE_AT: SOON }), Power::Running, "unchanged"),
        ] {
            let cluster = json!({ "metadata": { "annotations": found } });
            assert_eq!(unchanged(&typed(&cluster), &intent(action, None, None)), expected, "{cluster} {action:?}");
        }
    }

    /// State, annotations, what is wanted until when; whether the patch depends on what was read.
    #[test]
    fn a_schedule_is_removed_or_replaced_only_as_it_was_read() {
        use Power::{Hibernating, Running};
        const ASLEEP: &str = "Hibernating";
        for (state, found, action, end, guarded) in [
            ("Running", json!({}), Hibernating, None, false),
            ("Running", json!({}), Hibernating, Some(SOON), false), // nothing to lose
            ("Running", json!({ keys::REASON: "old" }), Hibernating, None, false), // a reason goes with its state
            ("Running", json!({ keys::HOLD_AWAKE_UNTIL: SOON }), Hibernating, None, false), // stays
            ("Running", json!({ keys::HOLD_AWAKE_UNTIL: PAST, keys::HOLD_AWAKE_BY: "bob" }), Hibernating, None, true), // H8
            ("Running", json!({ keys::WAKE_AT: SOON }), Hibernating, None, true), // H7
            (ASLEEP, json!({ keys::WAKE_AT: SOON }), Hibernating, Some(LATER), true), // H6
            (ASLEEP, json!({ keys::WAKE_AT: SOON }), Running, None, true),        // H9
            (ASLEEP, json!({}), Running, Some(SOON), false),                      // H10
            (ASLEEP, json!({ keys::HOLD_AWAKE_UNTIL: SOON }), Running, Some(LATER), true), // H10
            (ASLEEP, json!({ keys::HOLD_AWAKE_UNTIL: PAST }), Running, None, true), // H11
        ] {
            let cluster = json!({
                "metadata": { "resourceVersion": "7", "annotations": found }, "spec": { "powerState": state },
            });
            let Change::Patch { patch, .. } = change(&typed(&cluster), &intent(action, None, end)) else {
                panic!("{cluster}")
            };
            let version = patch.pointer("/metadata/resourceVersion").cloned();
            assert_eq!(version, guarded.then(|| json!("7")), "{cluster} {action:?} {end:?}");
        }
    }
}
