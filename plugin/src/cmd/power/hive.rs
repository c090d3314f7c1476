//! Intent on a `ClusterDeployment`: `spec.powerState`, the reason and the schedule, nothing else. Who and when is the webhook's
//! to stamp.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use shared::annotation::{
    Annotations, annotation, format,
    hold::{Hold, NAMELESS, hold, protected},
    keys,
};

use crate::cmd::power::{Asked, Plan, Wish};

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
/// What is removed or replaced of a schedule was judged as it was read, and somebody may have set another one since: such a
/// patch carries the resourceVersion that it was made from, so that the API server refuses it (409). All others do without.
pub(crate) fn plan(cluster: &Value, asked: &Asked<'_>) -> Plan {
    let asleep = is_asleep(cluster);
    let old_reason = annotation(cluster, keys::REASON);
    let changes = asleep != (asked.wish == Wish::Sleep);
    let mut annotations = schedule(cluster, asked, changes);
    let scheduled = !annotations.is_empty();
    let replaces = annotations.keys().any(|key| annotation(cluster, key).is_some());
    match asked.reason {
        Some(reason) if old_reason != Some(reason) => {
            annotations.insert(keys::REASON.to_owned(), json!(reason)); // H2, H3
        }
        None if changes && old_reason.is_some() => {
            annotations.insert(keys::REASON.to_owned(), Value::Null); // H4
        }
        _ => {} // H1, H5
    }
    if !changes && annotations.is_empty() {
        return Plan::Unchanged; // H1
    }
    let message = message(asked, changes, scheduled);
    let mut patch = Map::new();
    if !annotations.is_empty() {
        let mut metadata = json!({ "annotations": annotations });
        if let Some(version) = cluster.pointer("/metadata/resourceVersion").filter(|_| replaces) {
            metadata["resourceVersion"] = version.clone();
        }
        patch.insert("metadata".to_owned(), metadata);
    }
    if changes {
        let state = if asked.wish == Wish::Sleep { "Hibernating" } else { "Running" };
        patch.insert("spec".to_owned(), json!({ "powerState": state }));
    }
    Plan::Patch { patch: Value::Object(patch), message }
}

fn is_asleep(cluster: &Value) -> bool {
    cluster.pointer("/spec/powerState").and_then(Value::as_str) == Some("Hibernating")
}

/// What is said where nothing has to be written: that it wakes by itself all the same is easily overlooked.
pub(crate) fn unchanged(cluster: &Value, asked: &Asked<'_>) -> String {
    let wake = annotation(cluster, keys::WAKE_AT).and_then(format::time).filter(|_| asked.wish == Wish::Sleep);
    wake.map_or_else(|| "unchanged".to_owned(), |wake| format!("unchanged, wakes at {}", format::seconds(wake)))
}

