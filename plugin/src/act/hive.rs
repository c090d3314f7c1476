//! Intent on a `ClusterDeployment`: `spec.powerState` and the reason, nothing else. Who and when is the webhook's to stamp.

use serde_json::{Map, Value, json};
use shared::{keys, workload::replicas::annotation};

use super::{Plan, Wish};

/// | # | wanted | spec.powerState | reason | patch |
/// |---|---|---|---|---|
/// | H1 | as it is | as wanted | none given, or the one present | none |
/// | H2 | as it is | as wanted | another | the reason only |
/// | H3 | a change | the other | given | state and reason |
/// | H4 | a change | the other | none given, one present | state, and the old reason is removed |
/// | H5 | a change | the other | none | state |
///
/// Empty and absent are Running, as Hive reads them.
pub(super) fn plan(cluster: &Value, wish: Wish, reason: Option<&str>) -> Plan {
    let asleep = cluster.pointer("/spec/powerState").and_then(Value::as_str) == Some("Hibernating");
    let old_reason = annotation(cluster, keys::REASON);
    let changes = asleep != (wish == Wish::Sleep);
    let new_reason = match reason {
        Some(reason) if old_reason != Some(reason) => Some(json!(reason)), // H2, H3
        None if changes && old_reason.is_some() => Some(Value::Null),      // H4
        _ => None,                                                         // H1, H5
    };
    if !changes && new_reason.is_none() {
        return Plan::Unchanged; // H1
    }
    let mut patch = Map::new();
    if let Some(reason) = new_reason {
        patch.insert("metadata".to_owned(), json!({ "annotations": { keys::REASON: reason } }));
    }
    if changes {
        let state = if wish == Wish::Sleep { "Hibernating" } else { "Running" };
        patch.insert("spec".to_owned(), json!({ "powerState": state }));
    }
    let message = match wish {
        _ if !changes => "reason updated",
        Wish::Sleep => "hibernation requested",
        Wish::Wake => "resume requested",
    };
    Plan::Patch { patch: Value::Object(patch), message: message.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        match plan(&cluster, wish, reason) {
            Plan::Unchanged => None,
            Plan::Patch { patch, message } => Some((patch, message)),
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
}