/// What a change goes against, worth a warning: what the webhook refuses where there is one (its row V6), and the end of
/// somebody's hold before its time.
pub(crate) fn warnings(cluster: &Value, asked: &Asked<'_>) -> Vec<String> {
    const REFUSED: &str = "a webhook refuses this; without one it goes to sleep";
    let annotations = Annotations::deserialize(&cluster["metadata"]["annotations"]).unwrap_or_default();
    let hold = hold(&annotations, asked.now);
    let mut warnings = Vec::new();
    if asked.wish == Wish::Sleep && !is_asleep(cluster) {
        if protected(&annotations) {
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
    if let (Wish::Wake, Some(end), Hold::Until { until, by }) = (asked.wish, asked.end, hold)
        && until > end
    {
        let (by, until) = (by.unwrap_or(NAMELESS), format::seconds(until));
        warnings.push(format!("this shortens the hold of {by}, which lasted until {until}"));
    }
    warnings
}

/// H6 to H11.
fn schedule(cluster: &Value, asked: &Asked<'_>, changes: bool) -> Map<String, Value> {
    let found = |key: &str| annotation(cluster, key);
    let passed = |text: &str| format::time(text).is_some_and(|time| time <= asked.now);
    let mut edits = Map::new();
    let mut want = |key: &str, value: Option<String>| {
        if found(key) != value.as_deref() {
            edits.insert(key.to_owned(), value.map_or(Value::Null, Value::String));
        }
    };
    let end = asked.end.map(format::seconds);
    match (asked.wish, end) {
        (Wish::Sleep, Some(end)) => want(keys::WAKE_AT, Some(end)), // H6
        (Wish::Sleep, None) if changes || found(keys::WAKE_AT).is_some_and(passed) => want(keys::WAKE_AT, None), // H7
        (Wish::Sleep, None) => {}
        (Wish::Wake, None) => want(keys::WAKE_AT, None), // H9
        (Wish::Wake, Some(end)) => {
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
fn message(asked: &Asked<'_>, changes: bool, scheduled: bool) -> String {
    let time = |end: Timestamp| format::seconds(end);
    match (asked.wish, changes, asked.end) {
        (Wish::Sleep, true, Some(end)) => format!("hibernation requested, wakes at {}", time(end)),
        (Wish::Sleep, true, None) => "hibernation requested".to_owned(),
        (Wish::Wake, true, Some(end)) => format!("resume requested, held awake until {}", time(end)),
        (Wish::Wake, true, None) => "resume requested".to_owned(),
        (_, false, _) if !scheduled => "reason updated".to_owned(),
        (Wish::Sleep, false, Some(end)) => format!("wakes at {}", time(end)),
        (Wish::Wake, false, Some(end)) => format!("held awake until {}", time(end)),
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

    fn asked<'a>(wish: Wish, reason: Option<&'a str>, end: Option<&str>) -> Asked<'a> {
        let time = |text: &str| text.parse().unwrap();
        Asked { wish, reason, end: end.map(time), now: time(NOW), queried: false }
    }

    fn planned(
        state: Option<&str>,
        old_reason: Option<&str>,
        wish: Wish,
        reason: Option<&str>,
    ) -> Option<(Value, String)> {
        let mut cluster = json!({ "metadata": { "name": "demo" }, "spec": { "powerState": state } });
        if let Some(reason) = old_reason {
            cluster["metadata"]["annotations"] = json!({ keys::REASON: reason });
        }
        match plan(&cluster, &asked(wish, reason, None)) {
            Plan::Patch { patch, message } => Some((patch, message)),
            _ => None,
        }
    }

    #[test]
    fn patches_are_as_small_as_the_table_says() {
        use Wish::{Sleep, Wake};
        let sleep = json!({ "powerState": "Hibernating" });
        let wake = json!({ "powerState": "Running" });
        let because = |reason: Value| json!({ "annotations": { keys::REASON: reason } });
        for (state, old, wish, reason, expected) in [
            (Some("Hibernating"), None, Sleep, None, None),           // H1
            (Some("Hibernating"), Some("a"), Sleep, None, None),      // H1
            (Some("Hibernating"), Some("a"), Sleep, Some("a"), None), // H1
            (Some("Running"), None, Wake, None, None),                // H1
            (Some(""), None, Wake, None, None),                       // H1
            (None, None, Wake, None, None),                           // H1
            (Some("Hibernating"), Some("a"), Sleep, Some("b"), Some(json!({ "metadata": because(json!("b")) }))), // H2
            (None, None, Sleep, Some("b"), Some(json!({ "spec": sleep, "metadata": because(json!("b")) }))), // H3
            (
                Some("Hibernating"),
                Some("a"),
                Wake,
                Some("b"),
                Some(json!({ "spec": wake, "metadata": because(json!("b")) })),
            ), // H3
            (
                Some("Hibernating"),
                Some("a"),
                Wake,
                None,
                Some(json!({ "spec": wake, "metadata": because(Value::Null) })),
            ), // H4
            (Some("Running"), None, Sleep, None, Some(json!({ "spec": sleep }))), // H5
            (Some(""), None, Sleep, None, Some(json!({ "spec": sleep }))), // H5
            (None, None, Sleep, None, Some(json!({ "spec": sleep }))), // H5
        ] {
            let patch = planned(state, old, wish, reason).map(|(patch, _)| patch);
            assert_eq!(patch, expected, "{state:?} {old:?} {wish:?} {reason:?}");
        }
    }

    #[test]
    fn messages_say_what_was_asked_of_the_hub() {
        for (state, wish, reason, expected) in [
            (None, Wish::Sleep, None, "hibernation requested"),
            (Some("Hibernating"), Wish::Wake, None, "resume requested"),
            (Some("Hibernating"), Wish::Sleep, Some("new"), "reason updated"),
        ] {
            assert_eq!(planned(state, None, wish, reason).unwrap().1, expected);
        }
    }

    /// State, wake-at, hold-awake-until (by bob), what is wanted until when; what is patched and said.
    #[test]
    fn the_schedule_goes_with_the_state() {
        use Wish::{Sleep, Wake};
        const ASLEEP: Option<&str> = Some("Hibernating");
        type Found<'a> = (Option<&'a str>, Option<&'a str>, Option<&'a str>);
        type Case<'a> = (Found<'a>, Wish, Option<&'a str>, Option<Value>, &'a str);
        let edit = |key: &str, value: Option<&str>| json!({ key: value });
        let unheld = json!({ keys::HOLD_AWAKE_UNTIL: null, keys::HOLD_AWAKE_BY: null });
        let held = |until: &str| json!({ keys::HOLD_AWAKE_UNTIL: until, keys::HOLD_AWAKE_BY: null });
        let cases: Vec<Case<'_>> = vec![
            (
                (None, None, None),
                Sleep,
                Some(SOON),
                Some(edit(keys::WAKE_AT, Some(SOON))),
                "hibernation requested, wakes at 2026-11-22T08:00:00Z",
            ), // H6
            (
                (ASLEEP, None, None),
                Sleep,
                Some(SOON),
                Some(edit(keys::WAKE_AT, Some(SOON))),
                "wakes at 2026-11-22T08:00:00Z",
            ), // H6
            (
                (ASLEEP, Some(SOON), None),
                Sleep,
                Some(LATER),
                Some(edit(keys::WAKE_AT, Some(LATER))),
                "wakes at 2026-11-23T08:00:00Z",
            ), // H6
            ((ASLEEP, Some(SOON), None), Sleep, Some(SOON), None, "unchanged"), // H6
            ((ASLEEP, Some(SOON), None), Sleep, None, None, "unchanged"),
            ((None, Some(SOON), None), Sleep, None, Some(edit(keys::WAKE_AT, None)), "hibernation requested"), // H7
            ((ASLEEP, Some(PAST), None), Sleep, None, Some(edit(keys::WAKE_AT, None)), "stale schedule removed"), // H7
            ((None, None, Some(PAST)), Sleep, None, Some(unheld.clone()), "hibernation requested"),            // H8
            ((None, None, Some(NOW)), Sleep, None, Some(unheld.clone()), "hibernation requested"),             // H8
            ((None, None, Some(SOON)), Sleep, None, None, "hibernation requested"),                            // H8
            ((None, None, Some("till monday")), Sleep, None, None, "hibernation requested"),                   // H8
            ((ASLEEP, Some(SOON), None), Wake, None, Some(edit(keys::WAKE_AT, None)), "resume requested"),     // H9
            ((None, Some(PAST), None), Wake, None, Some(edit(keys::WAKE_AT, None)), "stale schedule removed"), // H9
            (
                (ASLEEP, None, Some(PAST)),
                Wake,
                Some(SOON),
                Some(held(SOON)),
                "resume requested, held awake until 2026-11-22T08:00:00Z",
            ), // H10
            ((None, None, Some(SOON)), Wake, Some(LATER), Some(held(LATER)), "held awake until 2026-11-23T08:00:00Z"), // H10
            ((None, None, Some(SOON)), Wake, Some(SOON), None, "unchanged"), // H10
            ((ASLEEP, None, Some(PAST)), Wake, None, Some(unheld), "resume requested"), // H11
            ((ASLEEP, None, Some(SOON)), Wake, None, None, "resume requested"), // H11
        ];
        for ((state, wake_at, hold), wish, end, expected, said) in cases {
            let mut cluster = json!({ "metadata": { "annotations": {} }, "spec": { "powerState": state } });
            for (key, value) in
                [(keys::WAKE_AT, wake_at), (keys::HOLD_AWAKE_UNTIL, hold), (keys::HOLD_AWAKE_BY, hold.map(|_| "bob"))]
            {
                if let Some(value) = value {
                    cluster["metadata"]["annotations"][key] = json!(value);
                }
            }
            let (patch, message) = match plan(&cluster, &asked(wish, None, end)) {
                Plan::Patch { patch, message } => (patch, message),
                _ => (Value::Null, "unchanged".to_owned()),
            };
            let annotations = patch.pointer("/metadata/annotations").cloned();
            assert_eq!((annotations, message.as_str()), (expected, said), "{cluster} {wish:?} {end:?}");
            let changes = (state == ASLEEP) != (wish == Sleep);
            assert_eq!(patch.get("spec").is_some(), changes, "{cluster} {wish:?} {end:?}");
        }
    }

    /// State, annotations, what is wanted until when; what is warned of.
    #[test]
    fn what_goes_against_others_is_warned_of() {
        use Wish::{Sleep, Wake};
        let refused = |what: &str| format!("it is {what}: a webhook refuses this; without one it goes to sleep");
        let protected = refused("protected from sleep (hibernate.sh/protected)");
        let held = |until: &str| refused(&format!("held awake until {until} (hibernate.sh/hold-awake-until)"));
        let shortened = |by: &str| format!("this shortens the hold of {by}, which lasted until {LATER}");
        let bobs = |until: &str| json!({ keys::HOLD_AWAKE_UNTIL: until, keys::HOLD_AWAKE_BY: "bob" });
        for (state, found, wish, end, expected) in [
            ("Running", json!({}), Sleep, None, vec![]),
            ("Running", json!({ keys::PROTECTED: "true" }), Sleep, None, vec![protected.clone()]),
            ("Running", json!({ keys::PROTECTED: "false" }), Sleep, None, vec![]),
            ("Hibernating", json!({ keys::PROTECTED: "true" }), Sleep, Some(SOON), vec![]),
            ("Hibernating", json!({ keys::PROTECTED: "true" }), Wake, None, vec![]),
            ("Running", bobs(SOON), Sleep, None, vec![held(&format!("{SOON} by bob"))]),
            ("Running", bobs("monday"), Sleep, None, vec![held("\"monday\", which is not a time, by bob")]),
            ("Running", bobs(PAST), Sleep, None, vec![]),
            (
                "Running",
                json!({ keys::HOLD_AWAKE_UNTIL: SOON, keys::PROTECTED: "true" }),
                Sleep,
                None,
                vec![protected, held(&format!("{SOON} by somebody who left no name"))],
            ),
            ("Running", bobs(LATER), Wake, Some(SOON), vec![shortened("bob")]),
            ("Running", bobs(LATER), Wake, None, vec![]),
            ("Running", bobs(SOON), Wake, Some(LATER), vec![]),
            ("Running", bobs(SOON), Wake, Some(SOON), vec![]),
            (
                "Running",
                json!({ keys::HOLD_AWAKE_UNTIL: LATER }),
                Wake,
                Some(SOON),
                vec![shortened("somebody who left no name")],
            ),
        ] {
            let cluster = json!({ "metadata": { "annotations": found }, "spec": { "powerState": state } });
            assert_eq!(warnings(&cluster, &asked(wish, None, end)), expected, "{cluster} {wish:?} {end:?}");
        }
    }

    #[test]
    fn a_sleep_that_ends_by_itself_says_so_although_nothing_changes() {
        for (found, wish, expected) in [
            (json!({}), Wish::Sleep, "unchanged"),
            (json!({ keys::WAKE_AT: SOON }), Wish::Sleep, "unchanged, wakes at 2026-11-22T08:00:00Z"),
            (json!({ keys::WAKE_AT: "monday" }), Wish::Sleep, "unchanged"),
            (json!({ keys::WAKE_AT: SOON }), Wish::Wake, "unchanged"),
        ] {
            let cluster = json!({ "metadata": { "annotations": found } });
            assert_eq!(unchanged(&cluster, &asked(wish, None, None)), expected, "{cluster} {wish:?}");
        }
    }

    /// State, annotations, what is wanted until when; whether the patch depends on what was read.
    #[test]
    fn a_schedule_is_removed_or_replaced_only_as_it_was_read() {
        use Wish::{Sleep, Wake};
        const ASLEEP: &str = "Hibernating";
        for (state, found, wish, end, guarded) in [
            ("Running", json!({}), Sleep, None, false),
            ("Running", json!({}), Sleep, Some(SOON), false), // nothing to lose
            ("Running", json!({ keys::REASON: "old" }), Sleep, None, false), // a reason goes with its state
            ("Running", json!({ keys::HOLD_AWAKE_UNTIL: SOON }), Sleep, None, false), // stays
            ("Running", json!({ keys::HOLD_AWAKE_UNTIL: PAST, keys::HOLD_AWAKE_BY: "bob" }), Sleep, None, true), // H8
            ("Running", json!({ keys::WAKE_AT: SOON }), Sleep, None, true), // H7
            (ASLEEP, json!({ keys::WAKE_AT: SOON }), Sleep, Some(LATER), true), // H6
            (ASLEEP, json!({ keys::WAKE_AT: SOON }), Wake, None, true), // H9
            (ASLEEP, json!({}), Wake, Some(SOON), false),     // H10
            (ASLEEP, json!({ keys::HOLD_AWAKE_UNTIL: SOON }), Wake, Some(LATER), true), // H10
            (ASLEEP, json!({ keys::HOLD_AWAKE_UNTIL: PAST }), Wake, None, true), // H11
        ] {
            let cluster = json!({
                "metadata": { "resourceVersion": "7", "annotations": found }, "spec": { "powerState": state },
            });
            let Plan::Patch { patch, .. } = plan(&cluster, &asked(wish, None, end)) else { panic!("{cluster}") };
            let version = patch.pointer("/metadata/resourceVersion").cloned();
            assert_eq!(version, guarded.then(|| json!("7")), "{cluster} {wish:?} {end:?}");
        }
    }
}
